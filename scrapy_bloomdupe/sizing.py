"""How many bits and hashes does a Bloom filter need, and what do they then deliver?

Pure arithmetic: no filter, no file, no rounding to pages (layouts do that).

Sources: B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 13(7), 1970;
A. Broder, M. Mitzenmacher, "Network Applications of Bloom Filters: A Survey", Internet Mathematics
1(4), 2004, section 2; P. S. Almeida et al., "Scalable Bloom Filters", IPL 101(6), 2007; S. J. Swamidass,
P. Baldi, "Mathematical Correction for Fingerprint Similarity Measures", JCIM 47(3), 2007.

Known values, each tested: n = 10^6, p = 0.01: 1.14 MiB, k = 7. n = 10^9: 1.2 GB at 0.01 and 1.8 GB at
0.001, under the 2 GB that the literature names for 10^9 URLs. n = 10^10, p = 0.01: 9.59 * 10^10 bits,
12.0 GB, k = 7. A text that gives 20 GB and k of about 12 for this last case describes an error rate of
about 0.0005 (16 bits per key), not 0.01.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scrapy_bloomdupe.errors import ConfigurationError

#: A digest of 64 bytes carries a page number and 30 positions of 16 bits.
MAX_HASHES = 30
MIN_ERROR_RATE = 1e-12
MAX_CAPACITY = 10**13

_LN2 = math.log(2)


def check_capacity(capacity: float) -> int:
    """Return *capacity* as a whole number.

    Raises:
        ConfigurationError: outside 1 <= capacity <= 10^13 keys, or not a whole number.
    """
    if not (1 <= capacity <= MAX_CAPACITY) or capacity != int(capacity):
        raise ConfigurationError(
            f"capacity={capacity!r} is not a whole number of keys from 1 to {MAX_CAPACITY:.0e}; "
            "give the number of URLs that you expect, for example 1_000_000"
        )
    return int(capacity)


def check_error_rate(error_rate: float) -> float:
    """Return *error_rate*.

    Raises:
        ConfigurationError: outside 1e-12 <= error_rate < 1.
    """
    if not MIN_ERROR_RATE <= error_rate < 1:
        raise ConfigurationError(
            f"error_rate={error_rate!r} is not a share from {MIN_ERROR_RATE:g} up to, not including, 1; "
            "give for example 0.001 for one key in a thousand"
        )
    return float(error_rate)


def optimal_num_bits(capacity: float, error_rate: float) -> int:
    """Return m = -n ln p / (ln 2)^2, in bits, rounded up.

    Args:
        capacity: n, keys, at least 1.
        error_rate: p, 0 < error_rate < 1: the false-positive rate at capacity.
    """
    # Broder and Mitzenmacher 2004, section 2.1; exact for k = m/n ln 2 before k is rounded.
    return math.ceil(-capacity * math.log(error_rate) / _LN2**2)


def optimal_num_hashes(num_bits: float, capacity: float) -> int:
    """Return k = m/n ln 2, rounded to the nearest whole number, from 1 to ``MAX_HASHES``."""
    # Broder and Mitzenmacher 2004, section 2.1.
    return min(MAX_HASHES, max(1, round(num_bits / capacity * _LN2)))


def expected_error_rate(num_bits: float, num_hashes: int, num_keys: float) -> float:
    """Return (1 - e^(-kn/m))^k: the expected false-positive rate with *num_keys* keys in.

    Holds for num_bits of some hundreds and more; below, the true rate is higher (Bose et al., "On the
    false-positive rate of Bloom filters", IPL 108(4), 2008).
    """
    return float(abs(math.expm1(-num_hashes * num_keys / num_bits)) ** num_hashes)


def spread_error_rate(num_bits: float, num_hashes: int, num_keys: float, page_bits: int) -> float:
    """Return the expected rate where each key lives in one page of *page_bits* bits.

    Pages get a Poisson number of keys, and the rate of the fuller ones weighs more than that of the
    emptier ones saves. Three-point Gauss-Hermite quadrature over the normal approximation: holds for
    some hundreds of keys per page and more, which is where a filter near its capacity is.
    """
    load = num_keys * page_bits / num_bits
    spread = math.sqrt(3 * load)
    low, mid, high = (
        expected_error_rate(page_bits, num_hashes, max(0.0, load + shift)) for shift in (-spread, 0.0, spread)
    )
    return (low + 4 * mid + high) / 6


def combined_error_rate(rates: list[float]) -> float:
    """Return 1 - prod(1 - p_i): the rate of layers that are all asked (Almeida 2007, section 3)."""
    return max(0.0, -math.expm1(sum(math.log1p(-min(rate, 1 - 1e-16)) for rate in rates)))


def estimate_num_keys(num_bits: float, num_hashes: int, fill: float) -> float:
    """Return -m/k ln(1 - X/m): how many different keys set the share *fill* = X/m of the bits.

    Swamidass and Baldi 2007, equation 4. Holds for 0 <= fill < 1; a full filter says nothing of its
    keys, and counts as one with a single bit left.
    """
    return -num_bits / num_hashes * math.log1p(-min(fill, 1 - 1 / num_bits))


def capacity_for(num_bytes: float, error_rate: float) -> int:
    """Return how many keys fit into *num_bytes* bytes at *error_rate*: the inverse of the size.

    Raises:
        ConfigurationError: *num_bytes* is not a number of bytes.
    """
    if not math.isfinite(num_bytes):
        raise ConfigurationError(f"bytes={num_bytes!r} is not a number of bytes; give for example 2e9")
    capacity = math.floor(num_bytes * 8 * _LN2**2 / -math.log(error_rate))
    while capacity >= 1 and (taken := size_for(capacity, error_rate).num_bytes) > num_bytes:
        capacity = min(capacity - 1, math.floor(capacity * num_bytes / taken))
    return max(0, capacity)


@dataclass(frozen=True)
class BloomSize:
    """The size of one Bloom filter.

    Attributes:
        capacity: keys it is made for.
        error_rate: asked false-positive rate at capacity, 0 < error_rate < 1.
        num_bits: bits of the array.
        num_hashes: positions per key, 1 to ``MAX_HASHES``.
    """

    capacity: int
    error_rate: float
    num_bits: int
    num_hashes: int

    @property
    def num_bytes(self) -> int:
        return -(-self.num_bits // 8)

    def rate_at(self, num_keys: float) -> float:
        """Return the expected false-positive rate with *num_keys* keys in."""
        return expected_error_rate(self.num_bits, self.num_hashes, num_keys)


def size_for(capacity: float, error_rate: float, slack: float = 1.0) -> BloomSize:
    """Return the size for *capacity* keys at *error_rate*, with *slack* times the optimal bits.

    Args:
        capacity: keys, 1 to 10^13.
        error_rate: 1e-12 <= error_rate < 1.
        slack: 1.0 for the formula itself; more lowers the rate below the asked one.

    Raises:
        ConfigurationError: a value is out of its range.
    """
    keys = check_capacity(capacity)
    rate = check_error_rate(error_rate)
    num_bits = max(64, math.ceil(optimal_num_bits(keys, rate) * slack))
    num_hashes = optimal_num_hashes(num_bits, keys)
    if expected_error_rate(num_bits, num_hashes, keys) > 1.05 * rate:
        # Where k is far from its optimum (1 at high rates, MAX_HASHES at very low ones) the formula gives
        # too few bits: solve (1 - e^(-kn/m))^k = p for m.
        exact = -num_hashes * keys / math.log1p(-(rate ** (1 / num_hashes)))
        num_bits = max(num_bits, math.ceil(exact))
    return BloomSize(keys, rate, num_bits, num_hashes)
