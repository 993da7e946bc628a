"""All that we touch of Scrapy's insides, for every release that we support. It decides nothing.

Each part has a contract test in ``tests/test_scrapy_compat.py`` that fails first when Scrapy moves.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy import pqueues, signals, squeues
from scrapy.core.downloader import Downloader
from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import CloseSpider
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from scrapy_bloomdupe.ahead import AsyncioTurns, Turns
from scrapy_bloomdupe.errors import ConfigurationError, StateUnusable

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

# From here on a handler of spider_opened can refuse the crawl by raising CloseSpider.
_REFUSABLE = scrapy.version_info >= (2, 18)


def is_crawling(crawler: Crawler) -> bool:
    """Return whether *crawler* has an engine, that is, whether this is a crawl and not a unit test."""
    try:
        return crawler.engine is not None
    except RuntimeError:  # Scrapy 2.19: not set yet
        return False


def refuse_to_start(crawler: Crawler, reason: str) -> None:
    """Let the crawl that is being opened end before its first download, with a non-zero exit code.

    Args:
        crawler: whose scheduler is being opened.
        reason: the ``finish_reason`` stat.
    """

    _leave_queues(crawler)

    def on_closed() -> None:
        # What `scrapy crawl` takes for a crawl that could not start: its exit code becomes 1.
        crawler.spider = None

    def on_opened() -> None:
        crawler.signals.connect(on_closed, signal=signals.spider_closed, weak=False)
        if _REFUSABLE:
            raise CloseSpider(reason)
        assert crawler.engine is not None
        crawler.engine.pause()

    def on_started() -> None:
        if not _REFUSABLE:
            # The engine cannot be stopped before it runs; in the next turn of the reactor it can.
            from twisted.internet import reactor

            call_later: Any = reactor.callLater
            call_later(0, close_spider, crawler, reason)

    # Weak by default: these live as long as the crawler does.
    crawler.signals.connect(on_opened, signal=signals.spider_opened, weak=False)
    crawler.signals.connect(on_started, signal=signals.engine_started, weak=False)


def _leave_queues(crawler: Crawler) -> None:
    """Keep the scheduler from writing its disk queues when it is closed: they were opened by a crawl that
    does not take place, and another process may be at work on them."""
    scheduler = _scheduler_of(crawler)
    if scheduler is not None and getattr(scheduler, "dqs", None) is not None:
        scheduler.dqs = None


def has_pending_requests(crawler: Crawler) -> bool:
    """Return whether the scheduler has requests; false: it has none, or cannot be asked."""
    scheduler = _scheduler_of(crawler)
    return scheduler is not None and bool(scheduler.has_pending_requests())


def take_waiting(crawler: Crawler) -> Iterator[Request]:
    """Take the requests out of the scheduler's queue in memory: it is closed, and they end with it."""
    queue = getattr(_scheduler_of(crawler), "mqs", None)
    while queue is not None and (request := queue.pop()) is not None:
        yield request


def _scheduler_of(crawler: Crawler) -> Any:
    engine: Any = crawler.engine if is_crawling(crawler) else None
    # Scrapy 2.19 has a name for it.
    scheduler: Any = getattr(engine, "scheduler", None)
    if scheduler is None:
        scheduler = getattr(getattr(engine, "_slot", None), "scheduler", None)
    return scheduler


def close_spider(crawler: Crawler, reason: str) -> None:
    """Ask for a clean end of the crawl; requests under way are finished."""
    engine: Any = crawler.engine
    if hasattr(engine, "close_spider_async"):
        _run(engine.close_spider_async(reason=reason))
    else:
        engine.close_spider(crawler.spider, reason)


def fail_at_end(crawler: Crawler) -> None:
    """Let the process end with an exit code that is not 0 when this crawl has ended."""

    def on_closed() -> None:
        crawler.spider = None

    crawler.signals.connect(on_closed, signal=signals.spider_closed, weak=False)


def has_middlewares(crawler: Crawler, name: str) -> bool:
    """Return whether a class of this name is among the spider middlewares and the downloader middlewares."""
    engine: Any = crawler.engine
    return all(
        any(type(middleware).__name__ == name for middleware in manager.middlewares)
        for manager in (engine.scraper.spidermw, engine.downloader.middleware)
    )


