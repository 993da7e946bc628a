"""Is Scrapy inside what ``scrapy_compat`` takes it for, in every release and under every reactor?

Each test fails first when Scrapy moves: nothing of the package but ``scrapy_compat`` is asked, as far as
possible.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import warnings
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crawling import ASYNCIO, FILTER, SELECT, idle_crawler, run, running
from mocksite import Site, mock_site
from scrapy import Request, Spider, signals
from scrapy.core.downloader import Downloader
from scrapy.core.scheduler import Scheduler
from scrapy.core.scraper import Slot
from scrapy.core.spidermw import SpiderMiddlewareManager
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.exceptions import CloseSpider
from scrapy.http import Response

from scrapy_bloomdupe import LmdbStore, scrapy_compat
from scrapy_bloomdupe.frontier import group
from scrapy_bloomdupe.frontier.queue import queues
from scrapy_bloomdupe.scrapy_compat import Downloads, QueueMark
from scrapy_bloomdupe.stores.environment import Environment


def as_before_scrapy_2_18() -> None:
    """For ``prepare``: a crawl cannot be refused by a handler of ``spider_opened``."""
    scrapy_compat._REFUSABLE = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def test_a_crawler_without_an_engine_does_not_crawl() -> None:
    assert not scrapy_compat.is_crawling(idle_crawler())
    with_engine: Any = SimpleNamespace(engine=object())
    assert scrapy_compat.is_crawling(with_engine)


@pytest.mark.parametrize(
    ("reactor", "prepare"), [(ASYNCIO, None), (SELECT, None), (ASYNCIO, "as_before_scrapy_2_18")]
)
def test_a_refused_crawl_ends_before_its_first_download_under_every_reactor_and_release(
    site: Site, tmp_path: Path, reactor: str, prepare: str | None
) -> None:
    area = site.area()
    settings = {**FILTER, "TWISTED_REACTOR": reactor, "BLOOMDUPE_SCHEME": "md5"}
    crawl = run(tmp_path, settings, prepare=prepare and f"{__name__}.{prepare}", start=[area.at("tree/9/0")])
    assert (1, "bloomdupe_refused") == (crawl.code, crawl.stats["finish_reason"])
    assert [] == area.answers()
    assert {"bloomdupe/error/open": 1} == crawl.ours()
    assert "Traceback" not in crawl.log


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT])
def test_seen_keys_are_written_in_mid_crawl_under_every_reactor(
    site: Site, tmp_path: Path, reactor: str
) -> None:
    area = site.area()
    jobdir = tmp_path / "job"
    settings = {**FILTER, "TWISTED_REACTOR": reactor, "JOBDIR": str(jobdir), "DOWNLOAD_DELAY": 0.3}
    with running(tmp_path, settings, start=[area.at("tree/30/0")]) as crawl:
        crawl.wait_until((jobdir / "bloomdupe" / "seen.bloom").exists, "a state")
        crawl.wait_until(lambda: keys_on_the_disk(jobdir / "bloomdupe" / "seen.lmdb") >= 3, "three keys")
        crawl.process.send_signal(signal.SIGINT)
        ended = crawl.finish()
    assert "shutdown" == ended.stats["finish_reason"]
    assert len(area.answers()) < 30
    assert "Traceback" not in ended.log


def keys_on_the_disk(path: Path) -> int:
    environment = Environment.open(path, readonly=True)
    try:
        return LmdbStore(environment).count()
    finally:
        environment.close()


@pytest.mark.parametrize("newest", [True, False])
def test_a_crawl_that_is_refused_leaves_the_disk_queues_of_the_job_alone(newest: bool) -> None:
    # Another process may be at work on them: closing them would take its files away.
    scheduler = SimpleNamespace(dqs=object())
    found = (
        SimpleNamespace(scheduler=scheduler)
        if newest
        else SimpleNamespace(_slot=SimpleNamespace(scheduler=scheduler))
    )
    scrapy_compat._leave_queues(SimpleNamespace(engine=found))  # type: ignore[arg-type]
    assert scheduler.dqs is None


def test_a_scheduler_without_disk_queues_is_no_trouble() -> None:
    scrapy_compat._leave_queues(SimpleNamespace(engine=SimpleNamespace(scheduler=None)))  # type: ignore[arg-type]


# Where a request is


class Noting(Spider):
    """Notes things as stats, ``test/<what>``."""

    name = "noting"

    def __init__(self, start: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_at = json.loads(start)

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, errback=self.failed)

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.listen(crawler)
        return spider

    def listen(self, crawler: Crawler) -> None: ...

    def failed(self, failure: Any) -> None: ...

    def note(self, what: str, found: Any) -> None:
        assert self.crawler.stats is not None
        self.crawler.stats.set_value(f"test/{what}", found)


def noted(stats: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("test/"): value for key, value in stats.items() if key.startswith("test/")}


class Whereabouts(Noting):
    """Notes in which of Scrapy's sets its requests are, all along their way."""

    def listen(self, crawler: Crawler) -> None:
        connect = crawler.signals.connect
        self.last: Request | None = None
        connect(self.reached, signal=signals.request_reached_downloader)
        connect(self.scheduled, signal=signals.request_scheduled)
        connect(self.left, signal=signals.item_scraped)
        connect(self.idle, signal=signals.spider_idle)
        connect(self.opened, signal=signals.spider_opened)

    def where(self, what: str, request: Request) -> None:
        engine: Any = self.crawler.engine
        downloads, slot = Downloads(self.crawler), engine.scraper.slot
        places = {
            "downloader": engine.downloader.active,
            "queue": {queued for _, queued, _ in slot.queue},
            "scraper": slot.active,
        }
        found = [name for name, place in places.items() if request in place]
        assert (request in downloads.waiting()) == bool({"downloader", "queue"} & set(found))
        assert (request in downloads.in_progress()) == bool(found)
        self.note(what, found)

    def opened(self) -> None:
        engine: Any = self.crawler.engine
        scheduler = getattr(engine, "scheduler", None) or engine._slot.scheduler
        self.note("queues", [type(scheduler.dqs).__name__, type(scheduler.mqs).__name__])

    def reached(self, request: Request) -> None:
        self.last = request
        self.where(f"download {request.url.rsplit('/', 1)[1]}", request)
        downloads = Downloads(self.crawler)
        slot = downloads.slot_of(request)
        self.note(f"busy {slot}", [sorted(downloads.busy()), downloads.active(slot), downloads.active("x")])

    def scheduled(self, request: Request) -> None:
        if "redirect_times" in request.meta:
            assert self.last is not None
            self.where("while the target of its redirect is scheduled", self.last)

    def idle(self) -> None:
        assert self.last is not None
        self.where("idle", self.last)

    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:
        request = response.request
        assert request is not None
        if request.url.endswith("/first"):
            self.where("callback", request)
            yield {"request": request}
            self.where("callback after an item", request)
            await asyncio.sleep(0.02)
            self.where("callback after a pause", request)
            yield response.follow("Redirected", errback=self.failed)
            self.where("callback after a request", request)
            yield response.follow("missing/1", errback=self.failed)

    def failed(self, failure: Any) -> Iterator[Any]:
        self.where("errback", failure.request)
        yield {"request": failure.request}
        self.where("errback after an item", failure.request)

    def left(self, item: Any) -> None:
        self.where("item left", item["request"])


