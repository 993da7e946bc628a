"""Pending requests in the LMDB file of the seen-set.

``LmdbFrontier`` is a participant of ``stores.environment``: its records, the seen keys and the
acknowledgements of one group are committed in one transaction, so that after a crash a key is in the file
only if the record of its request was, and a record is gone only if all that its request produced is there.

Databases: ``pending`` and ``failed`` hold records under (bucket, number), ``buckets`` says what a bucket is,
``starts`` counts start requests, ``frontier`` has the counters and ``spider.state``.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.stores.environment import Environment, Transaction

# Frozen. LMDB compares bytes, so both are big-endian to come in their order.
_BUCKET = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")
_KEY = struct.Struct(">IQ")
# Frozen: version, whether the last run ended in order, the next number, requests that are done, runs, the
# next bucket.
_COUNTERS = struct.Struct("<BBQQQI")
# Frozen: behind the slot, what a bucket is in its order: the priority, whether of start requests, its number.
_PLACE = struct.Struct(">QBI")
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
# Frozen: the run that wrote this, how often that run made the start request, and how often earlier runs had,
# beyond that.
_START = struct.Struct("<QII")
_VERSION = 1

DATABASES = (b"pending", b"failed", b"buckets", b"starts", b"frontier")

# Buckets that are read at once when a state is opened; the rest follows in slices.
_BUCKETS_AT_ONCE = 2_000
_CHUNK = 500
_LONGEST_NAME = 255  # bytes


class Bucket:
    """The pending requests of one slot, one priority and one kind (start requests or others).

    Attributes:
        number: its name in the file.
        slot: the download slot; empty where the order does not go by slots.
        priority: as Scrapy's queues have it: the lower the sooner.
        start: whether it holds start requests that have a queue of their own.
        failed: whether its requests failed in an earlier run (or in this one, then nobody pops them).
        stored: whether the file says what it is.
        active: whether the queue pops from it.
        live: numbers of requests that come next, the next one last (LIFO) or first (FIFO).
        rest: LIFO: numbers below it are in the file only; FIFO: numbers from it on; None: all are in
            ``live``.
    """

    __slots__ = ("active", "failed", "live", "number", "priority", "rest", "slot", "start", "stored")

    def __init__(
        self,
        number: int,
        slot: str,
        priority: int,
        start: bool,
        *,
        failed: bool = False,
        stored: bool = False,
    ) -> None:
        self.number = number
        self.slot = slot
        self.priority = priority
        self.start = start
        self.failed = failed
        self.stored = stored
        self.active = False
        self.live: list[int] = []
        self.rest: int | None = None


class LmdbFrontier:
    """The pending requests of one spider in *environment*.

    Nothing is written before ``environment.commit``; what waits for that is visible to every method.

    Attributes:
        run: the number of this run, once it has begun.
        first: the first number of this run; smaller ones are of earlier runs.
        next: the next number.
        committed: numbers below it are in the file, if they are pending.
        num_pending: requests that are not done, without those that failed in this run.
        num_failed: requests that failed in this run and are kept for the next one.
        num_done: requests of this state that are done, earlier runs included.
        num_foreign: requests of other spiders, as far as they were found.
        was_in_order: whether the last run ended in order; true for a new state.

    Args:
        spider: the name of the spider whose requests are popped and pushed.

    Raises:
        StateCorrupt: the file cannot be read; nothing was changed.
        StoreError: the databases could not be made.
    """

    def __init__(self, environment: Environment, spider: str) -> None:
        self.environment = environment
        self._pending, self._failed, self._rows, self._starts, self._meta = (
            environment.database(name, create=True) for name in DATABASES
        )
        self._spider = _short(spider)
        counters = _counters(environment, environment.read(self._meta, b"counters"))
        self.is_new = counters is None
        in_order, self.next, self.num_done, self.run, self._first_bucket = counters or (True, 1, 0, 0, 1)
        self.was_in_order = bool(in_order)
        with environment.reading() as txn:
            self.num_pending: int = txn.stat(self._pending)["entries"] + txn.stat(self._failed)["entries"]
        self._next_bucket = self._first_bucket
        self.first = self.committed = self.next
        self.num_failed = self.num_foreign = 0
        # The row up to which ``find`` has read; None: the last one.
        self._found: bytes | None = b""
        #: By (slot, priority, start): the buckets of this run and those that were found.
        self.buckets: dict[tuple[str, int, bool], Bucket] = {}
        self._failed_now: dict[tuple[str, int, bool], Bucket] = {}
        #: By number: what the next commit adds, as ``record`` makes it.
        self.added: dict[int, tuple[Bucket, bytes]] = {}
        self._failing: dict[int, tuple[Bucket, bytes]] = {}
        self.removed: dict[int, Bucket] = {}
        self._started: dict[bytes, bytes] = {}
        self._notes: dict[bytes, bytes] = {}
        self._clear_starts = self._in_order = self._changed = False
        self._emptied: list[Bucket] = []
        environment.join(self)

    @property
    def num_waiting(self) -> int:
        """Changes that are not yet written."""
        return len(self.added) + len(self.removed) + len(self._failing) + len(self._started)

    @property
    def is_empty(self) -> bool:
        """Whether the file has no request, pending or failed, of any spider.

        Raises:
            StoreError: the file could not be read.
        """
        with self.environment.reading() as txn:
            return not (txn.stat(self._pending)["entries"] or txn.stat(self._failed)["entries"])

    @property
    def has_found_all(self) -> bool:
        """Whether ``find`` has read all buckets of earlier runs."""
        return self._found is None

    def find(self, limit: int = _BUCKETS_AT_ONCE) -> list[Bucket]:
        """Return the next buckets that earlier runs have left, up to *limit*.

        Raises:
            StateCorrupt: what a bucket is cannot be read.
            StoreError: the file could not be read.
        """
        found: list[Bucket] = []
        foreign: list[Bucket] = []
        if self._found is None:
            return found
        with self.environment.reading() as txn, txn.cursor(self._rows) as cursor:
            more = cursor.set_range(self._found + b"\0")
            for _ in range(limit):
                if not more:
                    self._found = None
                    break
                self._found = cursor.key()
                spider, bucket = _unpack_bucket(self.environment, cursor.key(), cursor.value())
                if spider != self._spider:
                    foreign.append(bucket)
                elif bucket.number < self._first_bucket and not self._is_known(bucket):
                    found.append(bucket)
                more = cursor.next()
            for bucket in foreign:
                count = _count(txn, self._failed if bucket.failed else self._pending, bucket)
                self.num_foreign += count
                self.num_pending -= count
        for bucket in found:
            if not bucket.failed:
                self.buckets[bucket.slot, bucket.priority, bucket.start] = bucket
        return found

    def bucket(self, slot: str, priority: int, start: bool) -> Bucket:
        """Return the bucket of a place that is not in ``buckets``: one that an earlier run has left and
        ``find`` has not come to yet, or a new one.

        Raises:
            StateCorrupt: what a bucket is cannot be read.
            StoreError: the file could not be read.
        """
        place = slot, priority, start
        bucket = None if self._found is None else self._left_at(*place)
        if bucket is None:
            bucket = Bucket(self._next_bucket, *place)
            self._next_bucket += 1
        self.buckets[place] = bucket
        return bucket

    def _left_at(self, slot: str, priority: int, start: bool) -> Bucket | None:
        prefix = _row_key(Bucket(0, slot, priority, start))[: -_BUCKET.size]
        with self.environment.reading() as txn, txn.cursor(self._rows) as cursor:
            more = cursor.set_range(prefix)
            while more and cursor.key().startswith(prefix):
                spider, bucket = _unpack_bucket(self.environment, cursor.key(), cursor.value())
                is_place = (bucket.slot, bucket.priority, bucket.start) == (slot, priority, start)
                if spider == self._spider and is_place and not bucket.failed:
                    return bucket
                more = cursor.next()
        return None

    def _is_known(self, bucket: Bucket) -> bool:
        known = self.buckets.get((bucket.slot, bucket.priority, bucket.start))
        return known is not None and known.number == bucket.number

    def remove(self, bucket: Bucket, number: int) -> None:
        """Acknowledge a request: the next commit deletes its record."""
        self.removed[number] = bucket
        self.num_pending -= 1
        self.num_done += 1

    def fail(self, bucket: Bucket, number: int, data: bytes) -> None:
        """Keep a request that failed for the next run.

        Args:
            data: its record.
        """
        place = bucket.slot, bucket.priority, bucket.start
        kept = self._failed_now.get(place)
        if kept is None:
            kept = self._failed_now[place] = Bucket(self._next_bucket, *place, failed=True)
            self._next_bucket += 1
        self._failing[self.next] = kept, data
        self.next += 1
        self.removed[number] = bucket
        self.num_pending -= 1
        self.num_failed += 1

    def read(self, bucket: Bucket, number: int) -> bytes | None:
        """Return the record of the request *number*; None: it is damaged or gone.

        Raises:
            StoreError: the file could not be read.
        """
        waiting = self.added.get(number)
        if waiting is not None:
            return waiting[1]
        database = self._failed if bucket.failed else self._pending
        key = _KEY.pack(bucket.number, number)
        data = self.environment.read(database, key)
        return None if data is None else _unpack(key, data)

    def before(self, bucket: Bucket, bound: int, limit: int, skip: Container[int]) -> tuple[list[int], bool]:
        """Return the numbers below *bound* in the file, the highest first, and whether these are all.

        Raises:
            StoreError: the file could not be read.
        """
        return self._numbers(bucket, bound, limit, skip, up=False)

    def after(self, bucket: Bucket, bound: int, limit: int, skip: Container[int]) -> tuple[list[int], bool]:
        """Return the numbers from *bound* on, the lowest first, and whether these are all.

        Raises:
            StoreError: the file could not be read.
        """
        numbers, all_of_them = self._numbers(bucket, bound, limit, skip, up=True)
        if all_of_them:
            waiting = (number for number, (of, _) in self.added.items() if of is bucket and number >= bound)
            numbers += sorted(
                number for number in waiting if number not in skip and number not in self.removed
            )
        return numbers, all_of_them

    def _numbers(
        self, bucket: Bucket, bound: int, limit: int, skip: Container[int], *, up: bool
    ) -> tuple[list[int], bool]:
        found: list[int] = []
        prefix = _BUCKET.pack(bucket.number)
        database = self._failed if bucket.failed else self._pending
        with self.environment.reading() as txn, txn.cursor(database) as cursor:
            more = cursor.set_range(prefix + _NUMBER.pack(bound))
            if not up:
                more = cursor.prev() if more else cursor.last()
            keys = cursor.iternext(values=False) if up else cursor.iterprev(values=False)
            for key in keys if more else ():
                if not key.startswith(prefix):
                    break
                number = _NUMBER.unpack_from(key, _BUCKET.size)[0]
                if number in skip or number in self.removed:
                    continue
                if len(found) == limit:
                    return found, False
                found.append(number)
        return found, True

    def note_start(self, digest: bytes) -> None:
        """Remember that a start request with this digest was scheduled, once more."""
        had, left = self._start(digest)
        self._started[digest] = _START.pack(self.run, had + 1, left)

    def skip_start(self, digest: bytes) -> bool:
        """Return whether earlier runs, since the last one that ended in order, scheduled this start request
        more often than this run has made it; if so, it counts as made once more."""
        had, left = self._start(digest)
        if not left:
            return False
        self._started[digest] = _START.pack(self.run, had + 1, left - 1)
        return True

    @property
    def has_starts(self) -> bool:
        """Whether an earlier run left start requests that need not be made again.

        Raises:
            StoreError: the file could not be read.
        """
        with self.environment.reading() as txn:
            return bool(txn.stat(self._starts)["entries"])

    def _start(self, digest: bytes) -> tuple[int, int]:
        """Return how often a start request was made in this run, and how often earlier ones did besides."""
        data = self._started.get(digest) or self.environment.read(self._starts, digest)
        if data is None or len(data) != _START.size:
            return 0, 0
        run, had, left = _START.unpack(data)
        return (had, left) if run == self.run else (0, had + left)

    def note(self, name: bytes) -> bytes | None:
        """Return what ``set_note`` kept last under *name*; None: nothing, or it is damaged.

        Raises:
            StoreError: the file could not be read.
        """
        name = self._note_name(name)
        if name in self._notes:
            return self._notes[name]
        data = self.environment.read(self._meta, name)
        return None if data is None else _unpack(name, data)

    def set_note(self, name: bytes, data: bytes) -> None:
        """Keep *data* with the next commit: ``spider.state``, and what is in the feeds."""
        self._notes[self._note_name(name)] = data

    def _note_name(self, name: bytes) -> bytes:
        return name + b":" + self._spider.encode()

    def begin(self) -> None:
        """From the next commit on this run is one that has not ended in order."""
        self.run += 1
        self._in_order, self._changed = False, True

    def end_in_order(self) -> None:
        """Let the next commit say that this run ended in order: the next one makes its start requests."""
        self._in_order = self._clear_starts = self._changed = True

    def work(self) -> Callable[[Transaction], None] | None:
        if not (self.added or self.removed or self._failing or self._started or self._notes or self._changed):
            return None
        rows = [
            bucket
            for bucket in dict.fromkeys(
                bucket for items in (self.added, self._failing) for bucket, _ in items.values()
            )
            if not bucket.stored
        ]
        pending = [
            _pack(_KEY.pack(bucket.number, number), data)
            for number, (bucket, data) in self.added.items()
            if number not in self.removed
        ]
        pending.sort()
        failed = [
            _pack(_KEY.pack(bucket.number, number), data) for number, (bucket, data) in self._failing.items()
        ]
        # Its last request may be gone with this commit, and then what says of it.
        drained = {bucket for bucket in self.removed.values() if not bucket.active}
        counters = _COUNTERS.pack(
            _VERSION, self._in_order, self.next, self.num_done, self.run, self._next_bucket
        )

        def write(txn: Transaction) -> None:
            self._emptied = []
            if self._clear_starts:
                txn.drop(self._starts, delete=False)
            else:
                for digest, data in self._started.items():
                    txn.put(digest, data, db=self._starts)
            for bucket in rows:
                txn.put(_row_key(bucket), _pack_bucket(self._spider, bucket), db=self._rows)
            for number, bucket in self.removed.items():
                if number not in self.added:
                    database = self._failed if bucket.failed else self._pending
                    txn.delete(_KEY.pack(bucket.number, number), db=database)
            if pending:
                with txn.cursor(self._pending) as cursor:
                    cursor.putmulti(pending)
            if failed:
                with txn.cursor(self._failed) as cursor:
                    cursor.putmulti(failed)
            for bucket in drained:
                if _is_empty(txn, self._failed if bucket.failed else self._pending, bucket):
                    txn.delete(_row_key(bucket), db=self._rows)
                    self._emptied.append(bucket)
            for name, data in self._notes.items():
                txn.put(*_pack(name, data), db=self._meta)
            txn.put(*_pack(b"counters", counters), db=self._meta)

        return write

    def written(self) -> None:
        for items in (self.added, self._failing):
            for bucket, _ in items.values():
                bucket.stored = True
        for bucket in self._emptied:
            bucket.stored = False
            place = bucket.slot, bucket.priority, bucket.start
            if self.buckets.get(place) is bucket:
                del self.buckets[place]
        self.added.clear()
        self._failing.clear()
        self.removed.clear()
        self._started.clear()
        self._emptied = []
        self._notes.clear()
        self._clear_starts = self._changed = False
        self.committed = self.next


@dataclass(frozen=True)
class PendingRequest:
    """A record as ``FrontierView`` gives it.

    Attributes:
        number: its place in the order in which requests were scheduled, from 1.
        spider: the name of the spider whose callbacks it has.
        request: the serialized request, see ``frontier.serialize``; empty: the record is damaged.
        key: the key that it was judged by; None: it was not judged.
        priority: as the request has it.
        slot: its download slot; empty where the order does not go by slots.
        start: whether it waits among the start requests.
    """

    number: int
    spider: str
    request: bytes
    key: bytes | None = None
    priority: int = 0
    slot: str = ""
    start: bool = False

    @property
    def damaged(self) -> bool:
        return not self.request


class FrontierView:
    """The frontier of *environment* for readers: nothing is made or changed.

    Another process may be at work in it. The counts are those of the last commit before this was made.

    Attributes:
        num_pending, num_failed: requests that ``records`` gives.
        num_done: requests of this state that are done.
        in_order: whether the last run ended in order; false: it was killed, or is under way.

    Raises:
        StateCorrupt: there is no frontier, or it cannot be read.
        StoreError: the file could not be read.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._pending, self._failed, self._rows, _, meta = (
            environment.database(name, create=False) for name in DATABASES
        )
        # Not ``environment.read``: its transaction would stay open, and the file of a running crawl grow.
        with environment.reading() as txn:
            self.num_pending: int = txn.stat(self._pending)["entries"]
            self.num_failed: int = txn.stat(self._failed)["entries"]
            counters = _counters(environment, txn.get(b"counters", db=meta))
        self.in_order, _, self.num_done, *_ = counters or (True, 1, 0)

    def records(self, *, failed: bool = False) -> Iterator[PendingRequest]:
        """Give what is pending (or failed), bucket by bucket, a chunk at a time.

        Raises:
            StoreError: the file could not be read.
        """
        database = self._failed if failed else self._pending
        after, rows = b"", self._read_rows()
        while True:
            found: list[tuple[bytes, bytes]] = []
            with self._environment.reading() as txn, txn.cursor(database) as cursor:
                # A transaction per chunk: a long one would hold back the reuse of pages.
                if cursor.set_range(after + b"\0"):
                    found += islice(cursor.iternext(), _CHUNK)
            for key, data in found:
                yield self._record(key, data, rows.get(key[: _BUCKET.size]))
            if len(found) < _CHUNK:
                return
            after = found[-1][0]

    def _read_rows(self) -> dict[bytes, tuple[str, Bucket]]:
        rows = {}
        with self._environment.reading() as txn, txn.cursor(self._rows) as cursor:
            for key, data in cursor:
                with suppress(StateCorrupt):
                    rows[key[-_BUCKET.size :]] = _unpack_bucket(self._environment, key, data)
        return rows

    def _record(self, key: bytes, data: bytes, row: tuple[str, Bucket] | None) -> PendingRequest:
        number = _KEY.unpack(key)[1] if len(key) == _KEY.size else 0
        if row is None:
            # Nothing says whose it is.
            return PendingRequest(number, "", b"")
        spider, bucket = row
        found = _unpack(key, data)
        judged_by, request = split(found) if found else (None, b"")
        return PendingRequest(number, spider, request, judged_by, -bucket.priority, bucket.slot, bucket.start)


