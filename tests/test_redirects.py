"""Which duplicates are the target of their own redirect, and which only look like it?"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crawling import filtering
from scrapy import Request
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.utils.request import RequestFingerprinter, fingerprint

from scrapy_bloomdupe import BloomDupeFilter, stats
from scrapy_bloomdupe.keys import RequestKeys
from scrapy_bloomdupe.redirects import RedirectPasses

HERE = "http://shop.example/here"
MAX_TIMES = 4


class NoScheme:
    """Knows no scheme, and no page with "raise" in its path."""

    def fingerprint(self, request: Request) -> bytes:
        if "raise" in request.url:
            raise ZeroDivisionError("not today")
        return fingerprint(request.replace(url=request.url.replace("https:", "http:", 1)))


def hop(request: Request, url: str) -> Request:
    """What Scrapy's redirect middlewares make of *request* when it is sent on to *url*."""
    meta = request.meta
    times = meta.get("redirect_times", 0) + 1
    ttl = meta.setdefault("redirect_ttl", MAX_TIMES)
    urls = [*meta.get("redirect_urls", []), request.url]
    redirected = request.replace(url=url)
    redirected.meta.update(redirect_times=times, redirect_ttl=ttl - 1, redirect_urls=urls)
    return redirected


class Crawl:
    """A crawl reduced to what a duplicate filter sees of it."""

    def __init__(self, dupefilter: BloomDupeFilter, count: Callable[[str], int]) -> None:
        self._filter = dupefilter
        self.count = count

    def asks(self, request: Request) -> bool:
        """Whether the scheduler takes *request*."""
        return not self._filter.request_seen(request)

    def receives(self, request: Request) -> Response:
        response = Response(request.url, request=request)
        self._filter._redirects.response_received(response, request)
        return response


@pytest.fixture
def crawl() -> Iterator[Crawl]:
    settings = {"REQUEST_FINGERPRINTER_CLASS": NoScheme, "REDIRECT_MAX_TIMES": MAX_TIMES}
    with filtering(None, **settings) as (ours, counted):
        yield Crawl(ours, lambda name: counted.get_value(name, 0))


def test_a_redirect_to_itself_passes_and_is_counted_as_a_duplicate_that_passed(crawl: Crawl) -> None:
    first = Request(HERE)
    assert crawl.asks(first)
    assert crawl.asks(hop(first, HERE))
    assert (1, 1) == (crawl.count("bloomdupe/duplicate"), crawl.count(stats.REDIRECT_PASS))
    assert not crawl.asks(Request(HERE))


def test_a_redirect_to_https_passes_where_the_fingerprinter_ignores_the_scheme(crawl: Crawl) -> None:
    first = Request(HERE)
    assert crawl.asks(first)
    assert crawl.asks(hop(first, HERE.replace("http:", "https:")))
    assert not crawl.asks(Request(HERE.replace("http:", "https:")))


def test_every_hop_of_a_chain_passes(crawl: Crawl) -> None:
    request = Request(HERE)
    assert crawl.asks(request)
    for _ in range(MAX_TIMES):
        request = hop(request, HERE)
        assert crawl.asks(request)
    assert MAX_TIMES == crawl.count(stats.REDIRECT_PASS)


def test_a_redirect_to_another_page_that_was_seen_is_a_duplicate(crawl: Crawl) -> None:
    first = Request(HERE)
    assert crawl.asks(first)
    assert crawl.asks(Request("http://shop.example/there"))
    assert not crawl.asks(hop(first, "http://shop.example/there"))
    assert crawl.asks(hop(first, "http://shop.example/new"))
    assert 0 == crawl.count(stats.REDIRECT_PASS)


def test_a_redirect_there_and_back_again_passes(crawl: Crawl) -> None:
    first = Request(HERE)
    assert crawl.asks(first)
    there = hop(first, "http://shop.example/cookie")
    assert crawl.asks(there)
    assert crawl.asks(hop(there, HERE))


