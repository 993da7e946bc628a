"""When is what waits in a state written, and brought to the disk? On a clock, through the crawl."""

from __future__ import annotations

import scrapy_bloomdupe.engine as engine
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.syncing import Syncer
from scrapy_bloomdupe.watch import Watch

# Groups are written this often, in seconds, on the crawl's thread...
_COMMIT_INTERVAL = 0.1
# ... after a failure less often, up to this many times...
_MAX_BACKOFF = 100
# ... and brought to the disk this often, off it.
_SYNC_INTERVAL = 60.0


class Committer:
    """Writes the groups of *state* from ``start`` until ``stop``; failures are counted."""

    def __init__(self, state: State, watch: Watch) -> None:
        self._state = state
        self._watch = watch
        self._wait = self._backoff = 0
        self._repeater: engine.Repeater | None = None
        self._syncer: Syncer | None = None

    def start(self) -> None:
        """Begin; there must be a running crawl."""
        self._repeater = engine.Repeater(self._commit, _COMMIT_INTERVAL)
        if not self._state.temporary:
            self._syncer = Syncer(self._state.sync, _SYNC_INTERVAL)

    def stop(self) -> None:
        if self._repeater is not None:
            self._repeater.stop()
        if self._syncer is not None:
            self._syncer.stop()

    def _commit(self) -> None:
        """Write what waits; after a failure wait twice as long as before it."""
        if self._syncer is not None and (error := self._syncer.take_error()) is not None:
            self._watch.failed(stats.ERROR_SYNC, error)
        if self._wait > 0:
            self._wait -= 1
            return
        if self._watch.attempt(stats.ERROR_COMMIT, self._state.flush):
            self._backoff = 0
        else:
            self._wait = self._backoff = min(_MAX_BACKOFF, 2 * self._backoff + 1)
