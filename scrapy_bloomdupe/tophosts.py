"""Which hosts have the most duplicates? A count of bounded size, on the way of every duplicate.

Misra and Gries, "Finding repeated elements" (1982): when there is no room for a host, all that have some are
lowered. What a count can lack for that is known (``slack``); none is too high for it.

The first duplicates are counted one by one, later ones by a random sample of 1 in ``SCALE``: a count of n is
then right to within 8 times the square root of n in 19 of 20 cases.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

#: Duplicates that one stands for, after the first ``EXACT``.
SCALE = 16
EXACT = 10_000
# Hosts that are counted at a time.
_ROOM = 1_000
# A name in DNS has at most 253 characters.
_LONGEST = 260


class TopHosts:
    """Counts URLs by host.

    Args:
        room: hosts that are counted at a time, 1 or more.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room = room
        self._counts: dict[str, int] = {}
        # Not Scrapy's and the spider's generator, which they may have seeded.
        self._random = random.Random(1).random
        self._until_next = 1
        self._taken = 0
        self._scale = 1
        #: No count is lower than the true one by more than this, but for the sampling.
        self.slack = 0

    def add(self, url: str) -> None:
        """Count *url*; one without a host is not."""
        self._until_next -= 1
        if self._until_next:
            return
        try:
            self._counts[url.split("/", 3)[2]] += self._scale
        except LookupError:
            self._add_new(url)
        self._taken += 1
        if self._taken < EXACT:
            self._until_next = 1
        else:
            self._scale = SCALE
            # Evenly 1 to 2 * SCALE - 1: not in step with anything that a site repeats.
            self._until_next = 1 + int((2 * SCALE - 1) * self._random())

    def seed(self, counts: Iterable[tuple[str, int]], slack: int) -> None:
        """Go on from what an earlier ``top`` and ``slack`` said."""
        for host, count in counts:
            if len(self._counts) < self._room:
                self._counts[host] = self._counts.get(host, 0) + count
        self.slack += slack

    def top(self, count: int) -> list[tuple[str, int]]:
        """Return the *count* hosts with the most duplicates, the first one first."""
        merged: dict[str, int] = {}
        for place, number in self._counts.items():
            host = _host(place)
            merged[host] = merged.get(host, 0) + number
        return sorted(merged.items(), key=lambda item: (-item[1], item[0]))[:count]

    def _add_new(self, url: str) -> None:
        place = url.split("/", 3)[2:3]
        if not place or not place[0] or len(place[0]) > _LONGEST:
            return
        scale = self._scale
        if len(self._counts) < self._room:
            self._counts[place[0]] = scale
        else:
            self._counts = {host: count - scale for host, count in self._counts.items() if count > scale}
            self.slack += scale


def _host(place: str) -> str:
    # A password is not to be shown; `http://host?query` has no slash to end the host.
    return place.replace("?", "#").partition("#")[0].rpartition("@")[2].lower()
