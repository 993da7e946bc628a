"""Which positions does a key have? Each scheme has a frozen name that every filter file carries.

It does not know filters or files. Keys must be cryptographic digests: a scheme other than ``blake2b``
does not defend against text that a site can choose.

Every scheme gives two things, both under the filter's secret:

``pair``
    two whole numbers h1 and h2 below 2^64, for double hashing: position i = (h1 + i * h2) mod m
    (A. Kirsch, M. Mitzenmacher, "Less Hashing, Same Performance: Building a Better Bloom Filter",
    Random Structures & Algorithms 33(2), 2008).
``digest``
    16 to 64 bytes, of which one ``struct`` call cuts a page number and 16-bit positions. A shorter
    digest is a prefix of a longer one, so that layers of different sizes can share it.

Frozen: a change of what a name gives needs a new name. ``tests/test_hashing.py`` holds golden values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct

import mmh3

from scrapy_bloomdupe.errors import ConfigurationError

SECRET_SIZE = 32
MAX_DIGEST_SIZE = 64

PairFunction = Callable[[bytes], tuple[int, int]]
DigestFunction = Callable[[bytes], bytes]

_MASK = 0xFFFFFFFFFFFFFFFF
_two_words = Struct("<2Q").unpack_from


@dataclass(frozen=True)
class Scheme:
    """A named way from key bytes to positions.

    Attributes:
        name: the frozen name, ASCII, 16 bytes at most.
        pair: secret -> (key -> (h1, h2)).
        digest: (secret, size in bytes, a multiple of 16 up to 64) -> (key -> digest).
    """

    name: str
    pair: Callable[[bytes], PairFunction]
    digest: Callable[[bytes, int], DigestFunction]


def double_hash(h1: int, h2: int, num_hashes: int, num_bits: int) -> list[int]:
    """Return the positions (h1 + i * h2) mod num_bits for i from 0 to num_hashes - 1.

    A step of 0 would put all of them on one bit; it counts as 1. The positions are all different when
    no prime up to *num_hashes* divides *num_bits* (see ``layouts.ClassicLayer``).
    """
    step = h2 % num_bits or 1
    return [(h1 + i * step) % num_bits for i in range(num_hashes)]


def _murmur3_pair(secret: bytes) -> PairFunction:
    seed = int.from_bytes(secret[:4], "little")
    hash128 = mmh3.mmh3_x64_128_utupledigest

    def pair(key: bytes) -> tuple[int, int]:
        return hash128(key, seed)

    return pair


def digest_size(num_hashes: int) -> int:
    """Return the bytes of a digest that holds a page number and *num_hashes* 16-bit positions."""
    return -(-(4 + 2 * num_hashes) // 16) * 16


def murmur3_seeds(secret: bytes, size: int) -> list[int]:
    """Return the seeds of a ``murmur3`` digest: it is one 128-bit hash per 16 bytes, each under its own."""
    return [int.from_bytes(secret[4 * i : 4 * i + 4], "little") for i in range(size // 16)]


def _murmur3_digest(secret: bytes, size: int) -> DigestFunction:
    first, *rest = murmur3_seeds(secret, size)
    hash128 = mmh3.mmh3_x64_128_digest
    if len(rest) == 1:
        second = rest[0]

        def two(key: bytes) -> bytes:
            return hash128(key, first) + hash128(key, second)

        return two

    def some(key: bytes) -> bytes:
        return hash128(key, first) + b"".join([hash128(key, seed) for seed in rest])

    return some


# G. Fowler, L. C. Noll, K.-P. Vo, D. Eastlake, "The FNV Non-Cryptographic Hash Algorithm": 64-bit
# offset basis and prime.
_FNV_BASIS = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


def fnv1a_64(data: bytes, basis: int = _FNV_BASIS) -> int:
    """Return the 64-bit FNV-1a hash of *data*."""
    value = basis
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & _MASK
    return value


def _finish(value: int) -> int:
    """Return a 64-bit value with every bit depending on every other one.

    The lowest bit of an FNV-1a value is the parity of the lowest bits of the data, whatever the basis:
    two values of one key would not be independent. MurmurHash3's finalizer, fmix64 (A. Appleby).
    """
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _fnv1a_pair(secret: bytes) -> PairFunction:
    # The secret is hashed first, so each half starts from a state that nobody outside knows.
    basis1 = fnv1a_64(secret[:16])
    basis2 = fnv1a_64(secret[16:])

    def pair(key: bytes) -> tuple[int, int]:
        return _finish(fnv1a_64(key, basis1)), _finish(fnv1a_64(key, basis2))

    return pair


def _fnv1a_digest(secret: bytes, size: int) -> DigestFunction:
    pair = _fnv1a_pair(secret)
    words = Struct(f"<{size // 8}Q").pack
    count = range(size // 8)

    def digest(key: bytes) -> bytes:
        h1, h2 = pair(key)
        # The same combination, in whole 64-bit words; an odd step never repeats one. Finished again: the
        # low bits of words in a progression follow from each other.
        h2 |= 1
        return words(*[_finish(h1 + i * h2 & _MASK) for i in count])

    return digest


def _blake2b_digest(secret: bytes, size: int) -> DigestFunction:
    keyed = blake2b(key=secret, digest_size=MAX_DIGEST_SIZE)

    def digest(key: bytes) -> bytes:
        state = keyed.copy()  # the block of the secret is hashed once, not once per key
        state.update(key)
        return state.digest()[:size]

    return digest


def _blake2b_pair(secret: bytes) -> PairFunction:
    digest = _blake2b_digest(secret, 16)

    def pair(key: bytes) -> tuple[int, int]:
        h1, h2 = _two_words(digest(key))
        return h1, h2

    return pair


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("murmur3", _murmur3_pair, _murmur3_digest),
        Scheme("fnv1a", _fnv1a_pair, _fnv1a_digest),
        Scheme("blake2b", _blake2b_pair, _blake2b_digest),
    )
}


def get_scheme(name: str) -> Scheme:
    """Return the scheme called *name*.

    Raises:
        ConfigurationError: there is none of that name.
    """
    try:
        return SCHEMES[name]
    except KeyError:
        raise ConfigurationError(
            f"scheme={name!r} is not known; take one of {', '.join(sorted(SCHEMES))}"
        ) from None


#: Bytes of a key: what a SHA-1 fingerprint has.
KEY_SIZE = 20


def as_key(fingerprint: bytes) -> bytes:
    """Return the key of a request fingerprint.

    A fingerprint of 20 bytes is taken as it is: Scrapy's are SHA-1 digests. One of another length may
    come from a fingerprinter that returns text, which a site can choose: it is hashed to 20 bytes.

    Raises:
        TypeError: not bytes; anything else as key would make every request pass or none.
    """
    if type(fingerprint) is not bytes:
        raise TypeError(
            f"a fingerprint has to be bytes, the project's fingerprinter returned "
            f"{type(fingerprint).__name__} {fingerprint!r:.60}"
        )
    if len(fingerprint) == KEY_SIZE:
        return fingerprint
    return blake2b(fingerprint, digest_size=KEY_SIZE, person=b"bloomdupe key v1").digest()
