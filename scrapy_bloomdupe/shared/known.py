"""Which keys is a server certainly not to be asked for, since its answer is known? Exact, and bounded.

What was granted to this crawl stays so. What another crawl was granted it can give back: that is known for a
short time only.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from scrapy_bloomdupe.seen import Verdict

# Bytes of an entry: a key of 20 bytes and its share of the table, measured on CPython 3.11 with 10^5 entries.
_ENTRY = 160
#: Seconds for which the key of another crawl is known: a page links to it, and so does the next one.
FOREIGN_LIFETIME = 10.0
_FOR_EVER = float("inf")


class KnownKeys:
    """The keys that were found to be seen last, and how.

    In two halves: when the younger one is full the older one goes. What is asked for again becomes young.

    Args:
        max_bytes: what both may take, in bytes; 0: nothing is kept.
        clock: seconds, never going back.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._room = max_bytes // 2 // _ENTRY
        self._clock = clock
        self._young: dict[bytes, tuple[Verdict, float]] = {}
        self._old: dict[bytes, tuple[Verdict, float]] = {}

    def get(self, key: bytes) -> Verdict | None:
        """Return how *key* is known to be seen; None: it is not known."""
        found = self._young.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self._put(key, found)
        if found is None or found[1] < self._clock():
            return None
        return found[0]

    def is_own(self, key: bytes) -> bool:
        """Return whether *key* is known to be of this crawl."""
        found = self._young.get(key) or self._old.get(key)
        return found is not None and found[1] == _FOR_EVER

    def put_own(self, key: bytes, verdict: Verdict) -> None:
        """Remember what this crawl was granted."""
        self._put(key, (verdict, _FOR_EVER))

    def put_foreign(self, key: bytes, verdict: Verdict) -> None:
        """Remember what another crawl was granted."""
        self._put(key, (verdict, self._clock() + FOREIGN_LIFETIME))

    def discard(self, key: bytes) -> None:
        self._young.pop(key, None)
        self._old.pop(key, None)

    def forget_foreign(self) -> None:
        """Know only what this crawl was granted."""
        for half in (self._young, self._old):
            for key in [key for key, found in half.items() if found[1] != _FOR_EVER]:
                del half[key]

    def clear(self) -> None:
        self._young, self._old = {}, {}

    def _put(self, key: bytes, found: tuple[Verdict, float]) -> None:
        if not self._room:
            return
        self._young[key] = found
        if len(self._young) >= self._room:
            self._old, self._young = self._young, {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def __bool__(self) -> bool:
        return True
