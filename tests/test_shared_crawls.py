"""Do several crawls that share what they have seen fetch every page, and once?

A long version: ``BLOOMDUPE_FLEET=4 BLOOMDUPE_FLEET_PAGES=2000 pytest -n0`` with this file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleets import BARE, EXACT, EXTRA, KINDS, LONG, PAGES, Fleet, fleets, sharing
from killsite import Tree

import scrapy_bloomdupe.sharedrenewing as sharedrenewing
import scrapy_bloomdupe.stats as stats


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Fleet]]:
    with fleets(tmp_path_factory.mktemp("fleets")) as make:
        yield make


SHORT = ["bitmap", "store under negatives", "filter and postgresql", "filter and local lmdb"]


@pytest.mark.parametrize("kind", [*BARE, *EXACT] if LONG else SHORT)
def test_every_page_is_fetched_once_by_one_of_several_crawls(
    make: Callable[..., Fleet], tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    fleet = make(tmp_path, Tree(PAGES, 1, KINDS, extra=EXTRA), sharing(kind, request))
    fleet.run()
    fleet.check()
    shares = sorted(run.stats["downloader/response_status_count/200"] for run in fleet.runs)
    # On a busy machine one of them can be late.
    assert shares[0] >= 1, shares
    assert shares[1] > PAGES / fleet.size / 4, shares


def quickly() -> None:
    """For ``prepare``: there is little to do, and it is looked for often."""
    import fleets

    fleets.look_often()
    sharedrenewing._SHARE = 0.9


def test_two_crawls_rebuild_their_filter_once_and_go_on(
    make: Callable[..., Fleet], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shared = sharing("filter and store", request)
    settings = {
        **shared,
        "BLOOMDUPE_CAPACITY": 12,
        "BLOOMDUPE_REBUILD_LAYERS": 2,
        "BLOOMDUPE_ON_EMPTY": "stop",
    }
    fleet = make(tmp_path / "fleet", Tree(40, 1, "pps", extra=6), settings, size=2, jobs=True)
    stays = tmp_path / "stays"
    stays.touch()
    options = {"EXTENSIONS": {"fleets.Stays": 0}, "STAYS_FOR": str(stays)}
    with fleet.going(prepare=f"{__name__}.quickly", **options) as started:
        fleet.wait_for(30, started)
        deadline = time.monotonic() + 30
        while not all("goes on with version" in going.log() for going in started):
            assert time.monotonic() < deadline, [going.log() for going in started]
            time.sleep(0.05)
        stays.unlink()
        runs = fleet.finish(started)
    fleet.check()
    rebuilds = sum(run.stats.get(stats.REBUILDS, 0) for run in runs)
    assert rebuilds >= 1
    for run in runs:
        assert [] == run.lines("is gone from the server"), fleet.story()
        assert stats.EMPTIED not in run.stats
        assert stats.ERROR_REBUILD not in run.stats
        assert 1 <= len(run.lines("INFO", "goes on with version")) <= rebuilds
    assert rebuilds == sum(len(run.lines("INFO", "beside the crawl")) for run in runs)
    # The next run of a job knows that nothing was lost: ``stop`` would end it.
    later = fleet.finish([fleet.start(0)])[0]
    assert "finished" == later.stats["finish_reason"], later.log
