"""Was this key possibly seen? A Bloom filter in a mapped file that grows by layers.

Not here: what a key is (``keys``), whether the answer is right (``stores``, ``seen``).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import scrapy_bloomdupe.filters.header as fileheader
import scrapy_bloomdupe.filters.inspection as inspection
import scrapy_bloomdupe.filters.layouts as layouts
import scrapy_bloomdupe.hashing as hashing
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError, FilterError, StateCorrupt
from scrapy_bloomdupe.filters.adding import short_way
from scrapy_bloomdupe.filters.base import FilterInfo
from scrapy_bloomdupe.filters.counters import layout_called
from scrapy_bloomdupe.filters.growth import Growth, first_layer, next_layer
from scrapy_bloomdupe.filters.header import HEADER_SIZE, Header, LayerHeader
from scrapy_bloomdupe.filters.mapped import MappedFile
from scrapy_bloomdupe.filters.persisted import PersistedFilter

if TYPE_CHECKING:
    from typing_extensions import Self


class BloomFilter(PersistedFilter):
    """A persisted, growing Bloom filter; the contract is ``filters.base.Filter``.

    Made by ``create`` or ``open``. One thread may use it; ``sync`` may be called from another.

    Every added key is in the mapped file when ``add`` returns: it survives the death of the process
    (not that of the machine, see ``sync``). Counts are written by ``flush`` and made good by an
    estimate from the bits after an unclean end.
    """

    def __init__(self, file: MappedFile, header: Header, *, writable: bool) -> None:
        super().__init__(file, header, writable=writable)
        self.on_growth: Callable[[Growth], None] | None = None
        self._growths = 0
        self._layout = layout_called(header.layout)
        self._scheme = hashing.get_scheme(header.scheme)
        self._map_layers()

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        capacity: int,
        error_rate: float,
        layout: str = "paged",
        scheme: str = "murmur3",
        filter_id: bytes | None = None,
        identity: Mapping[str, str] | None = None,
        created: int | None = None,
    ) -> Self:
        """Make a new filter file.

        Args:
            path: where; nothing may be there.
            capacity: keys until it grows, 1 to 10^13.
            error_rate: false-positive rate that the whole keeps, 1e-12 <= error_rate < 1.
            layout: ``paged`` or ``classic``; ``counting`` for a ``CountingFilter``.
            scheme: ``murmur3``, ``blake2b`` or ``fnv1a``.
            filter_id: 16 bytes; None: random.
            identity: what the keys mean.
            created: when the seen-set was made, in seconds since 1970; None: now.

        Raises:
            ConfigurationError: a value is out of its range.
            StateExists, StateUnusable: see ``MappedFile.create``.
        """
        path = Path(path)
        hashing.get_scheme(scheme)
        first = first_layer(layout_called(layout), capacity, error_rate)
        header = Header(
            scheme=scheme,
            layout=layout,
            filter_id=filter_id or secrets.token_bytes(16),
            secret=secrets.token_bytes(hashing.SECRET_SIZE),
            created=int(time.time()) if created is None else created,
            capacity=first.capacity,
            error_rate=error_rate,
            layers=(first,),
            identity=dict(identity or {}),
            clean=False,
        )
        data = header.pack()
        file = MappedFile.create(path, header.end)
        try:
            file.write(data)
        except OSError as exc:
            file.close()
            path.unlink()
            raise FilterError(exc.errno, f"cannot write the header of {path}: {exc}") from exc
        return cls(file, header, writable=True)

    @classmethod
    def open(cls, path: str | Path, *, readonly: bool = False, begin: bool = True) -> Self:
        """Open an existing filter file.

        Args:
            path: the file.
            readonly: leave it as it is: for looking, beside a crawl that works on it.
            begin: call ``begin``; without it nothing is written yet, so that the file can still be
                refused by somebody who knows what its keys should mean.

        Raises:
            StateNotFound, StateUnusable: it is not there, or the system refused.
            StateCorrupt, StateMismatch: it does not check out; it was left as it is.
        """
        path = Path(path)
        file = MappedFile.open(path, readonly=readonly)
        try:
            header = fileheader.unpack(file.read(HEADER_SIZE), str(path), file.size())
            try:
                self = cls(file, header, writable=not readonly)
            except ConfigurationError as exc:
                raise StateCorrupt(f"{path}: {exc}") from exc
        except BaseException:
            file.close()
            raise
        try:
            self._refuse_implausible()
            if not header.clean:
                # The header's count is that of the last flush; the bits know better.
                known = inspection.recount(header.layers[-1], self._newest)
                self._newest_keys = known if self._removes else max(self._newest_keys, known)
            if begin and not readonly:
                self.begin()
        except BaseException:
            self.abandon()
            raise
        return self

    @property
    def _removes(self) -> bool:
        return self._layout.width > 1

    @property
    def num_keys(self) -> int:
        return self._older_keys + self._newest_keys

    def add(self, key: bytes) -> bool:
        if (self._add_one or self._add_to_layers)(key):
            return True
        self._newest_keys += 1
        if self._newest_keys >= self._limit:
            self._grow()
        return False

    def add_many(self, keys: Sequence[bytes]) -> list[bool]:
        if self._add_some is None or not keys:
            answers = []
            growths = self._growths
            for key in keys:
                answers.append(self.add(key))
                if self._growths != growths:
                    break
            return answers
        # No room: it could not grow before, or when it was open the last time.
        answers = self._add_some(keys, max(1, self._limit - self._newest_keys))
        self._newest_keys += answers.count(False)
        if self._newest_keys >= self._limit:
            self._grow()
        return answers

    def _add_to_layers(self, key: bytes) -> bool:
        probe = self._probe(key)
        if self._older:
            if self._newest.test(probe):
                return True
            for layer in self._older:
                if layer.test(probe):
                    return True
            self._newest.set(probe)
            return False
        return self._newest.test_and_set(probe)

    def __contains__(self, key: bytes) -> bool:
        probe = self._probe(key)
        if self._newest.test(probe):
            return True
        return bool(self._older) and any(layer.test(probe) for layer in self._older)

    def rate(self) -> float:
        """Return the expected false-positive rate of the whole now, 0 to 1."""
        return sizing.combined_error_rate([self._layer_rate(layer) for layer in self._layers()])

    def info(self) -> FilterInfo:
        return self.measure(256)

    def measure(self, max_pages: int) -> FilterInfo:
        """Return the figures, with the fill measured on at most *max_pages* pages of 8 KiB a layer."""
        layers = tuple(
            inspection.layer_info(layer, array, self._layout, max_pages)
            for layer, array in zip(self._layers(), self._arrays(), strict=True)
        )
        return FilterInfo(
            path=str(self.path),
            layout=self._header.layout,
            scheme=self._header.scheme,
            capacity=self.capacity,
            error_rate=self.error_rate,
            num_keys=self.num_keys,
            num_bytes=self.num_bytes(),
            clean=self._was_clean,
            error_rate_estimate=sizing.combined_error_rate([layer.rate for layer in layers]),
            layers=layers,
            identity=self.identity,
            created=self.created,
        )

    def _map_layers(self) -> None:
        arrays = [
            self._layout.layer(
                self._file.map(layer.offset, layer.num_bytes), layer.num_bits, layer.num_hashes
            )
            for layer in self._header.layers
        ]
        self._newest = arrays[-1]
        self._older = arrays[-2::-1]
        self._count_layers()

    def _count_layers(self) -> None:
        layers = self._header.layers
        self._older_keys = sum(layer.num_keys for layer in layers[:-1])
        self._newest_keys = layers[-1].num_keys
        self._limit = layers[-1].capacity
        self._probe = self._layout.probe_function(
            self._scheme, self._header.secret, max(layer.num_hashes for layer in layers)
        )
        short = None
        if not self._older:
            short = short_way(
                self._newest, self._scheme, self._header.secret, num_hashes=layers[-1].num_hashes
            )
        self._add_one = short.add if short is not None else None
        self._add_some = short.add_many if short is not None else None

    def _layers(self) -> tuple[LayerHeader, ...]:
        *older, newest = self._header.layers
        return (*older, replace(newest, num_keys=self._newest_keys))

    def _layer_rate(self, layer: LayerHeader) -> float:
        return self._layout.rate_at(layer.num_bits, layer.num_hashes, layer.num_keys)

    def _grow(self) -> None:
        self._growths += 1
        error: Exception | None = None
        try:
            self._add_layer()
        except (OSError, ConfigurationError) as exc:
            error = exc
            # Go on over-full, and try again when another hundredth is in: there may be room then.
            self._limit += max(1, self._header.layers[-1].capacity // 100)
        if self.on_growth is not None:
            layers = self._header.layers
            capacity = sum(layer.capacity for layer in layers)
            self.on_growth(Growth(len(layers), self.num_keys, capacity, self.rate(), error))

    def _add_layer(self) -> None:
        layers = self._layers()
        layer = next_layer(replace(self._header, layers=layers), self._layout)
        # What lies behind the last layer is of a growth whose header was lost: not zero, not ours.
        self._file.cut(layers[-1].end)
        self._file.reserve(layer.end)
        array = self._layout.layer(
            self._file.map(layer.offset, layer.num_bytes), layer.num_bits, layer.num_hashes
        )
        self._put_header(replace(self._header, layers=(*layers, layer)))
        self._older.insert(0, self._newest)
        self._newest = array
        self._count_layers()

    def _arrays(self) -> list[layouts.Layer]:
        return [*reversed(self._older), self._newest]

    def _refuse_implausible(self) -> None:
        for layer, array in zip(self._header.layers, self._arrays(), strict=True):
            if self._removes and not self._was_clean:
                # There may be fewer keys than at the last flush.
                known = inspection.recount(layer, array)
                layer = replace(layer, num_keys=min(layer.num_keys, known))
            if problem := inspection.implausibility(layer, array, clean=self._was_clean):
                raise StateCorrupt(
                    f"{self.path}: {problem}; the file was left as it is. Run `bloomdupe rebuild` on "
                    "its directory to make a new filter from the exact store, or restore the file from "
                    "a copy"
                )

    def _release(self) -> None:
        self._add_one = self._add_some = None
        for array in (self._newest, *self._older):
            array.release()
