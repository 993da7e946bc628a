"""What do the bits of a filter say: how full is it, can its count be right, how many keys are in?

Looks at samples of pages; changes nothing.
"""

from __future__ import annotations

import math

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.filters.base import LayerInfo
from scrapy_bloomdupe.filters.header import LayerHeader
from scrapy_bloomdupe.filters.layouts import PAGE_BITS, Layer, Layout

# Pages of 8 KiB looked at: 8 MiB after an unclean end, 256 KiB otherwise.
_RECOUNT_PAGES = 1024
_GLANCE_PAGES = 32


def layer_info(layer: LayerHeader, array: Layer, layout: Layout, max_pages: int) -> LayerInfo:
    """Return the figures of one layer, its fill measured on at most *max_pages* pages."""
    fill = array.fill(max_pages)
    return LayerInfo(
        num_bits=layer.num_bits,
        num_hashes=layer.num_hashes,
        capacity=layer.capacity,
        error_rate=layer.error_rate,
        num_keys=layer.num_keys,
        fill=fill,
        # What the bits say counts if it is worse than what the count says.
        rate=max(layout.rate_at(layer.num_bits, layer.num_hashes, layer.num_keys), fill**layer.num_hashes),
    )


def implausibility(layer: LayerHeader, array: Layer, *, clean: bool) -> str | None:
    """Return what is wrong if the bits cannot be those of the count; None: nothing.

    Far too few: cut out, zeroed, or never written. Far too many: overwritten; a filter that has all bits
    set calls every page seen.

    Args:
        layer, array: what the header says, and the bits.
        clean: the count is exact; else there may be more keys than it says.
    """
    pages = min(_GLANCE_PAGES, -(-layer.num_bits // PAGE_BITS))
    bits = min(pages * PAGE_BITS, layer.num_bits)
    expected = -math.expm1(-layer.num_hashes * layer.num_keys / layer.num_bits)
    found = array.fill(_GLANCE_PAGES)
    # Under 200 expected bits are too few to miss.
    if expected * bits >= 200 and found < expected / 2:
        return _told(layer, expected, found)
    # A full layer has half of its bits set; the crawl is stopped long before nine tenths.
    most = 1.5 * expected + 0.05 if clean else 0.9
    if found > max(most, 1.2 * expected):
        return _told(layer, expected, found)
    return None


def _told(layer: LayerHeader, expected: float, found: float) -> str:
    return (
        f"its header counts {layer.num_keys} keys in a layer, which sets {expected:.1%} of the bits, but "
        f"{found:.1%} are set"
    )


def recount(layer: LayerHeader, array: Layer) -> int:
    """Return how many keys are in, judged by the bits: within about 0.1 % for 10^6 keys and more."""
    fill = array.fill(_RECOUNT_PAGES)
    return round(sizing.estimate_num_keys(layer.num_bits, layer.num_hashes, fill))
