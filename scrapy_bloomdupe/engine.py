"""How do we ask Scrapy's engine to stop or to repeat something, on every release that we support?

Only what a duplicate filter needs; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy import signals
from scrapy.exceptions import CloseSpider
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from scrapy_bloomdupe.ahead import AsyncioTurns, Turns

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

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
    """Call *function* in a later turn of the crawl's loop."""
    try:
        from scrapy.utils.asyncio import call_later
    except ImportError:  # Scrapy 2.13
        from twisted.internet import reactor

        later: Any = reactor.callLater
        later(0, function)
    else:
        call_later(0, function)


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
