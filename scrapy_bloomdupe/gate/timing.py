"""How long did look-ups take? Percentiles from a histogram of fixed size, within an eighth."""

from __future__ import annotations

# Powers of two are cut into eight parts each: a percentile is at most 12.5 % off. 64 powers of nanoseconds.
_PARTS = 3


class Timing:
    """Counts durations of whole nanoseconds, 0 and more."""

    def __init__(self) -> None:
        self._counts = [0] * (64 << _PARTS)
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        shift = nanoseconds.bit_length() - _PARTS - 1
        if shift > 0:
            # The leading bit is in the number of the power already.
            self._counts[(shift << _PARTS) + (nanoseconds >> shift)] += 1
        else:
            self._counts[nanoseconds] += 1
        self.count += 1

    def microseconds(self, share: float) -> float:
        """Return the duration that *share* of all, 0 to 1, do not exceed; 0: nothing was counted."""
        left = share * self.count
        for bucket, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                return _top(bucket) / 1000
        return 0.0


def _top(bucket: int) -> int:
    """Return the longest duration of a bucket, in nanoseconds."""
    shift = max(0, (bucket >> _PARTS) - 1)
    return ((bucket - (shift << _PARTS) + 1) << shift) - 1
