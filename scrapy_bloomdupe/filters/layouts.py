"""Where in the array do the positions of a key lie? Two layouts with frozen names.

``classic``
    k positions over the whole array. A check touches up to k memory pages.
``paged``
    all k positions inside one page of 65,536 bits (8 KiB), so that a check touches one or two memory
    pages and a position is exactly 16 bits: one ``struct`` call cuts page number and positions from
    the digest, without arithmetic per bit. Blocked Bloom filters: F. Putze, P. Sanders, J. Singler,
    "Cache-, Hash- and Space-Efficient Bloom Filters", WEA 2007, with a block so large that the
    unevenness between blocks costs a few percent of the rate (``sizing.spread_error_rate``).

A layer works on memory that it is given; it does not know files. Frozen: another way to place
positions needs a new name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from struct import Struct
from typing import Any, Protocol

from bitarray import bitarray

import scrapy_bloomdupe.hashing as hashing
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError

PAGE_BITS = 65_536
PAGE_BYTES = PAGE_BITS // 8

# Double hashing visits m / gcd(step, m) bits: without a prime up to MAX_HASHES in m, at least k of them.
_SMALL_PRIMES = math.prod((2, 3, 5, 7, 11, 13, 17, 19, 23, 29))


class Layer(Protocol):
    """One bit array. A *probe* is what ``probe_function`` of its layout makes of a key."""

    def test(self, probe: Any) -> bool:
        """Return whether all positions of the probe are set."""
        ...

    def set(self, probe: Any) -> None:
        """Set all positions of the probe."""
        ...

    def test_and_set(self, probe: Any) -> bool:
        """Set all positions and return whether all were set before."""
        ...

    def fill(self, max_pages: int) -> float:
        """Return the share of set bits, 0 to 1, over at most *max_pages* pages spread evenly."""
        ...

    def release(self) -> None:
        """Let go of the memory, so that its mapping can be closed."""
        ...


def sample_pages(num_pages: int, max_pages: int) -> Iterator[int]:
    """Give at most *max_pages* numbers of pages, spread evenly."""
    step = max(1, num_pages / max_pages)
    return (int(i * step) for i in range(min(num_pages, max_pages)))


class ClassicLayer:
    """k positions anywhere in *num_bits* bits, by double hashing."""

    def __init__(self, memory: memoryview, num_bits: int, num_hashes: int) -> None:
        self._bits: bitarray | None = bitarray(buffer=memory, endian="little")
        self._num_bits = num_bits
        self._num_hashes = num_hashes

    def test(self, probe: tuple[int, int]) -> bool:
        assert self._bits is not None
        return self._bits[self._positions(probe)].all()

    def set(self, probe: tuple[int, int]) -> None:
        assert self._bits is not None
        self._bits[self._positions(probe)] = 1

    def test_and_set(self, probe: tuple[int, int]) -> bool:
        bits = self._bits
        assert bits is not None
        positions = self._positions(probe)
        if bits[positions].all():
            return True
        bits[positions] = 1
        return False

    def fill(self, max_pages: int) -> float:
        assert self._bits is not None
        num_set = num_bits = 0
        for page in sample_pages(-(-self._num_bits // PAGE_BITS), max_pages):
            start, stop = page * PAGE_BITS, min((page + 1) * PAGE_BITS, self._num_bits)
            num_set += self._bits.count(1, start, stop)
            num_bits += stop - start
        return num_set / num_bits

    def release(self) -> None:
        self._bits = None

    def _positions(self, probe: tuple[int, int]) -> list[int]:
        return hashing.double_hash(probe[0], probe[1], self._num_hashes, self._num_bits)


class PagedLayer:
    """k positions inside one page of 65,536 bits.

    Attributes:
        num_pages: pages.
        views: of the pages that were touched: opening costs the same at any size.
        unpack: digest -> page number, not yet modulo, and positions.
    """

    def __init__(self, memory: memoryview, num_bits: int, num_hashes: int) -> None:
        self._memory = memory
        self.num_pages = num_bits // PAGE_BITS
        self.views: list[bitarray | None] = [None] * self.num_pages
        self.unpack = Struct(f"<I{num_hashes}H").unpack_from

    def test(self, probe: bytes) -> bool:
        page, *positions = self.unpack(probe)
        page %= self.num_pages
        return (self.views[page] or self.view(page))[positions].all()

    def set(self, probe: bytes) -> None:
        page, *positions = self.unpack(probe)
        page %= self.num_pages
        (self.views[page] or self.view(page))[positions] = 1

    def test_and_set(self, probe: bytes) -> bool:
        page, *positions = self.unpack(probe)
        page %= self.num_pages
        view = self.views[page] or self.view(page)
        if view[positions].all():
            return True
        view[positions] = 1
        return False

    def fill(self, max_pages: int) -> float:
        counts = [self.view(page).count() for page in sample_pages(self.num_pages, max_pages)]
        return sum(counts) / (len(counts) * PAGE_BITS)

    def release(self) -> None:
        self.views.clear()

    def view(self, page: int) -> bitarray:
        """Return the bits of a page, kept from now on."""
        view = self.views[page]
        if view is None:
            part = self._memory[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
            view = self.views[page] = bitarray(buffer=part, endian="little")
        return view


class Layout(Protocol):
    """A named way to lay out an array.

    Attributes:
        width: bits of the file for every bit of the array: 1, or those of a counter.
    """

    name: str
    width: int

    def size_for(self, capacity: int, error_rate: float, slack: float) -> sizing.BloomSize:
        """Return the size of a layer, rounded as the layout needs it."""
        ...

    def rate_at(self, num_bits: int, num_hashes: int, num_keys: float) -> float:
        """Return the expected false-positive rate with *num_keys* keys in, 0 to 1."""
        ...

    def probe_function(self, scheme: hashing.Scheme, secret: bytes, num_hashes: int) -> Any:
        """Return key -> probe, good for all layers of up to *num_hashes* positions."""
        ...

    def layer(self, memory: memoryview, num_bits: int, num_hashes: int) -> Layer: ...


class ClassicLayout:
    name = "classic"
    width = 1

    def size_for(self, capacity: int, error_rate: float, slack: float) -> sizing.BloomSize:
        size = sizing.size_for(capacity, error_rate, slack)
        # Double hashing knows m^2 progressions (Kirsch and Mitzenmacher 2008, section 4): one of n keys
        # has all the positions of another key with a chance of about n / m^2. It shall be a hundredth
        # of the rate at the most, which only small arrays with low rates have to grow for.
        num_bits = max(size.num_bits, math.ceil(math.sqrt(100 * capacity / error_rate)))
        while math.gcd(num_bits, _SMALL_PRIMES) != 1:
            num_bits += 1
        return replace(size, num_bits=num_bits)

    def rate_at(self, num_bits: int, num_hashes: int, num_keys: float) -> float:
        return sizing.expected_error_rate(num_bits, num_hashes, num_keys)

    def probe_function(self, scheme: hashing.Scheme, secret: bytes, num_hashes: int) -> hashing.PairFunction:
        return scheme.pair(secret)

    def layer(self, memory: memoryview, num_bits: int, num_hashes: int) -> Layer:
        return ClassicLayer(memory, num_bits, num_hashes)


class PagedLayout:
    name = "paged"
    width = 1

    def size_for(self, capacity: int, error_rate: float, slack: float) -> sizing.BloomSize:
        size = sizing.size_for(capacity, error_rate, slack)
        num_pages = -(-size.num_bits // PAGE_BITS)
        return replace(size, num_bits=num_pages * PAGE_BITS)

    def rate_at(self, num_bits: int, num_hashes: int, num_keys: float) -> float:
        return sizing.spread_error_rate(num_bits, num_hashes, num_keys, PAGE_BITS)

    def probe_function(
        self, scheme: hashing.Scheme, secret: bytes, num_hashes: int
    ) -> hashing.DigestFunction:
        return scheme.digest(secret, hashing.digest_size(num_hashes))

    def layer(self, memory: memoryview, num_bits: int, num_hashes: int) -> Layer:
        return PagedLayer(memory, num_bits, num_hashes)


LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (ClassicLayout(), PagedLayout())}


def get_layout(name: str) -> Layout:
    """Return the layout called *name*.

    Raises:
        ConfigurationError: there is none of that name.
    """
    try:
        return LAYOUTS[name]
    except KeyError:
        raise ConfigurationError(
            f"layout={name!r} is not known; take one of {', '.join(sorted(LAYOUTS))}"
        ) from None
