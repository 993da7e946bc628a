"""Does the filter let pass what has expired, was forgotten or is recorded, and nothing else? No crawl yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import filtering
from scrapy import Request
from scrapy.http import Response
from test_redirects import hop

from scrapy_bloomdupe import stats
from scrapy_bloomdupe.dupefilter import BloomDupeFilter
from scrapy_bloomdupe.errors import ConfigurationError, StoreError
from scrapy_bloomdupe.stores.lmdb import LmdbStore

LIST, PRODUCT = "http://shop.example/list/1", "http://shop.example/product/1"
LISTS = {"name": "lists", "match": {"path": "/list/*"}, "expire": "1h"}
RULES = {"BLOOMDUPE_RULES": [LISTS]}
ALL = {"BLOOMDUPE_EXPIRE": "1h"}
HOUR = 3600


class Clock:
    now = 1_700_000_000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(BloomDupeFilter, "clock", staticmethod(lambda: clock.now))
    return clock


def failing(error: Exception) -> Callable[..., Any]:
    def failing(*args: object, **kwargs: object) -> None:
        raise type(error)(*error.args)

    return failing


class Filter:
    """A filter, and what it counted."""

    def __init__(self, ours: BloomDupeFilter, count: Callable[[str], int]) -> None:
        self.ours, self.count = ours, count

    def passes(self, *urls: str, **options: Any) -> list[bool]:
        return [not self.ours.request_seen(Request(url, **options)) for url in urls]

    def takes(self, request: Request) -> bool:
        return not self.ours.request_seen(request)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Filter]]:
    open_ones = []

    def opened(**settings: Any) -> Filter:
        context = filtering(tmp_path, **settings)
        ours, counted = context.__enter__()
        open_ones.append(context)
        return Filter(ours, lambda name: counted.get_value(name, 0))

    yield opened
    for context in open_ones:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("cache", [0, 16_000_000])
def test_a_rule_says_which_pages_expire(opened: Callable[..., Filter], clock: Clock, cache: int) -> None:
    crawl = opened(**RULES, BLOOMDUPE_CACHE_SIZE=cache)
    assert [True, True, False, False, False] == crawl.passes(LIST, PRODUCT, LIST, PRODUCT, PRODUCT)
    clock.now += HOUR
    assert [True, False, False, False] == crawl.passes(LIST, LIST, PRODUCT, PRODUCT)
    # What can expire is never answered by its letters alone.
    assert (1, 4 if cache else 0) == (crawl.count("bloomdupe/expired"), crawl.count(stats.CACHED))
    assert 2 == crawl.count("bloomdupe/new")


def test_a_setting_is_for_all_pages_of_which_no_rule_says_otherwise(
    opened: Callable[..., Filter], clock: Clock
) -> None:
    crawl = opened(**RULES, BLOOMDUPE_EXPIRE="2h")
    crawl.passes(LIST, PRODUCT)
    clock.now += HOUR
    assert [True, False] == crawl.passes(LIST, PRODUCT)
    clock.now += HOUR
    assert [True, True] == crawl.passes(LIST, PRODUCT)
    assert [LIST, PRODUCT] == crawl.ours.unseen([LIST, PRODUCT])


def test_a_page_of_another_run_expires_too(tmp_path: Path, clock: Clock) -> None:
    for hours, seen in ((0, False), (0.5, True), (0.5, False), (0.9, True)):
        clock.now += hours * HOUR
        with filtering(tmp_path, **ALL) as (ours, _):
            assert seen is ours.request_seen(Request(LIST))


def test_a_state_without_expiry_gets_one_and_loses_it_again(tmp_path: Path, clock: Clock) -> None:
    for settings, seen in (({}, False), (RULES, False), ({}, True), (ALL, False)):
        with filtering(tmp_path, **settings) as (ours, _):
            assert seen is ours.request_seen(Request(LIST))
        clock.now += 0 if settings else HOUR


def test_a_rule_with_expiry_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught, filtering(tmp_path, **RULES, BLOOMDUPE_STORE=None):
        pass
    assert str(caught.value).startswith(
        "expire = '1h' of rule 'lists' needs an exact store of this crawl's own, which keeps the time of"
    )
    assert not (tmp_path / "bloomdupe").exists()


def test_in_a_dry_run_rules_let_nothing_expire_and_what_expires_was_not_merged(
    opened: Callable[..., Filter], clock: Clock
) -> None:
    item = {"name": "item", "key": {"sources": ["query:id"]}, "expire": "1m"}
    crawl = opened(BLOOMDUPE_RULES=[item], BLOOMDUPE_EXPIRE="1h", BLOOMDUPE_DRY_RUN=True)
    url = "http://shop.example/?id=5"
    assert [True] == crawl.passes(url)
    clock.now += 60
    assert [False] == crawl.passes(url)
    clock.now += HOUR
    assert [True, True] == crawl.passes(url, f"{url}&x=1")
    assert (1, 1) == (crawl.count("bloomdupe/expired"), crawl.count(stats.DRY_RUN_MERGED))


def test_what_an_expired_page_redirects_to_goes_with_it(opened: Callable[..., Filter], clock: Clock) -> None:
    crawl = opened(**ALL)

    def chain() -> bool:
        first = Request(LIST)
        assert crawl.takes(first)
        clock.now += 9
        return crawl.takes(hop(first, PRODUCT))

    assert chain()
    clock.now += HOUR - 4
    # Seen an hour and five seconds ago, its target 56 seconds less than that.
    assert [False] == crawl.passes(PRODUCT)
    assert chain()
    assert [False, False] == crawl.passes(LIST, PRODUCT)
    assert 2 == crawl.count("bloomdupe/expired")


def test_a_new_page_that_redirects_to_a_known_one_is_a_duplicate_as_ever(
    opened: Callable[..., Filter], clock: Clock
) -> None:
    crawl = opened(**ALL)
    crawl.passes(PRODUCT)
    clock.now += 9
    first = Request(LIST)
    assert [True, False] == [crawl.takes(first), crawl.takes(hop(first, PRODUCT))]


def test_what_is_redirected_to_itself_has_its_passes_each_time_it_expires(
    opened: Callable[..., Filter], clock: Clock
) -> None:
    crawl = opened(**ALL, REDIRECT_MAX_TIMES=2)
    for _ in range(5):
        first = Request(LIST)
        second = hop(first, LIST)
        assert [True, True, True] == [crawl.takes(one) for one in (first, second, hop(second, LIST))]
        assert [False] == crawl.passes(LIST)
        clock.now += HOUR
    assert (4, 10) == (crawl.count("bloomdupe/expired"), crawl.count(stats.REDIRECT_PASS))


def test_a_copy_of_the_meta_of_an_expired_page_makes_nothing_else_pass(
    opened: Callable[..., Filter], clock: Clock
) -> None:
    crawl = opened(**ALL)
    crawl.passes(LIST)
    clock.now += HOUR - 10
    crawl.passes(PRODUCT)
    clock.now += 10
    first = Request(LIST)
    assert crawl.takes(first)
    crawl.ours._redirects.response_received(Response(LIST, request=first), first)
    clock.now += 10
    assert [False] == crawl.passes(PRODUCT, meta=first.meta)
    link = Request("http://shop.example/other", meta=first.meta)
    assert [True, False] == [crawl.takes(link), crawl.takes(hop(link, PRODUCT))]


def test_a_page_is_forgotten_and_passes_once(opened: Callable[..., Filter]) -> None:
    crawl = opened()
    crawl.passes(LIST, PRODUCT, LIST)
    assert crawl.ours.forget(Request(f"{LIST}#top"))
    assert [True, False, False] == crawl.passes(LIST, LIST, PRODUCT)
    assert 1 == crawl.count(stats.FORGOTTEN)


def test_a_filter_alone_says_that_it_cannot_forget(opened: Callable[..., Filter]) -> None:
    crawl = opened(BLOOMDUPE_STORE=None)
    crawl.passes(LIST)
    assert not crawl.ours.forget(Request(LIST))
    assert [False] == crawl.passes(LIST)


def test_what_is_never_a_duplicate_is_new_already(opened: Callable[..., Filter]) -> None:
    crawl = opened(BLOOMDUPE_RULES=[{"name": "kept", "key": {"sources": ["query:id"]}, "missing": "keep"}])
    assert crawl.ours.forget(Request(LIST))


def test_a_store_that_fails_forgets_nothing_and_it_is_counted(
    opened: Callable[..., Filter], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object) -> None:
        raise StoreError(5, "Input/output error")

    crawl = opened()
    crawl.passes(LIST)
    monkeypatch.setattr(LmdbStore, "remove", failing)
    assert not crawl.ours.forget(Request(LIST))
    assert (1, 0) == (crawl.count(stats.ERROR_CHECK), crawl.count(stats.FORGOTTEN))


def test_a_filter_that_is_closed_forgets_nothing(tmp_path: Path) -> None:
    with filtering(tmp_path) as (ours, _):
        pass
    assert not ours.forget(Request(LIST))


@pytest.mark.parametrize("store", ["lmdb", None])
def test_what_is_recorded_passes_and_is_remembered(opened: Callable[..., Filter], store: str | None) -> None:
    crawl, meta = opened(BLOOMDUPE_STORE=store), {"bloomdupe": "record"}
    assert [True, True] == [crawl.passes(LIST, meta=dict(meta))[0] for _ in range(2)]
    assert [False, True] == crawl.passes(LIST, PRODUCT)
    assert [True, False] == [crawl.passes(PRODUCT, meta=dict(meta))[0], crawl.passes(PRODUCT)[0]]
    assert 3 == crawl.count(stats.RECORDED)


def test_a_recorded_page_was_seen_when_it_was_recorded_last(
    opened: Callable[..., Filter], clock: Clock
) -> None:
    crawl = opened(**ALL)
    for _ in range(3):
        assert [True] == crawl.passes(LIST, meta={"bloomdupe": "record"})
        clock.now += HOUR - 1
    assert [False] == crawl.passes(LIST)
    clock.now += 1
    assert [True] == crawl.passes(LIST)


def test_its_retries_and_redirects_pass_and_what_copies_its_meta_does_not(
    opened: Callable[..., Filter],
) -> None:
    crawl = opened()
    crawl.passes(PRODUCT)
    first = Request(LIST, meta={"bloomdupe": "record"})
    assert crawl.takes(first)
    redirected = hop(first, PRODUCT)
    assert [True, True] == [crawl.takes(first.copy()), crawl.takes(redirected)]
    # An errback's copy, before there is a response.
    assert [False] == crawl.passes(PRODUCT, meta=first.meta)
    recorder = crawl.ours._recorder
    assert recorder is not None
    recorder.response_received(Response(LIST, request=first), first)
    assert [False, False] == crawl.passes(LIST, PRODUCT, meta=first.meta)


@pytest.mark.parametrize("value", [True, "Record", None, ["record"]])
def test_another_value_means_nothing(opened: Callable[..., Filter], value: object) -> None:
    crawl = opened()
    assert [True, False] == crawl.passes(LIST, LIST, meta={"bloomdupe": value})


def test_what_cannot_be_recorded_passes_and_is_counted(
    opened: Callable[..., Filter], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object) -> None:
        raise StoreError(5, "Input/output error")

    crawl = opened()
    monkeypatch.setattr(LmdbStore, "put", failing)
    assert [True] == crawl.passes(LIST, meta={"bloomdupe": "record"})
    assert (1, 0) == (crawl.count(stats.ERROR_CHECK), crawl.count(stats.RECORDED))
