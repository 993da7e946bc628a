"""Which requests were scheduled and are not finished? Records in the LMDB file of the seen-set.

The invariants that a crawl lives by (the Scrapy half is ``units`` and ``journaling``):

1. A mark as seen and the pending request that it stands for are written in one transaction: both are
   participants of one environment. Without an exact store the marks are the filter's bits; they follow
   the commit. A mark never outlives a crash that its request did not.
2. A request is done only when the output of its callback is exhausted, every request of it is journalled,
   and every item has left the pipelines. Done is written in a later turn than what it depends on.
3. Commits follow the order of the program: after a crash there is a prefix. A commit that fails is the
   last one.
4. What a request owns (its own mark, those of the targets it was redirected to) is recorded, so that a
   replay passes them.

It knows records, not requests: what the bytes of a request mean is not its business.
"""

from __future__ import annotations

import json
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.stores.environment import Environment, Transaction

# Frozen. LMDB compares bytes, so numbers are big-endian to come in their order.
_NUMBER = struct.Struct(">Q")
# CRC-32 of the number and all that follows; version; lengths of key and spider name, in bytes.
_HEAD = struct.Struct("<IBBB")
_VERSION = 1
_CHUNK = 500

#: One name per database of the file.
DATABASES = (b"pending", b"failed", b"owned", b"starts", b"journal")


@dataclass(frozen=True)
class Record:
    """A pending request.

    Attributes:
        number: its place in the order of the program, from 1.
        key: the key it was judged by; None: the filter was not asked (``dont_filter``).
        spider: name of the spider whose callbacks it has.
        request: the serialized request; empty: the record is damaged.
    """

    number: int
    key: bytes | None
    spider: str
    request: bytes

    @property
    def damaged(self) -> bool:
        return not self.request


def pack(record: Record) -> bytes:
    """Return the bytes of *record*; its number is the key that they are kept under."""
    key, spider = record.key or b"", record.spider.encode()[:255]
    rest = struct.pack("<BBB", _VERSION, len(key), len(spider)) + key + spider + record.request
    return struct.pack("<I", zlib.crc32(_NUMBER.pack(record.number) + rest)) + rest


def unpack(number: int, data: bytes) -> Record:
    """Return the record that *data* holds; one that does not check out is ``damaged``."""
    damaged = Record(number, None, "", b"")
    if len(data) < _HEAD.size:
        return damaged
    crc, version, key_length, spider_length = _HEAD.unpack_from(data)
    if version != _VERSION or crc != zlib.crc32(_NUMBER.pack(number) + data[4:]):
        return damaged
    spider_at = _HEAD.size + key_length
    request_at = spider_at + spider_length
    spider = data[spider_at:request_at].decode(errors="replace")
    return Record(number, data[_HEAD.size : spider_at] or None, spider, data[request_at:])


@dataclass(frozen=True)
class Seal:
    """What a run that ended in order says of what it left.

    Attributes:
        queue: digest of Scrapy's own queue, which holds the pending requests; None: it does not.
        again: numbers of pending requests that are not in that queue.
    """

    queue: str | None
    again: tuple[int, ...] = ()


