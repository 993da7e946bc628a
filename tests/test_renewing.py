"""Is the filter of a crawl made anew while it goes on, and is nothing lost if the crawl is killed then?

A long version: ``BLOOMDUPE_RENEWAL_PAGES=2000 pytest -n0`` with this file.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import filtering, idle_crawler
from killing import EXACT, Job, jobs
from killsite import Tree

from scrapy_bloomdupe import renewal, renewing, stats
from scrapy_bloomdupe.building import version_of
from scrapy_bloomdupe.errors import FilterError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.rebuilding import check
from scrapy_bloomdupe.renewing import Renewer
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.watch import Watch

PAGES = int(os.environ.get("BLOOMDUPE_RENEWAL_PAGES", "150"))
KILLS = 20 if PAGES > 150 else 8

#: The filter is full after some pages, and again, and again.
SMALL = {**EXACT, "BLOOMDUPE_CAPACITY": 10, "BLOOMDUPE_REBUILD_LAYERS": 2}


def always() -> None:
    """Begin the next one when one is done, and take a second, a quarter or no time at all for each."""
    renewing._SHARE = 0
    renewal._CHUNK = max(2, PAGES // random.choice([25, 6, 1]))
    real = Renewer.__init__

    def begin(self: Renewer, state: State, watch: Watch, *_: Any) -> None:
        real(self, state, watch, 1)

    Renewer.__init__ = begin  # type: ignore[method-assign]


def wrongly() -> None:
    """It always fails."""

    def fail(*_: object) -> None:
        raise FilterError(5, "the new filter is not as it should be")

    renewal.Renewal._check_count = fail  # type: ignore[method-assign]


def silently(keys: Iterable[bytes], total: int) -> Iterable[bytes]:
    return keys


def names(job: Job) -> set[str]:
    found = {path.name for path in (job.jobdir / "bloomdupe").iterdir()}
    return {name for name in found if name.startswith("seen.bloom")}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    with jobs(tmp_path_factory.mktemp("jobs")) as make:
        yield make


def test_a_crawl_makes_its_filter_anew_as_often_as_it_is_full(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make(tmp_path, Tree(PAGES), SMALL)
    job.run()
    job.check()
    assert 0 == job.repeats()
    ours = job.last.ours()
    rebuilds = ours[stats.REBUILDS]
    assert rebuilds >= 2
    assert 0 == sum(count for name, count in ours.items() if name.startswith(stats.ERROR)), job.story()
    assert {"seen.bloom"} == names(job)
    found = BloomFilter.open(job.jobdir / "bloomdupe" / "seen.bloom", readonly=True)
    assert 1 + rebuilds == version_of(found.identity)
    assert ours[stats.LAYERS] == found.num_layers
    found.close()
    lines = job.last.lines("The filter was made anew from the store: version ")
    assert rebuilds == len(lines)
    # A busy machine may take so long that it has grown meanwhile.
    assert re.search(
        r": version 2, \d+ keys, [1-3] instead of [2-4] layers, room for \d+ keys; it took", lines[0]
    )
    assert [] == list(check(job.jobdir / "bloomdupe", silently))


def test_a_failure_is_said_once_and_costs_nothing(make: Callable[..., Job], tmp_path: Path) -> None:
    job = make(tmp_path, Tree(PAGES), SMALL)
    job.run(prepare="test_renewing.wrongly")
    job.check()
    ours = job.last.ours()
    assert (1, None) == (ours[stats.ERROR_REBUILD], ours.get(stats.REBUILDS))
    assert ours[stats.LAYERS] > 2
    (warning,) = job.last.lines("WARNING", "the filter could not be made anew; the old one stays in force")
    assert "the new filter is not as it should be" in warning
    assert {"seen.bloom"} == names(job)


def test_a_crawl_killed_at_random_moments_has_one_valid_version_each_time_and_loses_nothing(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    # Slices are taken on the clock of the commits: between two kills there have to be some dozen.
    job = make(tmp_path / "job", Tree(PAGES), {**SMALL, "DOWNLOAD_DELAY": 0.04})
    rng = random.Random(1)
    versions, unfinished = [], 0
    points = sorted(rng.sample(range(1, PAGES * 9 // 10), KILLS))
    before = 0
    for point in points:
        job.kill_after(point - before, rng.uniform(0, 0.1), prepare="test_renewing.always")
        before = point
        unfinished += "seen.bloom.new" in names(job)
        copy = tmp_path / "copy"
        shutil.copytree(job.jobdir / "bloomdupe", copy)
        assert [] == list(check(copy, silently)), job.story()
        found = BloomFilter.open(copy / "seen.bloom", readonly=True)
        versions.append(version_of(found.identity))
        found.abandon()
        shutil.rmtree(copy)
    job.run()
    job.check()
    # A run can end before it is killed.
    assert KILLS // 2 <= job.kills <= KILLS
    print(f"{PAGES} pages, {KILLS} kills, {unfinished} in the middle, versions {versions}")
    assert {"seen.bloom"} == names(job)
    assert [] == list(check(job.jobdir / "bloomdupe", silently))
    # Versions only go on, and the kills met what they were meant for.
    assert versions == sorted(versions)
    assert 1 < versions[-1]
    assert KILLS / 4 <= unfinished, (unfinished, versions)


def test_a_filter_of_an_earlier_run_is_made_anew_in_slices_of_the_time_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StateOptions(100, 1e-6, "classic", "murmur3", "lmdb")
    state = open_or_create(tmp_path, options)
    keys = [number.to_bytes(20, "big") for number in range(1_000)]
    for key in keys:
        state.seen.check_and_add(key)
    now = 100.0
    monkeypatch.setattr(renewing.time, "perf_counter", lambda: now)
    slices = []
    real = renewal.Renewal.step

    def step(self: renewal.Renewal, seconds: float) -> bool:
        slices.append(round(seconds, 6))
        return real(self, 0)

    monkeypatch.setattr(renewal.Renewal, "step", step)
    crawler = idle_crawler()
    renewer = Renewer(state, Watch(crawler), 5)
    assert 4 == state.filter.num_layers
    for _ in range(10):
        renewer.tick()
    assert [] == slices
    renewer = Renewer(state, Watch(crawler), 4)
    for pause in (0.02, 0.02, 0.1, 1.0, 0.0):
        now += pause
        renewer.tick()
    # The first one begins it. A tenth of the time, and never more than a hundredth of a second.
    assert [0.002, 0.01, 0.01, 0.0] == slices
    while state.filter.num_layers > 1:
        renewer.tick()
    assert crawler.stats is not None
    assert (1, 1) == (crawler.stats.get_value(stats.REBUILDS), crawler.stats.get_value(stats.LAYERS))
    assert {Verdict.DUPLICATE} == {state.seen.check_and_add(key) for key in keys}
    renewer.stop()
    state.close()


def test_a_filter_in_use_grows_as_before_when_it_was_made_anew(tmp_path: Path) -> None:
    with filtering(tmp_path, BLOOMDUPE_CAPACITY=10, BLOOMDUPE_ERROR_RATE=1e-9) as (ours, counted):
        state = ours._state
        assert state is not None
        for number in range(100):
            state.seen.check_and_add(number.to_bytes(20, "big"))
        assert 4 == counted.get_value(stats.LAYERS)
        (renewer,) = ours._group._tasks  # type: ignore[union-attr]
        while state.filter.num_layers > 1:
            renewer.tick()
        assert 1 == counted.get_value(stats.LAYERS)
        for number in range(100, 250):
            state.seen.check_and_add(number.to_bytes(20, "big"))
        assert 2 == counted.get_value(stats.LAYERS)
    assert 250 == counted.get_value(stats.KEYS)


def test_a_filter_is_made_anew_when_it_is_as_old_as_the_setting_says(tmp_path: Path) -> None:
    state = open_or_create(tmp_path, StateOptions(1_000, 1e-6, "classic", "murmur3", "lmdb"))
    keys = [number.to_bytes(20, "big") for number in range(200)]
    for key in keys:
        state.seen.check_and_add(key)
    for key in keys[:150]:
        state.seen.forget(key)
    now = float(state.filter.created)
    crawler = idle_crawler()
    assert crawler.stats is not None

    def ticked(later: float) -> int:
        nonlocal now
        now += later
        # As in a new run: what is kept is kept in the file.
        renewer = Renewer(state, Watch(crawler), 0, 3_600, lambda: now)
        renewer.tick()
        while renewer._renewal is not None:
            renewer.tick()
        return int(crawler.stats.get_value(stats.REBUILDS, 0))  # type: ignore[union-attr]

    assert 0 == ticked(3_599)
    assert 1 == ticked(1)
    # The bits of what was forgotten are gone with the old one.
    assert 50 == state.filter.num_keys
    assert 1 == ticked(3_599)
    assert 2 == ticked(1)
    # A clock that is set back makes nothing due.
    assert 2 == ticked(-1e8)
    assert {Verdict.NEW} == {state.seen.check_and_add(key) for key in keys[:150]}
    assert {Verdict.DUPLICATE} == {state.seen.check_and_add(key) for key in keys}
    state.close()