def on_close_spider(crawler: Crawler, function: Callable[[Request], None]) -> None:
    """Call *function* with each request whose callback or errback raises ``CloseSpider``; no signal tells."""
    scraper: Any = crawler.engine.scraper
    handle = scraper.handle_spider_error

    def handle_spider_error(failure: Any, request: Request, *args: Any, **kwargs: Any) -> Any:
        if isinstance(failure.value, CloseSpider):
            function(request)
        return handle(failure, request, *args, **kwargs)

    scraper.handle_spider_error = handle_spider_error


def is_closing(crawler: Crawler) -> bool:
    """Return whether the engine has begun to close the spider."""
    engine: Any = crawler.engine
    slot = getattr(engine, "_slot", None)
    return slot is None or slot.closing is not None


#: Reasons of Scrapy's own extensions, which close a spider from outside of its callbacks.
_FROM_OUTSIDE = {
    *(f"closespider_{what}" for what in ("timeout", "itemcount", "pagecount", "errorcount")),
    *("closespider_pagecount_no_item", "closespider_timeout_no_item", "memusage_exceeded"),
}


def is_closed_from_outside(crawler: Crawler, reason: str) -> bool:
    """Return whether a crawl that ends with *reason* was certainly not closed by one of its callbacks, whose
    output is then not known in full."""
    engine: Any = crawler.engine
    ours = reason.startswith("bloomdupe_")
    return ours or reason in _FROM_OUTSIDE or (reason == "shutdown" and not engine.running)


# Hosts whose slots are known.
_HOSTS = 10_000


class Downloads:
    """What the downloader and the scraper of a crawl are at.

    A request leaves them only after its successor was scheduled, or the output of its callback or errback was
    consumed and its items have left the pipelines. While a redirection's target is being scheduled its
    request is in none of them.

    Raises:
        ConfigurationError: the downloader is not Scrapy's, and does not say what it is at.
    """

    def __init__(self, crawler: Crawler) -> None:
        engine: Any = crawler.engine
        self._scraper = engine.scraper
        self._downloader = engine.downloader
        names = "active", "slots", "get_slot_key"
        missing = [name for name in names if not hasattr(self._downloader, name)]
        if missing:
            raise ConfigurationError(
                f"DOWNLOADER = {crawler.settings['DOWNLOADER']!r} has no {', '.join(missing)}, by which it "
                "is known what is being downloaded. Take Scrapy's downloader, or set BLOOMDUPE_FRONTIER = "
                "False: then only what was seen is kept"
            )
        # By scheme and host: their slots, which Scrapy would parse each URL for. By IP they can change, and a
        # downloader of the user's own may tell them by more.
        is_stock = getattr(type(self._downloader), "get_slot_key", None) is Downloader.get_slot_key
        self._by_host = is_stock and not getattr(self._downloader, "ip_concurrency", 0)
        self._slots: dict[str, str] = {}

    def slot_of(self, request: Request) -> str:
        """Return the download slot of a request."""
        url = request.url
        # Behind the slashes of the scheme: everything that follows the next one does not matter.
        end = url.find("/", len("https://")) if url.startswith(("http://", "https://")) else -1
        if end < 0 or "download_slot" in request.meta or not self._by_host:
            return self._downloader.get_slot_key(request)  # type: ignore[no-any-return]
        host = url[:end]
        slot = self._slots.get(host)
        if slot is None:
            if len(self._slots) >= _HOSTS:
                self._slots.clear()
            slot = self._slots[host] = self._downloader.get_slot_key(request)
        return slot

    def active(self, slot: str) -> int:
        """Return the number of active downloads of a slot."""
        found = self._downloader.slots.get(slot)
        return len(found.active) if found is not None else 0

    def busy(self) -> set[str]:
        """Return the slots that have active downloads."""
        slots = self._downloader.slots
        names = {self.slot_of(request) for request in self._downloader.active}
        return {name for name in names if name in slots and slots[name].active}

    def waiting(self) -> set[Request]:
        """Return the requests of which no response has been handled yet."""
        slot = self._scraper.slot
        queued = {request for _, request, _ in slot.queue} if slot is not None else set()
        at_downloader: set[Request] = self._downloader.active
        return at_downloader | queued if queued else at_downloader

    def in_progress(self) -> Container[Request]:
        """Return all requests that the engine has."""
        slot = self._scraper.slot
        return self.waiting() | slot.active if slot is not None else self.waiting()


