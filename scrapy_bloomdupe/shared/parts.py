"""What do the server's filter and store together say of a key? Any thread may ask.

Whoever asks is a crawl of several: one of them is told that a key is new, whatever the others do meanwhile.
Nothing is asked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.remote.breaker import Breaker
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.stores.redis import RedisStore
from scrapy_bloomdupe.stores.sql import SqlStore

_BATCH = 5_000

RemoteStore = RedisStore | SqlStore


class SharedParts:
    """A filter on a server, an exact store on a server, or both.

    Args:
        filter, store: one of them can be None.
        close: lets go of the connections.
    """

    def __init__(
        self,
        filter: RemoteFilter | None,  # noqa: A002
        store: RemoteStore | None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        assert filter is not None or store is not None
        self.filter = filter
        self.store = store
        #: How often ``judge`` was called.
        self.num_asked = 0
        self._close = close

    @property
    def names(self) -> str:
        """Where they are, for people."""
        return " and ".join(part.path for part in (self.filter, self.store) if part is not None)

    @property
    def epoch(self) -> str:
        """Text that is another one after every time that a part was made anew."""
        filter_id = self.filter.filter_id.hex() if self.filter is not None else ""
        return f"{filter_id}/{self.store.store_id.hex() if self.store is not None else ''}"

    def is_successor_of(self, epoch: str) -> bool:
        """Return whether nothing was lost since ``epoch`` was that text: the filter is the same, or was
        rebuilt from the same store."""
        filter_id, _, store_id = epoch.partition("/")
        if self.filter is None or store_id != self.epoch.partition("/")[2]:
            return epoch == self.epoch
        try:
            return self.filter.replaces(bytes.fromhex(filter_id))
        except ValueError:
            return False

    @property
    def was_created(self) -> bool:
        """Whether all of it was made, not found, when it was opened."""
        return all(part.was_created for part in (self.filter, self.store) if part is not None)

    @property
    def breakers(self) -> list[Breaker]:
        """The circuit breakers: one for each server."""
        found = [self.filter.server.breaker] if self.filter is not None else []
        if isinstance(self.store, SqlStore):
            found.append(self.store.database.breaker)
        elif self.store is not None and self.store.server.breaker not in found:
            found.append(self.store.server.breaker)
        return found

    def judge(self, keys: Sequence[bytes]) -> list[Verdict]:
        """Judge *keys*, all different, and remember them: in one round trip for each server.

        The store decides where there is one: between the answers of filter and store another crawl may have
        been given the key.

        Raises:
            RemoteError: nothing is known of any of them; they may or may not have been taken.
        """
        self.num_asked += 1
        both = self._judge_together(keys)
        if both is None:
            possibly = self.filter.add_many(keys) if self.filter is not None else [False] * len(keys)
            if self.store is None:
                return [Verdict.UNCONFIRMED if seen else Verdict.NEW for seen in possibly]
            both = possibly, self.store.add_many(keys)
        return [
            Verdict.DUPLICATE if not new else Verdict.FALSE_POSITIVE if seen else Verdict.NEW
            for seen, new in zip(*both, strict=True)
        ]

    def _judge_together(self, keys: Sequence[bytes]) -> tuple[list[bool], list[bool]] | None:
        """Return what filter and store say, asked in one round trip; None: they are not asked like that."""
        filter, store = self.filter, self.store  # noqa: A001
        if filter is None or not isinstance(store, RedisStore) or store.server is not filter.server:
            return None
        asking = store.adding(keys)
        if asking is None:
            return None
        asks, read = asking
        found = filter.add_with(keys, asks)
        return None if found is None else (found[0], read(found[1]))

    def give_back(self, keys: Sequence[bytes]) -> bool:
        """Make *keys* new again; return whether that is possible: a Bloom filter alone cannot forget.

        Raises:
            RemoteError: they may or may not be new.
        """
        if self.store is None:
            return False
        self.store.remove_many(keys)
        return True

    def verify(self) -> None:
        """Look whether all is still there; for a timer.

        Raises:
            RemoteEmptied: it is not.
            RemoteError: no answer.
        """
        if self.filter is not None:
            self.filter.verify()
        if self.store is not None:
            self.store.verify()

    def trouble(self) -> str:
        """Return a sentence on what the server will forget or refuse; empty: nothing.

        Raises:
            RemoteError: no answer.
        """
        for part in (self.filter, self.store):
            memory = None if part is None or isinstance(part, SqlStore) else part.memory()
            if memory is not None and (said := memory.trouble()):
                return said
        return ""

    def renew(self) -> bool:
        """Take what is there now, or make it anew; return whether anything was made by this call.

        Raises:
            RemoteError: not all is there.
        """
        return sum(part.renew() for part in (self.filter, self.store) if part is not None) > 0

    def refill(self, keys: Iterable[bytes]) -> int:
        """Put *keys* back into what was emptied; return how many there were.

        Raises:
            RemoteError: not all of them are in.
        """
        batch: list[bytes] = []
        count = 0
        for key in keys:
            batch.append(key)
            if len(batch) == _BATCH:
                count += self._put(batch)
                batch = []
        return count + (self._put(batch) if batch else 0)

    def clear(self) -> int:
        """Remove what is shared from the servers; return how many of their keys that were.

        Raises:
            RemoteError: not all of it was removed.
        """
        return sum(part.clear() for part in (self.filter, self.store) if part is not None)

    def num_keys(self) -> int:
        """Return how many keys are known to all: exact with a store, else the filter's count.

        Raises:
            RemoteError: the server did not say.
        """
        if self.store is not None:
            return self.store.count()
        assert self.filter is not None
        return self.filter.info().num_keys

    def close(self) -> None:
        self._close()

    def _put(self, keys: list[bytes]) -> int:
        if self.filter is not None:
            self.filter.add_many(keys)
        if self.store is not None:
            self.store.put_many(keys)
        return len(keys)
