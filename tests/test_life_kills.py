"""Is no page lost of a job that is killed while its pages expire, are recorded or were forgotten?

For a long version see ``test_frontier_kills``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crawling import Cli
from killing import EXACT, KILLS, PAGES, SEEDS, Job, jobs
from killsite import ROOTS, Tree

from scrapy_bloomdupe.dupefilter import BloomDupeFilter

KINDS = "ppppphocvffsd"
SEED = range(1, SEEDS + 1)


def a_day_later() -> None:
    """What is called in the process of a crawl before it."""
    BloomDupeFilter.clock = staticmethod(lambda: time.time() + 86_400)  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    with jobs(tmp_path_factory.mktemp("jobs")) as make:
        yield make


@pytest.mark.parametrize("seed", SEED)
def test_a_job_whose_pages_expire_while_it_is_killed_again_and_again_loses_nothing(
    make: Callable[..., Job], tmp_path: Path, seed: int
) -> None:
    # So short, that what is asked again from the frontier has expired.
    job = make(tmp_path, Tree(PAGES, seed, KINDS), {**EXACT, "BLOOMDUPE_EXPIRE": 0.1})
    job.kill_often(KILLS, seed)
    job.check()
    assert KILLS == job.kills


@pytest.mark.parametrize("seed", SEED)
def test_all_that_has_expired_is_crawled_again_by_runs_that_are_killed(
    make: Callable[..., Job], tmp_path: Path, seed: int
) -> None:
    job = make(tmp_path, Tree(PAGES, seed, KINDS), {**EXACT, "BLOOMDUPE_EXPIRE": "12h"})
    job.run()
    job.check()
    before = job.fetched()
    job.kill_often(KILLS, seed, prepare=f"{__name__}.a_day_later")
    job.check()
    again = job.fetched() - before
    assert [] == [number for number in range(PAGES) if not again[number]], job.story()


def test_a_job_whose_start_requests_are_recorded_loses_nothing(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make(tmp_path, Tree(PAGES, 1, KINDS), {**EXACT, "BLOOMDUPE_RECORD_START": True})
    job.kill_after(0)
    job.kill_often(KILLS, 1)
    job.check()


def test_after_a_kill_what_was_forgotten_is_crawled_again_and_what_is_pending_once(
    make: Callable[..., Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make(tmp_path, Tree(PAGES, 1, spread=ROOTS), EXACT)
    # So slow that it is in the middle when it is killed, however late that is.
    job.kill_after(PAGES // 4, 0.2, DOWNLOAD_DELAY=0.01)
    assert 1 == job.kills
    done = set(job.fetched())
    code, out, _ = Cli(capsys)("forget", job.jobdir, "--host", "127.0.0.1")
    assert 0 == code
    assert "more are of pending requests, which the next run asks as they are" in out
    job.run()
    job.check()
    fetched = job.fetched()
    # All are linked from start pages, which are asked again.
    assert [] == [number for number in done if fetched[number] < 2], job.story()
    assert not [number for number, count in fetched.items() if count > 2]
