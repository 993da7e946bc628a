"""Is a key that a server was asked for made once, and is it that of no other request?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kinds import name
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_bloomdupe import BloomDupeFilter

URL = "http://shop.example/item?id=7"


@pytest.fixture
def dupefilter(valkey: Any) -> Iterator[tuple[BloomDupeFilter, list[str]]]:
    """A filter with a shared store, and the URLs of which it has made keys."""
    settings = {"BLOOMDUPE_STORE": valkey.url, "BLOOMDUPE_KEY": name(), "DOWNLOAD_HANDLERS": {}}
    crawler = get_crawler(Spider, settings_dict=settings)
    crawler.spider = Spider("ahead")
    found = BloomDupeFilter.from_crawler(crawler)
    found.open()
    made: list[str] = []
    make = found._keys.fingerprint

    def counted(request: Request) -> bytes:
        made.append(request.url)
        return make(request)

    found._keys.fingerprint = counted  # type: ignore[method-assign]
    yield found, made
    found.close("finished")
    crawler.spider = None


def test_a_link_that_was_asked_ahead_has_its_key_made_once(
    dupefilter: tuple[BloomDupeFilter, list[str]],
) -> None:
    it, made = dupefilter
    assert it._key_ahead(Request(URL)) == it._key_ahead(Request(URL))
    assert not it.request_seen(Request(URL))
    assert [URL] == made
    assert it._key_ahead(Request(URL)) is None
    assert it.request_seen(Request(URL))
    assert [URL] == made


def test_what_was_asked_ahead_is_the_key_of_plain_requests_only(
    dupefilter: tuple[BloomDupeFilter, list[str]],
) -> None:
    it, _ = dupefilter
    assert it._key_ahead(Request(URL)) is not None
    post = Request(URL, method="POST", body=b"a=1")
    own = Request(URL, meta={"bloomdupe_key": "seven"})
    assert 3 == len({it._key_ahead(one) for one in (Request(URL), post, own)})
    assert [False, False, False] == [it.request_seen(one) for one in (post, own, Request(URL))]
    assert [True, True, True] == [
        it.request_seen(one.replace(meta=dict(one.meta))) for one in (post, own, Request(URL))
    ]


def test_keys_of_links_that_never_come_are_not_kept_for_ever(
    dupefilter: tuple[BloomDupeFilter, list[str]],
) -> None:
    it, _ = dupefilter
    for number in range(10_050):
        it._key_ahead(Request(f"{URL}{number}"))
    assert len(it._ahead) <= 10_000
