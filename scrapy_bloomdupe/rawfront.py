"""Was this very URL judged seen a moment ago? Then it is seen, and no key is needed to know that.

Nine links in ten of a page were on other pages, letter for letter. Exact: whole strings are compared. It
knows URLs of plain GET requests only; whoever makes a key unseen again clears it.
"""

from __future__ import annotations

from scrapy_bloomdupe.rules.ruleset import Decision

# Bytes of an entry besides its characters: the string's head and its share of the table, measured on CPython
# 3.11 with 10^5 entries.
_OVERHEAD = 160
# And of what the rules said of it, besides the characters of its key; measured with 50,000.
_OVERHEAD_OF_DECISION = 320
# A longer one is not kept: a site could fill the cache with a few.
_LONGEST = 4_096

#: What ``find`` returns of a URL that it does not know.
UNKNOWN = object()


class RawFront:
    """The URLs that were seen last.

    In two halves: when the younger one is full the older one goes. What is asked for again becomes young.

    Args:
        max_bytes: what both may take, in bytes; 0: nothing is kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._room = self._left = max_bytes // 2
        self._young: dict[str, Decision | None] = {}
        self._old: dict[str, Decision | None] = {}

    def find(self, url: str) -> object:
        """Return what the rules said of *url* (None: nothing), or ``UNKNOWN``."""
        found = self._young.get(url, UNKNOWN)
        if found is UNKNOWN:
            old = self._old.get(url, UNKNOWN)
            if old is UNKNOWN:
                return UNKNOWN
            self.put(url, old)  # type: ignore[arg-type]
            return old
        return found

    def put(self, url: str, decision: Decision | None) -> None:
        """Remember that *url* is seen."""
        if url in self._young or len(url) > _LONGEST or not self._room:
            return
        self._young[url] = decision
        self._left -= len(url) + _OVERHEAD
        if decision is not None:
            self._left -= len(decision.key) + _OVERHEAD_OF_DECISION
        if self._left < 0:
            self._old, self._young = self._young, {}
            self._left = self._room

    def clear(self) -> None:
        self._young, self._old = {}, {}
        self._left = self._room

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __bool__(self) -> bool:
        return True
