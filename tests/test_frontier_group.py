"""Whole crawls: what a group commit holds besides requests, and when a request is acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, FollowAll, Running, run, running, scrapy
from mocksite import Site, mock_site
from scrapy import Request
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response

from scrapy_bloomdupe.frontier.lmdb import FrontierView
from scrapy_bloomdupe.frontier.queue import queues
from scrapy_bloomdupe.stores.environment import Environment

ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}
BOTH = pytest.mark.parametrize("settings", [FILTER, ADDON], ids=["one line", "add-on"])

LENGTH = 60


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


class Chain(FollowAll):
    """A chain of pages that counts in ``spider.state``, and ends when the count says so.

    Args:
        big: number of other things in the state.
    """

    def __init__(self, start: str, big: str = "0", **kwargs: Any) -> None:
        super().__init__(start, **kwargs)
        self.big = int(big)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        state: dict[str, Any] = self.state  # type: ignore[attr-defined]
        if self.big and "big" not in state:
            state["big"] = [{"number": number} for number in range(self.big)]
        count = state["count"] = state.get("count", 0) + 1
        if count < LENGTH:
            yield Request(f"{self.start_at[0]}?page={count}")


@BOTH
def test_spider_state_is_as_old_as_the_queue(site: Site, tmp_path: Path, settings: dict[str, Any]) -> None:
    area = site.area()
    job = {**settings, "JOBDIR": str(tmp_path / "job"), "DOWNLOAD_DELAY": 0.01}
    options = {"spider": f"{__name__}.Chain", "start": [area.at("page/1")]}
    for goal in (10, 25, 40):
        with running(tmp_path, job, **options) as crawl:
            crawl.wait_until(lambda goal=goal: len(area.fetched()) >= goal, f"{goal} pages")
            os.kill(crawl.process.pid, signal.SIGKILL)
    last = run(tmp_path, job, **options)
    assert "finished" == last.stats["finish_reason"]
    # A page that was counted and not acknowledged at a kill is crawled, and counted, once more.
    assert LENGTH - 6 <= len(area.fetched()) <= LENGTH
    assert LENGTH <= last_state(tmp_path / "job")["count"] <= LENGTH + 3


def test_a_large_spider_state_is_saved_less_often_and_that_is_told_once(site: Site, tmp_path: Path) -> None:
    area = site.area()
    job = {**FILTER, "JOBDIR": str(tmp_path / "job"), "DOWNLOAD_DELAY": 0.01}
    crawl = run(tmp_path, job, spider=f"{__name__}.Chain", start=[area.at("page/1")], big="200000")
    (line,) = crawl.lines("spider.state takes")
    assert "it is saved every" in line
    assert LENGTH == last_state(tmp_path / "job")["count"]


def test_a_finished_job_leaves_no_spider_state_to_another_job(site: Site, tmp_path: Path) -> None:
    area = site.area()
    common = {**FILTER, "BLOOMDUPE_DIR": str(tmp_path / "seen")}
    options = {"spider": f"{__name__}.Chain", "start": [area.at("page/1")]}
    run(tmp_path, {**common, "JOBDIR": str(tmp_path / "job 1")}, **options)
    other = {"spider": f"{__name__}.Chain", "start": [area.at("page/2")]}
    run(tmp_path, {**common, "JOBDIR": str(tmp_path / "job 2")}, **other)
    assert LENGTH == last_state(tmp_path / "job 2")["count"]


def last_state(jobdir: Path) -> Any:
    import pickle

    return pickle.loads((jobdir / "spider.state").read_bytes())


class Failures(FollowAll):
    """Many requests that fail, each with an errback; looks at the frontier when they have."""

    count = 3_000

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.start_at[0], callback=self.parse_start)

    def parse_start(self, response: Response) -> Iterator[Any]:
        for number in range(self.count):
            yield Request(f"{response.url}?fail={number}", errback=self.failed, priority=1)
        yield Request(f"{response.url}?last", callback=self.parse_last)

    def failed(self, failure: Any) -> None:
        return None

    async def parse_last(self, response: Response) -> AsyncIterator[Any]:
        await asyncio.sleep(0.3)
        queue = queues[self.crawler]
        yield {
            "pending": queue.store.num_pending,
            "in flight": len(queue.in_flight),
            "objects": len(queue._objects) + len(queue._outputs) + len(queue._out),
        }


class FailAtOnce:
    """A downloader middleware."""

    def process_request(self, request: Request, spider: Any = None) -> None:
        if "fail=" in request.url:
            raise IgnoreRequest if request.url.endswith("1") else OSError("no such page")


@BOTH
def test_failures_with_an_errback_are_acknowledged_at_the_next_commit(
    site: Site, tmp_path: Path, settings: dict[str, Any]
) -> None:
    area = site.area()
    job = {
        **settings,
        "JOBDIR": str(tmp_path / "job"),
        "DOWNLOADER_MIDDLEWARES": {f"{__name__}.FailAtOnce": 600},
        "RETRY_ENABLED": False,
    }
    crawl = run(tmp_path, job, spider=f"{__name__}.Failures", start=[area.at("page/1")])
    assert "finished" == crawl.stats["finish_reason"]
    # The page that looks is the only one left.
    assert [{"pending": 1, "in flight": 1, "objects": 1}] == crawl.items


class Closing(FollowAll):
    """A callback that closes the spider in the middle of its output, the first time."""

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield Request(f"{response.url}?1", callback=self.parse_rest)
        if not Path("closed").exists():
            Path("closed").touch()
            raise CloseSpider(kwargs.get("reason", "finished"))
        yield Request(f"{response.url}?2", callback=self.parse_rest)

    def parse_rest(self, response: Response) -> None:
        return None


@BOTH
def test_a_callback_that_closes_the_spider_is_not_acknowledged_whatever_its_reason(
    site: Site, tmp_path: Path, settings: dict[str, Any]
) -> None:
    area = site.area()
    job = {**settings, "JOBDIR": str(tmp_path / "job")}
    options = {"spider": f"{__name__}.Closing", "start": [area.at("page/1")]}
    first = run(tmp_path, job, **options)
    assert 0 < first.stats["bloomdupe/pending"]
    second = run(tmp_path, job, **options)
    assert "finished" == second.stats["finish_reason"]
    assert {"page/1", "page/1?1", "page/1?2"} == set(area.fetched())


@BOTH
def test_scrapy_refuses_to_start_a_job_whose_requests_are_pending_with_us(
    site: Site, tmp_path: Path, settings: dict[str, Any]
) -> None:
    area = site.area()
    job = {**settings, "JOBDIR": str(tmp_path / "job")}
    few = {"CLOSESPIDER_PAGECOUNT": 3, "CONCURRENT_REQUESTS": 1}
    first = run(tmp_path, {**job, **few}, start=[area.at("tree/20/0")])
    assert 0 < first.stats["bloomdupe/pending"]
    for kind in ("ScrapyPriorityQueue", "DownloaderAwarePriorityQueue"):
        stock = scrapy(
            tmp_path,
            ["runspider", str(Path(__file__).with_name("crawling.py")), "-a", "start=[]"],
            {"JOBDIR": str(tmp_path / "job"), "SCHEDULER_PRIORITY_QUEUE": f"scrapy.pqueues.{kind}"},
        )
        # An error, and in newer releases the exit code 1; not the end of an empty queue.
        assert stock.lines("Error: "), stock.log
        assert [] == stock.lines("Spider closed (finished)")
    run(tmp_path, job, start=[area.at("tree/20/0")])
    assert {f"tree/20/{number}" for number in range(20)} <= {path.rstrip("?") for path in area.fetched()}


def test_scrapy_takes_a_job_directory_when_nothing_is_pending(site: Site, tmp_path: Path) -> None:
    area = site.area()
    run(tmp_path, {**FILTER, "JOBDIR": str(tmp_path / "job")}, start=[area.at("tree/5/0")])
    stock = run(tmp_path, {"JOBDIR": str(tmp_path / "job")}, start=[area.at("tree/5/0")])
    assert (0, "finished") == (stock.code, stock.stats["finish_reason"])


class Lambdas(FollowAll):
    """Requests of which every other one cannot be serialized."""

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        for number, href in enumerate(response.css("a::attr(href)").getall()):
            if number % 2:
                yield response.follow(href, callback=lambda response: self.parse(response))
            else:
                yield response.follow(href)


@pytest.mark.parametrize("jobdir", [True, False], ids=["with JOBDIR", "with BLOOMDUPE_DIR"])
def test_the_scheduler_counts_as_with_scrapys_queues(site: Site, tmp_path: Path, jobdir: bool) -> None:
    area = site.area()
    counted = []
    for number, settings in enumerate(({}, FILTER, ADDON)):
        place = {"JOBDIR": str(tmp_path / f"{number}")} if jobdir else {}
        ours = {"BLOOMDUPE_DIR": str(tmp_path / f"seen {number}")} if settings and not jobdir else {}
        options = {"spider": f"{__name__}.Lambdas", "start": [area.at("tree/30/0")]}
        crawl = run(tmp_path, {**settings, **place, **ours, "CONCURRENT_REQUESTS": 1}, **options)
        counted.append({k: v for k, v in crawl.stats.items() if k.startswith(("scheduler/", "dupefilter/"))})
    assert counted[0] == counted[1] == counted[2]


def test_what_cannot_be_serialized_keeps_the_page_that_gave_it_pending(site: Site, tmp_path: Path) -> None:
    area = site.area()
    job = {**ADDON, "JOBDIR": str(tmp_path / "job"), "CONCURRENT_REQUESTS": 1, "DOWNLOAD_DELAY": 0.1}
    options = {"spider": f"{__name__}.Lambdas", "start": [area.at("many/4")]}
    with running(tmp_path, job, **options) as crawl:
        # One of the two that are in memory only waits.
        crawl.wait_until(lambda: len(area.fetched()) >= 2, "2 pages")
        os.kill(crawl.process.pid, signal.SIGKILL)
    assert "many/4" in [url.partition("/a")[2].partition("/")[2] for url in pending(tmp_path / "job")]
    again = run(tmp_path, job, **options)
    assert "finished" == again.stats["finish_reason"]
    assert {"many/4", *(f"page/{number}" for number in range(4))} == set(area.fetched())


def pending(jobdir: Path) -> list[str]:
    """The URLs of what is pending in a job that was killed."""
    from scrapy_bloomdupe.frontier.serialize import peek

    environment = Environment.open(jobdir / "bloomdupe" / "seen.lmdb", readonly=True)
    try:
        return [peek(record.request).url for record in FrontierView(environment).records()]
    finally:
        environment.close()


def test_the_mark_of_a_job_that_is_refused_stays(site: Site, tmp_path: Path) -> None:
    area = site.area()
    job = {**FILTER, "JOBDIR": str(tmp_path / "job")}
    few = {"CLOSESPIDER_PAGECOUNT": 3, "CONCURRENT_REQUESTS": 1}
    run(tmp_path, {**job, **few}, start=[area.at("tree/20/0")])
    refused = run(
        tmp_path, {**job, "SCHEDULER_DISK_QUEUE": f"{__name__}.OwnQueue"}, start=[area.at("tree/20/0")]
    )
    assert (1, "bloomdupe_refused") == (refused.code, refused.stats["finish_reason"])
    (error,) = refused.lines("The crawl does not start")
    assert "SCHEDULER_DISK_QUEUE" in error
    assert 1 == json.loads((tmp_path / "job" / "requests.queue" / "active.json").read_text())


class OwnQueue:
    """A queue of the user's own."""


