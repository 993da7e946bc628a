"""Is a job that is stopped in order, or in none, or right at its start, resumed without a loss?"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forking import wait_until
from killing import EXACT, KILLS, LONG, SEEDS, Job, jobs
from killsite import ROOTS, Tree

SIZE = 300 if LONG else 60
ALL = range(1, SEEDS + 1)

SLOW = {"DOWNLOAD_DELAY": 0.03}
INT, KILL = signal.SIGINT, signal.SIGKILL


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    with jobs(tmp_path_factory.mktemp("jobs")) as make:
        yield make


def roots(job: Job) -> list[int]:
    """How often the site has answered each of the pages that a crawl starts with."""
    fetched = job.fetched()
    return [fetched[number] for number in range(ROOTS)]


@pytest.mark.parametrize("spider", ["Plain", "Filtered"])
@pytest.mark.parametrize("seed", ALL)
def test_a_job_that_gets_ctrl_c_twice_loses_nothing(
    make: Callable[..., Job], tmp_path: Path, spider: str, seed: int
) -> None:
    job = make(tmp_path, Tree(SIZE, seed, "psh"), EXACT, spider=spider)
    for _ in range(2):
        job.signal_after(SIZE // 4, INT, INT)
        assert "finished" != job.reason, job.story()
    job.run()
    job.check()


@pytest.mark.parametrize("spider", ["Plain", "Filtered", "SomeLambdas", "Lambdas"])
@pytest.mark.parametrize("seed", ALL)
def test_a_job_that_is_stopped_resumed_and_killed_loses_nothing(
    make: Callable[..., Job], tmp_path: Path, spider: str, seed: int
) -> None:
    job = make(tmp_path, Tree(SIZE, seed, "psh"), EXACT, spider=spider)
    job.signal_after(SIZE // 4, INT)
    assert "shutdown" == job.reason, job.story()
    job.kill_after(SIZE // 4)
    job.signal_after(SIZE // 8, INT)
    job.run()
    job.check()


@pytest.mark.parametrize("spider", ["SomeLambdas", "Lambdas"])
def test_requests_that_no_disk_can_hold_survive_a_stop(
    make: Callable[..., Job], tmp_path: Path, spider: str
) -> None:
    job = make(tmp_path, Tree(SIZE, 2, "ph"), EXACT, spider=spider)
    job.signal_after(SIZE // 4, INT, **SLOW)
    assert "shutdown" == job.reason, job.story()
    assert 0 < job.last.stats["scheduler/unserializable"]
    assert 0 < len(job.lost_pages())
    job.run()
    job.check()


def test_after_a_stop_the_start_requests_are_crawled_again(make: Callable[..., Job], tmp_path: Path) -> None:
    job = make(tmp_path, Tree(SIZE), EXACT)
    job.signal_after(SIZE // 2, INT, **SLOW)
    assert ("shutdown", [1] * ROOTS) == (job.reason, roots(job)), job.story()
    job.run()
    job.check()
    assert [2] * ROOTS == roots(job)
    assert ROOTS == job.repeats()


def test_after_a_kill_the_start_requests_that_were_done_are_not_crawled_again(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make(tmp_path, Tree(SIZE), EXACT)
    # Half the pages take a second: the first ones are done and written.
    job.kill_after(SIZE // 2, **SLOW)
    job.run()
    job.check()
    assert [1] * ROOTS == roots(job), (roots(job), job.story())


def test_a_job_that_has_finished_is_not_crawled_again_but_for_its_start_requests(
    make: Callable[..., Job], tmp_path: Path
) -> None:
    job = make(tmp_path, Tree(SIZE), EXACT)
    job.kill_often(2, 1)
    before = job.fetched()
    job.run()
    job.check()
    assert list(range(ROOTS)) == sorted((job.fetched() - before).elements())


@pytest.mark.parametrize("seed", ALL)
def test_a_job_that_is_killed_while_it_replays_what_was_pending_loses_nothing(
    make: Callable[..., Job], tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    job = make(tmp_path, Tree(SIZE, seed, "ph", spread=10), EXACT)
    job.kill_after(SIZE // 3)
    for number in range(KILLS):
        # By turns before the first answer and right after it.
        job.kill_after(number % 2 * rng.randint(1, 3), pause=rng.uniform(0.1, 0.3) * (1 - number % 2))
    job.run()
    job.check()


@pytest.mark.parametrize("seed", ALL)
def test_a_job_that_is_killed_in_its_first_second_loses_nothing(
    make: Callable[..., Job], tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    job = make(tmp_path, Tree(SIZE, seed, "ph"), EXACT)
    for _ in range(KILLS):
        with job.going() as going:
            time.sleep(rng.uniform(0, 0.5))
            going.kill()
    job.run()
    job.check()


@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "is killed"])
def test_a_second_process_on_a_job_is_refused_and_the_first_one_loses_nothing(
    make: Callable[..., Job], tmp_path: Path, killed: bool
) -> None:
    job = make(tmp_path, Tree(SIZE), EXACT)
    job.kill_after(SIZE // 4)
    with job.going(**SLOW) as first:
        wait_until(lambda: first.ended() or len(job.fetched()) > SIZE // 3, "answer of the first process")
        # Lest it ends before the second one has begun.
        first.send(signal.SIGSTOP)
        second = job.run()
        first.send(signal.SIGCONT)
        assert (1, "bloomdupe_refused") == (second.code, job.reason), job.story()
        assert [] != second.lines("[scrapy_bloomdupe", "ERROR")
        assert not first.ended(), first.log()
        if killed:
            first.kill()
        first.finish()
    if killed:
        job.run()
    job.check()