class Slow:
    """A pipeline."""

    def __init__(self, crawler: Crawler) -> None:
        self.spider: Any = crawler.spider

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Slow:
        return cls(crawler)

    async def process_item(self, item: Any, spider: Any = None) -> Any:
        await asyncio.sleep(0.05)
        self.spider.where("pipeline", item["request"])
        return item


WHEREABOUTS = {
    "download first": ["downloader"],
    "callback": ["scraper"],
    "callback after an item": ["scraper"],
    "callback after a pause": ["scraper"],
    "callback after a request": ["scraper"],
    "pipeline": ["scraper"],
    "item left": ["scraper"],
    "download Redirected": ["downloader"],
    "while the target of its redirect is scheduled": [],
    "download redirected": ["downloader"],
    "download 1": ["downloader"],
    "errback": ["scraper"],
    "errback after an item": ["scraper"],
    "idle": [],
    "busy 127.0.0.1": [["127.0.0.1"], 1, 0],
}


@pytest.mark.parametrize("place", ["JOBDIR", "BLOOMDUPE_DIR"])
def test_a_request_is_in_scrapys_sets_until_all_that_it_produced_is_scheduled(
    site: Site, tmp_path: Path, place: str
) -> None:
    settings = {
        **FILTER,
        place: str(tmp_path / "job"),
        "CONCURRENT_REQUESTS": 1,
        "ITEM_PIPELINES": {f"{__name__}.Slow": 1},
    }
    crawl = run(tmp_path, settings, spider=f"{__name__}.Whereabouts", start=[site.area().at("first")])
    queues = ["FrontierQueue" if place == "JOBDIR" else "NoneType", "MemoryQueue"]
    assert {**WHEREABOUTS, "queues": queues} == noted(crawl.stats), crawl.log
    assert "Traceback" not in crawl.log