class Again:
    """A downloader middleware that makes a request of a failed one, as those do that try another proxy."""

    failures = 0

    def process_request(self, request: Request, spider: Any = None) -> None:
        if not Path("mended").exists() or not Again.failures:
            raise OSError("refused")

    async def process_exception(self, request: Request, exception: Exception, spider: Any = None) -> Request:
        Again.failures += 1
        await asyncio.sleep(0.05)
        return request.replace(dont_filter=True)


def test_what_a_middleware_makes_of_a_start_request_is_no_start_request(site: Site, tmp_path: Path) -> None:
    area = site.area()
    job = {
        **FILTER,
        "JOBDIR": str(tmp_path / "job"),
        "RETRY_ENABLED": False,
        "DOWNLOADER_MIDDLEWARES": {f"{__name__}.Again": 560},
    }
    with running(tmp_path, job, start=[area.at("page/1")]) as crawl:
        crawl.wait_until(lambda: begun(crawl), "its beginning")
        time.sleep(0.5)
        os.kill(crawl.process.pid, signal.SIGKILL)
    (tmp_path / "mended").touch()
    last = run(tmp_path, job, start=[area.at("page/1")])
    assert "finished" == last.stats["finish_reason"]
    assert ["page/1"] == list(area.fetched())


class Late(FollowAll):
    """Is stopped by a signal, and closes the spider itself while it is being closed, the first time."""

    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        yield Request(f"{response.url}?1", callback=self.parse_rest)
        if not Path("closed").exists():
            Path("closed").touch()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.3)
            raise CloseSpider("enough")
        yield Request(f"{response.url}?2", callback=self.parse_rest)

    def parse_rest(self, response: Response) -> None:
        return None


