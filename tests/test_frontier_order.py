"""Do requests come out of our queue in the order of Scrapy's own?

Whole crawls, one request at a time, against the same crawls with Scrapy's duplicate filter and queues; and a
model of Scrapy's own priority queues for what such crawls cannot show: downloads under way, crashes, and more
requests than are kept in memory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import scrapy.utils.defer
from crawling import ASYNCIO, FILTER, QUIET, run
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from mocksite import Area, Site, child, mock_site
from scrapy import Request, Spider, signals, squeues
from scrapy.crawler import Crawler, CrawlerRunner
from scrapy.exceptions import ScrapyDeprecationWarning
from scrapy.http import Response
from scrapy.pqueues import ScrapyPriorityQueue
from scrapy.settings import Settings
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.log import configure_logging
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.reactor import install_reactor

import scrapy_bloomdupe.frontier.queue
from scrapy_bloomdupe.frontier.lmdb import LmdbFrontier
from scrapy_bloomdupe.frontier.queue import FrontierQueue
from scrapy_bloomdupe.scrapy_compat import Downloads, QueueOrder
from scrapy_bloomdupe.stores.environment import Environment

STOCK = {"DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}

# Crawls of one process that are under way at once: they wait for each other's answers only.
AT_ONCE = 12

# Seconds; many times what they take on a slow machine.
TIMEOUT = 180.0

#: Pages of a crawl, and those it begins with.
PAGES, ROOTS = 16, 6


def draw(what: str, number: int, among: int) -> int:
    """The same number below *among* whenever it is asked for."""
    return int.from_bytes(sha1(f"{what} {number}".encode()).digest()[:4], "little") % among


class Ordered(Spider):
    """Finds pages in a tree whose requests differ in all that the order depends on.

    Args:
        area: the URL of what it crawls.
        lambdas: "1": some callbacks cannot be serialized.
        filtered: "1": its start requests go through the duplicate filter.
    """

    name = "ordered"

    def __init__(self, area: str, lambdas: str = "", filtered: str = "") -> None:
        super().__init__()
        self.area, self.lambdas, self.filtered = area, bool(lambdas), bool(filtered)

    async def start(self) -> AsyncIterator[Request]:
        for number in range(ROOTS):
            yield self.request(number, priority=(0, 0, 0, 1, -1, 0)[number], dont_filter=not self.filtered)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        here = response.meta["number"]
        for number in range(ROOTS, PAGES):
            if draw("parent", number, min(number, 9)) == here:
                yield self.request(number, priority=draw("priority", number, 5) - 2)
        # What was seen.
        yield self.request(0)

    def request(self, number: int, **options: Any) -> Request:
        page = f"page/{number}"
        path = urlsplit(self.area).path
        match draw("kind", number, 6):
            case 0:
                page = f"go/{number}?next={path}{page}"
            case 1:
                page = f"go/{number}?next={path}on/{number}%3Fnext={path}{page}"
            case 2 if number >= ROOTS:
                page = f"broken/{number}"
        url = self.area + page
        if draw("host", number, 3) == 0 and number > 2:
            url = url.replace("127.0.0.1", "localhost")
        meta: dict[str, Any] = {"number": number}
        if slot := (None, None, "b", "a")[draw("slot", number, 4) if number >= ROOTS else 0]:
            meta["download_slot"] = slot
        callback = self.parse
        if self.lambdas and draw("lambda", number, 4) == 0:
            callback = lambda response: self.parse(response)  # noqa: E731
        return Request(url, callback, meta=meta, **options)


class InTurn:
    """Lets a request wait until the engine has nothing else to do, so that no order depends on the time that
    an answer or a callback takes, nor on when the engine's heart beats."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> InTurn:
        self = cls(crawler)
        crawler.signals.connect(self.opened, signal=signals.spider_opened)
        crawler.signals.connect(self.empty, signal=signals.scheduler_empty)
        return self

    def opened(self) -> None:
        self.engine: Any = self.crawler.engine
        self.engine._SLOT_HEARTBEAT_INTERVAL = 1000

    def empty(self) -> None:
        # Scrapy's queues can give nothing once where a request could not be serialized, and then only the
        # heartbeat asks again.
        slot = self.engine._slot
        if not self.engine.downloader.active and self.is_quiet() and slot.scheduler.has_pending_requests():
            slot.nextcall.schedule()

    async def process_request(self, request: Request, spider: Any = None) -> None:
        while not self.is_quiet():
            await asyncio.sleep(0.001)

    def is_quiet(self) -> bool:
        return self.engine._start is None and self.engine.scraper.slot.is_idle()