def test_responses_wait_for_the_scraper_with_their_requests() -> None:
    slot, request = Slot(), Request("http://shop.example/")
    slot.add_response_request(Response(request.url), request)
    assert [request] == [queued for _, queued, _ in slot.queue]
    assert set() == slot.active
    crawler: Any = with_engine(scraper=SimpleNamespace(slot=slot))
    assert request in Downloads(crawler).waiting()
    slot.next_response_request_deferred()
    assert [] == list(slot.queue)
    assert {request} == slot.active
    assert request not in Downloads(crawler).waiting()
    assert request in Downloads(crawler).in_progress()


def test_before_the_scraper_is_open_only_the_downloader_has_requests() -> None:
    request = Request("http://shop.example/")
    crawler: Any = with_engine()
    crawler.engine.downloader.active.add(request)
    assert {request} == Downloads(crawler).in_progress()


def with_engine(downloader: Any = None, scraper: Any = None) -> Crawler:
    """Return a crawler that has what the queues ask for."""
    crawler = idle_crawler()
    crawler.engine = SimpleNamespace(  # type: ignore[assignment]
        downloader=downloader or Downloader(crawler), scraper=scraper or SimpleNamespace(slot=None)
    )
    if downloader is None:
        crawler.engine.downloader.close()
    return crawler


URLS = [
    *(
        "http://shop.example",
        "https://SHOP.example/a/b",
        "http://shop.example:8080/",
        "http://u:p@shop.example/",
    ),
    *("http://other.example?next=http://shop.example/", "http://[::1]:80/", "data:,", "file:///etc/hosts"),
    *(
        "http://other.example#http://shop.example/",
        "HTTP://shop.example/x",
        "s3://bucket/key",
        "http:///path",
    ),
]


def test_the_slot_of_a_request_is_the_one_that_scrapys_downloader_gives_it() -> None:
    crawler = with_engine()
    downloads, downloader = Downloads(crawler), crawler.engine.downloader  # type: ignore[union-attr]
    for meta in ({}, {"download_slot": "own"}, {"download_slot": ""}, {}):
        for url in URLS:
            request = Request(url, meta=meta)
            assert downloader.get_slot_key(request) == downloads.slot_of(request), url


class ByPath(Downloader):
    """Has slots of its own."""

    def get_slot_key(self, request: Request) -> str:
        return request.url.rpartition("/")[2]


def test_a_downloader_of_the_user_may_tell_slots_by_more_than_the_host() -> None:
    downloader = ByPath(idle_crawler())
    downloader.close()
    downloads = Downloads(with_engine(downloader))
    requests = [Request(f"http://shop.example/{name}") for name in ("a", "b", "a")]
    assert ["a", "b", "a"] == [downloads.slot_of(request) for request in requests]


# The scheduler