@BOTH
def test_a_callback_that_closes_a_spider_that_is_being_closed_is_not_acknowledged(
    site: Site, tmp_path: Path, settings: dict[str, Any]
) -> None:
    area = site.area()
    job = {**settings, "JOBDIR": str(tmp_path / "job")}
    options = {"spider": f"{__name__}.Late", "start": [area.at("page/1")]}
    assert "shutdown" == run(tmp_path, job, **options).stats["finish_reason"]
    assert "finished" == run(tmp_path, job, **options).stats["finish_reason"]
    assert {"page/1", "page/1?1", "page/1?2"} == set(area.fetched())


class Other(FollowAll):
    name = "other"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, dont_filter=True)


class First(Other):
    name = "first"


def test_start_requests_of_one_spider_are_not_those_of_another(site: Site, tmp_path: Path) -> None:
    area = site.area()
    job = {**FILTER, "JOBDIR": str(tmp_path / "job")}
    with running(tmp_path, job, spider=f"{__name__}.First", start=[area.at("many/9")]) as crawl:
        crawl.wait_until(lambda: len(area.fetched()) >= 2, "2 pages")
        os.kill(crawl.process.pid, signal.SIGKILL)
    before = area.fetched()["many/9"]
    last = run(tmp_path, job, spider=f"{__name__}.Other", start=[area.at("many/9")])
    assert "finished" == last.stats["finish_reason"]
    assert before + 1 == area.fetched()["many/9"]


