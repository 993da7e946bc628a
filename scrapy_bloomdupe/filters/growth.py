"""How large is the first layer of a filter, and the next one when it is full?

Pure arithmetic on headers; it reserves and maps nothing.

Scalable Bloom filters: P. S. Almeida, C. Baquero, N. Preguiça, D. Hutchison, "Scalable Bloom Filters",
Information Processing Letters 101(6), 2007.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.header import HEADER_SIZE, MAX_LAYERS, Header, LayerHeader
from scrapy_bloomdupe.filters.layouts import Layout

# The first layer gets 5 % more bits than the formula. At its capacity it then has 0.6 to 0.8 times the
# asked rate, and what is left of the rate is for all layers that may follow.
SLACK = 1.05
# Almeida 2007, section 4: doubling layers, each with 0.8 times the rate of the one before, cost the
# least memory over many orders of magnitude.
GROWTH = 2
TIGHTENING = 0.8


class LayerSize(Protocol):
    """What a layer says of its size; ``LayerHeader`` does."""

    @property
    def num_bits(self) -> int: ...

    @property
    def num_hashes(self) -> int: ...

    @property
    def capacity(self) -> int: ...


@dataclass(frozen=True)
class Growth:
    """A filter reached its capacity.

    Attributes:
        layers: how many there are now.
        num_keys: keys in the filter.
        capacity: keys that all its layers are made for.
        rate: expected false-positive rate of the whole now, 0 to 1.
        error: None: a layer was added. Else why that failed: the filter goes on over-full.
    """

    layers: int
    num_keys: int
    capacity: int
    rate: float
    error: Exception | None


def first_layer(layout: Layout, capacity: int, error_rate: float) -> LayerHeader:
    """Return the first layer of a filter.

    Raises:
        ConfigurationError: a value is out of its range.
    """
    size = layout.size_for(capacity, error_rate, SLACK)
    return LayerHeader(
        HEADER_SIZE, size.num_bits, size.num_hashes, size.capacity, error_rate, 0, layout.width
    )


def next_layer(header: Header, layout: Layout) -> LayerHeader:
    """Return the layer that follows those of *header*.

    Raises:
        ConfigurationError: there are as many layers as a header can hold.
    """
    layers = header.layers
    if len(layers) >= MAX_LAYERS:
        raise ConfigurationError(
            f"the filter has {len(layers)} layers and can hold no more; run `bloomdupe rebuild` with a "
            "larger --capacity"
        )
    size = next_size(layers, header.error_rate, layout)
    offset = -(-layers[-1].end // HEADER_SIZE) * HEADER_SIZE
    return LayerHeader(
        offset, size.num_bits, size.num_hashes, size.capacity, size.error_rate, 0, layout.width
    )


def next_size(
    layers: Sequence[LayerSize], error_rate: float, layout: Layout, max_bits: int | None = None
) -> sizing.BloomSize:
    """Return the size of the layer that follows *layers*, which keeps the whole under *error_rate*.

    Args:
        layers: oldest first, at least one.
        max_bits: so large at the most; None: no limit. The layer then takes fewer keys than it would.

    Raises:
        ConfigurationError: a layer of *max_bits* bits would take no key.
    """
    # At capacity the first layer uses a part of the rate; the others share what is left as a geometric
    # series, so that any number of them stays under the whole.
    first = layers[0]
    used = layout.rate_at(first.num_bits, first.num_hashes, first.capacity)
    left = max(error_rate - used, error_rate / 100)
    target = left * (1 - TIGHTENING) * TIGHTENING ** (len(layers) - 1)
    target = max(target, sizing.MIN_ERROR_RATE)
    capacity = min(layers[-1].capacity * GROWTH, sizing.MAX_CAPACITY)
    slack = 1.0
    while True:
        size = layout.size_for(capacity, target, slack)
        if max_bits is not None and size.num_bits > max_bits:
            capacity = min(capacity - 1, int(capacity * max_bits / size.num_bits))
        elif layout.rate_at(size.num_bits, size.num_hashes, capacity) <= target:
            return size
        else:
            slack *= 1.01