class Watchful(BaseDupeFilter):
    """Writes down what the scheduler has when it is made and when it is opened."""

    scheduler: Any = None
    seen: list[Any] = []
    hides = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Watchful:
        cls.seen.append("made")
        if cls.hides:
            scrapy_compat.hide_jobdir(crawler)
        return cls()

    def open(self) -> None:
        found = self.scheduler
        self.seen.append(("opened", found.dqs is not None, found.mqs is not None, found.dqdir))


class Filters(Watchful):
    pass


class Hides(Watchful):
    hides = True


PRIORITY_QUEUES = ["scrapy.pqueues.ScrapyPriorityQueue", "scrapy.pqueues.DownloaderAwarePriorityQueue"]


def scheduler_of(crawler: Crawler) -> Scheduler:
    """As the engine makes it."""
    crawler.spider = Noting(start="[]")
    crawler.engine = with_engine().engine
    Watchful.seen.clear()
    scheduler = Scheduler.from_crawler(crawler)
    Watchful.scheduler = scheduler
    return scheduler


def crawler_with(jobdir: Path | None, dupefilter: type = Filters, **settings: Any) -> Crawler:
    place = {"JOBDIR": str(jobdir)} if jobdir is not None else {}
    return idle_crawler(DUPEFILTER_CLASS=f"{__name__}.{dupefilter.__name__}", **place, **settings)


@pytest.mark.parametrize("queue", PRIORITY_QUEUES)
def test_the_scheduler_makes_its_filter_then_its_queues_and_then_opens_the_filter(
    tmp_path: Path, queue: str
) -> None:
    crawler = crawler_with(tmp_path / "job", SCHEDULER_PRIORITY_QUEUE=queue)
    scheduler = scheduler_of(crawler)
    assert ["made"] == Watchful.seen
    assert str(tmp_path / "job" / "requests.queue") == scheduler.dqdir
    assert not (tmp_path / "job" / "requests.queue" / "active.json").exists()
    scheduler.open(crawler.spider)  # type: ignore[arg-type]
    assert ["made", ("opened", True, True, scheduler.dqdir)] == Watchful.seen
    scheduler.close("finished")


def test_without_a_job_directory_the_scheduler_has_no_disk_queue() -> None:
    crawler = crawler_with(None)
    scheduler = scheduler_of(crawler)
    scheduler.open(crawler.spider)  # type: ignore[arg-type]
    assert ["made", ("opened", False, True, None)] == Watchful.seen
    scheduler.close("finished")


def test_a_job_directory_that_is_hidden_when_the_filter_is_made_is_left_alone(tmp_path: Path) -> None:
    crawler = crawler_with(tmp_path / "job", Hides)
    crawler.settings.freeze()
    scheduler = scheduler_of(crawler)
    assert crawler.settings.frozen
    assert scheduler.dqdir is None
    scheduler.open(crawler.spider)  # type: ignore[arg-type]
    assert ["made", ("opened", False, True, None)] == Watchful.seen
    scheduler.close("finished")
    assert [] == list((tmp_path / "job").rglob("*"))


class Stub:
    """A queue."""

    def __init__(self, *requests: Request, refuses: bool = False, state: Any = None) -> None:
        self.requests, self.refuses, self.state = list(requests), refuses, state

    def __len__(self) -> int:
        return len(self.requests)

    def push(self, request: Request) -> None:
        if self.refuses:
            raise ValueError("no")
        self.requests.append(request)

    def pop(self) -> Request | None:
        return self.requests.pop() if self.requests else None

    def close(self) -> Any:
        return self.state


