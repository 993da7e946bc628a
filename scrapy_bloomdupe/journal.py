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
from collections.abc import Callable, Iterator
from typing import Any

from scrapy_bloomdupe.records import (
    DATABASES,
    NUMBER,
    Record,
    Seal,
    chunk_after,
    pack,
    pack_parts,
    read_meta,
    seal_of,
    unpack,
    with_crc,
)
from scrapy_bloomdupe.stores.environment import Environment, Transaction

# Frozen. Of a start request: the first number of the run that wrote this, how often that run asked it, and
# how often earlier ones had, beyond that.
_START = struct.Struct("<QII")


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
        meta = read_meta(environment, self._meta)
        self.is_new = not meta
        self.token: str = meta.get("token") or secrets.token_hex(4)
        self._next = int(meta.get("next", 1))
        self.num_done = int(meta.get("done", 0))
        self.seal = seal_of(meta)
        with environment.reading() as txn:
            self._count: int = txn.stat(self._pending)["entries"]
            self.num_failed: int = txn.stat(self._failed)["entries"]
            with txn.cursor(self._pending) as cursor:
                # Whatever the counter says: a number is never given twice.
                if cursor.last() and len(cursor.key()) == NUMBER.size:
                    self._next = max(self._next, NUMBER.unpack(cursor.key())[0] + 1)
        self.first = self._next
        self._added: dict[int, bytes] = {}
        self._ended: dict[int, bool] = {}
        self._marks: dict[tuple[int, bytes], bytes] = {}
        self._owners: set[int] = set()
        self._started: dict[bytes, bytes] = {}
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
        return self.environment.read(self._pending, NUMBER.pack(number)) is not None

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

    def add_request(self, number: int, key: bytes | None, spider: bytes, request: bytes) -> None:
        """As ``add``, for every link of a crawl; *spider* is its name as a record has it."""
        self._added[number] = pack_parts(number, key or b"", spider, request)
        self._count += 1

    def own(self, number: int, key: bytes, request: bytes = b"") -> None:
        """Note that the mark *key* was set for a redirect of *number* to *request*; empty: not known."""
        self._marks[number, key] = request
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
        return self.environment.read(self._owned, NUMBER.pack(number) + key) is not None

    def keys_of(self, number: int) -> list[bytes]:
        """Return every mark that the pending request *number* owns."""
        keys = set(self.targets_of(number))
        record = self.get(number)
        if record is not None and record.key is not None:
            keys.add(record.key)
        return sorted(keys)

    def targets_of(self, number: int) -> dict[bytes, bytes]:
        """Return the marks of what the pending request *number* was redirected to, and those requests."""
        targets = {key: request for (owner, key), request in self._marks.items() if owner == number}
        prefix = NUMBER.pack(number)
        with self.environment.reading() as txn, txn.cursor(self._owned) as cursor:
            found = cursor.set_range(prefix)
            while found and cursor.key().startswith(prefix):
                targets[cursor.key()[len(prefix) :]] = cursor.value()
                found = cursor.next()
        return targets

    def targets(self) -> Iterator[tuple[int, bytes]]:
        """Give every mark of what a pending request was redirected to, after the request's number.

        Raises:
            StoreError: the file could not be read.
        """
        yield from (mark for mark in list(self._marks) if mark[0] in self)
        with self.environment.reading() as txn, txn.cursor(self._owned) as cursor:
            found = [(NUMBER.unpack(name[: NUMBER.size])[0], name[NUMBER.size :]) for name, _ in cursor]
        yield from (mark for mark in found if mark[0] in self)

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
        """Remember that a start request with this digest was scheduled, once more."""
        had, left = self._start(digest)
        self._started[digest] = _START.pack(self.first, had + 1, left)

    def has_started(self, digest: bytes) -> bool:
        """Return whether earlier runs, since the last orderly end, scheduled this start request more often
        than this run has asked."""
        return self._start(digest)[1] > 0

    def skip_start(self, digest: bytes) -> bool:
        """Return ``has_started``, and take the start request as asked once."""
        had, left = self._start(digest)
        if not left:
            return False
        self._started[digest] = _START.pack(self.first, had + 1, left - 1)
        return True

    def _start(self, digest: bytes) -> tuple[int, int]:
        """Return how often a start request was asked in this run, and how often earlier ones did besides."""
        data = self._started.get(digest) or self.environment.read(self._starts, digest)
        if data is None or len(data) != _START.size:
            return 0, 0
        run, had, left = _START.unpack(data)
        return (had, left) if run == self.first else (0, had + left)

    def get(self, number: int) -> Record | None:
        """Return the pending request *number*, if it is one."""
        if number in self._ended:
            return None
        data = self._added.get(number) or self.environment.read(self._pending, NUMBER.pack(number))
        return None if data is None else unpack(number, data)

    def records(self, *, failed: bool = False, below: int | None = None) -> Iterator[Record]:
        """Give what was pending (or failed) at the last commit, in order of their numbers.

        A chunk at a time: what is done, or is added, in between may or may not come.

        Args:
            below: numbers under this one; None: all.
        """
        database, after = self._failed if failed else self._pending, 0
        while chunk := chunk_after(self.environment, database, after):
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
            for digest, data in self._started.items():
                txn.put(digest, data, db=self._starts)
            for number in self._retired:
                txn.delete(NUMBER.pack(number), db=self._failed)
            for number, failed in self._ended.items():
                self._end(txn, number, failed=failed)
            with txn.cursor(self._pending) as cursor:
                cursor.putmulti(
                    [(NUMBER.pack(n), data) for n, data in self._added.items() if n not in self._ended]
                )
            for (number, key), request in self._marks.items():
                if number not in self._ended:
                    txn.put(NUMBER.pack(number) + key, request, db=self._owned)
            txn.put(b"meta", with_crc(json.dumps(meta).encode()), db=self._meta)

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
        name = NUMBER.pack(number)
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
