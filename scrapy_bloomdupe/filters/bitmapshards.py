"""Which layers has each shard of a filter in bitmaps? They are read, made and grown here.

The encoding stands in ``bitmaps``, what the server does in ``bitmapscripts``. Not here: keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import scrapy_bloomdupe.filters.bitmaps as bitmaps
import scrapy_bloomdupe.filters.bitmapscripts as scripts
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.filters.base import LayerInfo
from scrapy_bloomdupe.filters.bitmaps import BitmapLayer
from scrapy_bloomdupe.filters.layouts import PAGE_BITS, PAGE_BYTES
from scrapy_bloomdupe.remote.client import Server

_SAMPLED_PAGES = 64


@dataclass(frozen=True)
class Shard:
    """One shard.

    Attributes:
        start: what the names of its strings begin with; the number of the layer follows.
        epoch: 16 bytes.
        layers: oldest first.
        counts: keys in each of them.
        limit: keys in the newest one at which it grows.
    """

    start: str
    epoch: bytes
    layers: tuple[BitmapLayer, ...]
    counts: tuple[int, ...]
    limit: int

    @property
    def names(self) -> list[str]:
        return [f"{self.start}:{number}" for number in range(len(self.layers))]

    @property
    def num_keys(self) -> int:
        return sum(self.counts)

    @property
    def capacity(self) -> int:
        """Keys that all its layers are made for."""
        return sum(layer.capacity for layer in self.layers)

    @property
    def num_bytes(self) -> int:
        return sum(layer.num_bytes for layer in self.layers)

    def rate(self) -> float:
        """Return the expected false-positive rate now, 0 to 1."""
        return sizing.combined_error_rate(
            [layer.rate_at(count) for layer, count in zip(self.layers, self.counts, strict=True)]
        )

    def counted(self, newest: int) -> Shard:
        """Return the same with *newest* keys in the newest layer."""
        return replace(self, counts=(*self.counts[:-1], newest))

    def later(self) -> Shard:
        """Return the same, which grows when another hundredth is in."""
        return replace(self, limit=self.counts[-1] + max(1, self.layers[-1].capacity // 100))


def load(server: Server, start: str, epoch: bytes) -> Shard | None:
    """Return the shard as it is on the server; None: it is not there, or not of *epoch*.

    Raises:
        RemoteError: the server did not say.
    """
    layers: list[BitmapLayer] = []
    counts: list[int] = []
    while True:
        header = server.run("GETRANGE", f"{start}:{len(layers)}", 0, bitmaps.HEADER_SIZE - 1)
        found = bitmaps.read_layer(header, epoch)
        if found is None:
            return None
        layer, num_keys, sealed = found
        layers.append(layer)
        counts.append(num_keys)
        if not sealed:
            return Shard(start, epoch, tuple(layers), tuple(counts), layer.capacity)


def make(server: Server, start: str, layer: BitmapLayer) -> None:
    """Make the first layer of a shard, if it is not there.

    Raises:
        RemoteError: the server did not do it.
    """
    arguments = [layer.fixed + bytes(bitmaps.HEADER_SIZE - bitmaps.FIXED_SIZE), layer.num_bytes]
    server.scripts(scripts.MAKE, [([f"{start}:0"], arguments)], slow=True)


def grow(server: Server, shard: Shard, error_rate: float) -> Shard | None:
    """Add a layer, if nobody else has done it; return the shard as it then is, or None: it is gone.

    Raises:
        RemoteError: the server did not do it; it can have done it nevertheless.
        ConfigurationError: there are too many layers.
    """
    layer = bitmaps.next_bitmap(shard.epoch, shard.layers, error_rate)
    number = len(shard.layers)
    names = [f"{shard.start}:{number - 1}", f"{shard.start}:{number}"]
    header = layer.fixed + bytes(bitmaps.HEADER_SIZE - bitmaps.FIXED_SIZE)
    server.scripts(scripts.GROW, [(names, [shard.layers[-1].fixed, header, layer.num_bytes])], slow=True)
    return load(server, shard.start, shard.epoch)


def layer_infos(server: Server, shards: Sequence[Shard]) -> tuple[LayerInfo, ...]:
    """Return the figures of each layer over all shards that have it, the fill measured on some pages.

    Raises:
        RemoteError: the server did not say.
    """
    pages = max(1, _SAMPLED_PAGES // len(shards))
    infos = []
    for number in range(max(len(shard.layers) for shard in shards)):
        having = [shard for shard in shards if len(shard.layers) > number]
        layers = [shard.layers[number] for shard in having]
        counts = [shard.counts[number] for shard in having]
        num_bits = sum(layer.num_bits for layer in layers)
        bits = sum(_fill(server, shard, number, pages) * shard.layers[number].num_bits for shard in having)
        infos.append(
            LayerInfo(
                num_bits=num_bits,
                num_hashes=layers[0].num_hashes,
                capacity=sum(layer.capacity for layer in layers),
                error_rate=layers[0].error_rate,
                num_keys=sum(counts),
                fill=bits / num_bits,
                rate=sum(layer.rate_at(count) for layer, count in zip(layers, counts, strict=True))
                / len(layers),
            )
        )
    return tuple(infos)


def _fill(server: Server, shard: Shard, number: int, max_pages: int) -> float:
    layer = shard.layers[number]
    step = max(1, layer.num_pages / max_pages)
    count = 0
    sampled = min(layer.num_pages, max_pages)
    for page in range(sampled):
        start = bitmaps.HEADER_SIZE + int(page * step) * PAGE_BYTES
        count += server.run("BITCOUNT", shard.names[number], start, start + PAGE_BYTES - 1)
    return count / (sampled * PAGE_BITS)
