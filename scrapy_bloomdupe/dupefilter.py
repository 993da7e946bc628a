"""Was this request seen? Scrapy's question, answered by a seen-set on the disk.

It opens and closes the state, asks, counts, and lets pass whatever is in doubt. What a key is, whether
it was seen and where it is kept is the business of the floors below.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.dupefilters import RFPDupeFilter
from scrapy.settings import Settings

import scrapy_bloomdupe.engine as engine
import scrapy_bloomdupe.report as report
import scrapy_bloomdupe.settings as bloomdupe_settings
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import BloomdupeError
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.importing import SEEN_NAME
from scrapy_bloomdupe.keys import RequestKeys, of_crawler
from scrapy_bloomdupe.opening import open_or_create, open_temporary
from scrapy_bloomdupe.redirects import RedirectPasses
from scrapy_bloomdupe.rules.ruleset import Decision
from scrapy_bloomdupe.rulewatch import RuleWatch
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.syncing import Syncer
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

logger = logging.getLogger(__name__)

#: ``finish_reason`` of a crawl whose state could not be opened, or whose filter was full.
REFUSED = "bloomdupe_refused"
FULL = "bloomdupe_full"

# Groups are written this often, in seconds, on the crawl's thread...
_COMMIT_INTERVAL = 0.1
# ... after a failure less often, up to this many times...
_MAX_BACKOFF = 100
# ... and brought to the disk this often, off it.
_SYNC_INTERVAL = 60.0
# Without a store the crawl stops before the rate passes ten times the asked one. Between two looks at
# it, one hundredth of the capacity apart, it grows by a quarter at the most (k = 30).
_STOP_AT = 7.5


class BloomDupeFilter(RFPDupeFilter):
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
        # Not the path: Scrapy's own file is neither read nor written.
        super().__init__(None, debug, fingerprinter=fingerprinter)
        settings = crawler.settings if crawler is not None else Settings({"JOBDIR": path})
        self._crawler = crawler
        self._settings = settings
        self._keys = RequestKeys(self.fingerprinter)
        self._redirects = RedirectPasses.from_settings(self._keys, settings)
        self._dry_run: State | None = None
        self._state: State | None = None
        self._refused = False
        self._repeater: engine.Repeater | None = None
        self._syncer: Syncer | None = None
        self._wait = self._backoff = 0
        self._watch = Watch(crawler)
        self._rules = RuleWatch(self._watch)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        fingerprinter = crawler.request_fingerprinter
        assert fingerprinter is not None
        debug = crawler.settings.getbool("DUPEFILTER_DEBUG")
        return cls(None, debug, fingerprinter=fingerprinter, crawler=crawler)

    def open(self) -> None:
        """Open the state.

        Raises:
            BloomdupeError: it cannot be opened and there is no crawl that could be ended.
        """
        if self._state is not None:
            return
        try:
            self._open_state()
        except (BloomdupeError, OSError) as exc:
            crawler = self._crawler
            if crawler is None or not engine.is_crawling(crawler):
                raise
            self._refused = True
            self._watch.count(stats.ERROR_OPEN)
            logger.error("The crawl does not start: %s", exc, extra={"spider": crawler.spider})
            engine.refuse_to_start(crawler, REFUSED)

    def request_seen(self, request: Request) -> bool:
        state = self._state
        if state is None:
            if self._refused or not self._watch.attempt(stats.ERROR_OPEN, self.open):
                self._refused = True
                return False
            state = self._state
            if state is None:
                return False
        try:
            decision = self._keys.decide(request)
            dry = self._dry_run is not None
            key = self._keys.fingerprint(request) if dry else self._keys.key(request)
        except Exception as exc:
            self._watch.failed(stats.ERROR_KEY, exc, request)
            return False
        if key is None:
            self._watch.count(stats.KEPT)
            return False
        try:
            verdict = state.seen.check_and_add(key)
            if decision is not None:
                self._judged(request, decision, seen=verdict.seen)
        except Exception as exc:
            self._watch.failed(stats.ERROR_CHECK, exc, request)
            return False
        self._watch.count(stats.VERDICTS[verdict])
        passes = verdict.seen and "redirect_urls" in request.meta and self._is_own_redirect(request, key)
        self._redirects.asked(request)
        if passes:
            self._watch.count(stats.REDIRECT_PASS)
        return verdict.seen and not passes

    def _judged(self, request: Request, decision: Decision, *, seen: bool) -> None:
        if self._dry_run is not None:
            merged = self._dry_run.seen.check_and_add(decision.digest()).seen and not seen
            if merged:
                self._watch.count(stats.DRY_RUN_MERGED)
            seen = seen or merged
        self._rules.judged(request.url, decision, seen=seen)

    def close(self, reason: str) -> None:
        state = self._state
        if state is None:
            return
        if self._repeater is not None:
            self._repeater.stop()
        if self._syncer is not None:
            self._syncer.stop()
        self._state = None
        # A request that comes after this passes, as at any failure; it does not open a new state.
        self._refused = True
        extra = {"spider": self._watch.spider}
        self._watch.attempt(stats.ERROR_CLOSE, lambda: self._publish(state))
        self._watch.attempt(
            stats.ERROR_CLOSE, lambda: logger.info(report.summary(state, self._watch.verdicts()), extra=extra)
        )
        for line in self._rules.lines():
            logger.info("Rule %s", line, extra=extra)
        self._watch.attempt(stats.ERROR_CLOSE, state.close)
        if self._dry_run is not None:
            self._watch.attempt(stats.ERROR_CLOSE, self._dry_run.close)
        waiting = self._waiting_requests()
        if waiting and not state.temporary and not self._settings.get("JOBDIR"):
            logger.warning(report.left_waiting(state, waiting), extra=extra)

    def _open_state(self) -> None:
        read = bloomdupe_settings.read(self._settings)
        if self._crawler is not None:
            self._keys = of_crawler(self._crawler)
            self._redirects = RedirectPasses.from_settings(self._keys, self._settings)
        rules = self._keys.rules
        if read.dry_run and rules is not None:
            # The filter's keys are fingerprints, as without rules; those of the rules are counted only.
            self._dry_run = open_temporary(read.options)
            options = read.options.with_identity(self._keys.identity(with_rules=False), {})
        else:
            digests = rules.digest() if rules is not None else {}
            options = read.options.with_identity(self._keys.identity(), digests)
        where = read.directory
        state = open_temporary(options) if where is None else open_or_create(where, options)
        try:
            self._publish(state)
        except BaseException:
            state.close()
            raise
        self._state = state
        state.filter.on_growth = self._grew
        self._watch.set(stats.OPEN_SECONDS, round(state.open_seconds, 6))
        self._tell(state)
        if self._crawler is not None:
            connect = self._crawler.signals.connect
            connect(self._redirects.response_received, signal=signals.response_received)
            connect(self._keys.response_received, signal=signals.response_received)
            connect(self._spider_opened, signal=signals.spider_opened)

    def _tell(self, state: State) -> None:
        extra = {"spider": self._watch.spider}
        if state.is_new and (seen := self._seen_by_scrapy()):
            state.notices.append(report.not_imported(seen))
        if not state.was_clean:
            state.notices.append(report.unclean(state))
        for notice in state.notices:
            logger.warning(notice, extra=extra)
        logger.info(report.opened(state), extra=extra)

    def _spider_opened(self) -> None:
        if (state := self._state) is None:
            return
        self._repeater = engine.Repeater(self._commit, _COMMIT_INTERVAL)
        if not state.temporary:
            self._syncer = Syncer(state.sync, _SYNC_INTERVAL)

    def _commit(self) -> None:
        """Write what waits; after a failure wait twice as long as before it."""
        if self._syncer is not None and (error := self._syncer.take_error()) is not None:
            self._watch.failed(stats.ERROR_SYNC, error)
        if self._wait > 0:
            self._wait -= 1
            return
        assert self._state is not None
        if self._watch.attempt(stats.ERROR_COMMIT, self._state.flush):
            self._backoff = 0
        else:
            self._wait = self._backoff = min(_MAX_BACKOFF, 2 * self._backoff + 1)

    def _grew(self, growth: Growth) -> None:
        extra = {"spider": self._watch.spider}
        self._watch.set(stats.LAYERS, growth.layers)
        if growth.error is None:
            logger.info(report.grew(growth), extra=extra)
            return
        self._watch.count(stats.ERROR_GROWTH)
        state = self._state
        assert state is not None
        if self._watch.is_first(stats.ERROR_GROWTH):
            logger.error(report.overfull(growth, exact=state.store is not None), extra=extra)
        if state.store is None and growth.rate > _STOP_AT * state.filter.error_rate:
            if not state.seen.frozen:
                logger.error(report.full(growth, state.filter.error_rate), extra=extra)
                if self._crawler is not None and engine.is_crawling(self._crawler):
                    engine.close_spider(self._crawler, FULL)
            # What is still asked passes, and is not remembered.
            state.seen.frozen = True

    def _is_own_redirect(self, request: Request, key: bytes) -> bool:
        try:
            return self._redirects.allows(request, key)
        except Exception as exc:
            self._watch.failed(stats.ERROR_KEY, exc, request)
            return True

    def _publish(self, state: State) -> None:
        info = state.filter.info()
        self._watch.set(stats.KEYS, state.num_keys())
        self._watch.set(stats.LAYERS, len(info.layers))
        self._watch.set(stats.FILL, round(info.fill, 4))
        self._watch.set(stats.ERROR_RATE_ESTIMATE, float(f"{info.error_rate_estimate:.3g}"))
        self._watch.set(stats.FILTER_BYTES, info.num_bytes)

    def _seen_by_scrapy(self) -> Path | None:
        """Return the file of Scrapy's own filter in the job directory, if it has something in it."""
        jobdir = self._settings.get("JOBDIR")
        path = Path(jobdir, SEEN_NAME) if jobdir else None
        return path if path is not None and path.is_file() and path.stat().st_size else None

    def _waiting_requests(self) -> int:
        """Return how many requests were scheduled and not sent: they are marked as seen."""
        return self._watch.value("scheduler/enqueued") - self._watch.value("scheduler/dequeued")