class Journal:
    """The pending requests of one job; a participant of *environment*.

    Nothing is written before ``environment.commit``; what waits is visible.

    Attributes:
        token: tells this journal's numbers from another one's; 8 characters.
        first: the first number of this run; smaller ones are of earlier runs.
        seal: what the last run left, None: it was killed, or this is a new journal.
        is_new: it was made, not found.
    """

    def __init__(self, environment: Environment) -> None:
        """Open the journal of *environment*, or make it.

        Raises:
            StateCorrupt: it cannot be read; nothing was changed.
            StoreError: it could not be made.
        """
        self.environment = environment
        self._pending, self._failed, self._owned, self._starts, self._meta = (
            environment.database(name, create=True) for name in DATABASES
        )
        meta = _read_meta(environment, self._meta)
        self.is_new = not meta
        self.token: str = meta.get("token") or secrets.token_hex(4)
        self._next = int(meta.get("next", 1))
        self.num_done = int(meta.get("done", 0))
        self.seal = _seal(meta)
        with environment.reading() as txn:
            self._count: int = txn.stat(self._pending)["entries"]
            self.num_failed: int = txn.stat(self._failed)["entries"]
            with txn.cursor(self._pending) as cursor:
                # Whatever the counter says: a number is never given twice.
                if cursor.last() and len(cursor.key()) == _NUMBER.size:
                    self._next = max(self._next, _NUMBER.unpack(cursor.key())[0] + 1)
        self.first = self._next
        self._added: dict[int, bytes] = {}
        self._ended: dict[int, bool] = {}
        self._marks: set[tuple[int, bytes]] = set()
        self._owners: set[int] = set()
        self._started: set[bytes] = set()
        self._retired: set[int] = set()
        self._clear_starts = False
        self._next_seal: Seal | None = None
        self._changed = True
        environment.join(self)

    def __len__(self) -> int:
        """Pending requests, those of all spiders."""
        return self._count

    def __bool__(self) -> bool:
        return True

    def __contains__(self, number: int) -> bool:
        """Whether *number* is pending."""
        if number in self._ended:
            return False
        if number in self._added:
            return True
        return self.environment.read(self._pending, _NUMBER.pack(number)) is not None

    @property
    def num_waiting(self) -> int:
        """Changes that are not yet written."""
        return len(self._added) + len(self._ended) + len(self._marks) + len(self._retired)

    @property
    def has_ended(self) -> bool:
        """Whether the next commit says of a request that it is done."""
        return bool(self._ended)

    def begin(self) -> None:
        """Break the seal: from the next commit on this run is one that was not ended in order."""
        # After a run that ended in order a start request is asked again, as always.
        self._clear_starts = self.seal is not None
        self._next_seal, self._changed = None, True
        self.first = self._next

    def clear(self) -> None:
        """Drop all pending requests, at once: they were taken over in part, and are taken over anew.

        Raises:
            StoreError: it could not be written.
        """
        self.environment.write(lambda txn: txn.drop(self._pending, delete=False))
        self._count = 0

    def next_number(self) -> int:
        number = self._next
        self._next += 1
        return number

    def add(self, record: Record) -> None:
        """Take a request as pending; its number is from ``next_number``."""
        self._added[record.number] = pack(record)
        self._count += 1

    def own(self, number: int, key: bytes) -> None:
        """Note that the mark *key* was set for a redirect of *number*."""
        self._marks.add((number, key))
        self._owners.add(number)

    def owns(self, number: int, key: bytes) -> bool:
        """Return whether the mark *key* was set by the pending request *number*.

        Raises:
            StoreError: the file could not be read.
        """
        if (number, key) in self._marks:
            return True
        record = self.get(number)
        if record is None or record.key == key:
            return record is not None
        return self.environment.read(self._owned, _NUMBER.pack(number) + key) is not None

    def keys_of(self, number: int) -> list[bytes]:
        """Return every mark that the pending request *number* owns."""
        keys = {key for owner, key in self._marks if owner == number}
        prefix = _NUMBER.pack(number)
        with self.environment.reading() as txn, txn.cursor(self._owned) as cursor:
            found = cursor.set_range(prefix)
            while found and cursor.key().startswith(prefix):
                keys.add(cursor.key()[len(prefix) :])
                found = cursor.next()
        record = self.get(number)
        if record is not None and record.key is not None:
            keys.add(record.key)
        return sorted(keys)

    def end(self, number: int, *, failed: bool = False) -> None:
        """Take the pending request *number* as done, or keep it for the next run as *failed*."""
        self._ended[number] = failed
        self._count -= 1
        if failed:
            self.num_failed += 1
        else:
            self.num_done += 1

    def retire_failed(self, number: int) -> None:
        """Take a failed request off: it was scheduled again, under another number."""
        self._retired.add(number)
        self.num_failed -= 1

    def note_start(self, digest: bytes) -> None:
        """Remember that a start request with this digest was scheduled."""
        self._started.add(digest)

    def has_started(self, digest: bytes) -> bool:
        """Return whether an earlier run, since the last orderly end, scheduled this start request."""
        found = self.environment.read(self._starts, digest)
        return found is not None and found != _NUMBER.pack(self.first)

    def get(self, number: int) -> Record | None:
        """Return the pending request *number*, if it is one."""
        if number in self._ended:
            return None
        data = self._added.get(number) or self.environment.read(self._pending, _NUMBER.pack(number))
        return None if data is None else unpack(number, data)

    def records(self, *, failed: bool = False, below: int | None = None) -> Iterator[Record]:
        """Give what was pending (or failed) at the last commit, in order of their numbers.

        A chunk at a time: what is done, or is added, in between may or may not come.

        Args:
            below: numbers under this one; None: all.
        """
        database, after = self._failed if failed else self._pending, 0
        while chunk := _chunk(self.environment, database, after):
            for number, data in chunk:
                if below is not None and number >= below:
                    return
                if failed or number not in self._ended:
                    yield unpack(number, data)
            after = chunk[-1][0]

    def close_in_order(self, seal: Seal) -> None:
        """Let the next commit say that this run ended in order."""
        self._next_seal, self._changed = seal, True

    def work(self) -> Callable[[Transaction], None] | None:
        if not (self.num_waiting or self._started or self._changed):
            return None
        meta: dict[str, Any] = {"token": self.token, "next": self._next, "done": self.num_done}
        if (seal := self._next_seal) is not None:
            meta["seal"] = {"queue": seal.queue, "again": list(seal.again)}

        def write(txn: Transaction) -> None:
            if self._clear_starts:
                txn.drop(self._starts, delete=False)
            for digest in self._started:
                txn.put(digest, _NUMBER.pack(self.first), db=self._starts)
            for number in self._retired:
                txn.delete(_NUMBER.pack(number), db=self._failed)
            for number, failed in self._ended.items():
                self._end(txn, number, failed=failed)
            with txn.cursor(self._pending) as cursor:
                cursor.putmulti(
                    [(_NUMBER.pack(n), data) for n, data in self._added.items() if n not in self._ended]
                )
            for number, key in self._marks:
                if number not in self._ended:
                    txn.put(_NUMBER.pack(number) + key, b"", db=self._owned)
            txn.put(b"meta", _with_crc(json.dumps(meta).encode()), db=self._meta)

        return write

    def written(self) -> None:
        self._owners.difference_update(self._ended)
        self._added.clear()
        self._ended.clear()
        self._marks.clear()
        self._started.clear()
        self._retired.clear()
        self._clear_starts = self._changed = False

    def _end(self, txn: Transaction, number: int, *, failed: bool) -> None:
        name = _NUMBER.pack(number)
        if failed:
            data = self._added.get(number) or txn.get(name, db=self._pending)
            if data is not None:
                txn.put(name, data, db=self._failed)
        if number not in self._added:
            txn.delete(name, db=self._pending)
        if number < self.first or number in self._owners:
            with txn.cursor(self._owned) as cursor:
                while cursor.set_range(name) and cursor.key().startswith(name):
                    cursor.delete()


