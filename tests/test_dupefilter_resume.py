"""What is left of a crawl that is stopped, killed, or runs out of disk, and does the next run go on?"""

from __future__ import annotations

import errno
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import ASYNCIO, FILTER, run, running
from mocksite import Area, Site, mock_site
from scrapy import Request
from scrapy.utils.request import fingerprint

from scrapy_bloomdupe import BloomFilter
from scrapy_bloomdupe.cli import main
from scrapy_bloomdupe.errors import StoreError
from scrapy_bloomdupe.filters.mapped import MappedFile
from scrapy_bloomdupe.stores.environment import Environment

SIZE = 60
TREE = f"tree/{SIZE}/0"
PAGES = Counter(f"tree/{SIZE}/{number}" for number in range(SIZE))


def files_of_at_most(size: int) -> None:
    """As on a full disk: no file can grow beyond *size* bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def no_room_for_a_store() -> None:
    """For ``prepare``: a new store takes 32 kB."""
    files_of_at_most(24_000)


def no_room_for_the_first_group() -> None:
    """For ``prepare``: the first group of keys makes it 40 kB."""
    files_of_at_most(34_000)


def second_group_does_not_fit() -> None:
    """For ``prepare``: the disk is full from the second group of keys on."""
    write, written = Environment.write, 0

    def once(self: Environment, work: Any) -> None:
        nonlocal written
        written += 1
        if written > 2:  # the first one says which filter the store belongs to
            raise StoreError(errno.ENOSPC, "cannot write to seen.lmdb: No space left on device")
        write(self, work)

    Environment.write = once  # type: ignore[method-assign]


def filter_cannot_grow() -> None:
    """For ``prepare``: the disk has room for the first layer of a filter and no more."""
    reserve = MappedFile.reserve

    def once(self: MappedFile, size: int) -> None:
        if self.size():
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(self, size)

    MappedFile.reserve = once  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def area(site: Site) -> Area:
    return site.area()


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    return {**FILTER, "JOBDIR": str(tmp_path / "job")}


def test_a_crawl_that_is_stopped_by_ctrl_c_and_resumed_fetches_every_page_once(
    area: Area, tmp_path: Path, job: dict[str, Any]
) -> None:
    with running(tmp_path, {**job, "DOWNLOAD_DELAY": 0.1}, start=[area.at(TREE)]) as crawl:
        crawl.wait_until(lambda: len(area.answers()) >= SIZE // 4, "a quarter of the pages")
        crawl.process.send_signal(signal.SIGINT)
        stopped = crawl.finish()
    assert "shutdown" == stopped.stats["finish_reason"]
    before = area.fetched()
    assert SIZE // 4 <= before.total() < SIZE
    resumed = run(tmp_path, job, start=[area.at(TREE)])
    assert (0, "finished") == (resumed.code, resumed.stats["finish_reason"])
    assert PAGES == area.fetched()
    assert sorted(area.at(page) for page in PAGES) == sorted(stopped.urls + resumed.urls)
    assert SIZE == resumed.stats["bloomdupe/keys"]
    assert SIZE == stopped.stats["bloomdupe/new"] + resumed.stats.get("bloomdupe/new", 0)
    assert [] == [
        *stopped.lines("[scrapy_bloomdupe", "WARNING"),
        *resumed.lines("[scrapy_bloomdupe", "WARNING"),
    ]


def test_the_state_of_a_killed_crawl_is_whole_and_opens_again(
    area: Area, tmp_path: Path, job: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path, {**job, "DOWNLOAD_DELAY": 0.1}, start=[area.at(TREE)]) as crawl:
        crawl.wait_until(lambda: len(area.answers()) >= SIZE // 4, "a quarter of the pages")
        crawl.process.kill()
        assert -signal.SIGKILL == crawl.finish().code
    fetched = area.fetched()
    # Every request that was answered had been added to the filter, and no commit was needed for that.
    asked = BloomFilter.open(Path(job["JOBDIR"], "bloomdupe", "seen.bloom"), readonly=True)
    assert [] == [page for page in fetched if fingerprint(Request(area.at(page))) not in asked]
    asked.close()
    assert 0 == main(["check", job["JOBDIR"]]), capsys.readouterr().out
    resumed = run(tmp_path, job, start=[area.at(TREE)])
    assert (0, "finished") == (resumed.code, resumed.stats["finish_reason"])
    assert SIZE == resumed.stats["bloomdupe/keys"]
    assert set(PAGES) == set(area.fetched())
    assert [] == resumed.lines("[scrapy_bloomdupe", "WARNING")
    (line,) = resumed.lines("[scrapy_bloomdupe", "INFO: Resuming crawl (")
    assert f"({resumed.stats['bloomdupe/resumed']} requests scheduled)" in line


@pytest.mark.parametrize("prepare", ["no_room_for_the_first_group", "second_group_does_not_fit"])
def test_a_crawl_without_a_frontier_whose_disk_is_full_fetches_every_page_once_and_says_what_it_costs(
    area: Area, tmp_path: Path, job: dict[str, Any], prepare: str
) -> None:
    # One page of bits, and a log that fits itself.
    job["BLOOMDUPE_FRONTIER"] = False
    settings = {**job, "BLOOMDUPE_CAPACITY": 1000, "LOG_LEVEL": "WARNING", "DOWNLOAD_DELAY": 0.02}
    crawl = run(tmp_path, settings, prepare=f"{__name__}.{prepare}", start=[area.at(TREE)])
    assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"])
    assert PAGES == area.fetched()
    ours = crawl.ours()
    assert (SIZE, SIZE) == (ours["bloomdupe/new"], ours["bloomdupe/keys"])
    assert 0 < ours["bloomdupe/error/commit"]
    assert 1 == ours["bloomdupe/error/close"]
    assert "bloomdupe/error/check" not in ours
    commit, close = crawl.lines("[scrapy_bloomdupe", "WARNING")
    assert "Make room on the disk" in commit
    assert "could not be closed in order" in close
    assert "Traceback" not in crawl.log
    # With room again the state opens, and what was not written is crawled once more.
    resumed = run(tmp_path, job, start=[area.at(f"tree/{SIZE}/{SIZE - 1}")])
    assert (0, "finished") == (resumed.code, resumed.stats["finish_reason"])
    assert 2 == max(area.fetched().values())


def test_a_crawl_that_has_no_room_for_its_state_is_refused_and_starts_when_there_is_room(
    area: Area, tmp_path: Path, job: dict[str, Any]
) -> None:
    settings = {**job, "BLOOMDUPE_CAPACITY": 1000, "LOG_LEVEL": "WARNING"}
    prepare = f"{__name__}.no_room_for_a_store"
    crawl = run(tmp_path, settings, prepare=prepare, start=[area.at(TREE)])
    assert (1, "bloomdupe_refused") == (crawl.code, crawl.stats["finish_reason"])
    assert [] == area.answers()
    assert "Traceback" not in crawl.log
    crawl = run(tmp_path, settings, start=[area.at(TREE)])
    assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"])
    # Before Scrapy 2.18 the start of the refused crawl waits in Scrapy's own queue.
    assert PAGES == area.fetched() & PAGES
    assert area.fetched().total() <= SIZE + 1


@pytest.mark.parametrize("reactor", [ASYNCIO])
def test_a_bare_filter_that_cannot_grow_ends_the_crawl_before_too_many_pages_are_lost(
    area: Area, tmp_path: Path, reactor: str
) -> None:
    rate = 1e-9  # makes 1,400 keys fill the least array that there is
    bare = {"BLOOMDUPE_STORE": None, "BLOOMDUPE_CAPACITY": 1400, "BLOOMDUPE_ERROR_RATE": rate}
    settings = {**FILTER, **bare, "BLOOMDUPE_DIR": str(tmp_path / "seen"), "TWISTED_REACTOR": reactor}
    start = [area.at("many/2500")]
    crawl = run(tmp_path, settings, prepare=f"{__name__}.filter_cannot_grow", start=start)
    assert (0, "bloomdupe_full") == (crawl.code, crawl.stats["finish_reason"])
    ours = crawl.ours()
    assert 7.5 * rate < ours["bloomdupe/error_rate_estimate"] < 10 * rate
    assert 1400 < ours["bloomdupe/keys"] < 2500
    assert 0 < ours["bloomdupe/error/growth"]
    cannot_grow, full = crawl.lines("[scrapy_bloomdupe", "ERROR")
    assert "could not grow: [Errno 28] No space left on device" in cannot_grow
    assert "The crawl is stopped" in full
    assert "Traceback" not in crawl.log
    # With room again it grows and goes on.
    resumed = run(tmp_path, settings, start=[area.at(f"other/{number}") for number in range(30)])
    assert (0, "finished") == (resumed.code, resumed.stats["finish_reason"])
    assert 2 == resumed.stats["bloomdupe/layers"]
    assert 1 == max(area.fetched().values())