def record(key: bytes | None, request: bytes) -> bytes:
    """Return the record of a serialized request and the key that it was judged by. Frozen."""
    return bytes((len(key),)) + key + request if key else b"\0" + request


def split(data: bytes) -> tuple[bytes | None, bytes]:
    """Return what ``record`` made a record of."""
    end = 1 + data[0]
    return data[1:end] or None, data[end:]


def _short(spider: str) -> str:
    """Return the name of a spider as the file has it: a long one is cut."""
    return spider.encode()[:_LONGEST_NAME].decode(errors="ignore")


def _pack(key: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Return *key*, and *data* with a version before it and a checksum of all before both. Frozen."""
    rest = b"\x01" + data
    return key, zlib.crc32(rest, zlib.crc32(key)).to_bytes(4, "little") + rest


def _unpack(key: bytes, data: bytes) -> bytes | None:
    """Return what ``_pack`` packed; None: it is damaged."""
    if data[4:5] != b"\x01" or zlib.crc32(data[4:], zlib.crc32(key)).to_bytes(4, "little") != data[:4]:
        return None
    return data[5:]


def _pack_bucket(spider: str, bucket: Bucket) -> bytes:
    parts = [spider, bucket.slot, bucket.priority, bucket.start, bucket.failed]
    return _pack(b"bucket", json.dumps(parts).encode())[1]


def _row_key(bucket: Bucket) -> bytes:
    """Return what sorts the rows of buckets as they are popped: by slot, priority, and kind. Frozen."""
    slot = bucket.slot.encode("utf-8", "surrogatepass")[:_LONGEST_NAME]
    priority = min(max(bucket.priority, _LOWEST), _HIGHEST) - _LOWEST
    return slot + b"\0" + _PLACE.pack(priority, bucket.start, bucket.number)


def _unpack_bucket(environment: Environment, key: bytes, data: bytes) -> tuple[str, Bucket]:
    number = _BUCKET.unpack(key[-_BUCKET.size :])[0]
    found = _unpack(b"bucket", data)
    if found is None:
        raise _damaged(environment, f"bucket {number} of pending requests")
    spider, slot, priority, start, failed = json.loads(found)
    return spider, Bucket(number, slot, priority, start, failed=failed, stored=True)


def _counters(environment: Environment, data: bytes | None) -> tuple[bool, int, int, int, int] | None:
    if data is None:
        return None
    found = _unpack(b"counters", data)
    if found is None or len(found) != _COUNTERS.size:
        raise _damaged(environment, "the record of the counters")
    _, in_order, following, done, runs, bucket = _COUNTERS.unpack(found)
    return bool(in_order), following, done, runs, bucket


def _damaged(environment: Environment, what: str) -> StateCorrupt:
    return StateCorrupt(
        f"{environment.path}: {what} does not match its checksum; the file was left as it is. Restore it "
        "from a copy, or move its directory aside to start from nothing"
    )


def _is_empty(txn: Transaction, database: Any, bucket: Bucket) -> bool:
    prefix = _BUCKET.pack(bucket.number)
    with txn.cursor(database) as cursor:
        return not (cursor.set_range(prefix) and cursor.key().startswith(prefix))


def _count(txn: Transaction, database: Any, bucket: Bucket) -> int:
    prefix, count = _BUCKET.pack(bucket.number), 0
    with txn.cursor(database) as cursor:
        if cursor.set_range(prefix):
            for key in cursor.iternext(values=False):
                if not key.startswith(prefix):
                    break
                count += 1
    return count
