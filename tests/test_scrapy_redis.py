"""Is it the duplicate filter of scrapy-redis' scheduler, with its names, settings and habits?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, Crawl, filtering, idle_crawler
from fleets import EXTRA, Fleet, fleets
from killsite import ROOTS, Tree
from servers import Valkey

from scrapy_bloomdupe.scrapyredis import place

pytest.importorskip("scrapy_redis", reason="the package scrapy-redis is not installed (extra: test)")

TREE = Tree(80, 1, "ppppphocvd", extra=EXTRA)
SCHEDULER = {**FILTER, "SCHEDULER": "scrapy_redis.scheduler.Scheduler", "SCHEDULER_PERSIST": True}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Fleet]]:
    with fleets(tmp_path_factory.mktemp("fleets")) as make:
        yield make


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    folder = tmp_path / "server"
    folder.mkdir()
    with Valkey(folder) as valkey:
        yield valkey


def crawl(crawls: Fleet, **settings: Any) -> list[Crawl]:
    return crawls.run(prepare="fleets.leave_scrapy_redis_be", **settings)


def names(server: Valkey) -> set[bytes]:
    return {name.partition(b"{")[0] for name in server.client().keys("*")}


@pytest.mark.parametrize(
    "more",
    [{}, {"BLOOMDUPE_STORE": None}, {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}],
    ids=["exact", "filter alone", "add-on"],
)
@pytest.mark.parametrize("jobs", [False, True], ids=["", "JOBDIR"])
def test_two_workers_fetch_every_page_once(
    make: Callable[..., Fleet], tmp_path: Path, server: Valkey, more: dict[str, Any], jobs: bool
) -> None:
    crawls = make(tmp_path, TREE, {**SCHEDULER, "REDIS_URL": server.url, **more}, size=2, jobs=jobs)
    crawl(crawls)
    crawls.check()
    kept = names(server)
    assert any(name.startswith(b"plain:dupefilter:") for name in kept), kept
    for one in crawls.runs:
        assert 1 == len(one.lines("Seen-set: shared by")), one.log
        assert [] == one.lines("WARNING"), one.log
    # What is seen stays, and so a further crawl has nothing to do but its first pages.
    before = crawls.fetched()
    crawl(crawls)
    again = crawls.fetched() - before
    assert set(again) <= set(range(ROOTS))


def test_a_crawl_that_does_not_persist_leaves_nothing_on_the_server(
    make: Callable[..., Fleet], tmp_path: Path, server: Valkey
) -> None:
    settings = {**SCHEDULER, "REDIS_URL": server.url, "SCHEDULER_PERSIST": False}
    crawls = make(tmp_path, TREE, settings, size=1)
    crawl(crawls)
    crawls.check()
    assert set() == names(server)
    assert [] == crawls.runs[0].lines("ERROR")
    crawl(crawls)
    assert {2} == set(crawls.fetched().values())


def test_a_crawl_can_flush_what_was_seen_when_it_starts(
    make: Callable[..., Fleet], tmp_path: Path, server: Valkey
) -> None:
    crawls = make(tmp_path, TREE, {**SCHEDULER, "REDIS_URL": server.url}, size=1)
    crawl(crawls)
    crawl(crawls, SCHEDULER_FLUSH_ON_START=True)
    crawls.check(once=False)
    assert {2} == set(crawls.fetched().values())


def test_the_parameters_of_the_connection_are_scrapy_redis_own(
    make: Callable[..., Fleet], tmp_path: Path, server: Valkey
) -> None:
    server.client().config_set("requirepass", "open sesame")
    settings = {**SCHEDULER, "REDIS_PORT": server.port, "REDIS_PARAMS": {"password": "open sesame", "db": 3}}
    crawls = make(tmp_path, TREE, {**settings, "REDIS_HOST": "127.0.0.1"}, size=1)
    crawl(crawls)
    crawls.check()
    assert 0 < server.client(password="open sesame", db=3).dbsize()
    assert "sesame" not in "".join(crawls.runs[0].lines("Seen-set"))


def test_what_was_made_for_other_rules_refuses_the_start(
    make: Callable[..., Fleet], tmp_path: Path, server: Valkey
) -> None:
    crawls = make(tmp_path, TREE, {**SCHEDULER, "REDIS_URL": server.url}, size=1)
    crawl(crawls)
    rule = {"name": "item", "key": {"sources": ["query:id"]}}
    (refused,) = crawl(crawls, BLOOMDUPE_RULES=[rule])
    assert (1, "bloomdupe_refused") == (refused.code, refused.stats["finish_reason"]), refused.log
    assert 1 == len(refused.lines("The crawl does not start", "other rules")), refused.log


def test_the_filter_is_never_falsy(tmp_path: Path) -> None:
    # scrapy-redis makes another one of what is.
    with filtering(tmp_path) as (dupefilter, _):
        assert dupefilter
    assert dupefilter


@pytest.mark.parametrize(
    ("settings", "url", "key"),
    [
        ({}, "redis://127.0.0.1:6379/0", "%(spider)s:dupefilter"),
        ({"REDIS_URL": "redis://a/2", "REDIS_HOST": "b"}, "redis://a/2", "%(spider)s:dupefilter"),
        ({"REDIS_HOST": "b", "REDIS_PORT": 1, "REDIS_DB": 4}, "redis://b:1/4", "%(spider)s:dupefilter"),
        ({"REDIS_PARAMS": {"url": "redis://c/1"}}, "redis://c/1", "%(spider)s:dupefilter"),
        ({"REDIS_PARAMS": {"unix_socket_path": "/s"}}, "unix:///s?db=0", "%(spider)s:dupefilter"),
        (
            {"REDIS_PARAMS": {"username": "me", "password": "p@ss", "ssl": True}},
            "rediss://me:p%40ss@127.0.0.1:6379/0",
            "%(spider)s:dupefilter",
        ),
        ({"SCHEDULER_DUPEFILTER_KEY": "mine:%(spider)s"}, "redis://127.0.0.1:6379/0", "mine:%(spider)s"),
    ],
)
def test_its_settings_say_where_the_queue_is(settings: dict[str, Any], url: str, key: str) -> None:
    assert (url, key) == place(idle_crawler(**settings).settings)
