"""Who tells the journal what happens in a crawl, and when does the crawl end for it? Signals.

What no signal tells ``journalmiddleware`` does.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.exceptions import CloseSpider, DontCloseSpider

import scrapy_bloomdupe.engine as engine
import scrapy_bloomdupe.jobreport as jobreport
import scrapy_bloomdupe.requestbytes as requestbytes
import scrapy_bloomdupe.requestqueue as requestqueue
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.feeds import Feeds
from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.records import Seal
from scrapy_bloomdupe.resuming import Resumption
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.unit import META_UNIT
from scrapy_bloomdupe.units import Units
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: ``finish_reason`` of a crawl that is over and left pending requests that it could not restore.
INCOMPLETE = "bloomdupe_incomplete"
#: ``finish_reason`` of a crawl that was stopped because the journal could not be written.
NOT_WRITTEN = "bloomdupe_commit_failed"

# Requests put back per round when the crawl is idle.
_BATCH = 100

#: The journals at work.
of_crawler: WeakKeyDictionary[Crawler, Journaling] = WeakKeyDictionary()


class Journaling:
    """The journal of one crawl at work.

    Args:
        state: has a journal.
        queue: Scrapy's own queue on the disk, None: there is none.
        trusted: that queue holds what the last run left pending.
        sync: bring every commit to the disk.

    Raises:
        StoreError: the journal cannot be written.
    """

    def __init__(
        self,
        crawler: Crawler,
        state: State,
        journal: Journal,
        watch: Watch,
        *,
        queue: Path | None,
        trusted: bool,
        retry_failed: bool,
        sync: bool,
    ) -> None:
        spider = crawler.spider
        assert spider is not None
        self._crawler = crawler
        self._state = state
        self._journal = journal
        self._watch = watch
        self._queue = queue
        self._sync = sync
        self._feeds: Feeds | None = None
        self._done_before = journal.num_done
        self._starts: dict[int, tuple[Request, bytes]] = {}
        # The last one that was to be scheduled, if that matters: whether it is in the queue is known by the
        # count of before.
        self._unsure: tuple[Request, int, bytes | None] | None = None
        self.failed = self.closed = False
        dump = requestbytes.RequestWriter(spider)
        self.units = Units(journal, state.seen, spider.name, dump, retry_failed=retry_failed)
        whole = journal.seal is None or not trusted
        self.units.marks.whole = whole
        load = partial(requestbytes.load, spider=spider)
        self.resumption = Resumption(
            self.units, journal, spider, load, knows=state.seen.__contains__, whole=whole
        )
        # What is in Scrapy's queue now.
        self._queued = 0 if whole or journal.seal is None else len(journal) - len(journal.seal.again)
        if len(journal) and whole and not journal.is_new:
            logger.warning(
                jobreport.replaying(len(journal), state.directory, was_clean=journal.seal is not None),
                extra={"spider": spider},
            )
        journal.begin()
        state.flush()
        of_crawler[crawler] = self
        self._connect()

    def prepare(self) -> None:
        """Make ready what the next commit may say. To be called in a turn of its own.

        Raises:
            OSError: a feed could not be written.
        """
        self._settle_scheduled()
        # Of the idle handler, whose commit this is as well.
        ended = self._journal.has_ended
        if self.units.settle() or ended:
            self.flush_feeds()

    def flush_feeds(self) -> None:
        """Write what waits in the feeds of pages that are done.

        Raises:
            OSError: one could not be written.
        """
        if self._feeds is not None:
            self._feeds.flush(sync=self._sync)

    def publish(self) -> None:
        """Set the figures of the journal."""
        self._watch.set(stats.PENDING, len(self._journal))
        self._watch.set(stats.DONE, self._journal.num_done - self._done_before)
        if self._journal.num_failed or self._watch.value(stats.FAILED):
            self._watch.set(stats.FAILED, self._journal.num_failed)
        if self.resumption.num_replayed:
            self._watch.set(stats.REPLAYED, self.resumption.num_replayed)
        if self.units.num_unserializable:
            self._watch.set(stats.UNSERIALIZABLE, self.units.num_unserializable)

    def stop(self, exc: Exception) -> None:
        """End the crawl: the journal could not be written, and must not get gaps."""
        if self.failed:
            return
        self.failed = True
        self._watch.count(stats.ERROR_COMMIT)
        logger.error(jobreport.not_written(self._state, exc), extra={"spider": self._crawler.spider})
        engine.close_spider(self._crawler, NOT_WRITTEN)

    def finish(self) -> None:
        """Say in the journal what this run leaves; the state writes it when it is closed.

        Raises:
            OSError: a feed could not be written.
        """
        self.closed = True
        self._settle_scheduled()
        extra = {"spider": self._crawler.spider}
        for request in (in_memory := self.units.in_memory())[:5]:
            logger.warning(jobreport.in_memory(request), extra=extra)
        if in_memory:
            logger.warning(jobreport.in_memory_total(len(in_memory)), extra=extra)
        self.units.settle_all(closing=True)
        if self._feeds is not None:
            self._feeds.flush(sync=self._sync)
        self.resumption.finish()
        again = self.units.again()
        if self.resumption.num_foreign:
            logger.warning(jobreport.foreign(self.resumption.num_foreign), extra=extra)
        self._journal.close_in_order(Seal(self._digest(len(again)), tuple(again)))
        self.publish()

    def queue_is_torn(self) -> None:
        """Scrapy could not write its queue: the next run goes by the journal alone."""
        self._queue = None

    def _digest(self, num_again: int) -> str | None:
        """Return the digest of Scrapy's queue if it holds what is pending, else None."""
        enqueued, dequeued = "scheduler/enqueued/disk", "scheduler/dequeued/disk"
        queued = self._queued + self._watch.value(enqueued) - self._watch.value(dequeued)
        if self._queue is None or len(self._journal) - num_again != queued:
            return None
        if queued and (
            not requestqueue.is_closed_in_order(self._queue) or self.units.marks.has_targets_left()
        ):
            return None
        try:
            return requestqueue.digest(self._queue)
        except OSError:
            return None

    def _connect(self) -> None:
        connect = self._crawler.signals.connect
        connect(self._spider_opened, signal=signals.spider_opened)
        connect(self._request_scheduled, signal=signals.request_scheduled)
        connect(self._idle, signal=signals.spider_idle)
        for signal in (signals.item_scraped, signals.item_dropped, signals.item_error):
            connect(self._item_left, signal=signal)

    def _spider_opened(self, spider: Spider) -> None:
        self._feeds = Feeds(self._crawler)
        if mended := self._feeds.mend():
            logger.warning(jobreport.mended_feeds(mended), extra={"spider": spider})
        if unsafe := self._feeds.unsafe():
            logger.warning(jobreport.unsafe_feeds(unsafe), extra={"spider": spider})
        if self._journal.num_done and (overwriting := self._feeds.overwriting()):
            logger.warning(jobreport.overwriting_feeds(overwriting), extra={"spider": spider})

    def start(self, request: Request) -> bool:
        """Return whether a start request of the spider is to be asked."""
        if self.resumption.is_done(request):
            return False
        if (name := self.resumption.name_of_start(request)) is not None:
            self._starts[id(request)] = (request, name)
        return True

    def _request_scheduled(self, request: Request) -> None:
        self._settle_scheduled()
        started = self._starts.pop(id(request), None) if self._starts else None
        # What cannot be written is not pending after a kill: it has to be asked again.
        start = started[1] if started is not None and self.units.can_write(request) else None
        if start is not None or (request.dont_filter and META_UNIT in request.meta):
            self._unsure = request, self._num_enqueued(), start
        self.units.scheduled(request)

    def _settle_scheduled(self) -> None:
        """See what became of the last request that was to be scheduled: another handler of
        ``request_scheduled`` may have dropped it. A start request that was is asked again by a run after a
        kill, and what was given again leaves its page to others."""
        if self._unsure is None:
            return
        (request, before, start), self._unsure = self._unsure, None
        if request.dont_filter:
            went = self._num_enqueued() != before
            if not went:
                self.units.dropped(request)
        else:
            went = self.units.was_judged(request)
        if went and start is not None:
            self._journal.note_start(start)

    def _item_left(self, response: Any, signal: Any) -> None:
        if signal is signals.item_scraped and self._feeds is not None:
            self._feeds.scraped += 1
        self.units.item_left(response)

    def _idle(self) -> None:
        if self.failed or engine.has_pending_requests(self._crawler):
            # Another handler of this signal has given the crawl something to do.
            return
        self._settle_scheduled()
        self.units.settle_all(closing=False)
        try:
            # What was scheduled and dropped a moment ago is to be found there, too.
            if self._journal.has_ended:
                self.flush_feeds()
            self._state.flush()
        except Exception as exc:
            self.stop(exc)
            return
        found = False
        for request in islice(self.resumption.stranded(), _BATCH):
            found = True
            self._put_back(request)
        if found:
            raise DontCloseSpider
        if self.resumption.num_lost or self.units.num_cut:
            raise CloseSpider(INCOMPLETE)

    def _put_back(self, request: Request) -> None:
        running: Any = self._crawler.engine
        number = self.units.number_of(request)
        before = self._num_enqueued()
        try:
            running.crawl(request)
        except Exception as exc:
            # A queue that cannot be written: it stays pending, and is told as stuck in the next round.
            self._watch.failed(stats.ERROR_QUEUE, exc, request)
            return
        # Nothing was in the queue before the first of these.
        uncounted = before == 0 and engine.has_pending_requests(self._crawler)
        if number is not None and self._num_enqueued() == before and not uncounted:
            # A handler of request_scheduled has dropped it, on purpose.
            self.units.give_up(number)

    def _num_enqueued(self) -> int:
        # Always 0 where the scheduler or the collector does not count.
        return self._watch.value("scheduler/enqueued")