SETTINGS = {
    **QUIET,
    "CONCURRENT_REQUESTS": 1,
    "RETRY_TIMES": 1,
    "COOKIES_ENABLED": False,
    "BLOOMDUPE_CAPACITY": 1000,
    "LOG_LEVEL": "WARNING",
    "DOWNLOADER_MIDDLEWARES": {f"{__name__}.InTurn": 1},
    "TWISTED_REACTOR": ASYNCIO,
}


# The process of many crawls


async def crawl_all(chains: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Crawl the runs of each chain one after the other, chains at the same time; return their stats."""
    runner = CrawlerRunner()
    gate = asyncio.Semaphore(AT_ONCE)

    async def one_after_another(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        async with gate:
            for run in runs:
                crawler = Crawler(Ordered, {**SETTINGS, **run["settings"]})
                await maybe_deferred_to_future(runner.crawl(crawler, **run["arguments"]))
                assert crawler.stats is not None
                found.append(crawler.stats.get_stats())
        return found

    return await asyncio.gather(*map(one_after_another, chains))


def main(path: Path) -> None:
    warnings.simplefilter("error", ScrapyDeprecationWarning)
    configure_logging({"LOG_LEVEL": "WARNING"})
    # Scrapy 2.13 sleeps so long before every callback.
    scrapy.utils.defer._DEFER_DELAY = 0  # type: ignore[attr-defined]
    install_reactor(ASYNCIO)
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    stopping: Any = reactor

    async def work() -> None:
        try:
            found = await crawl_all(json.loads(path.read_text()))
            path.with_suffix(".stats").write_text(json.dumps(found, default=str))
        finally:
            stopping.callLater(0, stopping.stop)

    stopping.callWhenRunning(lambda: Deferred.fromFuture(asyncio.ensure_future(work())))
    stopping.run()


# What is crawled


@dataclass
class Case:
    """Runs that are made twice, by Scrapy alone and by us.

    Attributes:
        name: of the test.
        runs: settings of each run.
        arguments: of the spider.
        has_jobdir: whether requests are on a disk.
    """

    name: str
    runs: list[dict[str, Any]]
    arguments: dict[str, str] = field(default_factory=dict)
    has_jobdir: bool = True


STOP = {"CLOSESPIDER_PAGECOUNT": 9}
PRIORITY_QUEUES = {
    "aware": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "plain": "scrapy.pqueues.ScrapyPriorityQueue",
}
# Each encoding meets each order.
ENCODINGS = [
    name for name in ("Pickle{}Disk", "Marshal{}Disk", "Pickle{}SQLite", "Marshal{}SQLite")
    if hasattr(squeues, name.format("Lifo") + "Queue")
]  # fmt: skip


def cases() -> Iterator[Case]:
    for number, (queue, order, start) in enumerate(
        product(PRIORITY_QUEUES, ("Lifo", "Fifo"), ("Fifo", "Lifo", None))
    ):
        encoding = ENCODINGS[number % len(ENCODINGS)]
        disk = {
            "SCHEDULER_PRIORITY_QUEUE": PRIORITY_QUEUES[queue],
            "SCHEDULER_DISK_QUEUE": f"scrapy.squeues.{encoding.format(order)}Queue",
            "SCHEDULER_START_DISK_QUEUE": start and f"scrapy.squeues.{encoding.format(start)}Queue",
        }
        memory = {
            "SCHEDULER_PRIORITY_QUEUE": PRIORITY_QUEUES[queue],
            "SCHEDULER_MEMORY_QUEUE": f"scrapy.squeues.{order}MemoryQueue",
            "SCHEDULER_START_MEMORY_QUEUE": start and f"scrapy.squeues.{start}MemoryQueue",
        }
        name = f"{queue}-{order}-{start}".lower()
        # The next run asks for its start requests again, or finds them seen.
        filtered = {"filtered": "1"} if number % 2 else {}
        yield Case(f"{name}-stopped", [{**disk, **STOP}, disk], filtered)
        yield Case(f"{name}-lambdas", [{**disk, **memory}], {"lambdas": "1"})
        yield Case(f"{name}-memory", [memory], has_jobdir=False)
        # Without a JOBDIR what cannot be serialized comes first with us, as it does with one in Scrapy.


CASES = {case.name: case for case in cases()}


@dataclass
class Found:
    """What a crawl fetched, run by run, and its stats."""

    pages: list[list[str]]
    stats: list[dict[str, Any]]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Found]]:
    """All cases, by name and by whose they are."""
    folder = tmp_path_factory.mktemp("order")
    with mock_site(folder) as site:
        areas: dict[tuple[str, str], list[Area]] = {}
        chains: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for case in CASES.values():
            for whose in ("stock", "ours"):
                # An area for a run: what a run has left is asked for by the next one.
                area = site.area()
                where = folder / f"{case.name}-{whose}"
                own = {**STOCK} if whose == "stock" else {**FILTER}
                if case.has_jobdir:
                    own["JOBDIR"] = str(where)
                elif whose == "ours":
                    own["BLOOMDUPE_DIR"] = str(where)
                areas[case.name, whose] = [area]
                arguments = {"area": area.at(""), **case.arguments}
                chains[case.name, whose] = [
                    {"settings": {**own, **run}, "arguments": arguments} for run in case.runs
                ]
        stats = crawl_in_processes(folder, chains)
        yield {name: Found(split(areas[name][0], stats[name]), stats[name]) for name in chains}


def split(area: Area, stats: list[dict[str, Any]]) -> list[list[str]]:
    """What was answered, run by run."""
    pages = [path.replace(area.prefix, "") for _, path, _ in area.answers()]
    found = []
    for one in stats:
        count = one.get("downloader/response_count", 0)
        found.append(pages[:count])
        pages = pages[count:]
    assert [] == pages
    return found


def crawl_in_processes(
    folder: Path, chains: Mapping[tuple[str, str], list[dict[str, Any]]]
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Crawl *chains* in a process for every core that there surely is; return their stats."""
    names = list(chains)
    shares = [names[number::2] for number in range(2)]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        started = []
        for number, share in enumerate(shares):
            path = folder / f"chains-{number}.json"
            path.write_text(json.dumps([chains[name] for name in share]))
            command = [sys.executable, str(Path(__file__).resolve()), str(path)]
            log = stack.enter_context(path.with_suffix(".log").open("w"))
            process = stack.enter_context(child(command, folder, stdout=log, stderr=subprocess.STDOUT))
            started.append((process, path, share))
        for process, path, share in started:
            code, result = process.wait(TIMEOUT), path.with_suffix(".stats")
            assert (0, True) == (code, result.exists()), path.with_suffix(".log").read_text()[-5000:]
            found |= dict(zip(share, json.loads(result.read_text()), strict=True))
    return found


SCHEDULER = ("finish_reason", "scheduler/", "downloader/request_count", "retry/", "response_received_count")


@pytest.mark.parametrize("name", CASES)
def test_a_crawl_has_the_order_of_scrapys_own(crawled: dict[tuple[str, str], Found], name: str) -> None:
    stock, ours = crawled[name, "stock"], crawled[name, "ours"]
    assert stock.pages == ours.pages
    assert all(stock.pages)
    for theirs, our_own in zip(stock.stats, ours.stats, strict=True):
        assert {key: value for key, value in theirs.items() if key.startswith(SCHEDULER)} == {
            key: value for key, value in our_own.items() if key.startswith(SCHEDULER)
        }


# A model: Scrapy's own priority queues with memory queues


class FakeDownloader:
    """Downloads that are under way, as both queues look at them."""

    def __init__(self) -> None:
        self.slots: dict[str, Any] = {}
        self.active: set[Request] = set()

    def get_slot_key(self, request: Request) -> str:
        return str(request.meta["download_slot"])

    def set_active(self, slot: str, count: int) -> None:
        before = self.slots[slot].active if slot in self.slots else set()
        now = {Request("data:,", meta={"download_slot": slot}) for _ in range(count)}
        self.active = (self.active - before) | now
        self.slots[slot] = SimpleNamespace(active=now)


class FakeSeen:
    """A seen-set for requests that nobody judged."""

    def hold(self, key: bytes) -> None:
        raise AssertionError

    release = hold

    def forget(self, key: bytes) -> bool:
        raise AssertionError


class Shop(Spider):
    name = "shop"


SLOTS = ["a", "b", "c"]

# Small numbers, so that requests are in the file only, and numbers, and buckets.
CHUNK, OBJECTS, BUCKETS = 4, 3, 2


@dataclass
class Record:
    """A request that was pushed.

    Attributes:
        number: in the order of the pushes.
        request: what was pushed.
        durable: whether the file has it.
        done: whether it is acknowledged.
    """

    number: int
    request: Request
    durable: bool = False
    done: bool = False


class Orders(RuleBasedStateMachine):
    """Our queue beside Scrapy's."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "seen.lmdb")
        self.environment = Environment.create(self.path)
        self.numbers = itertools.count()
        self.records: dict[int, Record] = {}
        #: Popped and not acknowledged.
        self.out: dict[int, Request] = {}

    @initialize(
        queue=st.sampled_from(sorted(PRIORITY_QUEUES)),
        lifo=st.booleans(),
        start_lifo=st.sampled_from([None, False, True]),
    )
    def choose(self, queue: str, lifo: bool, start_lifo: bool | None) -> None:
        kinds = {True: "scrapy.squeues.LifoMemoryQueue", False: "scrapy.squeues.FifoMemoryQueue", None: None}
        self.settings = Settings(
            {
                "SCHEDULER_PRIORITY_QUEUE": PRIORITY_QUEUES[queue],
                "SCHEDULER_MEMORY_QUEUE": kinds[lifo],
                "SCHEDULER_START_MEMORY_QUEUE": kinds[start_lifo],
            }
        )
        self.open()

    def open(self) -> None:
        self.downloader = FakeDownloader()
        engine = SimpleNamespace(downloader=self.downloader, scraper=SimpleNamespace(slot=None))
        crawler: Any = SimpleNamespace(engine=engine, settings=self.settings)
        start = self.settings["SCHEDULER_START_MEMORY_QUEUE"]
        self.model: Any = build_from_crawler(
            load_object(self.settings["SCHEDULER_PRIORITY_QUEUE"]),
            crawler,
            downstream_queue_cls=load_object(self.settings["SCHEDULER_MEMORY_QUEUE"]),
            key="",
            start_queue_cls=start and load_object(start),
        )
        self.store = LmdbFrontier(self.environment, "shop")
        self.queue = FrontierQueue(
            self.store,
            FakeSeen(),
            Shop(),
            QueueOrder.from_settings(self.settings, disk=False),
            Downloads(crawler),
            key_of=lambda request: None,
            on_change=lambda: None,
            on_done=lambda: None,
            on_full=lambda: None,
            on_error=self.failed,
        )

    def failed(self, exc: Exception) -> None:
        raise exc

    @rule(
        slot=st.sampled_from(SLOTS),
        priority=st.sampled_from([0, 0, 0, 1]),
        start=st.sampled_from([False, False, True]),
        count=st.integers(1, 3 * CHUNK),
    )
    def push(self, slot: str, priority: int, start: bool, count: int) -> None:
        for number in itertools.islice(self.numbers, count):
            meta: dict[str, Any] = {"download_slot": slot, "number": number}
            if start:
                meta["is_start_request"] = True
            request = Request(f"http://{slot}.example/{number}", priority=priority, meta=meta)
            self.records[number] = Record(number, request)
            self.queue.push(request)
            self.model.push(request)

    @rule(counts=st.lists(st.integers(0, 2), min_size=len(SLOTS), max_size=len(SLOTS)))
    def download(self, counts: list[int]) -> None:
        for slot, count in zip(SLOTS, counts, strict=True):
            self.downloader.set_active(slot, count)

    @rule()
    def find(self) -> None:
        self.queue.find()

    def find_all(self) -> None:
        while self.queue.find():
            pass

    @rule(count=st.integers(1, 4 * CHUNK), peek=st.booleans())
    def pop(self, count: int, peek: bool) -> None:
        self.find_all()
        for _ in range(count):
            expected = self.model.pop()
            if peek:
                assert number_of(expected) == number_of(self.queue.peek())
            found = self.queue.pop()
            assert number_of(expected) == number_of(found)
            if found is not None:
                self.out[number_of(found)] = found  # type: ignore[index]

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        for number in data.draw(st.sets(st.sampled_from(sorted(self.out)), min_size=1)):
            self.queue.exhausted(SimpleNamespace(request=self.out.pop(number)))
            self.records[number].done = True
        assert self.queue.acknowledge()

    @rule()
    def commit(self) -> None:
        self.environment.commit()
        self.records = {number: record for number, record in self.records.items() if not record.done}
        for record in self.records.values():
            record.durable = True

    @rule()
    def crash(self) -> None:
        self.environment.close()
        self.reopen()

    @rule()
    def stop(self) -> None:
        self.store.end_in_order()
        self.commit()
        self.environment.close()
        self.reopen()

    def reopen(self) -> None:
        self.environment = Environment.open(self.path)
        self.open()
        self.out = {}
        # What was committed and not acknowledged, as if it were scheduled now.
        self.records = {number: record for number, record in self.records.items() if record.durable}
        for record in self.records.values():
            record.done = False
            self.model.push(record.request)

    @invariant()
    def as_many(self) -> None:
        assert not hasattr(self, "queue") or len(self.model) == len(self.queue)

    def teardown(self) -> None:
        try:
            if hasattr(self, "queue"):
                # Nothing is lost: all of it comes, in order.
                self.pop(len(self.model) + 1, peek=False)
        finally:
            self.close()

    def close(self) -> None:
        self.environment.close()
        self.folder.cleanup()


def number_of(request: Request | None) -> int | None:
    return None if request is None else int(request.meta["number"])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapy_bloomdupe.frontier.queue, "_CHUNK", CHUNK)
    monkeypatch.setattr(scrapy_bloomdupe.frontier.queue, "_OBJECTS", OBJECTS)
    # ``_BUCKETS_AT_ONCE`` is its default.
    monkeypatch.setattr(LmdbFrontier.find, "__defaults__", (BUCKETS,))


@pytest.mark.usefixtures("small")
def test_requests_are_popped_in_the_order_of_scrapys_queues_whatever_happens_to_the_process() -> None:
    run_state_machine_as_test(Orders, settings=settings(max_examples=120, stateful_step_count=60))


@contextmanager
def opened(queue: str, *, lifo: bool) -> Iterator[Orders]:
    machine = Orders()
    try:
        machine.choose(queue, lifo=lifo, start_lifo=False)
        yield machine
    finally:
        machine.close()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lifo", [True, False], ids=["lifo", "fifo"])
@pytest.mark.parametrize("queue", PRIORITY_QUEUES)
def test_the_first_requests_of_a_resumed_crawl_are_the_first_of_all_that_is_pending(
    queue: str, lifo: bool
) -> None:
    with opened(queue, lifo=lifo) as machine:
        # More buckets than are read at once, the first ones pushed last: of one slot, or of many.
        for number in range(3 * BUCKETS):
            slot, priority = ("a", number) if queue == "plain" else (f"s{3 * BUCKETS - number:02}", 0)
            machine.push(slot, priority, start=False, count=2)
        machine.stop()
        expected, found = [], []
        for _ in range(len(machine.records)):
            expected.append(number_of(machine.model.pop()))
            found.append(number_of(machine.queue.pop()))
            # Every commit reads some more.
            machine.queue.find()
        assert expected == found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lifo", [True, False], ids=["lifo", "fifo"])
def test_what_is_pushed_before_all_buckets_are_read_keeps_its_place_in_the_next_run(lifo: bool) -> None:
    with opened("plain", lifo=lifo) as machine:
        last = 2 * BUCKETS - 1
        for priority in range(last + 1):
            machine.push("a", priority, start=False, count=1)
        machine.stop()
        # Its bucket is not read yet.
        machine.push("a", last, start=False, count=1)
        machine.stop()
        machine.find_all()
        machine.push("a", last, start=False, count=1)
        machine.pop(count=len(machine.model), peek=False)


# Queues of the user's own


class OwnDiskQueue(squeues.PickleLifoDiskQueue):  # type: ignore[misc]
    pass


class OwnMemoryQueue(squeues.LifoMemoryQueue):  # type: ignore[misc]
    pass


class OwnPriorityQueue(ScrapyPriorityQueue):
    pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.mark.parametrize(
    ("setting", "queue", "place"),
    [
        ("SCHEDULER_PRIORITY_QUEUE", OwnPriorityQueue, "JOBDIR"),
        ("SCHEDULER_DISK_QUEUE", OwnDiskQueue, "JOBDIR"),
        ("SCHEDULER_START_DISK_QUEUE", OwnDiskQueue, "JOBDIR"),
        ("SCHEDULER_PRIORITY_QUEUE", OwnPriorityQueue, "BLOOMDUPE_DIR"),
        ("SCHEDULER_MEMORY_QUEUE", OwnMemoryQueue, "BLOOMDUPE_DIR"),
        ("SCHEDULER_START_MEMORY_QUEUE", OwnMemoryQueue, "BLOOMDUPE_DIR"),
    ],
)
def test_a_queue_whose_order_is_not_known_is_refused_by_the_name_of_its_setting(
    site: Site, tmp_path: Path, setting: str, queue: type, place: str
) -> None:
    area = site.area()
    own = {setting: f"{__name__}.{queue.__name__}", place: str(tmp_path / "job")}
    crawl = run(tmp_path, {**FILTER, **own}, start=[area.at("tree/9/0")])
    assert (1, "bloomdupe_refused") == (crawl.code, crawl.stats["finish_reason"]), crawl.log
    assert [] == area.answers()
    (line,) = crawl.lines("ERROR", "The crawl does not start")
    assert f"{setting} = '{own[setting]}'" in line
    assert "Traceback" not in crawl.log


@pytest.mark.parametrize(
    ("setting", "queue"),
    [("SCHEDULER_DISK_QUEUE", OwnDiskQueue), ("SCHEDULER_PRIORITY_QUEUE", OwnPriorityQueue)],
)
def test_a_queue_whose_order_is_not_known_is_left_alone_without_a_frontier(
    site: Site, tmp_path: Path, setting: str, queue: type
) -> None:
    area = site.area()
    own = {setting: f"{__name__}.{queue.__name__}", "JOBDIR": str(tmp_path / "job")}
    crawl = run(tmp_path, {**FILTER, **own, "BLOOMDUPE_FRONTIER": False}, start=[area.at("tree/9/0")])
    assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"]), crawl.log
    assert 9 == len(area.answers())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
