"""Was this request seen? Scrapy's question, answered by a seen-set on the disk.

It opens and closes what the answer needs, from the settings and signals of a crawl. How a request is judged
is the business of ``judging``.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.dupefilters import RFPDupeFilter
from scrapy.settings import Settings

import scrapy_bloomdupe.metrics as metrics
import scrapy_bloomdupe.scrapy_compat as scrapy_compat
import scrapy_bloomdupe.scrapyredis as scrapyredis
import scrapy_bloomdupe.settings as bloomdupe_settings
import scrapy_bloomdupe.sharedreport as sharedreport
import scrapy_bloomdupe.stats as stats
import scrapy_bloomdupe.telling as telling
from scrapy_bloomdupe.assembling import is_absent
from scrapy_bloomdupe.dryrun import DryRun, Fingerprints
from scrapy_bloomdupe.errors import BloomdupeError, ConfigurationError, StateNotFound, message
from scrapy_bloomdupe.frontier.group import GroupCommit
from scrapy_bloomdupe.frontier.queue import FrontierQueue, MemoryQueue, queues
from scrapy_bloomdupe.growing import GrowthWatch
from scrapy_bloomdupe.judging import JudgingFilter
from scrapy_bloomdupe.keys import of_crawler, with_middleware
from scrapy_bloomdupe.opening import open_or_create, open_temporary
from scrapy_bloomdupe.rawfront import RawFront
from scrapy_bloomdupe.recording import Recorder
from scrapy_bloomdupe.redirects import RedirectPasses
from scrapy_bloomdupe.rulewatch import idle_rules
from scrapy_bloomdupe.sampling import Sampler
from scrapy_bloomdupe.scrapy_compat import Downloads, QueueMark, QueueOrder
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.settings import BloomdupeSettings
from scrapy_bloomdupe.sharedmiddleware import attach as attach_shared
from scrapy_bloomdupe.sharing import share
from scrapy_bloomdupe.state import State

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

logger = logging.getLogger(__name__)

#: ``finish_reason`` of a crawl whose state could not be opened.
REFUSED = "bloomdupe_refused"


class BloomDupeFilter(JudgingFilter):
    """A duplicate filter on a persisted Bloom filter with exact confirmation.

    ``DUPEFILTER_CLASS = "scrapy_bloomdupe.BloomDupeFilter"``. It filters what Scrapy's own
    ``RFPDupeFilter`` filters, by the project's request fingerprinter, except a request that is the
    target of its own redirect.

    ``request_seen`` never raises: what fails lets the request pass and is counted. A state that cannot
    be opened ends the crawl at its start, with the reason ``bloomdupe_refused``.
    """

    def __init__(
        self,
        path: str | None = None,
        debug: bool = False,
        *,
        fingerprinter: RequestFingerprinterProtocol | None = None,
        crawler: Crawler | None = None,
    ) -> None:
        settings = crawler.settings if crawler is not None else Settings({"JOBDIR": path})
        super().__init__(settings, debug, fingerprinter, crawler)
        self._crawler = crawler
        self._settings = settings
        # With scrapy-redis: where its queue is, and what our names begin with there.
        self._shared_queue: tuple[str, str] | tuple[None, None] = None, None
        # The file of Scrapy's own queue, if there is one.
        self._mark: QueueMark | None = None
        # Whether it said, when this crawl was started, that requests are pending in our frontier.
        self._was_marked = False
        self._trouble: Exception | None = None
        self._sampler: Sampler | None = None
        self._metrics: metrics.Server | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls._of(crawler, None, None)

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """Make the filter of scrapy-redis' scheduler: what is seen is shared on the server of its queue."""
        crawler = spider.crawler
        self = cls._of(crawler, *scrapyredis.place(crawler.settings))
        if scrapy_compat.is_crawling(crawler):
            # That scheduler opens no filter: later it would miss the signal that the crawl has begun.
            self.open()
        return self

    @classmethod
    def _of(cls, crawler: Crawler, queue: str | None, key: str | None) -> Self:
        fingerprinter = crawler.request_fingerprinter
        assert fingerprinter is not None
        debug = crawler.settings.getbool("DUPEFILTER_DEBUG")
        self = cls(None, debug, fingerprinter=fingerprinter, crawler=crawler)
        if queue is not None and key is not None:
            self._shared_queue = queue, key
        if scrapy_compat.is_crawling(crawler):
            # Now or never: the scheduler that is being made opens its queue before this filter.
            try:
                self._prepare(crawler)
            except Exception as exc:
                self._trouble = exc
                self._say_refused(exc)
                scrapy_compat.hide_jobdir(crawler)
        return self

    def open(self) -> None:
        """Open the state.

        Raises:
            BloomdupeError: it cannot be opened and there is no crawl that could be ended.
        """
        if self._state is not None:
            return
        try:
            self._open_state()
        except Exception as exc:
            crawler = self._crawler
            if crawler is None or not scrapy_compat.is_crawling(crawler):
                raise
            self._refused = True
            self._watch.count(stats.ERROR_OPEN)
            if exc is not self._trouble:
                self._say_refused(exc)
            if self._was_marked and self._mark is not None:
                self._watch.attempt(stats.ERROR_CLOSE, self._mark.set)
            scrapy_compat.refuse_to_start(crawler, REFUSED)

    def _say_refused(self, exc: Exception) -> None:
        expected = isinstance(exc, (BloomdupeError, OSError))
        logger.error(
            "The crawl does not start: %s",
            message(exc) or repr(exc),
            exc_info=None if expected else exc,
            extra={"spider": self._watch.spider},
        )

    def clear(self) -> None:
        """Forget all that is shared, for scrapy-redis' scheduler: at the start (``SCHEDULER_FLUSH_ON_START``)
        or at the end (without ``SCHEDULER_PERSIST``).

        Raises:
            RemoteError: not all of it is forgotten.
        """
        if self._state is None and not self._refused:
            self.open()
        if self._sharing is not None:
            self._sharing.clear()

    def close(self, reason: str) -> None:
        state = self._state
        if state is None:
            return
        group, queue = self._group, self._queue
        if group is not None:
            group.close(reason)
        if self._sharing is not None:
            if queue is None and self._crawler is not None and self._shared_queue[0] is None:
                self._watch.attempt(stats.ERROR_CLOSE, self._give_up_waiting)
            self._watch.attempt(stats.ERROR_CLOSE, self._sharing.close)
        self._group = self._queue = self._state = self._front = self._sharing = self._recorder = None
        # A request that comes after this passes, as at any failure; it does not open a new state.
        self._refused = True
        telling.closing(state, self._watch, self._rules.lines())
        if self._sampler is not None:
            self._sampler.close()
        write = group is None or not group.failed
        if queue is not None and self._mark is not None and write and queue.store.is_empty:
            # Scrapy's own queue may be used again.
            self._watch.attempt(stats.ERROR_CLOSE, self._mark.clear)
        self._watch.attempt(stats.ERROR_CLOSE, lambda: state.close(write=write))
        if self._dry_run is not None:
            self._watch.attempt(stats.ERROR_CLOSE, self._dry_run.close)
        if queue is None and not state.temporary:
            telling.left_waiting(state, self._watch, self._settings)

    def _give_up_waiting(self) -> None:
        """Let others have what waits in memory only: it ends with this process, and is seen on the server."""
        assert self._crawler is not None
        assert self._sharing is not None
        waiting = [
            request for request in scrapy_compat.take_waiting(self._crawler) if not request.dont_filter
        ]
        keys = [key for request in waiting if (key := self._asked.key(request)) is not None]
        if keys:
            lost = self._sharing.give_up(keys)
            logger.warning(sharedreport.given_up(len(keys), lost), extra={"spider": self._watch.spider})

    def _open_state(self) -> None:
        if type(self).request_fingerprint is not RFPDupeFilter.request_fingerprint:
            # Scrapy honours it with a warning; to ignore it would merge what it tells apart.
            raise ConfigurationError(
                f"{type(self).__name__} overrides request_fingerprint(), which Scrapy has deprecated; set "
                "REQUEST_FINGERPRINTER_CLASS instead"
            )
        if self._trouble is not None:
            raise self._trouble
        read = self._read()
        if read.metrics_port is not None:
            metrics.require()
        if self._crawler is not None:
            self._keys = of_crawler(self._crawler)
        keys = self._keys
        dry = read.dry_run and keys.rules is not None
        if not read.keeps_times and not dry and (lasting := keys.expiring()) is not None:
            raise ConfigurationError(bloomdupe_settings.no_times(lasting))
        digests = keys.rules.digest() if keys.rules is not None and not dry else {}
        options = read.options.with_identity(keys.identity(with_rules=not dry), digests)
        options = replace(options, clock=self.clock)
        if self._crawler is None or not scrapy_compat.is_crawling(self._crawler):
            # Nothing would tell it what becomes of a request.
            options = replace(options, frontier=None)
        elif not scrapy_compat.has_stock_scheduler(self._settings):
            options = replace(options, frontier=False)
        self._asked = Fingerprints(keys) if dry else keys
        self._redirects = RedirectPasses.from_settings(self._asked, self._settings)
        where = read.directory
        state = open_temporary(options) if where is None else open_or_create(where, options)
        try:
            if read.shared is not None and self._crawler is not None:
                self._sharing = share(
                    self._crawler,
                    state,
                    read.shared,
                    self._watch,
                    self._key_ahead,
                    identity=options.identity,
                    cache_size=read.cache_size // 2,
                    sync=options.sync,
                    with_queue=self._shared_queue[0] is not None,
                )
            telling.publish(state, self._watch)
            if dry:
                of_rules = replace(read.options, clock=self.clock)
                self._dry_run = DryRun(keys, of_rules, self._settings, self._watch)
            self._group = self._start_group(state, read)
        except BaseException:
            state.close(write=False)
            raise
        self._state = state
        self._has_rules = keys.rules is not None
        self._expire = read.expire
        self._recorder = Recorder(keys, self._asked.key_of, state.seen, self._watch, start=read.record_start)
        if read.cache_size and not dry and keys.by_url:
            self._front = RawFront(read.cache_size if read.shared is None else read.cache_size // 2)
            state.seen.on_forget = self._front.clear
        exact = state.store is not None or state.seen.store is not None
        known = Verdict.DUPLICATE if exact else Verdict.UNCONFIRMED
        self._known_verdict = stats.VERDICTS[known]
        if self._crawler is not None:
            self._register(self._crawler)
        state.filter.on_growth = GrowthWatch(state, self._watch, self._crawler)
        telling.opened(state, self._watch, self._settings)
        if self._crawler is not None and scrapy_compat.is_crawling(self._crawler):
            watching = self._crawler
            # Figures to look at are no reason to refuse a crawl.
            self._watch.attempt(stats.ERROR_HISTORY, lambda: self._start_watching(watching, state, read))
        if self._crawler is not None:
            connect = self._crawler.signals.connect
            connect(self._redirects.response_received, signal=signals.response_received)
            connect(self._keys.response_received, signal=signals.response_received)
            connect(self._recorder.response_received, signal=signals.response_received)
            connect(self._recorder.unasked, signal=signals.request_reached_downloader)
            if self._queue is not None:
                self._recorder.on_unasked = self._queue.marked
            connect(self._spider_opened, signal=signals.spider_opened)
            connect(self._spider_closed, signal=signals.spider_closed)

    def _read(self) -> BloomdupeSettings:
        queue, key = self._shared_queue
        return bloomdupe_settings.read(self._settings, queue=queue, key=key)

    def _prepare(self, crawler: Crawler) -> None:
        read = self._read()
        if read.shared is not None:
            attach_shared(crawler)
        jobdir = self._settings.get("JOBDIR")
        if not jobdir or read.directory is None or not scrapy_compat.has_stock_scheduler(self._settings):
            return
        mark = QueueMark(Path(jobdir))
        if read.options.frontier and mark.has_stock_queue():
            raise ConfigurationError(
                f"{mark.queue} is a queue of Scrapy's own, whose requests would be left behind: run "
                f"`bloomdupe import {jobdir}` to take the job over, and start it again. Nothing was changed"
            )
        if mark.is_set() and is_absent(read.directory.absolute()):
            raise StateNotFound(
                2,
                f"{mark.queue} says that requests are pending in {read.directory}, where no state is: put it "
                f"back, or delete {mark.queue} to start from nothing. Nothing was changed",
            )
        self._mark, self._was_marked = mark, mark.is_set()
        if self._was_marked or mark.is_damaged():
            mark.clear()

    def _start_group(self, state: State, read: BloomdupeSettings) -> GroupCommit:
        crawler, store = self._crawler, state.frontier
        jobdir = self._settings.get("JOBDIR")
        group = GroupCommit(
            state,
            self._watch,
            crawler,
            jobdir=Path(jobdir) if jobdir else None,
            sync=read.options.sync,
        )
        if store is None or crawler is None or crawler.spider is None:
            return group
        if read.retry_failed and not scrapy_compat.has_middlewares(crawler, "AcknowledgeMiddleware"):
            raise ConfigurationError(
                "BLOOMDUPE_RETRY_FAILED = True needs a middleware that sees failures: set ADDONS = "
                '{"scrapy_bloomdupe.Addon": 500}, or add scrapy_bloomdupe.AcknowledgeMiddleware to '
                "SPIDER_MIDDLEWARES and DOWNLOADER_MIDDLEWARES, next to the engine"
            )
        queue = FrontierQueue(
            store,
            state.seen,
            crawler.spider,
            QueueOrder.from_settings(self._settings, disk=bool(jobdir)),
            Downloads(crawler),
            retry_failed=read.retry_failed,
            key_of=self._asked.key,
            on_change=group.arm,
            on_done=group.arm_soon,
            on_full=group.relieve,
            on_error=group.stop,
        )
        group.attach(queue, crawler)
        scrapy_compat.on_close_spider(crawler, queue.abandon)
        scrapy_compat.replace_queues(
            crawler, lambda memory, alone: (queue, MemoryQueue(queue, memory, alone=alone))
        )
        if self._mark is not None:
            self._mark.set()
        queues[crawler] = self._queue = queue
        return group

    def _start_watching(self, crawler: Crawler, state: State, read: BloomdupeSettings) -> None:
        directory = None if state.temporary or not read.history else state.directory
        self._sampler = Sampler(crawler, state, self._watch, self._rules, directory, read.history)
        self._hosts = self._sampler.hosts
        if read.metrics_port is not None:
            self._metrics = metrics.Server(crawler, self._watch, read.metrics_port)

    def _spider_opened(self) -> None:
        if self._group is None:
            return
        self._group.start()
        if self._sharing is not None:
            self._sharing.start()
        if self._sampler is not None:
            self._sampler.start()
        rules, spider = self._keys.rules, self._watch.spider
        if rules is not None and self._dry_run is None and self._crawler not in with_middleware:
            idle = idle_rules(rules, spider.name if spider is not None else None)
            if idle is not None:
                logger.warning(idle, extra={"spider": spider})

    def _spider_closed(self, reason: str) -> None:
        if self._state is not None:
            # The scheduler was not closed, and so never closed this filter.
            self.close(reason)
