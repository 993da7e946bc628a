"""How is the filter of a state in use made anew, without a gap? In slices, from the exact store.

The new filter (one version further) is filled beside the old one, which goes on to answer. A key that comes
meanwhile is put into the old one at once and into the new one with the commit that writes it to the store:
the invariant is that the filter in force holds every key that the store holds. Then the new one is checked,
brought to the disk, and renamed over the old one, in one step: an end at any moment leaves one valid version.

It decides neither when (``renewing``) nor with which values.
"""

from __future__ import annotations

import contextlib
import enum
import os
import random
import time
from collections.abc import Collection, Sequence
from threading import Thread

from scrapy_bloomdupe.building import FilterValues, begin_filter, version_of, with_version
from scrapy_bloomdupe.errors import FilterError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.seen import SeenSet
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.statefiles import FILTER_NAME, OLD_NAME, discard_old, discard_unfinished
from scrapy_bloomdupe.stores.lmdb import LmdbStore

# Keys between two looks at the clock: half a millisecond.
_CHUNK = 200
# Keys that are looked up in the file as another process would find it.
_SAMPLE = 500


class Phase(enum.Enum):
    """How far it is."""

    FILLING = "filling"
    CHECKING = "checking"
    SYNCING = "syncing"
    READY = "ready"


class Renewal:
    """The new filter of *state*, from its beginning until ``switch`` or ``abandon``. One thread may use it,
    the one that writes to the store.

    Args:
        state: it has an exact store in a file, and shares nothing.
        values: of the new filter.
        now: seconds since 1970.

    Raises:
        ConfigurationError: a value is out of its range.
        StateUnusable, FilterError: there is no room; nothing has changed.
    """

    def __init__(self, state: State, values: FilterValues, now: float) -> None:
        store, old = state.store, state.filter
        assert isinstance(store, LmdbStore)
        assert isinstance(state.seen, SeenSet)
        self._state = state
        self._store = store
        self.version = version_of(old.identity) + 1
        self.phase = Phase.FILLING
        self._last: bytes | None = None
        self._checked = 0
        self._error: Exception | None = None
        self._syncing: Thread | None = None
        self._filter = begin_filter(
            state.directory,
            values,
            filter_id=old.filter_id,
            identity=with_version(old.identity, self.version, now),
            created=old.created,
        )
        store.on_written = self._written

    def step(self, seconds: float) -> bool:
        """Go on for about so many seconds; return whether all is ready to ``switch``.

        Raises:
            FilterError, StoreError: it failed; there is nothing to do but to ``abandon`` it.
        """
        deadline = time.perf_counter() + seconds
        while self.phase in (Phase.FILLING, Phase.CHECKING):
            self._take_chunk()
            if time.perf_counter() >= deadline:
                break
        if self.phase is Phase.SYNCING:
            self._sync()
        self._raise_error()
        return self.phase is Phase.READY

    def switch(self) -> None:
        """Put the new filter in force.

        Raises:
            FilterError: it could not be; the old one is in force.
        """
        assert self.phase is Phase.READY
        state, new = self._state, self._filter
        # What is in memory only: a waiting key is in the store with the next commit, a held one may be.
        self._put(list(self._store.waiting))
        assert isinstance(state.seen, SeenSet)
        self._put(list(state.seen.held))
        new.flush()
        self._raise_error()
        discard_old(state.directory)
        with contextlib.suppress(OSError):  # a file system without links: the old one is not kept
            os.link(state.directory / FILTER_NAME, state.directory / OLD_NAME)
        new.rename(state.directory / FILTER_NAME, replace=True)
        self._store.on_written = None
        state.switch_filter(new)

    def abandon(self) -> None:
        """Leave the old filter in force and remove the new one."""
        self._store.on_written = None
        if self._syncing is not None:
            self._syncing.join()
        self._filter.abandon()
        discard_unfinished(self._state.directory)

    def _take_chunk(self) -> None:
        # No transaction is open between two chunks: the map can grow, and pages are used again.
        keys = [key for key, _ in self._store.chunk_after(self._last, _CHUNK)]
        if keys:
            self._last = keys[-1]
            if self.phase is Phase.FILLING:
                self._put(keys)
            else:
                self._check(keys, self._filter)
                self._checked += len(keys)
            return
        self._last = None
        if self.phase is Phase.FILLING:
            self.phase = Phase.CHECKING
            return
        self._check_count()
        self.phase = Phase.SYNCING

    def _put(self, keys: Sequence[bytes]) -> None:
        while keys:
            keys = keys[len(self._filter.add_many(keys)) :]

    def _written(self, keys: Collection[bytes]) -> None:
        try:
            self._put(list(keys))
        except Exception as exc:
            # The commit of the crawl has nothing to do with it.
            self._error = self._error or exc

    def _check(self, keys: Sequence[bytes], found: BloomFilter) -> None:
        missing = sum(key not in found for key in keys)
        if missing:
            raise FilterError(5, f"{found.path} lacks {missing:,} keys of the store that were put into it")

    def _check_count(self) -> None:
        new = self._filter
        # A key that was a false positive when it was put in is not counted.
        least = self._checked * (1 - 1.1 * new.error_rate) - 100
        if new.num_keys < least:
            raise FilterError(
                5, f"{new.path} counts {new.num_keys:,} keys, the store had {self._checked:,} to put into it"
            )

    def _sync(self) -> None:
        """Bring the file to the disk, off this thread, and look at it as it is there."""
        if self._syncing is None:
            self._filter.flush()
            self._syncing = Thread(target=self._run_sync, name="bloomdupe-renewal", daemon=True)
            self._syncing.start()
        elif not self._syncing.is_alive():
            self._raise_error()
            self._check_file()
            self.phase = Phase.READY

    def _run_sync(self) -> None:
        try:
            self._filter.sync()
        except Exception as exc:
            self._error = exc

    def _check_file(self) -> None:
        beside = BloomFilter.open(self._filter.path, readonly=True)
        try:
            rng = random.Random(self._checked)
            self._check([key for key, _ in self._store.sample(_SAMPLE, rng)], beside)
        finally:
            beside.abandon()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