def lines(feed: Path) -> list[str]:
    return sorted(feed.read_text().split())


@pytest.mark.parametrize("later", [10.0, 0.0], ids=["long after", "in the same job"])
def test_what_others_have_appended_to_a_feed_is_not_cut_off(site: Site, tmp_path: Path, later: float) -> None:
    area = site.area()
    feed = tmp_path / "items.jl"
    job = {**ADDON, "JOBDIR": str(tmp_path / "job"), "FEEDS": {str(feed): {"format": "jsonlines"}}}
    slow = {**job, "DOWNLOAD_DELAY": 0.1, "CONCURRENT_REQUESTS": 1}
    if later:
        # Killed in its middle; somebody else writes some time after.
        with running(tmp_path, slow, start=[area.at("many/9")]) as crawl:
            crawl.wait_until(lambda: feed.exists() and len(lines(feed)) >= 3, "3 items")
            os.kill(crawl.process.pid, signal.SIGKILL)
    else:
        # Ended in order; somebody else writes; killed before it has exported anything.
        run(tmp_path, job, start=[area.at("many/2")])
        with feed.open("a") as file:
            file.write('{"of":"others"}\n')
        with running(tmp_path, slow, start=[area.at("missing")]) as crawl:
            crawl.wait_until(lambda: begun(crawl), "its beginning")
            os.kill(crawl.process.pid, signal.SIGKILL)
    if later:
        with feed.open("a") as file:
            file.write('{"of":"others"}\n')
        os.utime(feed, (time.time() + later, time.time() + later))
    run(tmp_path, job, start=[area.at("many/9")])
    assert '{"of":"others"}' in lines(feed)


def begun(crawl: Running) -> bool:
    return crawl.log.exists() and "Spider opened" in crawl.log.read_text()
