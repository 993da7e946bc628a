"""What would 10^9 and 10^10 keys need? Arithmetic on what ``scale`` measured; nothing is run.

A check of the paged layout touches one page of 8 KiB, which is two pages of the system. As long as the
filter's file fits into memory that is a look into the page cache. Where it does not, the share of checks
that find theirs is what fits of it, and all others read both from the disk.
"""

from __future__ import annotations

from collections.abc import Mapping

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.filters.growth import first_layer
from scrapy_bloomdupe.filters.layouts import get_layout

SIZES = (10**9, 10**10)
#: Memory for the page cache, in bytes: a machine with 16 GiB that leaves half to it.
MEMORY = 8 << 30
#: System pages in a page of the layout.
READS = 2


def paper(measured: Mapping[str, Mapping[str, float]], num_keys: int, error_rate: float) -> list[list[str]]:
    """Return the rows of a table; *measured*: figures of ``bare`` and ``exact`` at *num_keys* keys."""
    names = ["keys", "bits, by the formula", "filter, GB", "pages of 8 KiB", "exact store, GB"]
    names += ["in memory: us per check", "checks that read, 8 GiB of cache", "then: us per check"]
    names += ["hours to add all, in memory", "machines of 8 GiB cache to shard over"]
    columns = []
    for size in SIZES:
        layer = first_layer(get_layout("paged"), size, error_rate)
        cold = max(0.0, 1 - MEMORY / layer.num_bytes)
        bare, exact = measured.get("bare"), measured.get("exact")
        column = [f"{size:.0e}", f"{sizing.optimal_num_bits(size, error_rate):.3g}"]
        column += [f"{layer.num_bytes / 1e9:.1f}", f"{layer.num_bytes / 8192:,.0f}"]
        store = (exact["disk"] - exact["filter_bytes"]) / num_keys * size / 1e9 if exact else None
        column.append(f"{store:.0f}" if store is not None else "not measured")
        if bare:
            warm = bare["seen_us"]
            column += [f"{warm:.1f}", f"{cold:.0%}", f"{warm + cold * READS * bare['read_us']:.0f}"]
            column.append(f"{size * bare['new_us'] / 3.6e9:.1f}")
        else:
            column += ["not measured", f"{cold:.0%}", "not measured", "not measured"]
        columns.append([*column, f"{-(-layer.num_bytes // MEMORY)}"])
    return [["", *(column[0] for column in columns)]] + [
        [name, *(column[i] for column in columns)] for i, name in enumerate(names) if i
    ]