@pytest.mark.parametrize("newest", [True, False])
def test_the_scheduler_works_with_the_queues_that_it_is_given(tmp_path: Path, newest: bool) -> None:
    crawler = crawler_with(tmp_path / "job")
    scheduler = scheduler_of(crawler)
    scheduler.open(crawler.spider)  # type: ignore[arg-type]
    engine: Any = crawler.engine
    slot = SimpleNamespace(scheduler=scheduler)
    crawler.engine = SimpleNamespace(
        **vars(engine), **({"scheduler": scheduler} if newest else {"_slot": slot})
    )
    first, second, third = (Request(f"http://shop.example/{number}") for number in range(3))
    disk, memory = Stub(state=1), Stub()
    given: list[Any] = []

    def make(stock: Any, alone: bool) -> tuple[Any, Any]:
        given.append((stock, alone))
        return disk, memory

    stock = scheduler.mqs
    scrapy_compat.replace_queues(crawler, make)
    assert [(stock, False)] == given
    assert not scrapy_compat.has_pending_requests(crawler)
    assert scheduler.enqueue_request(first)
    assert [first] == disk.requests
    disk.refuses = True
    assert scheduler.enqueue_request(second)
    assert [second] == memory.requests
    assert scrapy_compat.has_pending_requests(crawler)
    assert 2 == len(scheduler)
    # Memory first.
    assert [second, first, None] == [scheduler.next_request() for _ in range(3)]
    memory.requests.append(third)
    assert [third] == list(scrapy_compat.take_waiting(crawler))
    scheduler.close("finished")
    assert 1 == json.loads((tmp_path / "job" / "requests.queue" / "active.json").read_text())
    assert QueueMark(tmp_path / "job").is_set()


@pytest.mark.parametrize("queue", PRIORITY_QUEUES)
def test_scrapy_refuses_to_start_with_the_mark_and_starts_when_it_is_cleared(
    tmp_path: Path, queue: str
) -> None:
    mark = QueueMark(tmp_path / "job")
    crawler = crawler_with(tmp_path / "job", SCHEDULER_PRIORITY_QUEUE=queue)
    mark.set()
    scheduler = scheduler_of(crawler)
    with warnings.catch_warnings():
        # Scrapy 2.13 takes the TypeError for that of an old queue, and tries again.
        warnings.simplefilter("ignore")
        with pytest.raises((TypeError, ValueError)):
            scheduler.open(crawler.spider)  # type: ignore[arg-type]
    assert ["made"] == Watchful.seen
    assert mark.is_set()
    mark.clear()
    assert not mark.is_set()
    assert not mark.has_stock_queue()
    scheduler = scheduler_of(crawler)
    scheduler.open(crawler.spider)  # type: ignore[arg-type]
    assert 0 == len(scheduler)
    scheduler.enqueue_request(Request("http://shop.example/"))
    scheduler.close("finished")
    assert mark.has_stock_queue()
    assert not mark.is_set()


# The end of a crawl


def groups_are_committed_at_once() -> None:
    """For ``prepare``."""
    group._LEAST_PAUSE = 0


AT_ONCE = f"{__name__}.groups_are_committed_at_once"

REACTORS = pytest.mark.parametrize("reactor", [ASYNCIO, SELECT], ids=["asyncio", "select"])


