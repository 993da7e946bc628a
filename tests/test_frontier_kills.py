"""Is every page fetched and every item exported, however often the process is killed?

A long version: ``BLOOMDUPE_KILL_PAGES=1500 BLOOMDUPE_KILL_SEEDS=5 BLOOMDUPE_KILLS=20 pytest -n0`` with this
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import BARE, CONCURRENCY, EXACT, KILLS, LONG, PAGES, SEEDS, STOCK, Job, jobs
from killsite import ROOTS, Tree

# What is under way is fetched again: up to CONCURRENCY requests in the downloader, nearly all of them
# answered by a site this fast, and those with the spider. On a quiet machine 9 or 10 in all; one that is
# busy with other tests answers faster than the crawl can write.
REPEATS_PER_KILL = 3 * CONCURRENCY

KINDS = "ppppphocvffsd"

COUNTING = {**BARE, "BLOOMDUPE_FILTER": "counting", "BLOOMDUPE_RETRY_FAILED": True}
WITHOUT = {**EXACT, "BLOOMDUPE_FRONTIER": False}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    with jobs(tmp_path_factory.mktemp("jobs")) as make:
        yield make


@pytest.mark.parametrize("settings", [STOCK, WITHOUT], ids=["stock", "without the journal"])
def test_proof_that_this_harness_can_fail_a_job_without_a_frontier_loses_pages_and_items(
    make: Callable[..., Job], tmp_path: Path, settings: dict[str, Any]
) -> None:
    # Everything is linked from the first three pages, and known long before the kill. So many, that what
    # Scrapy has not yet written of its seen requests (8 kB, 200 of them) is not all of them.
    job = make(tmp_path, Tree(600, spread=ROOTS), settings)
    job.kill_after(100)
    job.run()
    assert 1 == job.kills
    assert (0, "finished") == (job.last.code, job.reason)
    pages, items = job.lost()
    assert len(pages) > 100
    assert len(items) >= 2 * len(pages)


def test_a_job_that_nobody_kills_fetches_every_page_once(make: Callable[..., Job], tmp_path: Path) -> None:
    job = make(tmp_path, Tree(PAGES, 1, KINDS), EXACT)
    job.run()
    job.check()
    assert 0 == job.repeats()


@pytest.mark.parametrize("settings", [EXACT, BARE, COUNTING][: 3 if LONG else 2])
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_job_that_is_killed_again_and_again_fetches_every_page_and_exports_every_item(
    make: Callable[..., Job], tmp_path: Path, settings: dict[str, Any], seed: int
) -> None:
    job = make(tmp_path, Tree(PAGES, seed, KINDS), settings)
    job.kill_often(KILLS, seed)
    job.check()
    assert KILLS == job.kills
    assert job.repeats() <= REPEATS_PER_KILL * KILLS, job.story()


@pytest.mark.parametrize("spread", [ROOTS, 1_000_000], ids=["flat", "deep"])
def test_a_killed_job_with_long_items_leaves_a_feed_that_can_be_read(
    make: Callable[..., Job], tmp_path: Path, spread: int
) -> None:
    # Longer than the buffer of a file: a kill tears them in the middle.
    job = make(tmp_path, Tree(60, 1, spread=spread), EXACT, text=6000)
    job.kill_often(3, 3)
    job.check()
