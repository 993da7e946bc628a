"""What does a Bloom filter look like as strings on a Redis server? Encoding ``BDBITS01``; pure.

A filter is cut into shards, each of them a filter that grows by layers of its own, and each layer one
string: strings are capped at 512 MiB (Redis, "Data types: strings"), and shards lie on the nodes of a
Cluster. A layer is a header of 64 bytes and pages of 8 KiB:

====== ===== ==========================================================================
offset bytes what
====== ===== ==========================================================================
     0     8 magic ``BDBITS01``
     8    16 epoch
    24     4 number of hashes, little-endian, as all but the count
    28     4 number of pages, 1 to 65,535
    32     8 capacity, keys
    40     8 error rate asked for at capacity, float64
    48     8 keys added, big-endian, signed: the server itself counts here (``BITFIELD``)
    56     1 1: sealed, a younger layer takes the new keys
    57     7 zeros
    64       the pages, bit for bit what the layout ``paged`` has in a file (``layouts``)
====== ===== ==========================================================================

The digest of a key is that of the scheme ``blake2b`` under the secret in the meta key. Its first four
bytes, a number I below 2^32, choose the shard, I * shards // 2^32, and in each layer the page, I modulo
pages: high and low end of one number, independent enough as long as shards * pages is far below 2^32.

Frozen: another encoding needs another magic. ``tests/test_filters_redisbitmap.py`` holds golden bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct, error

import scrapy_bloomdupe.hashing as hashing
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.growth import SLACK, next_size
from scrapy_bloomdupe.filters.layouts import PAGE_BITS, PAGE_BYTES, PagedLayout
from scrapy_bloomdupe.sizing import BloomSize, check_capacity

MAGIC = b"BDBITS01"
HEADER_SIZE = 64
#: What never changes of a layer once it is made; the script compares it.
FIXED_SIZE = 48
#: 2^32 bits are 512 MiB; the header takes a part of the last page.
MAX_PAGES = 65_535
MAX_LAYERS = 32

_LAYOUT = PagedLayout()
_fixed = Struct("<8s 16s I I Q d")
_count = Struct(">q")
_first = Struct("<I").unpack_from
_pack = Struct("<I").pack


@dataclass(frozen=True)
class BitmapLayer:
    """One string.

    Attributes:
        fixed: the first 48 bytes of its header.
        num_hashes: positions per key.
        num_pages: of 65,536 bits.
        capacity: keys it was made for.
        error_rate: asked false-positive rate at capacity, 0 < error_rate < 1.
    """

    fixed: bytes
    num_hashes: int
    num_pages: int
    capacity: int
    error_rate: float

    @property
    def num_bits(self) -> int:
        return self.num_pages * PAGE_BITS

    @property
    def num_bytes(self) -> int:
        return HEADER_SIZE + self.num_pages * PAGE_BYTES

    def rate_at(self, num_keys: float) -> float:
        """Return the expected false-positive rate with *num_keys* keys in, 0 to 1."""
        return _LAYOUT.rate_at(self.num_bits, self.num_hashes, num_keys)


def make_layer(epoch: bytes, size: BloomSize) -> BitmapLayer:
    """Return the layer of *epoch* that has *size*, in whole pages."""
    num_pages = size.num_bits // PAGE_BITS
    fixed = _fixed.pack(MAGIC, epoch, size.num_hashes, num_pages, size.capacity, size.error_rate)
    return BitmapLayer(fixed, size.num_hashes, num_pages, size.capacity, size.error_rate)


def read_layer(header: bytes, epoch: bytes) -> tuple[BitmapLayer, int, bool] | None:
    """Return the layer, the keys added, and whether it is sealed; None: it is not one of *epoch*."""
    try:
        magic, found, num_hashes, num_pages, capacity, error_rate = _fixed.unpack_from(header)
        (num_keys,) = _count.unpack_from(header, FIXED_SIZE)
        sealed = header[FIXED_SIZE + 8] == 1
    except (error, IndexError):
        return None
    if (magic, found) != (MAGIC, epoch) or not 1 <= num_pages <= MAX_PAGES:
        return None
    fixed = bytes(header[:FIXED_SIZE])
    return BitmapLayer(fixed, num_hashes, num_pages, capacity, error_rate), num_keys, sealed


def num_shards_for(capacity: int, error_rate: float, at_least: int = 1) -> int:
    """Return how many shards a filter needs so that each of their first layers fits into a string.

    Raises:
        ConfigurationError: a value is out of its range.
    """
    whole = _LAYOUT.size_for(check_capacity(capacity), error_rate, SLACK)
    return max(at_least, -(-whole.num_bits // (MAX_PAGES * PAGE_BITS)))


def first_bitmap(epoch: bytes, capacity: int, error_rate: float, num_shards: int) -> BitmapLayer:
    """Return the first layer of each shard of a filter for *capacity* keys.

    Raises:
        ConfigurationError: a value is out of its range, or the shards are too few.
    """
    # Shards get a binomial number of keys; four standard deviations more than the mean and none of a
    # thousand grows before the whole has its capacity.
    share = check_capacity(capacity) / num_shards
    if num_shards > 1:
        share += 4 * share**0.5
    size = _LAYOUT.size_for(-int(-share // 1), error_rate, SLACK)
    if size.num_bits > MAX_PAGES * PAGE_BITS:
        least = num_shards_for(capacity, error_rate) + 1
        raise ConfigurationError(
            f"shards={num_shards} are too few for capacity={capacity:,} at error_rate={error_rate:g}: a "
            f"string holds 512 MiB at most; take shards={max(least, num_shards + 1)} or more"
        )
    return make_layer(epoch, size)


def next_bitmap(epoch: bytes, layers: Sequence[BitmapLayer], error_rate: float) -> BitmapLayer:
    """Return the layer that follows *layers* in a shard: twice the keys, as far as a string holds them.

    Raises:
        ConfigurationError: there are ``MAX_LAYERS`` already, or it would take no key.
    """
    if len(layers) >= MAX_LAYERS:
        raise ConfigurationError(
            f"a shard of the filter has {len(layers)} layers and takes no more; clear it and set a larger "
            "BLOOMDUPE_CAPACITY"
        )
    return make_layer(epoch, next_size(layers, error_rate, _LAYOUT, MAX_PAGES * PAGE_BITS))


def shard_function(num_shards: int) -> Callable[[bytes], int]:
    """Return digest -> shard, from 0 to num_shards - 1."""

    def shard(digest: bytes) -> int:
        (number,) = _first(digest)
        return int(number) * num_shards >> 32

    return shard


def digest_function(secret: bytes) -> hashing.DigestFunction:
    """Return key -> digest of 64 bytes, good for layers of any number of hashes."""
    return hashing.get_scheme("blake2b").digest(secret, hashing.MAX_DIGEST_SIZE)


def probes(layer: BitmapLayer, digests: Sequence[bytes]) -> bytes:
    """Return what the script cuts its positions from: page and positions of each key, in one string.

    A position is given as Redis counts bits, from the highest of a byte: the last three bits turned over.
    """
    size = 4 + 2 * layer.num_hashes
    num_pages = layer.num_pages
    cut = b"".join([_pack(_first(digest)[0] % num_pages) + digest[4:size] for digest in digests])
    # All positions at once, as one number.
    turn = (bytes(4) + b"\x07\x00" * layer.num_hashes) * len(digests)
    return (int.from_bytes(cut, "little") ^ int.from_bytes(turn, "little")).to_bytes(len(cut), "little")
