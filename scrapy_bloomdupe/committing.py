"""When is what waits in a state written, and brought to the disk? On a clock, through the crawl."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import scrapy_bloomdupe.engine as engine
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.lmdb import GROUP_SIZE
from scrapy_bloomdupe.syncing import Syncer
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy_bloomdupe.journaling import Journaling

# Seconds. Groups are written this often, on the crawl's thread...
_INTERVAL = 0.1
# ... after a failure less often, up to this many times...
_MAX_BACKOFF = 100
# ... with a journal, where what is not written is done twice after a crash, this often...
_JOURNAL_INTERVAL = 0.02
# ... if that takes less than a sixteenth of the time...
_LEAST_PAUSE = 15
# ... and brought to the disk this often, off it.
_SYNC_INTERVAL = 60.0


class Task(Protocol):
    """Other work that is done in slices on the crawl's thread, on the same clock."""

    def tick(self) -> None:
        """Do a little; must not raise."""

    def stop(self) -> None:
        """Leave the rest; must not raise."""


class Committer:
    """Writes the groups of *state* from ``start`` until ``stop``; failures are counted.

    Args:
        journaling: with a journal a failure is the last one, and ends the crawl.
        tasks: what else is done on the clock.
    """

    def __init__(
        self,
        state: State,
        watch: Watch,
        journaling: Journaling | None = None,
        tasks: Sequence[Task] = (),
    ) -> None:
        self._state = state
        self._watch = watch
        self._journaling = journaling
        self._tasks = tasks
        self._wait = self._backoff = 0
        self._seconds = 0.0
        self._not_before = 0.0
        self._woken = False
        if journaling is not None:
            journaling.units.on_complete = self._wake
        self._repeater: engine.Repeater | None = None
        self._syncer: Syncer | None = None

    def start(self) -> None:
        """Begin; there must be a running crawl."""
        self._watch.count_on_flush()
        interval = _INTERVAL if self._journaling is None else _JOURNAL_INTERVAL
        self._repeater = engine.Repeater(self._tick, interval)
        if not self._state.temporary:
            self._syncer = Syncer(self._state.sync, _SYNC_INTERVAL)

    def stop(self) -> None:
        if self._repeater is not None:
            self._repeater.stop()
            self._repeater = None
        if self._syncer is not None:
            self._syncer.stop()
        for task in self._tasks:
            task.stop()
        self._watch.stop()

    def relieve(self) -> None:
        """Write now if so much waits that the clock is too slow."""
        if self._journaling is not None and self._state.num_waiting >= GROUP_SIZE:
            self._commit_with(self._journaling, ended=False)

    def _tick(self) -> None:
        self._watch.flush()
        if self._syncer is not None and (error := self._syncer.take_error()) is not None:
            self._watch.failed(stats.ERROR_SYNC, error)
        if self._journaling is None:
            self._commit()
        elif time.perf_counter() >= self._not_before:
            self._commit_with(self._journaling, ended=True)
        for task in self._tasks:
            task.tick()

    def _wake(self) -> None:
        """A request may be done: write that in the next turn, if the last commit is not too near."""
        if not self._woken and self._repeater is not None and time.perf_counter() >= self._not_before:
            self._woken = True
            engine.call_soon(self._woken_up)

    def _woken_up(self) -> None:
        self._woken = False
        if self._journaling is not None and self._repeater is not None:
            self._commit_with(self._journaling, ended=True)

    def _commit_with(self, journaling: Journaling, *, ended: bool) -> None:
        if journaling.failed:
            return
        started = time.perf_counter()
        try:
            if ended:
                journaling.prepare()
            elif self._state.journal is not None and self._state.journal.has_ended:
                # Ended by the idle handler in this very turn.
                journaling.flush_feeds()
            if self._state.flush():
                now = time.perf_counter()
                self._not_before = now + min(_INTERVAL, _LEAST_PAUSE * (now - started))
                self._seconds += now - started
                self._watch.count(stats.COMMITS)
                self._watch.set(stats.COMMIT_SECONDS, round(self._seconds, 3))
                journaling.publish()
        except Exception as exc:
            journaling.stop(exc)

    def _commit(self) -> None:
        """Write what waits; after a failure wait twice as long as before it."""
        if self._wait > 0:
            self._wait -= 1
            return
        if self._watch.attempt(stats.ERROR_COMMIT, self._state.flush):
            self._backoff = 0
        else:
            self._wait = self._backoff = min(_MAX_BACKOFF, 2 * self._backoff + 1)
