"""How many pages have false positives cost? Exact keys for a share, beside a filter without a store.

Which keys it keeps a hash under a seed of its own says, which does not depend on the filter's positions: of
the keys that the filter wrongly calls seen each is kept with the same chance, and what is found among those
that are kept tells how many there are among the others, see ``estimating``. What it finds is not lost: it is
proved new, and passes.

The keys lie in the LMDB file of the journal, and are committed with its requests. A key reaches the filter
only after that (``seen``), so that after a crash no key is in the filter that should be kept here and is not.

It must know all keys of its share that the filter has, so it begins with the filter. Not here: verdicts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from mmh3 import mmh3_32_uintdigest

from scrapy_bloomdupe.estimating import Estimate, estimate

if TYPE_CHECKING:
    from scrapy_bloomdupe.stores.environment import Environment, Transaction

#: In the identity of a filter: the share of its keys that is audited.
AUDIT_MARK = "audit"

# Frozen: the databases of the file, what they hold, and how a key is chosen.
_KEYS, _COUNTS = b"audited", b"audit"
_LOST = b"lost"
_COUNT = struct.Struct("<Q")
_LABEL = b"bloomdupe audit"
_RANGE = 1 << 32


def sampler(secret: bytes, share: float) -> tuple[Callable[[bytes], bool], float]:
    """Return which keys are audited, and the exact share of them.

    Args:
        secret: of the filter.
        share: as asked, 0 < share <= 1; rounded to a multiple of 2^-32.
    """
    seed = int.from_bytes(blake2b(secret, digest_size=4, person=_LABEL).digest(), "little")
    limit = max(1, round(share * _RANGE))

    def samples(key: bytes) -> bool:
        return mmh3_32_uintdigest(key, seed) < limit

    return samples, limit / _RANGE


class Audit:
    """The exact keys of a share; a participant of *environment*.

    Nothing is written before ``environment.commit``; what waits is visible.

    Args:
        secret: of the filter.
        share: of the keys, 0 < share <= 1.
        new: make the databases, and empty them.

    Attributes:
        samples: key -> whether it is audited.
        share: the exact share.
        num_keys: audited keys that are known.
        num_lost: those of them that the filter called seen and that were not: pages that it would have lost.
        on_lost: called after ``num_lost`` has risen.

    Raises:
        StateCorrupt: there is no audit, or it cannot be read.
        StoreError: the file could not be written.
    """

    def __init__(self, environment: Environment, secret: bytes, share: float, *, new: bool = False) -> None:
        self._environment = environment
        self._keys = environment.database(_KEYS, create=new)
        self._counts = environment.database(_COUNTS, create=new)
        if new:
            environment.write(self._clear)
        self.samples, self.share = sampler(secret, share)
        self.on_lost: Callable[[], None] = lambda: None
        # Not ``environment.read``: its transaction would stay open, and the file of a running crawl grow.
        with environment.reading() as txn:
            self.num_keys: int = txn.stat(self._keys)["entries"]
            lost = txn.get(_LOST, db=self._counts)
        self.num_lost = _COUNT.unpack(lost)[0] if lost is not None and len(lost) == _COUNT.size else 0
        # By key: whether it was found lost.
        self._waiting: dict[bytes, bool] = {}
        self._held: dict[bytes, bool] = {}
        self._forgotten: set[bytes] = set()
        environment.join(self)

    def _clear(self, txn: Transaction) -> None:
        # What a state whose filter is gone has left proves nothing of the keys of the new one.
        for database in (self._keys, self._counts):
            txn.drop(database, delete=False)

    def __contains__(self, key: bytes) -> bool:
        """Whether *key*, which is audited, is known. Both answers are proofs.

        Raises:
            StoreError: the file could not be read.
        """
        if key in self._waiting or key in self._held:
            return True
        return key not in self._forgotten and self._environment.read(self._keys, key) is not None

    def add(self, key: bytes, *, lost: bool = False) -> None:
        """Know *key*, which is audited and not known.

        Args:
            lost: the filter calls it seen.
        """
        self._waiting[key] = lost
        self.num_keys += 1
        if lost:
            self.num_lost += 1
            self.on_lost()

    def hold(self, key: bytes) -> None:
        """Keep *key*, if it was just added, in memory only until ``release``: a crash forgets it."""
        if key in self._waiting:
            self._held[key] = self._waiting.pop(key)

    def release(self, key: bytes) -> None:
        """Write a held *key* as others are."""
        if key in self._held:
            self._waiting[key] = self._held.pop(key)

    def forget(self, key: bytes) -> None:
        """Know *key* no more: the filter has forgotten it. That it was lost, if it was, stays counted.

        Raises:
            StoreError: the file could not be read.
        """
        if self.samples(key) and key in self:
            self.num_keys -= 1
            self._waiting.pop(key, None)
            self._held.pop(key, None)
            self._forgotten.add(key)

    def estimate(self) -> Estimate:
        """Return how many keys that are not audited were lost: distinct ones that the filter called seen when
        they were asked for the first time. The bounds hold with a probability of 95 %."""
        return estimate(self.num_lost, self.share)

    def work(self) -> Callable[[Transaction], None] | None:
        if not self._waiting and not self._forgotten:
            return None
        gone = self._forgotten - self._waiting.keys()
        items = [(key, b"") for key in sorted(self._waiting)]
        # Of a held key a crash leaves nothing: it will be found lost again.
        lost = _COUNT.pack(self.num_lost - sum(self._held.values()))

        def write(txn: Transaction) -> None:
            for key in gone:
                txn.delete(key, db=self._keys)
            with txn.cursor(self._keys) as cursor:
                cursor.putmulti(items)
            txn.put(_LOST, lost, db=self._counts)

        return write

    def written(self) -> None:
        self._waiting.clear()
        self._forgotten.clear()
