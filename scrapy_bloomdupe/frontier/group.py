"""Group commit: writes what a crawl has seen, scheduled and done, a few ten milliseconds after it happened.

``GroupCommit`` owns the clock. A group is one transaction with the new keys, the new pending requests, the
acknowledgements, the start requests that were made and ``spider.state``. Everything in it is prepared
(serialized, held back, acknowledged, flushed) before any part lists what it writes. With a frontier a commit
that fails is the last one: the crawl ends.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import threading
import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from scrapy import Request, signals
from scrapy.exceptions import CloseSpider, DontCloseSpider, IgnoreRequest
from scrapy.extensions.spiderstate import SpiderState as SpiderStateExtension

import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import BloomdupeError, message
from scrapy_bloomdupe.frontier.feeds import Feeds
from scrapy_bloomdupe.frontier.lmdb import LmdbFrontier
from scrapy_bloomdupe.frontier.queue import FrontierQueue
from scrapy_bloomdupe.scrapy_compat import (
    call_later,
    close_spider,
    fail_at_end,
    is_closed_from_outside,
    is_closing,
)
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.environment import Verification
from scrapy_bloomdupe.stores.lmdb import GROUP_SIZE
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: ``finish_reason`` of a crawl that is over and left pending requests that it could not restore.
INCOMPLETE = "bloomdupe_incomplete"
#: ``finish_reason`` of a crawl that was stopped because a commit failed.
COMMIT_FAILED = "bloomdupe_commit_failed"

#: ``finish_reason`` of a crawl whose file was found to be torn while it ran.
DAMAGED = "bloomdupe_damaged"

# Seconds from a change to its commit, with a frontier...
_INTERVAL = 0.03
# ... and from the end of a request, which is crawled again after a kill if that is not written...
_DONE_INTERVAL = 0.0
# ... without a frontier...
_SLOW_INTERVAL = 0.1
# ... and never more than a sixteenth of the time...
_LEAST_PAUSE = 15
# ... after failures without a frontier up to so many times the interval...
_MAX_BACKOFF = 100
# ... and brought to the disk this often, in a thread.
_SYNC_INTERVAL = 60.0
# Bytes of ``spider.state`` that every commit can have: a millisecond. A larger one is saved less often, so
# that it takes at most this share of the time.
_SMALL_STATE = 64_000
_STATE_SHARE = 0.02


class GroupCommit:
    """Writes the groups of *state* from ``start`` until ``close``.

    Args:
        crawler: None: there is no clock, and nothing is written before the end.
        queue: the frontier; None: only keys are written, and a failure is counted and tried again.
        jobdir: where Scrapy keeps ``spider.state``; None: it does not.
        sync: whether feeds are brought to the disk with every commit, as the state then is.
    """

    def __init__(
        self,
        state: State,
        watch: Watch,
        crawler: Crawler | None,
        *,
        jobdir: Path | None = None,
        sync: bool = False,
    ) -> None:
        self._state = state
        self._watch = watch
        self._crawler = crawler
        self._sync = sync
        self._jobdir = jobdir
        self.queue: FrontierQueue | None = None
        self._spider_state: SpiderState | None = None
        self._feeds: Feeds | None = None
        self._done_before = 0
        self._timer: Any = None
        # What the engine no longer had when the timer rang.
        self._left: Container[Request] = ()
        # Whether the timer is that of ``arm_soon``.
        self._is_soon = False
        self._running = False
        self._backoff = 0
        self._seconds = 0.0
        self._not_before = 0.0
        self._syncer: Syncer | None = None
        self._verification: Verification | None = None
        #: Whether a commit failed with a frontier: nothing is written any more.
        self.failed = False

    def attach(self, queue: FrontierQueue, crawler: Crawler) -> None:
        """Commit what *queue* does, and acknowledge what is done.

        Raises:
            StoreError: the first commit failed.
        """
        store = queue.store
        self._done_before = store.num_done
        store.begin()
        self._state.flush()
        self.queue = queue
        connect = crawler.signals.connect
        connect(self._idle, signal=signals.spider_idle)
        for signal in (signals.item_scraped, signals.item_dropped, signals.item_error):
            connect(self._item_left, signal=signal)
        if store.has_starts:
            connect(self._request_scheduled, signal=signals.request_scheduled)
        if store.num_foreign:
            logger.warning(
                "%d pending requests are of another spider, and stay pending until it is run again",
                store.num_foreign,
                extra={"spider": crawler.spider},
            )
        if store.num_pending:
            logger.info(
                "Resuming crawl (%(queuesize)d requests scheduled)",
                {"queuesize": store.num_pending},
                extra={"spider": crawler.spider},
            )

    def start(self) -> None:
        """Begin; the spider is open."""
        self._watch.count_on_flush()
        self._running = True
        state = self._state
        if not state.temporary:
            self._syncer = Syncer(state.sync, _SYNC_INTERVAL)
        if state.is_suspect and state.environment is not None:
            self._verification = Verification(state.environment.path)
            logger.warning(
                "The machine was restarted, or somebody else has changed %s, since the last run: its pages "
                "are read beside the crawl, which ends if one of them is torn",
                state.environment.path,
                extra={"spider": self._watch.spider},
            )
        crawler, queue = self._crawler, self.queue
        if queue is not None and crawler is not None:
            self._open_feeds(crawler, queue.store)
            if self._jobdir is not None and crawler.get_extension(SpiderStateExtension) is not None:
                self._spider_state = SpiderState(queue.store, self._jobdir, crawler)
        self.arm()

    def arm(self) -> None:
        """There is something for the next commit."""
        if self._timer is None and self._running:
            interval = _SLOW_INTERVAL if self.queue is None else _INTERVAL
            self._arm(interval * 2**self._backoff)

    def arm_soon(self) -> None:
        """A request may be done."""
        if not self._is_soon and self._running:
            self._is_soon = True
            if self._timer is not None:
                self._timer.cancel()
            self._arm(_DONE_INTERVAL)

    def _arm(self, interval: float) -> None:
        wait = max(interval, self._not_before - time.perf_counter())
        self._timer = call_later(wait, self._ring)

    def relieve(self) -> None:
        """Write now if so much waits that the clock is too slow. May be called in the middle of a turn:
        nothing is acknowledged."""
        if self.queue is not None and self._state.num_waiting >= GROUP_SIZE:
            self._commit()

    def stop(self, exc: Exception) -> None:
        """End the crawl: the frontier cannot be written or read."""
        if self.failed:
            return
        self.failed = True
        self._watch.count(stats.ERROR_COMMIT)
        logger.error(
            "The frontier in %s could not be written: %s. The crawl is stopped: what was not written is "
            "crawled again by the next run. Make room on the disk, and start it again",
            self._state.directory,
            message(exc) or repr(exc),
            extra={"spider": self._watch.spider},
        )
        if self._crawler is not None:
            fail_at_end(self._crawler)
            close_spider(self._crawler, COMMIT_FAILED)

    def close(self, reason: str) -> None:
        """Write the last group; the state is closed next.

        Args:
            reason: why the crawl ended. A callback that closes the spider has not given all of its output:
                what left the engine since then is not acknowledged.
        """
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._syncer is not None:
            self._syncer.stop()
        if self._verification is not None:
            self._look_at_verification()
        if self._verification is not None:
            self._verification.stop()
        queue, crawler = self.queue, self._crawler
        if queue is not None and crawler is not None and not self.failed:
            try:
                left = queue.left() if is_closed_from_outside(crawler, reason) else ()
                self._prepare(queue, lambda: queue.acknowledge(left))
                self._say_what_is_held(queue)
                if self._spider_state is not None:
                    self._spider_state.save(at_once=True)
                queue.store.end_in_order()
                self._state.flush()
            except Exception as exc:
                self.stop(exc)
        self._publish()
        self._watch.stop()

    def _ring(self) -> None:
        queue = self.queue
        if queue is not None:
            if queue.is_ready:
                self._commit(lambda: queue.acknowledge())
            # They are acknowledged in the next turn: an engine that one of their callbacks has asked to close
            # has begun to do so by then.
            self._left = queue.left()
        self._is_soon = True
        self._timer = call_later(0, self._tick)

    def _tick(self) -> None:
        self._timer, self._is_soon = None, False
        if not self._running:
            return
        self._watch.flush()
        if self._syncer is not None and (error := self._syncer.take_error()) is not None:
            self._watch.failed(stats.ERROR_SYNC, error)
        if self._verification is not None:
            self._look_at_verification()
        self._commit(self._acknowledge)

    def _look_at_verification(self) -> None:
        verification, crawler = self._verification, self._crawler
        if verification is None or verification.problems is None:
            return
        self._verification = None
        if not verification.problems:
            self._state.verified()
            logger.info("All pages of %s are whole", verification.path, extra={"spider": self._watch.spider})
            return
        self.failed = True
        self._watch.count(stats.ERROR_OPEN)
        logger.error(
            "The crawl ends: %s is torn: %s. Restore it from a copy, or move its directory aside to start "
            "from nothing",
            verification.path,
            verification.problems[0],
            extra={"spider": self._watch.spider},
        )
        if crawler is not None:
            fail_at_end(crawler)
            close_spider(crawler, DAMAGED)

    def _acknowledge(self) -> None:
        assert self.queue is not None
        assert self._crawler is not None
        left, self._left = self._left, ()
        self.queue.acknowledge(left if not is_closing(self._crawler) else ())

    def _commit(self, acknowledge: Callable[[], object] | None = None) -> None:
        if self.failed:
            return
        # A busy machine makes no commit dearer; a disk that is waited for does.
        clock = time.perf_counter if self._sync else time.thread_time
        started = clock()
        try:
            if self.queue is not None and acknowledge is not None:
                self._prepare(self.queue, acknowledge)
            wrote = self._state.flush()
        except Exception as exc:
            if self.queue is not None:
                self.stop(exc)
                return
            self._watch.failed(stats.ERROR_COMMIT, exc)
            if 2**self._backoff < _MAX_BACKOFF:
                self._backoff += 1
            self.arm()
            return
        self._backoff = 0
        if wrote:
            seconds = clock() - started
            self._not_before = time.perf_counter() + min(_SLOW_INTERVAL, _LEAST_PAUSE * seconds)
            if self.queue is not None:
                self._seconds += seconds
                self._watch.count(stats.COMMITS)
                self._watch.set(stats.COMMIT_SECONDS, round(self._seconds, 3))
            self._publish()

    def _prepare(self, queue: FrontierQueue, acknowledge: Callable[[], object]) -> None:
        """Make ready what the next commit says.

        Raises:
            OSError: a feed could not be written.
            StoreError: the store failed.
        """
        if not queue.store.has_found_all:
            queue.find()
            self.arm()
        acknowledge()
        if self._feeds is not None:
            self._feeds.flush(sync=self._sync)
        if self._spider_state is not None:
            self._spider_state.save()

    def _publish(self) -> None:
        queue = self.queue
        if queue is None:
            return
        store, put = queue.store, self._watch.set
        put(stats.PENDING, store.num_pending + store.num_foreign)
        put(stats.DONE, store.num_done - self._done_before)
        for name, count in (
            (stats.FAILED, store.num_failed),
            (stats.RESUMED, queue.num_resumed),
            (stats.UNSERIALIZABLE, queue.num_unserializable),
        ):
            if count:
                put(name, count)

    def _idle(self) -> None:
        queue = self.queue
        if queue is None or self.failed or len(queue):
            # Another handler of this signal has given the crawl something to do.
            return
        # Nobody has asked the engine to close: it would not be idle.
        self._commit(lambda: queue.acknowledge(queue.left()))
        if self.failed or len(queue):
            raise DontCloseSpider
        if queue.stuck:
            logger.error(
                "The crawl ends with %d pending requests that this run could not do",
                len(queue.stuck),
                extra={"spider": self._watch.spider},
            )
            if self._crawler is not None:
                fail_at_end(self._crawler)
            raise CloseSpider(INCOMPLETE)

    def _item_left(self, response: Any, signal: Any) -> None:
        queue = self.queue
        if queue is None:
            return
        entry = queue.of_response(response)
        if signal is signals.item_scraped and self._feeds is not None:
            self._feeds.item_exported(entry)
        if entry is not None:
            queue.item_left(entry)

    def _request_scheduled(self, request: Request) -> None:
        if self.queue is not None and self.queue.skips_start(request):
            raise IgnoreRequest("an earlier run has scheduled this start request")

    def _open_feeds(self, crawler: Crawler, store: LmdbFrontier) -> None:
        extra = {"spider": crawler.spider}
        self._feeds = Feeds(crawler, store)
        if cut := self._feeds.cut():
            logger.info(
                "The last items of these feeds were cut off, since their pages are crawled again: %s",
                ", ".join(cut),
                extra=extra,
            )
        if store.num_done or store.num_pending:
            self._feeds.go_on()
        self._feeds.watch()
        if unsafe := self._feeds.unsafe():
            logger.warning(
                "Items of these feeds are only stored when the crawl ends, and are lost if it is killed, "
                "while their pages count as done: %s. Local files without postprocessing are complete",
                ", ".join(unsafe),
                extra=extra,
            )
        if store.num_done and (overwriting := self._feeds.overwriting()):
            logger.warning(
                "This job goes on, and these feeds are overwritten: %s. The items of earlier runs are no "
                "more in them; use -o, or overwrite: False",
                ", ".join(overwriting),
                extra=extra,
            )

    def _say_what_is_held(self, queue: FrontierQueue) -> None:
        held, extra = list(queue.held), {"spider": self._watch.spider}
        for request in held[:5]:
            logger.warning(
                "Not written, since its callback is no method of the spider or it holds what cannot be "
                "pickled: %s",
                request,
                extra=extra,
            )
        if held:
            logger.warning(
                "%d requests are in memory only. The next run crawls the pages that produced them again, and "
                "makes the start requests among them; what other code scheduled is gone, but not marked as "
                "seen",
                len(held),
                extra=extra,
            )


class SpiderState:
    """``spider.state``, kept as old as the queue. Made when the spider is open, after Scrapy's extension.

    Scrapy writes its file after our last commit, and only when a crawl ends in order: a file that is another
    one than when the last run began is newer than what we have.
    """

    def __init__(self, store: LmdbFrontier, jobdir: Path, crawler: Crawler) -> None:
        self._store = store
        self._spider = cast("Any", crawler.spider)
        file = _digest_of(jobdir / "spider.state")
        kept = store.note(b"state")
        # Of a job that is over Scrapy's file knows, if it is the same job directory.
        goes_on = store.num_pending > 0 or not store.was_in_order
        if kept is not None and goes_on and (kept[:16] == file or not hasattr(self._spider, "state")):
            self._spider.state = pickle.loads(kept[16:])
        self._file = file
        self._saved = b""
        self._not_before = 0.0
        self._is_slow = False

    def save(self, *, at_once: bool = False) -> None:
        """Let the next commit have the state, if it has changed. A large one waits, see ``_SMALL_STATE``."""
        started = time.perf_counter()
        if started < self._not_before and not at_once:
            return
        try:
            state = pickle.dumps(getattr(self._spider, "state", {}), protocol=4)
        except Exception as exc:
            self._not_before = float("inf")
            logger.error(
                "spider.state cannot be pickled: %s. It is not saved any more, neither here nor by Scrapy",
                exc,
                extra={"spider": self._spider},
            )
            return
        if state != self._saved:
            self._saved = state
            self._store.set_note(b"state", self._file + state)
        if len(state) <= _SMALL_STATE:
            return
        seconds = time.perf_counter() - started
        pause = seconds / _STATE_SHARE
        if pause > 1 and not self._is_slow:
            self._is_slow = True
            logger.warning(
                "spider.state takes %.0f ms to save: it is saved every %.0f s, and after a kill it can be as "
                "much older than the queue. Keep less in it",
                seconds * 1000,
                pause,
                extra={"spider": self._spider},
            )
        self._not_before = time.perf_counter() + pause


def _digest_of(path: Path) -> bytes:
    """Return 16 bytes that change with a file; zeros: it is not there."""
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
    except OSError:
        return bytes(16)


class Syncer:
    """Calls *sync* every *interval_s* seconds in a thread of its own until ``stop``.

    ``kill -9`` needs no sync, a power loss does. An msync of scattered pages takes seconds, for which a
    reactor must not wait.
    """

    def __init__(self, sync: Callable[[], None], interval_s: float) -> None:
        self._error: BloomdupeError | None = None
        self._sync = sync
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bloomdupe-sync", daemon=True)
        self._thread.start()

    def take_error(self) -> BloomdupeError | None:
        """Return the last error once."""
        error, self._error = self._error, None
        return error

    def stop(self) -> None:
        """End the thread; waits for a sync that is under way."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            try:
                self._sync()
            except BloomdupeError as exc:
                self._error = exc