@dataclass(frozen=True)
class QueueOrder:
    """The order of pending requests.

    Attributes:
        by_slot: whether the download slot with the fewest active downloads comes first.
        in_turns: whether equal slots take turns; else the first one by name comes.
        lifo: whether the newest request of a priority comes first.
        start_lifo: the same for start requests, which come after others of their priority; None: they are
            as others.
    """

    by_slot: bool
    in_turns: bool
    lifo: bool
    start_lifo: bool | None

    @classmethod
    def from_settings(cls, settings: BaseSettings, *, disk: bool) -> QueueOrder:
        """Read Scrapy's settings of its queues.

        Args:
            disk: whether those of its disk queue count (with a ``JOBDIR``), or those of its memory queue.

        Raises:
            ConfigurationError: a queue is none of Scrapy's own.
        """
        which = "DISK" if disk else "MEMORY"
        kind = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
        if kind not in (pqueues.ScrapyPriorityQueue, pqueues.DownloaderAwarePriorityQueue):
            raise _foreign_queue("SCHEDULER_PRIORITY_QUEUE", settings["SCHEDULER_PRIORITY_QUEUE"])
        start = settings[f"SCHEDULER_START_{which}_QUEUE"]
        return cls(
            by_slot=kind is pqueues.DownloaderAwarePriorityQueue,
            in_turns=hasattr(kind, "_next_slot"),
            lifo=_is_lifo(settings, f"SCHEDULER_{which}_QUEUE"),
            start_lifo=_is_lifo(settings, f"SCHEDULER_START_{which}_QUEUE") if start else None,
        )


_LIFO = {
    name: "Lifo" in name
    for name in (
        *(
            f"{encoding}{order}{kind}"
            for encoding in ("Pickle", "Marshal")
            for order in ("Lifo", "Fifo")
            for kind in ("DiskQueue", "SQLiteQueue")
        ),
        "LifoMemoryQueue",
        "FifoMemoryQueue",
    )
}


def _is_lifo(settings: BaseSettings, name: str) -> bool:
    kind = load_object(settings[name])
    for queue, lifo in _LIFO.items():
        if kind is getattr(squeues, queue, None):
            return lifo
    raise _foreign_queue(name, settings[name])


def _foreign_queue(name: str, value: Any) -> ConfigurationError:
    return ConfigurationError(
        f"{name} = {value!r} is none of Scrapy's own queues, whose order scrapy-bloomdupe keeps in a queue "
        "that survives a kill. Take one of Scrapy's, or set BLOOMDUPE_FRONTIER = False to keep yours: then "
        "only what was seen is kept, and a crawl that is killed loses what waited in your queue"
    )


def has_stock_scheduler(settings: BaseSettings) -> bool:
    """Return whether the requests wait in Scrapy's own scheduler."""
    found = load_object(settings["SCHEDULER"])
    return isinstance(found, type) and issubclass(found, Scheduler)


def replace_queues(crawler: Crawler, make: Callable[[Any, bool], tuple[Any, Any]]) -> None:
    """Give the scheduler other queues; called by the duplicate filter when it is opened.

    Args:
        make: gets Scrapy's memory queue, and whether there is no disk queue; returns a disk queue and a
            memory queue.
    """
    scheduler = _scheduler_of(crawler)
    has_disk = scheduler.dqs is not None
    disk, scheduler.mqs = make(scheduler.mqs, not has_disk)
    if has_disk:
        scheduler.dqs = disk


def hide_jobdir(crawler: Crawler) -> None:
    """Keep the scheduler that is being made from opening a queue in the ``JOBDIR``: the crawl is refused, and
    an error of Scrapy's about the queue would come before ours."""
    settings = crawler.settings
    was_frozen, settings.frozen = settings.frozen, False
    settings.set("JOBDIR", None, priority="cmdline")
    settings.frozen = was_frozen


_QUEUE_NAME, _INDEX_NAME = "requests.queue", "active.json"


