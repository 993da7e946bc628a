"""Which kind of filter lies at a path: bits, counters, or a directory of generations?

It opens what is there.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypeAlias

from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counting import open_filter
from scrapy_bloomdupe.filters.generations import GenerationalFilter
from scrapy_bloomdupe.filters.ring import Clock

#: The filter of a state: a file, or a directory.
LocalFilter: TypeAlias = "BloomFilter | GenerationalFilter"


def open_local(
    path: Path, *, readonly: bool = False, begin: bool = True, clock: Clock = time.time
) -> LocalFilter:
    """Open the filter at *path* as what it is; see ``BloomFilter.open`` and ``GenerationalFilter.open``."""
    if path.is_dir():
        return GenerationalFilter.open(path, readonly=readonly, begin=begin, clock=clock)
    return open_filter(path, readonly=readonly, begin=begin)
