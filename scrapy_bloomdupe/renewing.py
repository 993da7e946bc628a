"""When is the filter of a crawl made anew? When it has too many layers, or is too old; in slices, on a clock.

Every layer is asked for every new key; a filter of one layer answers in one look. With age it fills with bits
of keys that were forgotten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import scrapy_bloomdupe.report as report
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.building import built_of, roomy
from scrapy_bloomdupe.renewal import Renewal
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.watch import Watch

logger = logging.getLogger(__name__)

# The share of the crawl's time that it takes...
_SHARE = 0.1
# ... and the longest slice, in seconds.
_LONGEST = 0.01


class Renewer:
    """Makes the filter of *state* anew when it is due; a failure is counted, and the last try.

    Args:
        state: it has an exact store in a file.
        layers: so many make it due, 2 or more; 0: any number will do.
        every: seconds since it was made that make it due; None: it may be of any age.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        state: State,
        watch: Watch,
        layers: int,
        every: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._watch = watch
        self._layers = layers
        self._every = every
        self._clock = clock
        self._renewal: Renewal | None = None
        self._began = self._last = time.perf_counter()
        self._given_up = False

    def tick(self) -> None:
        """Go on for a slice; called through the crawl, on its thread."""
        now = time.perf_counter()
        seconds, self._last = min(_LONGEST, _SHARE * (now - self._last)), now
        if self._given_up or (self._renewal is None and not self._is_due()):
            return
        if not self._watch.attempt(stats.ERROR_REBUILD, lambda: self._go_on(seconds)):
            self._given_up = True
            self.stop()

    @property
    def is_busy(self) -> bool:
        return self._renewal is not None

    def stop(self) -> None:
        """Leave what is not finished."""
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.abandon()

    def _is_due(self) -> bool:
        found = self._state.filter
        if self._layers and found.num_layers >= self._layers:
            return True
        return self._every is not None and self._clock() - built_of(found) >= self._every

    def _go_on(self, seconds: float) -> None:
        if self._renewal is None:
            self._began = self._last
            values = roomy(self._state.filter, self._state.num_keys())
            self._renewal = Renewal(self._state, values, self._clock())
        elif self._renewal.step(seconds):
            layers, version = self._state.filter.num_layers, self._renewal.version
            self._renewal.switch()
            self._renewal = None
            self._watch.count(stats.REBUILDS)
            self._watch.set(stats.LAYERS, self._state.filter.num_layers)
            logger.info(
                report.rebuilt(self._state, version, layers, time.perf_counter() - self._began),
                extra={"spider": self._watch.spider},
            )
