"""Does a URL that was just seen need a key, is that exact, and does it end when a key is made new again?"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, FollowAll, filtering, run
from hypothesis import given
from hypothesis import strategies as st
from mocksite import mock_site
from scrapy import Request
from scrapy.link import Link

from scrapy_bloomdupe import stats, unseen
from scrapy_bloomdupe.rawfront import UNKNOWN, RawFront
from scrapy_bloomdupe.rules.ruleset import RuleSet

URL = "http://a.example/page?b=1&a=2"


class WithHeaders:
    """A fingerprinter that tells requests by more than their URL."""

    def fingerprint(self, request: Request) -> bytes:
        return repr((request.url, request.headers.to_unicode_dict())).encode()[:20].ljust(20)


@given(st.lists(st.text(alphabet="ab", max_size=4), max_size=200), st.integers(0, 4000))
def test_what_it_knows_was_put_and_what_was_put_last_is_known(urls: list[str], size: int) -> None:
    front, put = RawFront(size), set()
    for url in urls:
        assert front.find(url) is UNKNOWN or url in put
        front.put(url, None)
        put.add(url)
        assert size < 2 or front.find(url) is None
    front.clear()
    assert all(front.find(url) is UNKNOWN for url in put)


def test_it_keeps_within_its_bytes_and_forgets_what_was_not_asked_for_longest() -> None:
    front = RawFront(100_000)
    front.put("first", None)
    for number in range(10_000):
        front.put(f"http://a.example/{number}", None)
        if number % 100 == 0:
            assert front.find("first") is None
    assert len(front) < 100_000 / 160
    assert front.find("http://a.example/0") is UNKNOWN
    front.put("x" * 5000, None)
    assert front.find("x" * 5000) is UNKNOWN


def test_what_the_rules_said_counts_among_its_bytes() -> None:
    front, rules = RawFront(1_000_000), RuleSet.load(preset="usual")
    tracemalloc.start()
    try:
        for number in range(10_000):
            url = f"http://a.example/{number}?id=p{number}"
            decision = rules.decide(url)
            decision.digest()
            front.put(url, decision)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # Besides it the caches of steps and hosts.
    assert held < 1_300_000
    assert len(front) > 1_000


def test_with_no_bytes_it_keeps_nothing() -> None:
    front = RawFront(0)
    front.put(URL, None)
    assert (UNKNOWN, 0) == (front.find(URL), len(front))


def test_the_same_letters_are_known_and_counted_other_spellings_are_judged(tmp_path: Path) -> None:
    with filtering(tmp_path) as (ours, counted):
        seen = [ours.request_seen(Request(url)) for url in (URL, URL, URL, URL.replace("b=1&a=2", "a=2&b=1"))]
        assert [False, True, True, True] == seen
        assert (1, 3, 2) == tuple(
            counted.get_value(name) for name in ("bloomdupe/new", "bloomdupe/duplicate", stats.CACHED)
        )


@pytest.mark.parametrize(
    "other",
    [
        {"method": "POST"},
        {"body": b"x"},
        {"meta": {"bloomdupe_key": "another"}},
        {"meta": {"verbatim_url": True}, "url": URL + "#fragment"},
    ],
    ids=["method", "body", "key", "verbatim"],
)
def test_a_request_that_is_more_than_its_url_is_judged_by_its_key(other: dict[str, Any]) -> None:
    with filtering(None) as (ours, counted):
        assert [False, True] == [ours.request_seen(Request(URL)) for _ in range(2)]
        assert not ours.request_seen(Request(**{"url": URL, **other}))
        assert 1 == counted.get_value(stats.CACHED)


def test_a_project_with_its_own_fingerprinter_is_asked_every_time() -> None:
    with filtering(None, REQUEST_FINGERPRINTER_CLASS=WithHeaders) as (ours, counted):
        assert not ours.request_seen(Request("http://a.example/", headers={"A": "1"}))
        assert ours.request_seen(Request("http://a.example/", headers={"A": "1"}))
        assert counted.get_value(stats.CACHED) is None


def test_a_key_that_is_forgotten_is_new_for_its_url_too(tmp_path: Path) -> None:
    with filtering(tmp_path) as (ours, _):
        assert [False, True] == [ours.request_seen(Request(URL)) for _ in range(2)]
        assert ours._state is not None
        assert ours._state.seen.forget(ours._keys.fingerprint(Request(URL)))
        assert [False, True] == [ours.request_seen(Request(URL)) for _ in range(2)]


def test_without_a_cache_the_verdicts_are_the_same(tmp_path: Path) -> None:
    urls = [f"http://a.example/{number % 7}" for number in range(50)]
    with (
        filtering(tmp_path / "a") as (ours, _),
        filtering(tmp_path / "b", BLOOMDUPE_CACHE_SIZE=0) as (other, _),
    ):
        assert [other.request_seen(Request(url)) for url in urls] == [
            ours.request_seen(Request(url)) for url in urls
        ]


def test_links_that_are_known_are_dropped_before_a_request_is_made_and_counted() -> None:
    with filtering(None) as (ours, counted):
        ours.request_seen(Request(URL))
        links = [URL, Link(URL), "http://a.example/new", Link("http://a.example/other")]
        assert links[2:] == ours.unseen(links)
        assert 2 == counted.get_value("dupefilter/filtered") == counted.get_value(stats.CACHED)


class Picky(FollowAll):
    """Makes requests of unseen links only."""

    name = "picky"

    def parse(self, response: Any, **kwargs: Any) -> Any:
        yield {"url": response.url}
        hrefs = response.css("a::attr(href)").getall()
        for url in unseen(self, [response.urljoin(href) for href in hrefs]):
            yield response.follow(url)


def test_a_spider_that_drops_known_links_crawls_the_same_pages(tmp_path: Path) -> None:
    with mock_site(tmp_path) as site:
        plain, picky = site.area(), site.area()
        for area, spider in ((plain, "crawling.FollowAll"), (picky, f"{__name__}.Picky")):
            settings = {**FILTER, "JOBDIR": str(tmp_path / spider)}
            crawl = run(tmp_path, settings, spider=spider, start=[area.at("tree/60/0")])
            assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"])
            filtered = crawl.stats["dupefilter/filtered"]
            assert filtered == crawl.stats["bloomdupe/duplicate"] > 60
        assert plain.fetched() == picky.fetched()
