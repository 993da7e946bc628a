"""Where do the counters of a key lie, and how are they counted? The layout of a counting Bloom filter.

``counting``
    As ``paged``, with a counter of 4 bits for every bit: a page has 65,536 of them in 32 KiB. They lie in
    four planes of 8 KiB, bit 0 of all counters first, so that the counters of a key are raised and lowered
    by a few operations on whole bit arrays. Counting Bloom filters: L. Fan, P. Cao, J. Almeida, A. Broder,
    "Summary Cache: A Scalable Wide-Area Web Cache Sharing Protocol", IEEE/ACM Transactions on Networking
    8(3), 2000.

A counter that has reached 15 stays there: what was lost count of is never lowered. Frozen: another way to
count needs a new name.
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct

from bitarray import bitarray

import scrapy_bloomdupe.hashing as hashing
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.filters.layouts import PAGE_BITS, PAGE_BYTES, Layout, get_layout, sample_pages

# Fan et al. 2000, section V.C: of m counters one passes 15 with a probability below 1.37e-15 * m, if m/n and
# k are those of the least error.
WIDTH = 4

Planes = list[bitarray]


class CountingLayer:
    """k counters inside one page of 65,536; contract: ``layouts.Layer``."""

    def __init__(self, memory: memoryview, num_bits: int, num_hashes: int) -> None:
        self._memory = memory
        self._num_pages = num_bits // PAGE_BITS
        self._views: list[Planes | None] = [None] * self._num_pages
        self._unpack = Struct(f"<I{num_hashes}H").unpack_from

    def test(self, probe: bytes) -> bool:
        planes, positions = self._find(probe)
        zero, one, two, three = (plane[positions] for plane in planes)
        return (zero | one | two | three).all()

    def set(self, probe: bytes) -> None:
        """Raise all counters of the probe by one."""
        planes, positions = self._find(probe)
        _raise(planes, positions, [plane[positions] for plane in planes])

    def test_and_set(self, probe: bytes) -> bool:
        planes, positions = self._find(probe)
        bits = [plane[positions] for plane in planes]
        zero, one, two, three = bits
        if (zero | one | two | three).all():
            return True
        _raise(planes, positions, bits)
        return False

    def take(self, probe: bytes) -> bool:
        """Lower all counters of the probe by one, if none is 0, and return whether that was so.

        It must have been set and not been taken since; else other probes can lose what was set for them.
        """
        planes, positions = self._find(probe)
        bits = [plane[positions] for plane in planes]
        zero, one, two, three = bits
        if not (zero | one | two | three).all():
            return False
        lowered = []
        borrow = ~(zero & one & two & three)
        for plane, old in zip(planes, bits, strict=True):
            if not borrow.any():
                break
            lowered.append((plane, old ^ borrow))
            borrow &= ~old
        # The lowest plane first: a process that is killed in between leaves too much, never too little.
        for plane, new in lowered:
            plane[positions] = new
        return True

    def fill(self, max_pages: int) -> float:
        """Return the share of counters that are not 0, 0 to 1."""
        counts = []
        for page in sample_pages(self._num_pages, max_pages):
            zero, one, two, three = self._view(page)
            counts.append((zero | one | two | three).count())
        return sum(counts) / (len(counts) * PAGE_BITS)

    def release(self) -> None:
        self._views.clear()

    def _find(self, probe: bytes) -> tuple[Planes, list[int]]:
        page, *positions = self._unpack(probe)
        page %= self._num_pages
        # Each once: a key must not raise a counter twice in one step.
        return self._views[page] or self._view(page), list(set(positions))

    def _view(self, page: int) -> Planes:
        view = self._views[page]
        if view is None:
            start = page * WIDTH * PAGE_BYTES
            parts = (
                self._memory[start + i * PAGE_BYTES : start + (i + 1) * PAGE_BYTES] for i in range(WIDTH)
            )
            view = self._views[page] = [bitarray(buffer=part, endian="little") for part in parts]
        return view


def _raise(planes: Planes, positions: list[int], bits: list[bitarray]) -> None:
    """Raise the counters at *positions*, of which *bits* are the present values, by one."""
    raised = []
    carry = ~(bits[0] & bits[1] & bits[2] & bits[3])
    for plane, old in zip(planes, bits, strict=True):
        if not carry.any():
            break
        raised.append((plane, old ^ carry))
        carry &= old
    # The highest plane first, see ``CountingLayer.take``.
    for plane, new in reversed(raised):
        plane[positions] = new


class CountingLayout:
    name = "counting"
    width = WIDTH

    def size_for(self, capacity: int, error_rate: float, slack: float) -> sizing.BloomSize:
        size = sizing.size_for(capacity, error_rate, slack)
        return replace(size, num_bits=-(-size.num_bits // PAGE_BITS) * PAGE_BITS)

    def rate_at(self, num_bits: int, num_hashes: int, num_keys: float) -> float:
        return sizing.spread_error_rate(num_bits, num_hashes, num_keys, PAGE_BITS)

    def probe_function(
        self, scheme: hashing.Scheme, secret: bytes, num_hashes: int
    ) -> hashing.DigestFunction:
        return scheme.digest(secret, hashing.digest_size(num_hashes))

    def layer(self, memory: memoryview, num_bits: int, num_hashes: int) -> CountingLayer:
        return CountingLayer(memory, num_bits, num_hashes)


COUNTING = CountingLayout()


def layout_called(name: str) -> Layout:
    """Return the layout called *name*, that of counters among them.

    Raises:
        ConfigurationError: there is none of that name.
    """
    return COUNTING if name == COUNTING.name else get_layout(name)
