"""Is it worth asking a server that has just failed? A circuit breaker: pure but for the clock it is given.

M. Nygard, "Release It!", 2nd edition, 2018, section 5.2. Not here: what a failure is (``client``).
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable

from scrapy_bloomdupe.errors import ConfigurationError


class Circuit(enum.Enum):
    """The state of a breaker."""

    #: Questions are let through.
    CLOSED = "closed"
    #: None is.
    OPEN = "open"
    #: One is on its way, to see whether the server is back.
    HALF_OPEN = "half_open"


class Breaker:
    """Opens after some failures in a row, and lets a single question through now and then.

    Any thread may use it.

    Args:
        failures: in a row until it opens, at least 1.
        wait: seconds until the first probe, > 0; doubled with every probe that fails.
        max_wait: seconds between probes at the most.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        failures: int = 3,
        wait: float = 1.0,
        max_wait: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if failures < 1 or not 0 < wait <= max_wait:
            raise ConfigurationError(
                f"failures={failures!r}, wait={wait!r}, max_wait={max_wait!r}: a circuit breaker needs "
                "failures >= 1 and 0 < wait <= max_wait, for example 3, 1.0 and 30.0"
            )
        self._failures = failures
        self._first_wait = wait
        self._max_wait = max_wait
        self._clock = clock
        self._lock = threading.Lock()
        self._state = Circuit.CLOSED
        self._in_a_row = 0
        self._wait = wait
        self._next_probe = 0.0
        self._opened_at = 0.0
        self._open_seconds = 0.0
        self._num_opened = 0

    @property
    def state(self) -> Circuit:
        return self._state

    @property
    def num_opened(self) -> int:
        """How often it opened; a probe that failed does not count."""
        return self._num_opened

    @property
    def open_seconds(self) -> float:
        """Seconds for which it was open, up to now."""
        with self._lock:
            now = 0.0 if self._state is Circuit.CLOSED else self._clock() - self._opened_at
            return self._open_seconds + now

    @property
    def seconds_to_probe(self) -> float:
        """Seconds until a question is let through; 0: one is now."""
        return 0.0 if self._state is Circuit.CLOSED else max(0.0, self._next_probe - self._clock())

    def allows(self) -> bool:
        """Return whether to ask. After True the caller reports ``succeeded`` or ``failed``."""
        with self._lock:
            if self._state is Circuit.CLOSED:
                return True
            now = self._clock()
            if now < self._next_probe:
                return False
            # Whoever asks next waits for this probe, and takes over if nothing was heard of it.
            self._state = Circuit.HALF_OPEN
            self._next_probe = now + self._wait
            return True

    def succeeded(self) -> None:
        """Note an answer, whatever it says: the server is there."""
        if self._in_a_row == 0 and self._state is Circuit.CLOSED:
            return
        with self._lock:
            if self._state is not Circuit.CLOSED:
                self._open_seconds += self._clock() - self._opened_at
            self._state = Circuit.CLOSED
            self._in_a_row = 0
            self._wait = self._first_wait

    def failed(self) -> None:
        """Note that no answer came."""
        with self._lock:
            self._in_a_row += 1
            now = self._clock()
            if self._state is Circuit.HALF_OPEN:
                self._wait = min(2 * self._wait, self._max_wait)
            elif self._state is Circuit.OPEN or self._in_a_row < self._failures:
                # Open already: a question that was on its way when it opened.
                return
            else:
                self._opened_at = now
                self._num_opened += 1
            self._state = Circuit.OPEN
            self._next_probe = now + self._wait