def test_a_form_that_is_answered_by_a_redirect_to_a_page_that_was_seen_is_a_duplicate(crawl: Crawl) -> None:
    assert crawl.asks(Request(HERE))
    form = Request(HERE, method="POST", body=b"a=1")
    assert crawl.asks(form)
    # 302 and 303 make a GET of a POST: another key than that of the hop before.
    assert not crawl.asks(hop(form, HERE).replace(method="GET", body=b""))


@pytest.mark.parametrize(
    "copied",
    [lambda meta: meta, dict, copy.deepcopy, lambda meta: pickle.loads(pickle.dumps(meta))],
    ids=["same", "dict", "deepcopy", "disk queue"],
)
def test_copied_meta_gives_no_pass(crawl: Crawl, copied: Callable[[Any], Any]) -> None:
    first = Request(HERE)
    assert crawl.asks(first)
    second = hop(first, HERE)
    assert crawl.asks(second)
    response = crawl.receives(second)
    assert [False] * 50 == [crawl.asks(Request(HERE, meta=copied(response.meta))) for _ in range(50)]


def test_a_request_with_copied_meta_is_let_through_its_own_redirects(crawl: Crawl) -> None:
    first = Request(HERE)
    assert crawl.asks(first)
    second = hop(first, HERE)
    assert crawl.asks(second)
    other = Request("http://shop.example/other", meta=crawl.receives(second).meta)
    assert crawl.asks(other)
    again = hop(other, other.url)
    assert crawl.asks(again)
    assert not crawl.asks(Request(other.url, meta=crawl.receives(again).meta))


def test_the_way_that_was_copied_is_not_the_way_of_the_request(crawl: Crawl) -> None:
    first = Request(HERE)
    assert crawl.asks(first)
    second = hop(first, HERE)
    assert crawl.asks(second)
    other = Request("http://shop.example/other", meta=crawl.receives(second).meta)
    assert crawl.asks(other)
    assert not crawl.asks(hop(other, HERE))


@pytest.mark.parametrize(
    "meta",
    [
        {"redirect_urls": [HERE]},
        {"redirect_urls": [HERE], "redirect_times": 1},
        {"redirect_urls": [HERE], "redirect_ttl": 1, "redirect_times": 2},
        {"redirect_urls": [], "redirect_ttl": 1, "redirect_times": 0},
        {"redirect_urls": None},
    ],
)
def test_meta_that_no_redirect_of_scrapy_makes_gives_no_pass(crawl: Crawl, meta: dict[str, Any]) -> None:
    assert crawl.asks(Request(HERE))
    assert not crawl.asks(Request(HERE, meta=meta))


def test_no_key_passes_more_often_than_a_chain_is_long_and_others_do_not_pay_for_it(crawl: Crawl) -> None:
    forged = {"redirect_urls": [HERE], "redirect_ttl": 1, "redirect_times": 1}
    assert crawl.asks(Request(HERE))
    assert [True] * MAX_TIMES + [False] * 50 == [
        crawl.asks(Request(HERE, meta=forged)) for _ in range(MAX_TIMES + 50)
    ]
    other = Request("http://shop.example/other")
    assert crawl.asks(other)
    assert crawl.asks(hop(other, other.url))


def test_a_hop_whose_key_cannot_be_made_lets_the_request_pass_and_is_counted(crawl: Crawl) -> None:
    assert crawl.asks(Request(HERE))
    broken = hop(Request("http://shop.example/raise"), HERE)
    assert crawl.asks(broken)
    assert 1 == crawl.count(stats.ERROR_KEY)


def test_passes_are_remembered_for_a_bounded_number_of_keys() -> None:
    keys = RequestKeys(RequestFingerprinter())
    passes = RedirectPasses.from_settings(keys, Settings({"REDIRECT_MAX_TIMES": 1}))
    for number in range(10_100):
        request = Request(f"http://shop.example/{number}")
        assert passes.allows(hop(request, request.url), keys.key(request))
    assert 10_000 == len(passes._granted)
