"""What is a seen-set on the disk while it is in use? Filter, exact store and lock of one directory.

::

    <JOBDIR>/bloomdupe/
        lock                the process that works here
        seen.bloom          the filter
        seen.lmdb           the exact store (and seen.lmdb-lock, LMDB's own)
        old-<date>-<time>/  a state that was moved aside

Made by ``opening``. Not here: requests, settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from scrapy_bloomdupe.errors import BloomdupeError, FilterError, StoreError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.seen import SeenSet
from scrapy_bloomdupe.statefiles import write_meta
from scrapy_bloomdupe.stores.base import Store
from scrapy_bloomdupe.stores.environment import Environment


class State:
    """A seen-set with its files.

    Attributes:
        directory: where it lies.
        seen: the question.
        filter, store, environment: the parts; without an exact store the last two are None.
        notices: sentences that a person should read.
        open_seconds: how long opening took.
        is_new: it was made, not found.
    """

    def __init__(
        self,
        directory: Path,
        lock: DirectoryLock,
        filter: BloomFilter,  # noqa: A002
        store: Store | None,
        environment: Environment | None,
    ) -> None:
        self.directory = directory
        self.filter = filter
        self.store = store
        self.environment = environment
        self.seen = SeenSet(filter, store)
        self.notices: list[str] = []
        self.open_seconds = 0.0
        self.is_new = False
        self._remove: Callable[[], object] | None = None
        self._lock = lock
        self._closed = False

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

    def num_bytes(self) -> int:
        """Return the bytes of all files."""
        size = self.filter.num_bytes()
        return size + (self.environment.num_bytes() if self.environment is not None else 0)

    def num_keys(self) -> int:
        """Return how many keys are known: exact with a store, else the filter's count.

        Raises:
            StoreError: the store could not be read.
        """
        return self.store.count() if self.store is not None else self.filter.num_keys

    def set_identity(self, identity: Mapping[str, str]) -> None:
        """Write what the keys mean into all files.

        Raises:
            FilterError, StoreError: it could not be written.
        """
        if self.environment is not None:
            write_meta(self.environment, self.filter.filter_id, identity)
        self.filter.set_identity(identity)

    def flush(self) -> None:
        """Write waiting keys and counts; survives ``kill -9``.

        Raises:
            StoreError, FilterError: not all was written; what waits keeps waiting.
        """
        if self.store is not None:
            self.store.flush()
        self.filter.flush()

    def sync(self) -> None:
        """Bring what was flushed to the disk; survives a power loss. Slow; any thread may call it.

        Raises:
            StoreError, FilterError: the system could not.
        """
        if self.environment is not None:
            self.environment.sync()
        self.filter.sync()

    def close(self) -> None:
        """Write everything and let go. A second call does nothing.

        Raises:
            StoreError, FilterError: not everything could be written; all is let go of nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        error: BloomdupeError | None = None
        try:
            if self.store is not None:
                self.store.close()
            if not self.temporary:
                self.sync()
        except (StoreError, FilterError) as exc:
            error = exc
        try:
            self.release_files(clean=error is None)
        finally:
            self._lock.release()
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
