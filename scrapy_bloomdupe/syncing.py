"""When does what was written reach the disk? A thread that syncs now and then, off the crawl's thread.

``kill -9`` needs no sync, a power loss does; an msync of scattered pages takes seconds, which a reactor
must not wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from scrapy_bloomdupe.errors import BloomdupeError


class Syncer:
    """Calls *sync* every *interval* seconds until ``stop``.

    Args:
        sync: what to call; runs in a thread of its own.
        interval: seconds, more than 0.
    """

    def __init__(self, sync: Callable[[], None], interval: float) -> None:
        #: The last error that *sync* raised and nobody has taken yet.
        self._error: BloomdupeError | None = None
        self._sync = sync
        self._interval = interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bloomdupe-sync", daemon=True)
        self._thread.start()

    def take_error(self) -> BloomdupeError | None:
        """Return the last error once."""
        error, self._error = self._error, None
        return error

    def stop(self) -> None:
        """End the thread; waits for a sync that is under way."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            try:
                self._sync()
            except BloomdupeError as exc:
                self._error = exc
