"""Does a crawl whose disk is full stop and say so, and does it lose nothing when there is room again?"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import BARE, EXACT, LONG, Job, jobs
from killsite import ROOTS, Tree

# A filter of one page; a log that fits itself.
SMALL = {"BLOOMDUPE_CAPACITY": 1000, "LOG_LEVEL": "WARNING"}

# What does not fit into what there is room for: a kilobyte of requests, or of items, is told by a letter.
BIG_REQUESTS = {"tree": Tree(200, spread=ROOTS), "ballast": 4000}
BIG_ITEMS = {"tree": Tree(200), "text": 2000}
BIG_BOTH = {"tree": Tree(200, 2, "phd", spread=10), "ballast": 2000, "text": 2000}

STORES = pytest.mark.parametrize("store", [EXACT, BARE], ids=["exact", "bare"])


def room(size: int) -> None:
    """As on a full disk: no file can grow beyond *size* bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def little_room() -> None:
    """For ``prepare``: not for all of what is pending, nor for all items."""
    room(200_000)


def no_room() -> None:
    """For ``prepare``: for nothing that there is not yet."""
    room(16_000)


def powerless() -> None:
    """For ``prepare``: root may write everywhere; without its capabilities it may not."""
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    assert 0 == ctypes.CDLL(None).capset(head, (ctypes.c_uint32 * 6)())


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    with jobs(tmp_path_factory.mktemp("jobs")) as make:
        yield make


def check_that_it_stopped_for_want_of_room(job: Job) -> None:
    assert job.reason not in (None, "finished"), job.story()
    errors = job.last.lines("[scrapy_bloomdupe", "ERROR")
    assert [] != [line for line in errors if "disk" in line.lower() or "room" in line.lower()], job.story()
    assert [] != job.lost_items(), "it had room enough for all"


@STORES
@pytest.mark.parametrize(
    "big", [BIG_REQUESTS, BIG_ITEMS, BIG_BOTH], ids=["big requests", "big items", "big requests and items"]
)
def test_a_crawl_whose_disk_is_full_stops_and_goes_on_without_a_loss_when_there_is_room(
    make: Callable[..., Job], tmp_path: Path, store: dict[str, Any], big: dict[str, Any]
) -> None:
    job = make(tmp_path, settings={**store, **SMALL}, **big)
    job.run(prepare=f"{__name__}.little_room")
    check_that_it_stopped_for_want_of_room(job)
    job.run()
    job.check()


@STORES
def test_a_crawl_whose_disk_is_full_twice_and_that_is_killed_between_loses_nothing(
    make: Callable[..., Job], tmp_path: Path, store: dict[str, Any]
) -> None:
    job = make(tmp_path, settings={**store, **SMALL}, **BIG_BOTH)
    job.run(prepare=f"{__name__}.little_room")
    job.kill_after(20)
    job.run(prepare=f"{__name__}.little_room")
    check_that_it_stopped_for_want_of_room(job)
    job.run()
    job.check()


@STORES
def test_a_killed_job_that_has_no_room_to_be_resumed_does_not_end_as_finished(
    make: Callable[..., Job], tmp_path: Path, store: dict[str, Any]
) -> None:
    job = make(tmp_path, Tree(100, spread=ROOTS), {**store, **SMALL}, ballast=1000)
    job.kill_after(30)
    job.run(prepare=f"{__name__}.no_room")
    assert job.reason not in (None, "finished"), job.story()
    assert [] != job.last.lines("[scrapy_bloomdupe", "ERROR"), job.story()
    job.run()
    job.check()


@STORES
def test_a_killed_job_in_a_directory_that_cannot_be_written_is_refused_and_loses_nothing(
    make: Callable[..., Job], tmp_path: Path, store: dict[str, Any]
) -> None:
    job = make(tmp_path, Tree(60), {**store, **SMALL})
    job.kill_after(20)
    before = job.fetched()
    paths = [job.jobdir, *job.jobdir.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        job.run(prepare=f"{__name__}.powerless")
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert (1, "bloomdupe_refused") == (job.last.code, job.reason), job.story()
    assert [] != job.last.lines("[scrapy_bloomdupe", "ERROR", str(job.jobdir)), job.story()
    assert before == job.fetched()
    job.run()
    job.check()


# To mount is root's, and not in every container: the long version only.
if LONG and os.getuid() == 0:

    @pytest.mark.parametrize("size", ["600k", "1m", "2m"])
    @STORES
    def test_a_crawl_on_a_disk_that_is_really_full_loses_nothing(
        make: Callable[..., Job], tmp_path: Path, store: dict[str, Any], size: str
    ) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
        try:
            tree = Tree(600, 3, "phd", spread=20)
            job = make(disk, tree, {**store, **SMALL}, ballast=2000, text=2000)
            job.run()
            check_that_it_stopped_for_want_of_room(job)
            subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
            job.run()
            job.check()
        finally:
            subprocess.run(["umount", disk], check=True)
