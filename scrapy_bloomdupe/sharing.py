"""How does a crawl ask a server without standing still, and what does it do when the server fails?

It asks in threads, looks now and then whether what had been seen is still there, and says once what is
wrong. Which keys need asking, and what an answer means, is the business of ``shared.seen``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

import scrapy_bloomdupe.report as report
import scrapy_bloomdupe.scrapy_compat as scrapy_compat
import scrapy_bloomdupe.sharedreport as sharedreport
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import BloomdupeError, CircuitOpen, RemoteEmptied, RemoteUnavailable, StoreError
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.growing import FULL, STOP_AT
from scrapy_bloomdupe.identity import SHARED_MARK
from scrapy_bloomdupe.remote.breaker import Circuit
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.shared.opening import open_shared
from scrapy_bloomdupe.shared.options import SharedOptions
from scrapy_bloomdupe.shared.seen import SharedSeen
from scrapy_bloomdupe.sharedrenewing import SharedRenewer
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.lmdb import LmdbStore
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: ``finish_reason`` of a crawl whose server had lost what had been seen (``BLOOMDUPE_ON_EMPTY = "stop"``).
EMPTIED = "bloomdupe_emptied"

# Pages whose links are asked for at the same time.
_THREADS = 8
# Outputs of a callback that are asked for at once: more than nearly every page has links.
_AT_ONCE = 500
_AT_ONCE_UNNOTED = 20
# Seconds between two looks at the server.
_INTERVAL = 5.0


class _Batch:
    """Keys whose answer is on its way, and who waits for it."""

    def __init__(self, keys: Sequence[bytes], renewals: int) -> None:
        self.keys = keys
        self.renewals = renewals
        self.answer: list[Verdict] | None = None
        self.waiting: list[Deferred[None]] = []


class Sharing:
    """What a crawl does with the server that it shares with others.

    Args:
        crawler: the crawl.
        state: its state, which is shared.
        shared: the seen-set of *state*.
        watch: counts and warns.
        on_empty: see ``shared.options``.
        key_of: request -> its key; None: it is not judged by the server.
        with_queue: the server has the queue of all crawls, too, and what is pending is not ours to keep.
        renewer: makes the filter anew when it has many layers; None: nothing does.
    """

    def __init__(
        self,
        crawler: Crawler,
        state: State,
        shared: SharedSeen,
        watch: Watch,
        on_empty: str,
        key_of: Callable[[Request], bytes | None],
        *,
        with_queue: bool = False,
        renewer: SharedRenewer | None = None,
    ) -> None:
        self._renewer = renewer
        self._with_queue = with_queue
        self._started = self._cleared_at_end = False
        self._crawler = crawler
        self._state = state
        self._shared = shared
        self._watch = watch
        self._on_empty = on_empty
        self._key_of = key_of
        self._pool = ThreadPool(minthreads=0, maxthreads=_THREADS, name="bloomdupe")
        self._batches: dict[bytes, _Batch] = {}
        self._closed = self._looking = self._renewing = self._is_away = self._was_away = False
        self._trouble = ""
        # How often the server was taken into use anew, and what was said of the times before.
        self._renewals = 0
        self._told: WeakSet[BaseException] = WeakSet()
        #: Bring back what this crawl knows when it starts: the server was emptied since its last run.
        self.is_to_refill = False
        self._repeater: scrapy_compat.Repeater | None = None
        filter = shared.parts.filter  # noqa: A001
        self._filter_id = filter.filter_id if filter is not None else b""
        if filter is not None:
            filter.on_growth = self._grew
        of_crawler[crawler] = self

    def start(self) -> None:
        """Begin to look at the server; there must be a running crawl."""
        self._started = True
        self._repeater = scrapy_compat.Repeater(self._look, _INTERVAL)
        self._look()
        if self.is_to_refill:
            self._renewing = True
            self._refill(None, 0)

    async def ask_for(self, outputs: Iterable[Any]) -> None:
        """Let the verdicts of the requests among *outputs* be there when they are scheduled; never raises."""
        keys: list[bytes] = []
        for output in outputs:
            # A key that cannot be made is said when the request is scheduled.
            with contextlib.suppress(Exception):
                if isinstance(output, Request) and (key := self._key_of(output)) is not None:
                    keys.append(key)
        try:
            unknown = self._shared.unknown(keys)
            batches = {id(batch): batch for key in keys if (batch := self._batches.get(key)) is not None}
            if unknown and not self._closed and (started := self._begin(unknown)) is not None:
                batches[id(started)] = started
        except Exception:
            return  # each of them is asked for, and fails, by itself
        for batch in batches.values():
            if self._batches.get(batch.keys[0]) is batch:
                waiting: Deferred[None] = Deferred()
                batch.waiting.append(waiting)
                await maybe_deferred_to_future(waiting)

    def failed(self, exc: BaseException) -> None:
        """Note that the server did not answer for a request; that is counted elsewhere."""
        if exc in self._told:
            return
        if isinstance(exc, RemoteEmptied):
            self._emptied(exc)
        elif isinstance(exc, RemoteUnavailable) and not self._is_away:
            # The first time is said where its requests are counted.
            if self._was_away:
                self._say_away(exc)
            self._is_away = self._was_away = True

    def clear(self) -> None:
        """Forget all that is shared, and begin anew.

        Raises:
            RemoteError: not all of it is forgotten.
        """
        parts = self._shared.parts
        parts.clear()
        parts.renew()
        self._shared.cleared()
        # scrapy-redis does it before the crawl is opened, or when it is closed.
        self._cleared_at_end = self._started
        self._remember_epoch()

    def is_own(self, key: bytes) -> bool:
        """Return whether this crawl was granted *key*, see ``SharedSeen.is_own``."""
        return self._shared.is_own(key)

    @property
    def at_once(self) -> int:
        """Outputs of a callback in one question. Where nothing notes what was granted before it is in the
        queue, few: a worker that is killed takes them with it."""
        return _AT_ONCE_UNNOTED if self._with_queue else _AT_ONCE

    def give_up(self, keys: Iterable[bytes]) -> int:
        """Let other crawls have *keys*, which this one was granted and will not crawl; return how many cannot
        be had by anybody."""
        keys = list(keys)
        return 0 if self._try(lambda: self._shared.parts.give_back(keys)) is True else len(keys)

    def close(self) -> None:
        """Give back what was granted and never scheduled; the crawl is over."""
        self._closed = True
        if self._repeater is not None:
            self._repeater.stop()
        if self._renewer is not None:
            self._renewer.stop()
        if self._pool.started:
            self._pool.stop()
        # Their threads have ended, and nobody was told yet.
        for batch in {id(batch): batch for batch in self._batches.values()}.values():
            if batch.answer is not None:
                self._shared.leave(batch.keys, batch.answer)
        self._shared.unused(all_of_them=True)
        if keys := self._shared.still_owed():
            self._given_back(keys, self._try(lambda: self._shared.parts.give_back(keys)))
        self._publish()
        if self._cleared_at_end:
            # Nothing is to stay.
            self._try(self._shared.parts.clear)

    def _begin(self, keys: Sequence[bytes]) -> _Batch | None:
        try:
            self._shared.begin(keys)
        except BloomdupeError as exc:
            self._shared.leave(keys, exc)
            return None
        batch = _Batch(keys, self._renewals)
        self._batches.update(dict.fromkeys(keys, batch))
        self._in_thread(lambda: self._judge(batch), lambda answer: self._answered(batch, answer))
        self._watch.count(stats.SERVER_ASKED)
        self._watch.count(stats.SERVER_KEYS, len(keys))
        return batch

    def _judge(self, batch: _Batch) -> list[Verdict]:
        batch.answer = self._shared.parts.judge(batch.keys)
        return batch.answer

    def _answered(self, batch: _Batch, answer: list[Verdict] | BaseException) -> None:
        if isinstance(answer, BaseException):
            if batch.renewals == self._renewals:
                self.failed(answer)
            # Each of its requests will say so again, some of them when all is in order.
            self._told.add(answer)
            if not isinstance(answer, BloomdupeError):
                answer = StoreError(0, f"the server could not be asked: {answer!r}")
        if not self._closed:
            self._shared.leave(batch.keys, answer)
        for key in batch.keys:
            del self._batches[key]
        for waiting in batch.waiting:
            waiting.callback(None)

    def _look(self) -> None:
        """Look whether all is still there, in a thread; give back what was not used."""
        self._watch.attempt(stats.ERROR_SERVER, self._give_back_unused)
        self._publish()
        if not self._looking:
            self._looking = True
            renewals = self._renewals
            self._in_thread(self._look_there, lambda found: self._looked(found, renewals))

    def _give_back_unused(self) -> None:
        if keys := self._shared.unused():
            self._in_thread(
                lambda: self._shared.parts.give_back(keys), lambda answer: self._given_back(keys, answer)
            )

    def _look_there(self) -> str:
        self._shared.parts.verify()
        return self._shared.parts.trouble()

    def _looked(self, found: str | BaseException, renewals: int) -> None:
        self._looking = False
        extra = {"spider": self._watch.spider}
        if isinstance(found, RemoteEmptied):
            if renewals == self._renewals:
                self._emptied(found)
        elif isinstance(found, CircuitOpen) or (isinstance(found, BaseException) and not self._is_away):
            # Asked for nothing else, it is found out here; requests that pass unjudged are counted.
            if not isinstance(found, CircuitOpen):
                self._is_away = self._was_away = True
                self._say_away(found)
        elif isinstance(found, str):
            if self._is_away:
                self._is_away = False
                logger.info(sharedreport.server_back(self._shared.parts.names), extra=extra)
            # Its figures change all the time.
            if found and not self._trouble:
                logger.error(sharedreport.server_trouble(self._shared.parts.names, found), extra=extra)
            self._trouble = found
            self._watch.attempt(stats.ERROR_SERVER, self._notice_version)
            if self._renewer is not None and not self._closed:
                self._renewer.tick()

    def _notice_version(self) -> None:
        """Say once that the filter is one that somebody has rebuilt: questions follow it without a word."""
        filter = self._shared.parts.filter  # noqa: A001
        if filter is None or filter.filter_id == self._filter_id:
            return
        before, self._filter_id = self._filter_id, filter.filter_id
        if not filter.replaces(before):
            return  # made anew since it was gone, which is said elsewhere
        logger.info(sharedreport.followed(filter), extra={"spider": self._watch.spider})
        self._watch.set(stats.LAYERS, filter.num_layers)
        self._remember_epoch()

    def _say_away(self, exc: BaseException) -> None:
        extra = {"spider": self._watch.spider}
        logger.warning(sharedreport.server_away(self._shared.parts.names, exc), extra=extra)

    def _emptied(self, exc: RemoteEmptied) -> None:
        """What had been seen is gone from the server."""
        if self._renewing or self._closed:
            return
        self._renewing = True
        self._watch.count(stats.EMPTIED)
        self._shared.emptied(with_queue=self._with_queue)
        extra = {"spider": self._watch.spider}
        if self._watch.is_first(stats.EMPTIED):
            logger.error(sharedreport.emptied(exc, self._on_empty), extra=extra)
        if self._on_empty == "stop":
            scrapy_compat.close_spider(self._crawler, EMPTIED)
            return
        self._in_thread(self._shared.parts.renew, self._renewed)

    def _renewed(self, found: bool | BaseException) -> None:
        if isinstance(found, BaseException):
            # Whoever asks next finds it out again.
            self._renewing = False
            return
        self._renewals += 1
        if self._closed:
            return
        self._watch.attempt(stats.ERROR_SERVER, self._remember_epoch)
        if self._on_empty == "refill":
            # Each crawl brings its own keys, whoever made it anew.
            self._refill(None, 0)
        else:
            self._renewing = False
            extra = {"spider": self._watch.spider}
            logger.info(sharedreport.renewed(self._shared.parts.names, None), extra=extra)

    def _refill(self, last: bytes | None, count: int) -> None:
        """Bring back what this crawl knows, in chunks: LMDB is read on the crawl's thread only."""
        store = self._state.store
        if self._closed or not isinstance(store, LmdbStore):
            self._renewing = False
            return
        extra = {"spider": self._watch.spider}

        def put(found: int | BaseException) -> None:
            if isinstance(found, BaseException):
                self._renewing = False
                logger.error(sharedreport.not_refilled(self._shared.parts.names, count, found), extra=extra)
            else:
                self._refill(chunk[-1][0], count + found)

        try:
            chunk = store.chunk_after(last)
        except StoreError as exc:
            chunk = []
            self._watch.failed(stats.ERROR_SERVER, exc)
        if chunk:
            self._in_thread(lambda: self._shared.parts.refill(key for key, _ in chunk), put)
        else:
            self._renewing = False
            logger.info(sharedreport.renewed(self._shared.parts.names, count), extra=extra)

    def _remember_epoch(self) -> None:
        identity = {**self._state.filter.identity, SHARED_MARK: self._shared.parts.epoch}
        self._state.set_identity(identity)

    def _grew(self, growth: Growth) -> None:
        """The shared filter has reached its capacity; told in any thread."""
        from twisted.internet import reactor

        reactor.callFromThread(self._say_grown, growth)

    def _say_grown(self, growth: Growth) -> None:
        extra = {"spider": self._watch.spider}
        self._watch.set(stats.LAYERS, growth.layers)
        if growth.error is None:
            logger.info(report.grew(growth), extra=extra)
            return
        self._watch.count(stats.ERROR_GROWTH)
        exact = self._shared.store is not None
        asked = self._shared.parts.filter.error_rate if self._shared.parts.filter is not None else 1.0
        if self._watch.is_first(stats.ERROR_GROWTH):
            logger.error(report.overfull(growth, exact=exact), extra=extra)
        if not exact and growth.rate > STOP_AT * asked and self._watch.is_first(FULL):
            logger.error(report.full(growth, asked), extra=extra)
            scrapy_compat.close_spider(self._crawler, FULL)

    def _given_back(self, keys: Sequence[bytes], answer: object) -> None:
        self._watch.attempt(stats.ERROR_SERVER, lambda: self._shared.given_back(keys, done=answer is True))

    def _publish(self) -> None:
        breakers = self._shared.parts.breakers
        if seconds := sum(breaker.open_seconds for breaker in breakers):
            self._watch.set(stats.CIRCUIT_OPEN_SECONDS, round(seconds, 1))
        if self._shared.num_unused:
            self._watch.set(stats.UNUSED, self._shared.num_unused)
        if self._shared.num_owed_passed:
            self._watch.set(stats.OWED, self._shared.num_owed_passed)
        if any(breaker.state is not Circuit.CLOSED for breaker in breakers):
            self._is_away = True

    def _in_thread(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        from twisted.internet import reactor

        if not self._pool.started:
            self._pool.start()
            on_shutdown: Any = reactor.addSystemEventTrigger
            on_shutdown("during", "shutdown", self._stop_pool)

        def unwrap(result: Any) -> None:
            done(result.value if isinstance(result, Failure) else result)

        deferToThreadPool(reactor, self._pool, work).addBoth(unwrap)

    def _stop_pool(self) -> None:
        if self._pool.started:
            self._pool.stop()

    @staticmethod
    def _try(function: Callable[[], object]) -> object:
        try:
            return function()
        except BloomdupeError as exc:
            return exc


#: Of the crawls that share what they have seen.
of_crawler: WeakKeyDictionary[Crawler, Sharing] = WeakKeyDictionary()


def share(
    crawler: Crawler,
    state: State,
    options: SharedOptions,
    watch: Watch,
    key_of: Callable[[Request], bytes | None],
    *,
    identity: Mapping[str, str],
    cache_size: int,
    sync: bool,
    with_queue: bool,
) -> Sharing:
    """Connect *state* with what is shared.

    Args:
        with_queue: see ``Sharing``.

    Raises:
        BloomdupeError: see ``shared.opening``; or it was emptied since the last run, and that ends the crawl.
    """
    name = crawler.spider.name if crawler.spider is not None else ""
    parts, notices = open_shared(options, spider=name, identity=identity)
    shared = state.share(parts, options.policy, cache_size=cache_size, sync=sync)
    state.notices += notices
    rebuilds = options.rebuild_layers or options.rebuild_every is not None
    renewer = SharedRenewer(parts, options, name, watch) if rebuilds else None
    sharing = Sharing(
        crawler, state, shared, watch, options.on_empty, key_of, with_queue=with_queue, renewer=renewer
    )
    found = state.filter.identity.get(SHARED_MARK)
    if found not in (None, "new") and not parts.is_successor_of(found):
        notice = sharedreport.emptied_between(parts, state.directory)
        if options.on_empty == "stop":
            raise RemoteEmptied(
                2, f"{notice}. BLOOMDUPE_ON_EMPTY is 'stop'; take 'pass' or 'refill' to go on"
            )
        state.notices.append(notice)
        sharing.is_to_refill = options.on_empty == "refill"
    if found != parts.epoch:
        state.set_identity({**state.filter.identity, SHARED_MARK: parts.epoch})
    return sharing
