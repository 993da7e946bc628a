"""Was this key possibly seen, and how is it forgotten? A counting Bloom filter in a mapped file.

Four times the memory of a plain one. An exact store needs none of it: a key that is deleted there is new,
whatever the filter says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counters import COUNTING, CountingLayer
from scrapy_bloomdupe.filters.header import HEADER_SIZE, Header, LayerHeader, peek_layout
from scrapy_bloomdupe.filters.mapped import MappedFile

if TYPE_CHECKING:
    from typing_extensions import Self


class CountingFilter(BloomFilter):
    """A Bloom filter that can ``remove``; the contract is ``filters.base.Filter``.

    ``add`` counts a key once: one that is possibly there is not counted again.
    """

    def __init__(self, file: MappedFile, header: Header, *, writable: bool) -> None:
        # Keys that were removed from the older layers since the header was written.
        self._removed: dict[int, int] = {}
        super().__init__(file, header, writable=writable)

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        capacity: int,
        error_rate: float,
        layout: str = COUNTING.name,
        scheme: str = "murmur3",
        filter_id: bytes | None = None,
        identity: Mapping[str, str] | None = None,
        created: int | None = None,
    ) -> Self:
        return super().create(
            path,
            capacity=capacity,
            error_rate=error_rate,
            layout=layout,
            scheme=scheme,
            filter_id=filter_id,
            identity=identity,
            created=created,
        )

    def remove(self, key: bytes) -> bool:
        """Remove *key*, and return whether that was possible.

        The caller's duty: ``add`` said False of it, and it was not removed since. Of a key that only seems to
        be in, other keys would lose their counters; this happens to one key in 1 / error_rate that were never
        added. Counters that are full stay: once in some 10^15 a removed key is still possibly there.

        Returns:
            False: it was certainly not in, or more than one layer says that it has it (at most one key in
            1 / error_rate): which one is not known, and nothing was changed.
        """
        probe = self._probe(key)
        arrays = self._arrays()
        having = [number for number, array in enumerate(arrays) if array.test(probe)] if self._older else [0]
        if len(having) != 1:
            return False
        (number,) = having
        array = arrays[number]
        assert isinstance(array, CountingLayer)
        if not array.take(probe):
            return False
        if array is self._newest:
            self._newest_keys = max(0, self._newest_keys - 1)
        else:
            self._removed[number] = self._removed.get(number, 0) + 1
            self._older_keys = max(0, self._older_keys - 1)
        return True

    def _layers(self) -> tuple[LayerHeader, ...]:
        return tuple(
            replace(layer, num_keys=max(0, layer.num_keys - self._removed.get(number, 0)))
            for number, layer in enumerate(super()._layers())
        )

    def _put_header(self, header: Header) -> None:
        super()._put_header(header)
        self._removed.clear()


def class_for(layout: str) -> type[BloomFilter]:
    """Return the class that makes and opens filters of this layout."""
    return CountingFilter if layout == COUNTING.name else BloomFilter


def open_filter(path: Path, *, readonly: bool = False, begin: bool = True) -> BloomFilter:
    """Open the filter at *path* as what it is; see ``BloomFilter.open``."""
    layout = ""
    with contextlib.suppress(OSError), path.open("rb") as file:
        layout = peek_layout(file.read(HEADER_SIZE))
    return class_for(layout).open(path, readonly=readonly, begin=begin)
