"""Is nothing lost when a part of Scrapy fails in mid-crawl, or a middleware does something of its own?"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, FollowAll, run, running
from mocksite import Area, Site, mock_site
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.pqueues import ScrapyPriorityQueue
from scrapy.squeues import LifoMemoryQueue, PickleLifoDiskQueue

LEAVES = 20


class OwnDiskQueue(PickleLifoDiskQueue):
    """A project's own."""


class OwnMemoryQueue(LifoMemoryQueue):
    """A project's own."""


class OwnPriorityQueue(ScrapyPriorityQueue):
    """A project's own."""


class SidePage:
    """Asks for a page besides, of which there is one only, while a request is with it."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SidePage:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        if "/page/" in request.url and request.callback is None:
            spider = self._crawler.spider
            assert isinstance(spider, Beside)
            side = request.url.partition("/page/")[0] + "/side"
            assert self._crawler.engine is not None
            self._crawler.engine.crawl(request.replace(url=side, callback=spider.beside))


class Beside(FollowAll):
    """Does nothing with the page besides."""

    name = "beside"

    def beside(self, response: Response) -> None:
        """Only fetched."""


class Thrice(FollowAll):
    """Asks for its first page three times, whatever the filter says."""

    name = "thrice"

    async def start(self) -> AsyncIterator[Request]:
        for _ in range(3):
            for url in self.start_at:
                yield Request(url, dont_filter=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def area(site: Site) -> Area:
    return site.area()


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    feed = {str(tmp_path / "out" / "feed.jsonl"): {"format": "jsonlines"}}
    return {**FILTER, "JOBDIR": str(tmp_path / "job"), "BLOOMDUPE_DIR": str(tmp_path / "seen"), "FEEDS": feed}


def exported(folder: Path) -> set[str]:
    lines = (folder / "out" / "feed.jsonl").read_text().splitlines()
    return {json.loads(line)["url"] for line in lines}


def leaves(area: Area) -> set[str]:
    return {area.at(f"page/{number}") for number in range(LEAVES)}


@pytest.mark.parametrize(
    ("jobdir", "setting", "queue"),
    [
        (True, "SCHEDULER_DISK_QUEUE", OwnDiskQueue),
        (True, "SCHEDULER_START_DISK_QUEUE", OwnDiskQueue),
        (False, "SCHEDULER_MEMORY_QUEUE", OwnMemoryQueue),
        (True, "SCHEDULER_PRIORITY_QUEUE", OwnPriorityQueue),
        (False, "SCHEDULER_PRIORITY_QUEUE", OwnPriorityQueue),
    ],
)
def test_a_queue_class_of_the_projects_own_is_refused_unless_the_frontier_is_off(
    area: Area, tmp_path: Path, job: dict[str, Any], jobdir: bool, setting: str, queue: type
) -> None:
    if not jobdir:
        del job["JOBDIR"]
    # By its name, since a job is JSON.
    job[setting] = f"{__name__}.{queue.__name__}"
    crawl = run(tmp_path, job, start=[area.at(f"many/{LEAVES}")])
    assert (1, "bloomdupe_refused") == (crawl.code, crawl.stats["finish_reason"])
    assert 1 == len(crawl.lines("ERROR", f"{setting} = '{job[setting]}' is none of Scrapy's own queues"))
    assert [] == area.answers()
    crawl = run(tmp_path, {**job, "BLOOMDUPE_FRONTIER": False}, start=[area.at(f"many/{LEAVES}")])
    assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"])
    assert leaves(area) <= exported(tmp_path)


def test_a_feed_that_cannot_be_opened_ends_the_crawl_before_its_pages_are_done(
    area: Area, tmp_path: Path, job: dict[str, Any]
) -> None:
    (tmp_path / "out").write_text("in the way")
    crawl = run(tmp_path, job, start=[area.at(f"many/{LEAVES}")])
    assert "bloomdupe_commit_failed" == crawl.stats["finish_reason"]
    assert 1 == len(crawl.lines("ERROR", "could not be opened"))
    (tmp_path / "out").unlink()
    again = run(tmp_path, job, start=[area.at(f"many/{LEAVES}")])
    assert ("finished", 0) == (again.stats["finish_reason"], again.stats["bloomdupe/pending"])
    assert {area.at(f"many/{LEAVES}"), *leaves(area)} == exported(tmp_path)


def test_a_request_that_a_middleware_copies_survives_a_kill(
    area: Area, tmp_path: Path, job: dict[str, Any]
) -> None:
    job["DOWNLOADER_MIDDLEWARES"] = {f"{__name__}.SidePage": 543}
    options: dict[str, Any] = {"spider": f"{__name__}.Beside", "start": [area.at(f"many/{LEAVES}")]}
    slow = {"DOWNLOAD_DELAY": 0.1, "CONCURRENT_REQUESTS": 4}
    with running(tmp_path, {**job, **slow}, **options) as crawl:
        crawl.wait_until(lambda: len(area.answers()) >= 6, "some pages")
        crawl.process.kill()
        crawl.finish()
    again = run(tmp_path, job, **options)
    assert ("finished", 0) == (again.stats["finish_reason"], again.stats["bloomdupe/pending"])
    assert leaves(area) <= exported(tmp_path)


def test_a_page_that_is_asked_for_three_times_is_so_after_a_kill_too(
    area: Area, tmp_path: Path, job: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"spider": f"{__name__}.Thrice", "start": [area.at("page/1")]}
    with running(tmp_path, {**job, "DOWNLOAD_DELAY": 1, "CONCURRENT_REQUESTS": 1}, **options) as crawl:
        crawl.wait_until(lambda: len(area.answers()) >= 1, "the first page")
        crawl.process.kill()
        crawl.finish()
    again = run(tmp_path, job, **options)
    assert ("finished", 0) == (again.stats["finish_reason"], again.stats["bloomdupe/pending"])
    # The first one may have been done, and written, or not.
    assert area.fetched()["page/1"] in (3, 4)
