"""The queue of pending requests: order, memory, and what is in flight.

``FrontierQueue`` is what Scrapy's ``Scheduler`` has as its disk queue, ``MemoryQueue`` what it has as its
memory queue. Both keep Scrapy's order. Invariants, together with ``frontier.lmdb`` and ``frontier.group``:

1. A key becomes durable in the transaction that holds the pending record of the request that set it.
2. A record is deleted only in a transaction that holds all that its request produced.
3. What cannot be serialized is in memory only: neither it nor its key is written, and the request that
   produced it is not acknowledged before it is done.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from errno import EIO
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from scrapy_bloomdupe.errors import BloomdupeError, StoreError
from scrapy_bloomdupe.frontier.lmdb import Bucket, LmdbFrontier, record, split
from scrapy_bloomdupe.frontier.serialize import RequestReader, RequestWriter
from scrapy_bloomdupe.scrapy_compat import Downloads, QueueOrder
from scrapy_bloomdupe.stores.lmdb import GROUP_SIZE

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# Numbers of a bucket that are read from the file at once; twice as many are kept in memory at the most.
_CHUNK = 512
# Requests that are kept as objects besides their records. Live objects cost the garbage collector more than
# it costs to restore a few of them: 200 did better than 1,000.
_OBJECTS = 200

#: The queues of the crawls that are under way.
queues: WeakKeyDictionary[Crawler, FrontierQueue] = WeakKeyDictionary()

# In ``Request.meta``, set by Scrapy.
_IS_START = "is_start_request"
# What the meta of redirections and retries has.
_COPIED = {"redirect_times", "retry_times"}
# In ``Request.meta``: of a start request that was popped, and of all that copies its meta from then on.
_MADE = "bloomdupe_made"


class Seen(Protocol):
    """What the queue needs of a seen-set."""

    def hold(self, key: bytes) -> None:
        """Keep a key that was just added in memory only."""

    def release(self, key: bytes) -> None:
        """Let the next commit write a key that was held."""

    def forget(self, key: bytes) -> bool:
        """Make a key new again."""


class InFlight:
    """A request that was popped and is not acknowledged.

    Attributes:
        bucket, number: of its record; None and 0: it cannot be serialized and has none.
        keys: of a request without a record: the keys that it set, which are in memory only, too.
        parents: of a request without a record: those that may have produced it.
        request: the object that the engine has.
        requests, items: of its callback's output, not scheduled, and not through the pipelines, yet.
        holding: requests without a record that it may have produced and that are not done.
        exhausted: whether its callback has given all of its output.
        failed: whether it ended in failure.
        left: whether the engine has no more of it; ``holding`` keeps it from being acknowledged.
        done: whether it is acknowledged.
    """

    __slots__ = (
        "bucket",
        "done",
        "exhausted",
        "failed",
        "holding",
        "items",
        "keys",
        "left",
        "number",
        "parents",
        "request",
        "requests",
    )

    def __init__(self, request: Request, bucket: Bucket | None, number: int) -> None:
        self.request = request
        self.bucket = bucket
        self.number = number
        self.requests = self.items = self.holding = 0
        self.exhausted = self.failed = self.left = self.done = False
        self.keys: list[bytes] | None = None
        self.parents: list[InFlight] | None = None


class _Slot:
    """The buckets of a download slot that hold requests, in their order."""

    __slots__ = ("buckets", "name", "ranks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ranks: list[tuple[int, bool, int]] = []
        self.buckets: list[Bucket] = []


class FrontierQueue:
    """Scrapy's disk queue, on the records of ``LmdbFrontier``.

    Args:
        store: the records.
        seen: the seen-set whose keys belong to them.
        spider: the spider whose callbacks the requests have.
        order: what the project's settings say of the order.
        downloads: what the downloader is at.
        retry_failed: whether requests that fail are kept for the next run.
        key_of: the key of a request; None: it has none.
        on_change: called when there is something for the next commit.
        on_done: called when a request may be done.
        on_full: called when much of it waits.
        on_error: called with an error of the file.

    Attributes:
        num_resumed: requests of earlier runs that were popped.
        num_unserializable: requests that are in memory only.
        stuck: numbers of requests that cannot be restored, and why; they stay pending.
        failed_urls: with *retry_failed*: by key, the URLs that failed in this run.
    """

    def __init__(
        self,
        store: LmdbFrontier,
        seen: Seen,
        spider: Spider,
        order: QueueOrder,
        downloads: Downloads,
        *,
        retry_failed: bool = False,
        key_of: Callable[[Request], bytes | None],
        on_change: Callable[[], None],
        on_done: Callable[[], None],
        on_full: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.store = store
        self._seen = seen
        self._spider = spider
        self._order = order
        self._downloads = downloads
        self._retry_failed = retry_failed
        self._key_of = key_of
        self._on_change = on_change
        self._on_done = on_done
        self._on_full = on_full
        self._on_error = on_error
        self._write = RequestWriter(spider)
        self._load = RequestReader(spider)
        self._slots: dict[str, _Slot] = {}
        self._names: list[str] = []
        self._last: str | None = None
        self._objects: OrderedDict[int, Request] = OrderedDict()
        self._out: set[int] = set()
        self._count = store.num_pending
        # The request that the duplicate filter has just let pass, its key, and whether that was new.
        self._judged: tuple[Request, bytes, bool] | None = None
        # The request that could not be serialized, on its way to the memory queue.
        self._refused: tuple[Request, tuple[Request, bytes, bool] | None, InFlight | None] | None = None
        # By key: how many requests in memory have it.
        self._held_keys: dict[bytes, int] = {}
        #: By request: what was popped and is not acknowledged.
        self.in_flight: dict[Request, InFlight] = {}
        self._held: dict[Request, InFlight] = {}
        self._outputs: dict[Request, InFlight] = {}
        self._ready: list[InFlight] = []
        self._succeeded: list[InFlight] = []
        # A request was pushed that is in no callback's output: it may be the successor of one in flight,
        # which is to be acknowledged in the commit that has it.
        self._has_successor = False
        self.failed_urls: dict[bytes, set[str]] = {}
        self.stuck: dict[int, str] = {}
        self.num_resumed = self.num_unserializable = 0
        self.find()

    # Scrapy's interface

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def push(self, request: Request) -> None:
        """Take *request* as pending.

        Raises:
            ValueError: it cannot be serialized, and goes to the memory queue.
        """
        judged, self._judged = self._judged, None
        if judged is not None and judged[0] is not request:
            self._forget(judged)
            judged = None
        parent = self._outputs.pop(request, None) if self._outputs else None
        try:
            data = self._write(request)
            slot = str(self._downloads.slot_of(request)) if self._order.by_slot else ""
        except Exception as exc:
            # Whatever pickle and the request's own methods raise.
            self._refused = request, judged, parent
            self.num_unserializable += 1
            raise ValueError(f"cannot serialize {request}: {exc}") from exc
        try:
            self._add(request, slot, record(judged[1] if judged is not None else None, data))
            if _is_made_by_start(request.meta):
                self.store.note_start(self._digest(data))
        except BloomdupeError as exc:
            # Of the file. The crawl ends, and nothing is written any more.
            self._on_error(exc)
            return
        if parent is None and (_COPIED.isdisjoint(request.meta) or not self._succeeds(request)):
            self._has_successor = True
        if parent is not None:
            parent.requests -= 1
            if parent.exhausted:
                self._consider(parent)
        self._on_change()
        if len(self.store.added) >= GROUP_SIZE:
            self._on_full()

    def _add(self, request: Request, slot: str, data: bytes) -> None:
        order, store = self._order, self.store
        is_start = bool(request.meta.get(_IS_START))
        place = slot, -request.priority, is_start and order.start_lifo is not None
        bucket = store.buckets.get(place)
        if bucket is None:
            bucket = store.bucket(*place)
            if bucket.stored:
                self._begin(bucket)
        number = store.next
        store.next = number + 1
        store.added[number] = bucket, data
        store.num_pending += 1
        self._count += 1
        lifo = order.start_lifo if place[2] else order.lifo
        live = bucket.live
        if lifo:
            live.append(number)
            self._objects[number] = request
            if len(self._objects) > _OBJECTS:
                self._objects.popitem(last=False)
            if len(live) > 2 * _CHUNK and live[-_CHUNK - 1] < store.committed:
                bucket.rest = live[-_CHUNK]
                del live[:-_CHUNK]
        elif bucket.rest is None:
            if len(live) < 2 * _CHUNK:
                live.append(number)
                if len(self._objects) < _OBJECTS:
                    self._objects[number] = request
            else:
                bucket.rest = number
        if not bucket.active:
            self._activate(bucket)

    def _digest(self, data: bytes) -> bytes:
        """Return 16 bytes that tell a start request from others: all of it counts, not its fingerprint alone,
        since one URL is often asked for with several callbacks or cookie jars."""
        return blake2b(data, digest_size=16, key=self._spider.name.encode()[:64]).digest()

    def _succeeds(self, request: Request) -> bool:
        """Return whether *request* is the target of a redirection, or the retry, of a request in flight. That
        request is acknowledged in the same commit: else a kill between two commits has both crawled.
        """
        meta = request.meta
        urls = {request.url} if "retry_times" in meta else set()
        urls.update((meta.get("redirect_urls") or [])[-1:])
        in_progress = self._downloads.in_progress()
        for one, entry in self.in_flight.items():
            if one.url in urls and one not in in_progress:
                self._succeeded.append(entry)
                self._on_done()
                return True
        return False

    def pop(self) -> Request | None:
        try:
            return self._pop()
        except BloomdupeError as exc:
            self._on_error(exc)
            return None

    def _pop(self) -> Request | None:
        request = None
        while request is None:
            if not self._names and not self.find():
                break
            before = self._last
            slot = self._slots[self._next_slot()]
            bucket = slot.buckets[0]
            number = self._take(bucket)
            if number is None:
                self._last = before
                continue
            request = self._objects.pop(number, None)
            if request is None or request in self.in_flight:
                # A callback can give the same object twice.
                request = self._restore(bucket, number)
            self._count -= 1
            self._out.add(number)
            if request is not None:
                _mark_made(request)
                self.in_flight[request] = InFlight(request, bucket, number)
                if number < self.store.first:
                    self.num_resumed += 1
        if self.in_flight:
            # It is asked when the engine has room: another request may be done.
            self._on_done()
        return request

    def peek(self) -> Request | None:
        """Return the request that ``pop`` would return, and leave it."""
        if not self._names and not self.find():
            return None
        before = self._last
        slot = self._slots[self._next_slot()]
        self._last = before
        bucket = slot.buckets[0]
        if not bucket.live and not self._refill(bucket):
            self._deactivate(bucket)
            return self.peek()
        number = bucket.live[-1 if self._is_lifo(bucket) else 0]
        request = self._objects.get(number) or self._restore(bucket, number)
        if request is not None:
            self._objects[number] = request
        return request

    def close(self) -> int:
        """Return what Scrapy writes into ``active.json``: its own queues refuse to start with a number, and
        would lose what is pending here without a word if they did not."""
        return 1

    # The duplicate filter

    def judged(self, request: Request, key: bytes, *, added: bool) -> None:
        """The duplicate filter lets *request* pass. ``push`` follows.

        Args:
            added: whether *key* is new with this request.
        """
        if self._judged is not None or self._refused is not None:
            self.settle_judged()
        self._judged = request, key, added

    def filtered(self, request: Request) -> None:
        """The duplicate filter filters *request*."""
        if self._outputs and (parent := self._outputs.pop(request, None)) is not None:
            parent.requests -= 1
            if parent.exhausted:
                self._consider(parent)

    def settle_judged(self) -> None:
        """Forget the key of a request that passed and was never pushed: nobody would crawl its page.

        Raises:
            StoreError: the store failed.
        """
        judged = self._judged
        if self._refused is not None:
            judged = self._refused[1]
        self._judged = self._refused = None
        if judged is not None:
            self._forget(judged)

    def _forget(self, judged: tuple[Request, bytes, bool]) -> None:
        _, key, added = judged
        if added:
            self._seen.forget(key)

    def marked(self, request: Request, key: bytes) -> None:
        """*key* was added for *request*, which was not judged and is in flight."""
        entry = self.in_flight.get(request)
        if entry is not None and entry.keys is not None:
            self._hold_key(entry, key)

    def replaces_failed(self, request: Request, key: bytes) -> bool:
        """Return whether *request*, a duplicate, may pass: requests with its key have failed in this run, and
        this is another URL of that page."""
        urls = self.failed_urls.get(key)
        return urls is not None and request.url not in urls

    def skips_start(self, request: Request) -> bool:
        """Return whether *request* is a start request that an earlier run, which did not end in order, has
        scheduled already."""
        if not _is_made_by_start(request.meta):
            return False
        try:
            return self.store.skip_start(self._digest(self._write(request)))
        except Exception:
            return False

    # What cannot be serialized

    def hold(self, request: Request) -> Request:
        """Keep track of *request*, which has no record, and return what the memory queue is to hold."""
        judged = parent = None
        if self._refused is not None and self._refused[0] is request:
            _, judged, parent = self._refused
            self._refused = None
        if request in self._held or request in self.in_flight:
            request = request.copy()
        entry = InFlight(request, None, 0)
        entry.keys = []
        # Its successor or its output: of what is at the downloader nothing can come yet.
        entry.parents = [parent] if parent is not None else self._may_have_produced()
        for one in entry.parents:
            one.holding += 1
        if judged is not None:
            self._hold_key(entry, judged[1])
        self._held[request] = entry
        if parent is not None:
            parent.requests -= 1
        return request

    def popped(self, request: Request) -> None:
        """The memory queue has given *request*."""
        entry = self._held.pop(request, None)
        if entry is not None:
            _mark_made(request)
            self.in_flight[request] = entry
            self._on_done()

    @property
    def held(self) -> Iterable[Request]:
        """The requests that are in the memory queue."""
        return self._held

    def _hold_key(self, entry: InFlight, key: bytes) -> None:
        # The target of a request's own redirection has the same key.
        count = self._held_keys.get(key, 0)
        if not count:
            self._seen.hold(key)
        self._held_keys[key] = count + 1
        if entry.keys is not None:
            entry.keys.append(key)

    def _release_key(self, key: bytes) -> None:
        count = self._held_keys.pop(key)
        if count > 1:
            self._held_keys[key] = count - 1
        else:
            self._seen.release(key)

    def _may_have_produced(self) -> list[InFlight]:
        at_downloader = self._downloads.waiting()
        return [entry for request, entry in self.in_flight.items() if request not in at_downloader]

    # Output and acknowledgements

    def of_response(self, response: Any) -> InFlight | None:
        """Return the request of a response or of a failure, if it was popped here and is not acknowledged."""
        request = getattr(response, "request", None)
        return self.in_flight.get(request) if request is not None else None

    def expect(self, response: Any, output: Request) -> None:
        """*output* is in the output of the callback of *response*."""
        entry = self.in_flight.get(response.request)
        if entry is not None:
            entry.requests += 1
            self._outputs[output] = entry

    def expect_item(self, response: Any) -> None:
        """An item is in the output of the callback of *response*."""
        entry = self.in_flight.get(response.request)
        if entry is not None:
            entry.items += 1

    def item_left(self, entry: InFlight) -> None:
        """An item of the callback's output has left the pipelines."""
        if entry.items:
            entry.items -= 1
            if entry.exhausted:
                self._consider(entry)

    def exhausted(self, response: Any) -> None:
        """The callback of *response* has given all of its output."""
        request = response.request
        entry = self.in_flight.get(request)
        if entry is not None:
            entry.exhausted = True
            self._consider(entry)

    def abandon(self, request: Request) -> None:
        """The callback or errback of *request* has closed the spider: what else it would have given is not
        known. The next run crawls it again."""
        self.in_flight.pop(request, None)

    def failed(self, request: Request) -> None:
        """*request* ends in failure."""
        entry = self.in_flight.get(request)
        if entry is not None:
            entry.failed = True

    def _consider(self, entry: InFlight) -> None:
        # Not acknowledged here: what it depends on may be in the middle of this turn.
        if not (entry.requests or entry.items or entry.holding):
            self._ready.append(entry)
            self._on_done()

    @property
    def is_ready(self) -> bool:
        """Whether there is something for a commit that acknowledges nothing late."""
        return bool(self._ready or self._succeeded) and not self._has_successor

    def left(self) -> set[Request]:
        """Return the requests in flight that the engine no longer has: failures, errbacks, requests that were
        dropped on their way, redirections and retries, whose successor was scheduled. In a turn of its own
        only, and not where a callback may have closed the spider in the same turn."""
        in_progress = self._downloads.in_progress()
        return {request for request in self.in_flight if request not in in_progress}

    def acknowledge(self, left: Container[Request] = ()) -> bool:
        """Acknowledge what is done; return whether there was anything. In a turn of its own only.

        Args:
            left: what the engine no longer has is done, too.

        Raises:
            StoreError: a key could not be released.
        """
        self.settle_judged()
        in_flight, found = self.in_flight, False
        ready, self._ready = self._ready, []
        for entry in ready:
            if not (entry.requests or entry.items or entry.holding):
                found = entry.left = True
        succeeded, self._succeeded = self._succeeded, []
        # One that is with its callback by now was not succeeded: somebody has copied its meta.
        in_progress = self._downloads.in_progress() if succeeded else ()
        for entry in succeeded:
            if entry.request not in in_progress:
                found = entry.left = True
        if left:
            self._has_successor = False
        elif not found:
            return False
        for request, entry in list(in_flight.items()):
            if entry.left or request in left:
                del in_flight[request]
                found = entry.left = True
                if not entry.holding:
                    self._finish(entry)
                if entry.requests:
                    # They were dropped on their way to the scheduler.
                    self._outputs = {key: one for key, one in self._outputs.items() if one is not entry}
        return found

    def _finish(self, entry: InFlight) -> None:
        rest = [entry]
        while rest:
            entry = rest.pop()
            entry.done = True
            bucket = entry.bucket
            if bucket is None:
                for key in entry.keys or ():
                    self._release_key(key)
                for parent in entry.parents or ():
                    parent.holding -= 1
                    if parent.left and not parent.holding:
                        rest.append(parent)
                continue
            if entry.failed and self._retry_failed:
                self._keep_failed(entry.request, bucket, entry.number)
            else:
                self.store.remove(bucket, entry.number)
            self._out.discard(entry.number)

    def _keep_failed(self, request: Request, bucket: Bucket, number: int) -> None:
        data = self.store.read(bucket, number)
        if data is None:
            raise StoreError(EIO, f"the record of {request} is damaged")
        key, serialized = split(data)
        if "retry_times" in request.meta:
            # It has used up its retries; the next run has its own.
            again = self._load(serialized)
            again.meta.pop("retry_times", None)
            serialized = self._write(again)
        if key is None:
            with suppress(Exception):
                key = self._key_of(request)
        self.store.fail(bucket, number, record(key, serialized))
        if key is not None:
            self.failed_urls.setdefault(key, set()).add(request.url)

    # Order

    def find(self) -> bool:
        """Read some more of the buckets that earlier runs have left; return whether there were any."""
        store = self.store
        if store.has_found_all:
            return False
        before = store.num_pending
        while not store.has_found_all:
            found = store.find()
            self._count -= before - store.num_pending
            before = store.num_pending
            for bucket in found:
                self._begin(bucket)
                self._activate(bucket)
            if found:
                return True
        return False

    def _begin(self, bucket: Bucket) -> None:
        """Take up a bucket of an earlier run: all that is in it is in the file only."""
        bucket.rest = self.store.first if self._is_lifo(bucket) else 0

    def _is_lifo(self, bucket: Bucket) -> bool:
        order = self._order
        if bucket.start and order.start_lifo is not None:
            return order.start_lifo
        return order.lifo

    def _rank(self, bucket: Bucket) -> tuple[int, bool, int]:
        # Two buckets of one place are of different runs.
        return bucket.priority, bucket.start, -bucket.number if self._is_lifo(bucket) else bucket.number

    def _activate(self, bucket: Bucket) -> None:
        bucket.active = True
        slot = self._slots.get(bucket.slot)
        if slot is None:
            slot = self._slots[bucket.slot] = _Slot(bucket.slot)
            insort(self._names, bucket.slot)
        rank = self._rank(bucket)
        at = bisect_left(slot.ranks, rank)
        slot.ranks.insert(at, rank)
        slot.buckets.insert(at, bucket)

    def _deactivate(self, bucket: Bucket) -> None:
        bucket.active = False
        slot = self._slots[bucket.slot]
        at = slot.buckets.index(bucket)
        del slot.ranks[at], slot.buckets[at]
        if not slot.buckets:
            del self._slots[bucket.slot]
            del self._names[bisect_left(self._names, bucket.slot)]

    def _take(self, bucket: Bucket) -> int | None:
        """Return the number of the next request of *bucket*, or None if there is none."""
        live = bucket.live
        number = None
        if live or self._refill(bucket):
            number = live.pop() if self._is_lifo(bucket) else live.pop(0)
        if not live and not self._refill(bucket):
            self._deactivate(bucket)
        return number

    def _refill(self, bucket: Bucket) -> bool:
        """Read numbers from the file; return whether there were any."""
        if bucket.rest is None:
            return False
        if self._is_lifo(bucket):
            numbers, is_all = self.store.before(bucket, bucket.rest, _CHUNK, self._out)
            bucket.rest = None if is_all else numbers[-1]
            numbers.reverse()
        else:
            numbers, is_all = self.store.after(bucket, bucket.rest, _CHUNK, self._out)
            bucket.rest = None if is_all else numbers[-1] + 1
        bucket.live.extend(numbers)
        return bool(numbers)

    def _next_slot(self) -> str:
        """Return the slot that is next, as Scrapy's priority queues choose it."""
        names = self._names
        if len(names) == 1:
            self._last = names[0]
            return names[0]
        if not self._order.by_slot:
            # Left by a run that went by slots.
            return min(names, key=lambda name: self._slots[name].ranks[0])
        last = self._last if self._order.in_turns else None
        best = self._next_idle(last)
        if best is None:
            active = {name: self._downloads.active(name) for name in names}
            fewest = min(active.values())
            equal = [name for name in names if active[name] == fewest]
            best = _following(equal, last)
        self._last = best
        return best

    def _next_idle(self, last: str | None) -> str | None:
        """Return the next slot without active downloads; None: there is none. Without a look at all slots."""
        names, busy = self._names, self._downloads.busy()
        at = bisect_right(names, last) if last is not None else 0
        for start, stop in ((at, len(names)), (0, at)):
            for index in range(start, stop):
                if names[index] not in busy:
                    return names[index]
        return None

    def _restore(self, bucket: Bucket, number: int) -> Request | None:
        data = self.store.read(bucket, number)
        try:
            if data is None:
                raise ValueError("its record is damaged")
            return self._load(split(data)[1])
        except Exception as exc:
            self.stuck[number] = f"{type(exc).__name__}: {exc}"
            logger.error(
                "Pending request %d cannot be restored: %s. Its page is not crawled by this run, and stays "
                "pending. Give the spider back what is missing, or see `bloomdupe pending`",
                number,
                exc,
                extra={"spider": self._spider},
            )
            return None