class Closing(Noting):
    """Raises CloseSpider, and looks at the engine in the turn that follows.

    Args:
        how: "generator", "function" or "coroutine".
        reason: of CloseSpider.
    """

    def __init__(self, start: str, how: str, reason: str = "enough") -> None:
        super().__init__(start)
        self.how, self.reason = how, reason

    def listen(self, crawler: Crawler) -> None:
        crawler.signals.connect(self.closed_with, signal=signals.spider_closed)

    def closed_with(self, reason: str) -> None:
        self.note("outside", scrapy_compat.is_closed_from_outside(self.crawler, reason))

    def look(self) -> None:
        """Note, turn by turn, whether the request is in progress and whether the engine is closing."""
        is_in_progress = self.request in Downloads(self.crawler).in_progress()
        self.turns.append((is_in_progress, scrapy_compat.is_closing(self.crawler)))
        self.note("turns", self.turns)
        if not self.turns[-1][1]:
            scrapy_compat.call_soon(self.look)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.request = response.request
        self.turns: list[tuple[bool, bool]] = []
        return getattr(self, self.how)(response)

    def begin(self) -> None:
        assert not scrapy_compat.is_closing(self.crawler)
        scrapy_compat.call_soon(self.look)

    def function(self, response: Response) -> None:
        self.begin()
        raise CloseSpider(self.reason)

    def generator(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        self.begin()
        raise CloseSpider(self.reason)

    async def coroutine(self, response: Response) -> AsyncIterator[Any]:
        yield {"url": response.url}
        await scrapy_compat.next_turn()
        self.begin()
        raise CloseSpider(self.reason)


@REACTORS
@pytest.mark.parametrize("how", ["function", "generator", "coroutine"])
def test_an_engine_that_a_callback_has_closed_is_closing_one_turn_after_the_request_has_left(
    site: Site, tmp_path: Path, how: str, reactor: str
) -> None:
    settings = {"TWISTED_REACTOR": reactor}
    area = site.area()
    crawl = run(tmp_path, settings, spider=f"{__name__}.Closing", start=[area.at("page/1")], how=how)
    assert (0, "enough") == (crawl.code, crawl.stats["finish_reason"]), crawl.log
    assert "Traceback" not in crawl.log
    found = noted(crawl.stats)
    assert not found["outside"]
    turns = found["turns"]
    # Who finds in one turn that it has left must ask in the next one whether the engine is closing.
    assert all(closing for (in_progress, _), (_, closing) in pairwise(turns) if not in_progress), turns
    assert turns[-1][1]


class Hurried(Closing):
    """Lets the timer of the group commit ring in every turn after CloseSpider was raised."""

    def listen(self, crawler: Crawler) -> None:
        self.rest = 20

    def begin(self) -> None:
        self.ring()

    def ring(self) -> None:
        group: Any = queues[self.crawler]._on_done.__self__  # type: ignore[attr-defined]
        group._ring()
        self.rest -= 1
        if self.rest:
            scrapy_compat.call_soon(self.ring)


@pytest.mark.parametrize("how", ["function", "generator", "coroutine"])
def test_a_request_whose_callback_closes_the_spider_stays_pending_whenever_a_group_is_committed(
    site: Site, tmp_path: Path, how: str
) -> None:
    area = site.area()
    settings = {**FILTER, "JOBDIR": str(tmp_path / "job")}
    crawl = run(
        tmp_path, settings, spider=f"{__name__}.Hurried", start=[area.at("page/1")], how=how, prepare=AT_ONCE
    )
    assert "enough" == crawl.stats["finish_reason"], crawl.log
    assert 1 == crawl.stats["bloomdupe/pending"]
    assert "Traceback" not in crawl.log


class Stopped(Closing):
    """Is stopped by a signal."""

    def function(self, response: Response) -> None:
        os.kill(os.getpid(), signal.SIGINT)


class Ours(Closing):
    """Is stopped by us."""

    def function(self, response: Response) -> None:
        scrapy_compat.close_spider(self.crawler, "bloomdupe_test")


class Failing(Closing):
    """Ends, and fails at its end."""

    def function(self, response: Response) -> None:
        scrapy_compat.fail_at_end(self.crawler)


class Peaceful(Closing):
    """Ends."""

    def function(self, response: Response) -> None: ...


@pytest.mark.parametrize(
    ("spider", "options", "settings", "code", "reason", "outside"),
    [
        (Closing, {"reason": "shutdown"}, {}, 0, "shutdown", False),
        (Closing, {"reason": "finished"}, {}, 0, "finished", False),
        (Stopped, {}, {}, 0, "shutdown", True),
        (Ours, {}, {}, 0, "bloomdupe_test", True),
        (Peaceful, {}, {"CLOSESPIDER_PAGECOUNT": 1}, 0, "closespider_pagecount", True),
        (Peaceful, {}, {"CLOSESPIDER_TIMEOUT": 1}, 0, "closespider_timeout", True),
        (Failing, {}, {}, 1, "finished", False),
    ],
)
def test_a_crawl_that_no_callback_has_closed_is_told_by_its_reason(
    site: Site,
    tmp_path: Path,
    spider: type[Spider],
    options: dict[str, str],
    settings: dict[str, Any],
    code: int,
    reason: str,
    outside: bool,
) -> None:
    area = site.area()
    pages = ["page/1"]
    if "CLOSESPIDER_TIMEOUT" in settings:
        # It waits for its second page when the clock stops it.
        settings = {**settings, "DOWNLOAD_DELAY": 3}
        pages.append("page/2")
    crawl = run(
        tmp_path,
        settings,
        spider=f"{__name__}.{spider.__name__}",
        start=[area.at(page) for page in pages],
        how="function",
        **options,
    )
    assert (code, reason) == (crawl.code, crawl.stats["finish_reason"]), crawl.log
    assert outside == noted(crawl.stats)["outside"]
    assert "Traceback" not in crawl.log


# Time


class Clocks(Noting):
    """Uses what calls later."""

    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        order: list[str] = []
        scrapy_compat.call_soon(lambda: order.append("soon"))
        cancelled = scrapy_compat.call_later(0, lambda: order.append("cancelled"))
        cancelled.cancel()
        scrapy_compat.call_later(0.001, lambda: order.append("later"))
        repeater = scrapy_compat.Repeater(lambda: order.append("again"), 0.02)
        order.append("now")
        while order.count("again") < 2:
            await scrapy_compat.next_turn()
        repeater.stop()
        repeater.stop()
        self.note("order", order)
        self.note("turns", type(scrapy_compat.turns()).__name__)
        yield {"url": response.url}


@REACTORS
def test_calls_come_in_their_turn(site: Site, tmp_path: Path, reactor: str) -> None:
    settings = {"TWISTED_REACTOR": reactor}
    crawl = run(tmp_path, settings, spider=f"{__name__}.Clocks", start=[site.area().at("page/1")])
    expected = {
        "order": ["now", "soon", "later", "again", "again"],
        "turns": "AsyncioTurns" if reactor == ASYNCIO else "TwistedTurns",
    }
    assert expected == noted(crawl.stats), crawl.log


# Middlewares


class Marking:
    """A spider middleware."""

    def process_spider_input(self, response: Response) -> None: ...

    def process_spider_output(self, response: Response, result: Any) -> Any:
        return result

    async def process_spider_output_async(self, response: Response, result: Any) -> AsyncIterator[Any]:
        async for output in result:
            yield output

    def process_spider_exception(self, response: Response, exception: Exception) -> None: ...


def test_a_middleware_that_is_added_stands_next_to_the_engine() -> None:
    crawler = idle_crawler()
    crawler.spider = Noting(start="[]")
    manager, added = SpiderMiddlewareManager.from_crawler(crawler), Marking()
    others = manager.middlewares
    scrapy_compat.add_next_to_engine(manager, added)
    assert (added, *others) == tuple(manager.middlewares)
    methods = {
        name: [scrapy_compat._owner(method) for method in chain if method is not None]
        for name, chain in manager.methods.items()
    }
    # Asked first on the way in, last on the way out.
    assert added is methods["process_spider_input"][0]
    assert added is methods["process_spider_output"][-1]
    assert added is methods["process_spider_exception"][-1]
    assert len(others) > 1


@pytest.mark.parametrize("name", ["HttpErrorMiddleware", "Marking"])
def test_a_middleware_counts_as_there_if_it_is_in_both_chains(name: str) -> None:
    found = Marking()
    chain, empty = SimpleNamespace(middlewares=(object(), found)), SimpleNamespace(middlewares=(object(),))

    def has(spider_chain: Any, downloader_chain: Any) -> bool:
        crawler: Any = SimpleNamespace(
            engine=SimpleNamespace(
                scraper=SimpleNamespace(spidermw=spider_chain),
                downloader=SimpleNamespace(middleware=downloader_chain),
            )
        )
        return scrapy_compat.has_middlewares(crawler, name)

    assert (name == "Marking") == has(chain, chain)
    assert not has(chain, empty)
    assert not has(empty, chain)
