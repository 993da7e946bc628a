"""Does sharing change nothing about the ways of a request but whether it is a duplicate?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import ASYNCIO, FILTER, SELECT, run
from kinds import name
from mocksite import Area, Site, mock_site
from servers import Proxy, Valkey

ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def area(site: Site) -> Area:
    return site.area()


@pytest.fixture
def shared(valkey: Valkey) -> dict[str, Any]:
    return {**FILTER, "BLOOMDUPE_FILTER": f"{valkey.url}?timeout=5", "BLOOMDUPE_KEY": name()}


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT], ids=["asyncio", "select"])
@pytest.mark.parametrize("addon", [False, True], ids=["alone", "add-on"])
@pytest.mark.parametrize("spider", ["InTurn", "InTurnWaiting"])
def test_items_and_requests_of_a_page_keep_their_order(
    area: Area, shared: dict[str, Any], tmp_path: Path, reactor: str, addon: bool, spider: str
) -> None:
    if addon:
        del shared["DUPEFILTER_CLASS"]
        shared |= ADDON
    paths = [f"page/{number}" for number in range(7)]
    settings = {**shared, "TWISTED_REACTOR": reactor, "CONCURRENT_REQUESTS": 1}
    crawl = run(tmp_path, settings, spider=f"sharedspiders.{spider}", start=[area.links(*paths)])
    start = area.links(*paths)
    expected = [start, start]
    for number, path in enumerate(paths):
        expected += [f"{start} {number}", area.at(path)]
    assert expected == crawl.stats["test/order"], crawl.log
    assert dict.fromkeys(paths, 1) == area.fetched()
    assert 8 == crawl.stats["bloomdupe/new"]
    assert [] == crawl.lines("ERROR")


def test_a_page_is_asked_for_in_one_round_trip(area: Area, shared: dict[str, Any], tmp_path: Path) -> None:
    crawl = run(tmp_path, shared, start=[area.at("many/100")])
    # With its start request, which comes alone.
    assert (2, 101) == (crawl.stats["bloomdupe/server/asked"], crawl.stats["bloomdupe/server/keys"])
    assert 101 == len(crawl.items)
    assert "bloomdupe/server/unused" not in crawl.stats


@pytest.mark.parametrize("kind", ["filter", "filter and store"])
def test_what_goes_past_the_callbacks_is_judged_too(
    area: Area, shared: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    if kind == "filter":
        shared["BLOOMDUPE_STORE"] = None
    start = area.links("known", "Redirected", "redirected", "broken/1", "again")
    arguments = {
        "start": [start],
        "known": area.at("known"),
        "fresh": area.at("fresh"),
        "again": area.at("again"),
    }
    settings = {**shared, "RETRY_TIMES": 2, "RETRY_PRIORITY_ADJUST": 0}
    run(tmp_path, settings, spider="sharedspiders.Around", **arguments)
    once = {"known": 1, "fresh": 1, "Redirected": 1, "redirected": 1, "broken/1": 3, "again": 3}
    assert once == area.fetched()
    # Another crawl, which has seen nothing itself.
    other = area.links("known", "Redirected", "Redirected?next=redirected", "broken/1", "fresh")
    arguments["start"] = [other]
    run(tmp_path, settings, spider="sharedspiders.Around", **arguments)
    assert {**once, "again": 5, "Redirected?next=redirected": 1} == area.fetched()


def test_crawls_with_the_same_rules_share_what_is_one_product(
    area: Area, shared: dict[str, Any], tmp_path: Path
) -> None:
    rule = {"name": "item", "match": {"path": "*/item*"}, "key": {"sources": ["query:id"]}}
    del shared["DUPEFILTER_CLASS"]
    settings = {**shared, **ADDON, "BLOOMDUPE_RULES": [rule]}
    run(tmp_path, settings, start=[area.links("item?id=1&a=1", "item?id=2", "item?id=1&a=2")])
    run(tmp_path, settings, start=[area.links("item?x=3&id=2", "item?id=3", "item?id=1")])
    assert {"item?id=1&a=1": 1, "item?id=2": 1, "item?id=3": 1} == area.fetched()
    # Other rules make other keys: they do not share.
    refused = run(tmp_path, {**settings, "BLOOMDUPE_RULES": []}, start=[area.links("item?id=9")])
    assert (1, "bloomdupe_refused") == (refused.code, refused.stats["finish_reason"])
    assert 1 == len(refused.lines("its keys were made by other rules than this crawl has"))


if sys.version_info >= (3, 11):  # asyncio.timeout

    def test_a_time_limit_of_a_callback_ends_what_it_waits_for_and_not_its_page(
        area: Area, shared: dict[str, Any], valkey: Valkey, tmp_path: Path
    ) -> None:
        with Proxy(valkey.port) as proxy:
            proxy.delay = 0.03
            shared["BLOOMDUPE_FILTER"] = f"{proxy.url}?timeout=5"
            paths = [f"page/{number}" for number in range(5)]
            crawl = run(tmp_path, shared, spider="sharedspiders.Limited", start=[area.links(*paths)])
        assert dict.fromkeys(paths, 1) == area.fetched()
        assert sorted(["in time", *map(area.at, paths)]) == crawl.urls
        assert [] == crawl.lines("ERROR")


@pytest.mark.parametrize(
    ("prepare", "settings", "said"),
    [
        ("without_redis", {"BLOOMDUPE_FILTER": "redis://127.0.0.1"}, "pip install scrapy-bloomdupe[redis]"),
        ("without_redis", {"BLOOMDUPE_STORE": "redis://127.0.0.1"}, "pip install scrapy-bloomdupe[redis]"),
        ("without_sql", {"BLOOMDUPE_STORE": "sqlite:///a.db"}, "pip install scrapy-bloomdupe[sql]"),
    ],
)
def test_without_the_extra_the_crawl_does_not_start_and_says_which_one_to_install(
    tmp_path: Path, area: Area, prepare: str, settings: dict[str, Any], said: str
) -> None:
    crawl = run(tmp_path, {**FILTER, **settings}, prepare=f"sharedspiders.{prepare}", start=[area.at("page")])
    assert (1, "bloomdupe_refused") == (crawl.code, crawl.stats["finish_reason"])
    assert 1 == len(crawl.lines("The crawl does not start", said)), crawl.log
    assert {} == area.fetched()


def test_without_the_extras_a_crawl_that_shares_nothing_needs_none(tmp_path: Path, area: Area) -> None:
    crawl = run(tmp_path, FILTER, prepare="sharedspiders.without_redis", start=[area.links("page")])
    assert (0, {"page": 1}) == (crawl.code, area.fetched())