class MemoryQueue:
    """Scrapy's memory queue, with what cannot be serialized; without a ``JOBDIR`` with everything.

    Args:
        frontier: is told what is pushed and popped.
        stock: Scrapy's own memory queue.
        alone: whether the scheduler has no disk queue.
    """

    def __init__(self, frontier: FrontierQueue, stock: Any, *, alone: bool) -> None:
        self._frontier = frontier
        self._stock = stock
        self._alone = alone
        self._count = 0

    def __len__(self) -> int:
        return self._count + (len(self._frontier) if self._alone else 0)

    def push(self, request: Request) -> None:
        if self._alone:
            try:
                self._frontier.push(request)
            except ValueError:
                pass
            else:
                return
        self._stock.push(self._frontier.hold(request))
        self._count += 1

    def pop(self) -> Request | None:
        if self._count:
            request: Request | None = self._stock.pop()
            if request is not None:
                self._count -= 1
                self._frontier.popped(request)
                return request
        return self._frontier.pop() if self._alone else None

    def peek(self) -> Request | None:
        request: Request | None = self._stock.peek() if self._count else None
        return request or (self._frontier.peek() if self._alone else None)

    def close(self) -> Any:
        return self._stock.close()


def _following(names: list[str], last: str | None) -> str:
    """Return the first of the sorted *names* after *last*, or the first of all."""
    at = bisect_right(names, last) if last is not None else 0
    return names[at] if at < len(names) else names[0]


def _is_made_by_start(meta: dict[str, Any]) -> bool:
    """Return whether a request is one that the spider starts with, and not one that copies its meta."""
    return bool(meta.get(_IS_START)) and _MADE not in meta


def _mark_made(request: Request) -> None:
    if request.meta.get(_IS_START):
        request.meta[_MADE] = True
