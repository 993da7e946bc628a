"""Does a crawl make the filter anew that it shares, when that has many layers, by itself and in order?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crawling import idle_crawler
from kinds import key, name, url_for

import scrapy_bloomdupe.remote.replacing as replacing
import scrapy_bloomdupe.sharedrenewing as sharedrenewing
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import FilterError
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.shared.opening import open_shared
from scrapy_bloomdupe.shared.options import SharedOptions
from scrapy_bloomdupe.shared.parts import SharedParts
from scrapy_bloomdupe.sharedrenewing import SharedRenewer
from scrapy_bloomdupe.watch import Watch

KEYS = [key(number) for number in range(700)]


class Worker:
    """A shared filter of four layers with its store, and what makes it anew."""

    def __init__(self, url: str, store: str, layers: int = 3, prefix: str = "") -> None:
        self.options = SharedOptions(url, store, "positives", prefix or name(), "pass", 100, 1e-4, layers)
        self.parts: SharedParts = open_shared(self.options, spider="s", identity={})[0]
        self.crawler = idle_crawler()
        self.renewer = SharedRenewer(self.parts, self.options, "s", Watch(self.crawler))

    @property
    def filter(self) -> Any:
        return self.parts.filter

    def counted(self, stat: str) -> Any:
        assert self.crawler.stats is not None
        return self.crawler.stats.get_value(stat, 0)

    def ends(self) -> None:
        """Wait until it is done with what it has begun."""
        assert self.renewer._thread is not None
        self.renewer._thread.join(30)
        self.renewer.tick()

    def close(self) -> None:
        self.renewer.stop()
        self.parts.close()


@pytest.fixture(params=["bitmap", "redisbloom"])
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(sharedrenewing, "_SHARE", 0.9)
    url = url_for(request.param, request)
    made = Worker(url, url)
    yield made
    made.close()


def test_a_filter_of_many_layers_is_made_anew_beside_the_crawl(worker: Worker) -> None:
    worker.parts.judge(KEYS[:150])
    worker.renewer.tick()
    assert worker.renewer._thread is None
    for start in range(0, len(KEYS), 100):
        worker.parts.judge(KEYS[start : start + 100])
    assert 3 <= worker.filter.num_layers
    worker.renewer.tick()
    worker.ends()
    assert (1, 0) == (worker.counted(stats.REBUILDS), worker.counted(stats.ERROR_REBUILD))
    assert {Verdict.DUPLICATE} == set(worker.parts.judge(KEYS))
    assert (2, 1) == (worker.filter.version, worker.filter.num_layers)
    worker.renewer.tick()
    assert worker.renewer._thread is None


def test_an_old_filter_is_made_anew_too(worker: Worker) -> None:
    worker.parts.judge(KEYS[:50])
    # Keys that were given back leave their bits.
    worker.parts.give_back(KEYS[:20])
    worker.renewer._options = replace(worker.renewer._options, rebuild_layers=0, rebuild_every=3600.0)
    worker.renewer.tick()
    assert worker.renewer._thread is None
    worker.renewer._options = replace(worker.renewer._options, rebuild_every=0.0)
    worker.renewer.tick()
    worker.ends()
    assert 1 == worker.counted(stats.REBUILDS)
    assert 30 == worker.filter.info().num_keys
    assert {Verdict.NEW} == set(worker.parts.judge(KEYS[:20]))


def test_what_another_crawl_has_done_is_not_done_again(worker: Worker) -> None:
    worker.parts.judge(KEYS)
    other = Worker(worker.options.filter or "", worker.options.store or "", prefix=worker.options.key)
    other.renewer.tick()
    other.ends()
    # This one has not asked since, and thinks of the former filter.
    worker.renewer.tick()
    worker.ends()
    assert (1, 0) == (other.counted(stats.REBUILDS), worker.counted(stats.REBUILDS))
    worker.filter.verify()
    assert 2 == worker.filter.version
    other.close()


def test_a_failure_is_counted_and_the_last_try(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise FilterError(28, "no room for it")

    monkeypatch.setattr(replacing.Replacing, "switch", fail)
    worker.parts.judge(KEYS)
    worker.renewer.tick()
    worker.ends()
    worker.renewer._not_before = 0
    worker.renewer.tick()
    assert worker.renewer._thread is None
    assert (0, 1) == (worker.counted(stats.REBUILDS), worker.counted(stats.ERROR_REBUILD))
    assert {Verdict.DUPLICATE} == set(worker.parts.judge(KEYS))
    assert 1 == worker.filter.version


def test_the_end_of_the_crawl_ends_it_in_order(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One batch, after which it would wait for as long as a thousand batches take.
    monkeypatch.setattr(sharedrenewing, "_SHARE", 1e-4)
    worker = Worker(url_for("bitmap", request), f"sqlite:///{tmp_path}/seen.db")
    worker.parts.judge(KEYS)
    server, place = worker.filter.server, f"{worker.options.key}:filter"
    before = set(server.scan(f"{place}*", 100))
    worker.renewer.tick()
    lock = replacing.lock_name(place)
    deadline = time.monotonic() + 30
    while len(server.scan(f"{place}:{{*", 100)) < len(before):
        assert time.monotonic() < deadline
    assert server.run("EXISTS", lock)
    worker.renewer.stop()
    assert before == set(server.scan(f"{place}*", 100))
    assert (0, 0) == (worker.counted(stats.REBUILDS), worker.counted(stats.ERROR_REBUILD))
    assert 1 == worker.filter.version
    worker.close()
