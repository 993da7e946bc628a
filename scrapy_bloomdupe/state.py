"""What is a seen-set on the disk while it is in use? Filter, exact store and lock of one directory.

::

    <JOBDIR>/bloomdupe/
        lock                the process that works here
        seen.bloom          the filter
        seen.bloom.new      the one that is being made: never in force
        seen.lmdb           the exact store and the frontier (and seen.lmdb-lock, LMDB's own)
        frontier.lmdb       without an exact store: the frontier
        claims.log          where a server is shared: what was asked there and is not in the frontier yet
        old-<date>-<time>/  a state that was moved aside

Made by ``opening``. Not here: requests, settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from scrapy_bloomdupe.errors import BloomdupeError, FilterError, StoreError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.frontier.lmdb import LmdbFrontier
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.seen import SeenSet
from scrapy_bloomdupe.shared.claims import Claims
from scrapy_bloomdupe.shared.parts import SharedParts
from scrapy_bloomdupe.shared.seen import SharedSeen
from scrapy_bloomdupe.statefiles import CLAIMS_NAME, write_meta
from scrapy_bloomdupe.stores.base import Store
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore


class State:
    """A seen-set with its files.

    Attributes:
        directory: where it lies.
        seen: the question.
        shared: the same question, if it is one to a server; None: it is not.
        filter, store, environment, frontier: the parts; all but the first can be None. The
            environment is the LMDB file of the others.
        notices: sentences that a person should read.
        open_seconds: how long opening took.
        is_new: it was made, not found.

    Args:
        clock: gives seconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        lock: DirectoryLock,
        filter: BloomFilter,  # noqa: A002
        store: Store | None,
        environment: Environment | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self._clock = clock
        self.filter = filter
        self.store = store
        self.environment = environment
        self.frontier: LmdbFrontier | None = None
        self._policy = "positives"
        self.shared: SharedSeen | None = None
        self._claims: Claims | None = None
        self.seen: SeenSet | SharedSeen = self._new_seen()
        self.notices: list[str] = []
        self.open_seconds = 0.0
        self.is_new = False
        #: Whether pages of the LMDB file may be torn, since the machine was restarted or the file was
        #: changed.
        self.is_suspect = False
        #: What was rebuilt when it was opened, by name.
        self.recovered: dict[str, int] = {}
        self._remove: Callable[[], object] | None = None
        self._lock = lock
        self._closed = False

    def attach(self, frontier: LmdbFrontier, environment: Environment) -> None:
        """Keep *frontier*, which lies in *environment*, with the seen keys."""
        self.frontier, self.environment = frontier, environment
        self.seen = self._new_seen()

    def decide_by(self, policy: str) -> None:
        """Take another policy than ``positives``: ``always``."""
        self._policy = policy
        self.seen = self._new_seen()

    def share(self, parts: SharedParts, policy: str, *, cache_size: int, sync: bool) -> SharedSeen:
        """Let a server decide, which other crawls ask too; what is here is what this crawl knows.

        Args:
            parts: what is shared; closed with this state.
            policy, cache_size: see ``shared.seen``.
            sync: bring to the disk what is noted.

        Raises:
            StateCorrupt, StateUnusable: the claims of the last run cannot be read.
        """
        if self.frontier is not None:
            self._claims = Claims.open(self.directory / CLAIMS_NAME, sync=sync)
        local = self._new_seen()
        self.shared = SharedSeen(local, parts, policy, claims=self._claims, cache_size=cache_size)
        self.seen = self.shared
        return self.shared

    def _new_seen(self) -> SeenSet:
        return SeenSet(
            self.filter,
            self.store,
            self._policy,
            deferred=self.frontier is not None,
            clock=self._clock,
            born=self.filter.created,
        )

    @property
    def age(self) -> float:
        """Seconds since it was made; below 0: the clock was set back."""
        return self._clock() - self.filter.created

    @property
    def temporary(self) -> bool:
        """Whether its directory goes when it is closed."""
        return self._remove is not None

    def on_removal(self, remove: Callable[[], object]) -> None:
        """Make the state temporary: *remove* is called when it is closed."""
        self._remove = remove

    @property
    def was_clean(self) -> bool:
        """Whether the state was closed in order before it was opened here; true for a new one."""
        return self.is_new or self.filter.was_clean

    def replace_filter(self, filter: BloomFilter) -> None:  # noqa: A002
        """Take another filter, which holds the same keys."""
        self.filter.abandon()
        self.filter = filter
        self.seen = self._new_seen()

    def verified(self) -> None:
        """All pages were read, and are whole."""
        self.is_suspect = False
        self._lock.looked_at()

    def num_bytes(self) -> int:
        """Return the bytes of all files."""
        size = self.filter.num_bytes()
        return size + (self.environment.num_bytes() if self.environment is not None else 0)

    def num_keys(self) -> int:
        """Return how many keys are known: exact with a store, else the filter's count.

        Raises:
            StoreError: the store could not be read.
        """
        if self.store is not None:
            return self.store.count()
        return self.filter.num_keys + self.seen.num_deferred

    def set_identity(self, identity: Mapping[str, str]) -> None:
        """Write what the keys mean into all files.

        Raises:
            FilterError, StoreError: it could not be written.
        """
        if self.environment is not None:
            write_meta(self.environment, self.filter.filter_id, identity)
        self.filter.set_identity(identity)

    @property
    def num_waiting(self) -> int:
        """Changes that wait for ``flush``."""
        waiting = self.store.num_waiting if isinstance(self.store, LmdbStore) else 0
        return waiting + (self.frontier.num_waiting if self.frontier is not None else 0)

    def flush(self) -> bool:
        """Write waiting keys, pending requests and counts; survives ``kill -9``.

        Returns:
            Whether there was something to write.

        Raises:
            StoreError, FilterError: not all was written; what waits keeps waiting.
        """
        wrote = False
        if self.environment is not None:
            wrote = self.environment.commit()
        elif self.store is not None:
            self.store.flush()
        # Only now: a bit of the filter survives a kill, and its request must, too.
        self.seen.settle()
        self.filter.flush()
        return wrote

    def sync(self) -> None:
        """Bring what was flushed to the disk; survives a power loss. Slow; any thread may call it.

        Raises:
            StoreError, FilterError: the system could not.
        """
        if self.environment is not None:
            self.environment.sync()
        if self._claims is not None:
            self._claims.sync()
        self.filter.sync()

    def close(self, *, write: bool = True) -> None:
        """Write everything and let go. A second call does nothing.

        Args:
            write: False: let go of the state as it was at the last ``flush``; it counts as not closed in
                order.

        Raises:
            StoreError, FilterError: not everything could be written; all is let go of nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        error: BloomdupeError | None = None
        try:
            if write:
                self.flush()
            if write and self.store is not None:
                self.store.close()
            if write and not self.temporary:
                self.sync()
        except (StoreError, FilterError) as exc:
            error = exc
        clean = write and error is None
        try:
            self.release_files(clean=clean)
        finally:
            self._lock.release(left=[self.environment.path] if clean and self.environment else [])
            if self._remove is not None:
                self._remove()
        if error is not None:
            raise error

    def release_files(self, *, clean: bool = True) -> None:
        """Let go of the files and keep the lock.

        Raises:
            FilterError: the filter's count could not be written.
        """
        try:
            if clean:
                self.filter.close()
            else:
                self.filter.abandon()
        finally:
            if self.environment is not None:
                self.environment.close()
            if self._claims is not None:
                self._claims.close()
            if self.shared is not None:
                self.shared.parts.close()
