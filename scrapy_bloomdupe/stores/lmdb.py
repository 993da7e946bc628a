"""Was this key certainly seen? Whole keys in an LMDB database.

LMDB because it is ordered (search by bisection), opens at once at any size, and loses no commit on
``kill -9``. The file itself is the business of ``environment``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from scrapy_bloomdupe.errors import StoreError
from scrapy_bloomdupe.stores.environment import Environment, Transaction

# Keys per commit: about 20 ms on the thread that asks. A timer above commits smaller groups.
GROUP_SIZE = 2_000
_CHUNK = 10_000
#: LMDB's own limit.
MAX_KEY_SIZE = 511


class LmdbStore:
    """An exact store in the database ``seen`` of an environment; contract: ``stores.base.Store``.

    Keys wait until ``flush`` is called; a group that cannot be written stays in memory, visible, and is
    tried again. A key has 1 to 511 bytes.

    Args:
        environment: with what else waits in it the keys are committed.
        create: make the database if it is not there.
        group_size: so many waiting keys are flushed at once; None: whoever knows what belongs to them does.
    """

    def __init__(
        self, environment: Environment, *, create: bool = False, group_size: int | None = GROUP_SIZE
    ) -> None:
        self.environment = environment
        self._database = environment.database(b"seen", create=create)
        self._waiting: dict[bytes, bytes] = {}
        self._removed: set[bytes] = set()
        self._group_size = group_size
        self._next_commit = group_size
        environment.join(self)

    def add(self, key: bytes, value: bytes = b"") -> bool:
        if key in self:
            return False
        self.put(key, value)
        return True

    def put(self, key: bytes, value: bytes = b"") -> None:
        if not 1 <= len(key) <= MAX_KEY_SIZE:
            raise StoreError(
                22, f"a key has {len(key)} bytes, the store takes 1 to {MAX_KEY_SIZE}: {key[:20]!r}"
            )
        self._waiting[key] = value
        if self._next_commit is not None and len(self._waiting) >= self._next_commit:
            # If this fails the next try comes when as many again are waiting, not with every key.
            self._next_commit = 2 * len(self._waiting)
            self.flush()

    def remove(self, key: bytes) -> None:
        """Forget *key*, if it is there; the deletion waits as a key does.

        Raises:
            StoreError: the file could not be read.
        """
        self._waiting.pop(key, None)
        if self.environment.read(self._database, key) is not None:
            self._removed.add(key)

    def get(self, key: bytes) -> bytes | None:
        value = self._waiting.get(key)
        if value is None and key not in self._removed:
            value = self.environment.read(self._database, key)
        return value

    def add_many(self, keys: Sequence[bytes], value: bytes = b"") -> list[bool]:
        return [self.add(key, value) for key in keys]

    def put_many(self, keys: Sequence[bytes], value: bytes = b"") -> None:
        if keys and all(1 <= len(key) <= MAX_KEY_SIZE for key in keys):
            self._waiting.update(dict.fromkeys(keys, value))
            keys = keys[-1:]  # one that is put looks whether the group is full
        for key in keys:
            self.put(key, value)

    def __contains__(self, key: bytes) -> bool:
        if key in self._waiting:
            return True
        return key not in self._removed and self.environment.read(self._database, key) is not None

    def iter_keys(self) -> Iterator[bytes]:
        for key, _ in self.iter_items():
            yield key

    def iter_items(self) -> Iterator[tuple[bytes, bytes]]:
        self.flush()
        last: bytes | None = None
        while chunk := self.chunk_after(last):
            yield from chunk
            last = chunk[-1][0]

    def count(self) -> int:
        with self.environment.reading() as txn:
            entries: int = txn.stat(self._database)["entries"]
            known = sum(txn.get(key, db=self._database) is not None for key in self._waiting)
        return entries + len(self._waiting) - known - len(self._removed.difference(self._waiting))

    def sample(self, size: int, rng: random.Random) -> Iterator[tuple[bytes, bytes]]:
        """Give up to *size* written keys from all over, with their values; one can come twice."""
        with self.environment.reading() as txn, txn.cursor(self._database) as cursor:
            for _ in range(size):
                if cursor.set_range(rng.randbytes(20)) or cursor.first():
                    yield cursor.item()

    @property
    def num_waiting(self) -> int:
        """Keys, and removals of keys, that are not yet written."""
        return len(self._waiting) + len(self._removed)

    def flush(self) -> None:
        self.environment.commit()

    def work(self) -> Callable[[Transaction], None] | None:
        if not self._waiting and not self._removed:
            return None
        removed = self._removed.difference(self._waiting)
        # Sorted: neighbours share pages, and each page is copied once per commit.
        items = [(key, self._waiting[key]) for key in sorted(self._waiting)]

        def write(txn: Transaction) -> None:
            for key in removed:
                txn.delete(key, db=self._database)
            with txn.cursor(self._database) as cursor:
                cursor.putmulti(items, dupdata=False)

        return write

    def written(self) -> None:
        self._waiting.clear()
        self._removed.clear()
        self._next_commit = self._group_size

    def close(self) -> None:
        self.flush()

    def chunk_after(self, last: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return written keys with their values, in order, that follow *last*; None: from the first one.

        Raises:
            StoreError: the file could not be read.
        """
        # A transaction per chunk: a long one would hold back the reuse of pages, and the growth of
        # the map, for all others.
        with self.environment.reading() as txn, txn.cursor(self._database) as cursor:
            if not (cursor.first() if last is None else cursor.set_range(last)):
                return []
            if last is not None and cursor.key() == last and not cursor.next():
                return []
            return list(islice(cursor.iternext(), _CHUNK))