class JournalView:
    """What was written to the journal of *environment*, for who only looks: nothing is made or changed.

    Another process may be at work in it. What is counted here is of the last commit before this was made.

    Attributes:
        num_pending, num_failed: requests that ``records`` gives.
        num_done: requests of this job that are done, those of earlier runs included.
        in_order: the last run ended in order; false: it was killed, or is under way.

    Raises:
        StateCorrupt: there is no journal, or it cannot be read.
        StoreError: the file could not be read.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._pending, self._failed, *_, meta = (
            environment.database(name, create=False) for name in DATABASES
        )
        # Not ``environment.read``: its transaction would stay open, and the file of a running crawl grow.
        with environment.reading() as txn:
            self.num_pending: int = txn.stat(self._pending)["entries"]
            self.num_failed: int = txn.stat(self._failed)["entries"]
            found = _parse_meta(environment, txn.get(b"meta", db=meta))
        self.num_done = int(found.get("done", 0))
        self.in_order = _seal(found) is not None

    def records(self, *, failed: bool = False) -> Iterator[Record]:
        """Give what is pending (or failed) in order of their numbers, a chunk at a time.

        Raises:
            StoreError: the file could not be read.
        """
        database, after = self._failed if failed else self._pending, 0
        while chunk := _chunk(self._environment, database, after):
            for number, data in chunk:
                yield unpack(number, data)
            after = chunk[-1][0]


def read_seal(environment: Environment) -> Seal | None:
    """Return what the last run left, without writing anything; None: it did not end in order.

    Raises:
        StateCorrupt: there is no journal, or it cannot be read.
    """
    return _seal(_read_meta(environment, environment.database(b"journal", create=False)))


def _chunk(environment: Environment, database: Any, after: int) -> list[tuple[int, bytes]]:
    """Return the next records with a number above *after*."""
    # A transaction per chunk, see ``stores.lmdb``.
    found: list[tuple[int, bytes]] = []
    with environment.reading() as txn, txn.cursor(database) as cursor:
        if cursor.set_range(_NUMBER.pack(after + 1)):
            for name, data in cursor.iternext():
                if len(name) == _NUMBER.size:
                    found.append((_NUMBER.unpack(name)[0], data))
                if len(found) == _CHUNK:
                    break
    return found


def _seal(meta: Mapping[str, Any]) -> Seal | None:
    seal = meta.get("seal")
    return Seal(seal["queue"], tuple(seal["again"])) if seal else None


def _with_crc(data: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(data)) + data


def _read_meta(environment: Environment, database: Any) -> dict[str, Any]:
    return _parse_meta(environment, environment.read(database, b"meta"))


def _parse_meta(environment: Environment, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {}
    try:
        if _with_crc(data[4:]) != data:
            raise ValueError("its checksum does not match")
        return dict(json.loads(data[4:]))
    except ValueError as exc:
        raise StateCorrupt(
            f"{environment.path}: the journal of pending requests cannot be read: {exc}; the file was left "
            "as it is. Restore it from a copy, or move its directory aside to start anew"
        ) from exc