class QueueMark:
    """The file ``active.json`` in a job directory: with a number in it Scrapy's own queues refuse to start.

    Without it Scrapy, started without us, would find an empty queue and end as finished. Scrapy reads the
    file before our queue is opened, so it has to be taken away for a moment.
    """

    def __init__(self, jobdir: Path) -> None:
        self.queue = jobdir / _QUEUE_NAME
        self._path = self.queue / _INDEX_NAME

    def is_set(self) -> bool:
        """Return whether requests are pending in a frontier of ours."""
        found = self._read()
        return isinstance(found, int) and not isinstance(found, bool)

    def is_damaged(self) -> bool:
        """Return whether the file is there and Scrapy could not read it."""
        return self._path.exists() and self._read() is None

    def has_stock_queue(self) -> bool:
        """Return whether requests may wait in Scrapy's own queue. A job of Scrapy's that was killed has files
        and nothing that says which."""
        if not self.queue.is_dir():
            return False
        if any(path.is_file() and path != self._path for path in self.queue.rglob("*")):
            return True
        return not self.is_set() and bool(self._read())

    def set(self) -> None:
        """Write the mark.

        Raises:
            StateUnusable: the system refused.
        """
        self._write("1")

    def clear(self) -> None:
        """Let Scrapy's own queue be empty.

        Raises:
            StateUnusable: the system refused.
        """
        self._write("[]")

    def _read(self) -> Any:
        try:
            return json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return None

    def _write(self, text: str) -> None:
        try:
            self.queue.mkdir(parents=True, exist_ok=True)
            # Written over in place: on a full disk there is room for what was there.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(descriptor, text.encode(), 0)
                os.ftruncate(descriptor, len(text))
            finally:
                os.close(descriptor)
        except OSError as exc:
            raise StateUnusable(
                exc.errno,
                f"cannot write {self._path}: {exc.strerror}; check the permissions and the free space of the "
                "disk",
            ) from exc


def add_next_to_engine(manager: Any, middleware: object) -> None:
    """Add *middleware* to a running chain of Scrapy's, next to the engine: it is asked first on the way in,
    and last on the way out.

    Raises:
        AttributeError: the chain is not as this release knows it; it was not changed.
    """
    chains = manager.methods
    add, others = manager._add_middleware, manager.middlewares
    add(middleware)
    manager.middlewares = (middleware, *others)
    for methods in chains.values():
        # It stands at the spider's end now: the first of some chains, the last of others.
        if methods and _owner(methods[0]) is middleware:
            methods.rotate(-1)
        elif methods and _owner(methods[-1]) is middleware:
            methods.rotate(1)


def _owner(method: Any) -> object:
    # Scrapy 2.13 keeps a pair where there is a synchronous and an asynchronous form.
    method = method[0] if isinstance(method, tuple) else method
    return getattr(method, "__self__", None)


def call_soon(function: Callable[[], None]) -> None:
    """Call *function* in a later turn of the crawl's loop, after what this turn has started."""
    call_later(0, function)


def call_later(seconds: float, function: Callable[[], None]) -> Any:
    """Call *function* after *seconds* on the crawl's thread; the result has ``cancel``."""
    later: Any
    try:
        from scrapy.utils.asyncio import call_later as later
    except ImportError:  # Scrapy 2.13
        from twisted.internet import reactor

        later = reactor.callLater
    return later(seconds, function)


async def next_turn() -> None:
    """Return in a later turn of the crawl's loop."""
    turn: Deferred[None] = Deferred()
    call_soon(lambda: turn.callback(None))
    await maybe_deferred_to_future(turn)


class TwistedTurns:
    """``ahead.Turns`` without asyncio."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> Callable[[], object]:
        return Deferred.fromCoroutine(coroutine).cancel

    def pause(self) -> tuple[Awaitable[None], Callable[[], None]]:
        waiting: Deferred[None] = Deferred()
        return waiting, lambda: call_soon(lambda: None if waiting.called else waiting.callback(None))


def turns() -> Turns:
    """Return how things take turns in this crawl; to be called while it runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return TwistedTurns()
    return AsyncioTurns()


class Repeater:
    """Calls *function* every *interval* seconds on the crawl's thread, until ``stop``."""

    def __init__(self, function: Callable[[], None], interval: float) -> None:
        try:
            from scrapy.utils.asyncio import create_looping_call
        except ImportError:  # Scrapy 2.13
            self._call: Any = LoopingCall(function)
        else:
            self._call = create_looping_call(function)
        self._call.start(interval, now=False)

    def stop(self) -> None:
        if self._call.running:
            self._call.stop()


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    from scrapy.utils.asyncio import is_asyncio_available

    if is_asyncio_available():
        import asyncio

        task = asyncio.ensure_future(coroutine)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
    else:
        Deferred.fromCoroutine(coroutine)


# asyncio keeps only weak references to its tasks.
_tasks: set[Any] = set()
