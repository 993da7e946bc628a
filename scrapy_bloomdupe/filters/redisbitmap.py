"""Was this key possibly seen, on any machine? A Bloom filter as bitmaps on a Redis or Valkey server.

For servers without RedisBloom (``redisbloom``). The encoding stands in ``bitmaps``, what the server does
in ``bitmapscripts``; a batch is tested and set in one go, so that of two workers that ask for the same new
key at once exactly one is told that it is new.

Past its capacity a shard grows by a further layer, as a filter in a file does: going on over-full would
lose pages where there is no exact store, and stopping would stop every crawl that shares it.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import scrapy_bloomdupe.filters.bitmaps as bitmaps
import scrapy_bloomdupe.filters.bitmapscripts as scripts
import scrapy_bloomdupe.filters.bitmapshards as bitmapshards
from scrapy_bloomdupe.errors import ConfigurationError, RemoteError, RemoteUnavailable
from scrapy_bloomdupe.filters.base import FilterInfo
from scrapy_bloomdupe.filters.bitmapshards import Shard
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.remote.client import Ask, Call, Server
from scrapy_bloomdupe.remote.meta import Meta
from scrapy_bloomdupe.remote.naming import MAX_SHARDS

#: Keys in one question: some 20 ms of the server, in which it answers nobody else.
_BATCH = 2_000
_LEAST = 16
# A shard that grows while it is asked is asked again: nothing was done. It grows once per doubling.
_MAX_STALE = 8


@dataclass(frozen=True)
class _View:
    """What belongs together: a version, its secret, and the shards that are filled under it."""

    epoch: bytes
    secret: bytes
    shards: list[Shard]


class RedisBitmapFilter(RemoteFilter):
    """A Bloom filter in strings on a server; the contract is ``filters.base.Filter``. Made by ``open``."""

    kind = "bitmap"

    def __init__(
        self,
        server: Server,
        prefix: str,
        params: Mapping[str, Any],
        required: Mapping[str, Any],
        identity: Mapping[str, str] | None,
    ) -> None:
        super().__init__(server, prefix, params, required, identity)
        self._lock = threading.Lock()
        self._view = _View(b"", b"", [])

    @classmethod
    def open(
        cls,
        server: Server,
        prefix: str,
        *,
        capacity: int,
        error_rate: float,
        shards: int | None = None,
        identity: Mapping[str, str] | None = None,
        create: bool | None = None,
        renew: bool = False,
    ) -> RedisBitmapFilter:
        """Find the filter, or make it.

        Args:
            server: where.
            prefix: what its names begin with, see ``naming.prefix``.
            capacity: keys until it grows, 1 to 10^13.
            error_rate: false-positive rate that the whole keeps, 1e-12 <= error_rate < 1.
            shards: 1 to 1024; None: as many as the size needs, and one for each node of a Cluster.
            identity: what the keys mean, for a filter that is made.
            create: True: only if there is none. False: only if there is one. None: either.
            renew: what is there and has lost a part is made anew.

        Raises:
            ConfigurationError: a value is out of its range.
            StateMismatch: it was made with other values.
            StateExists, StateNotFound: see *create*.
            RemoteError: the server did not do it.
        """
        if shards is not None and not 1 <= shards <= MAX_SHARDS:
            raise ConfigurationError(f"shards={shards!r} is not a number from 1 to {MAX_SHARDS}")
        number = shards or cls._num_shards(server, capacity, error_rate, 1)
        bitmaps.first_bitmap(bytes(16), capacity, error_rate, number)  # refuses what cannot be
        asked = {"capacity": capacity, "error_rate": error_rate}
        self = cls(server, prefix, {**asked, "shards": number}, {**asked, "shards": shards}, identity)
        self._kept.open(create=create, renew=renew)
        return self

    @property
    def num_keys(self) -> int:
        return sum(shard.num_keys for shard in self._view.shards)

    @property
    def num_layers(self) -> int:
        return max(len(shard.layers) for shard in self._view.shards)

    def num_bytes(self) -> int:
        """Return the bytes of all strings, as far as this process was told."""
        return sum(shard.num_bytes for shard in self._view.shards)

    def rate(self) -> float:
        """Return the expected false-positive rate of the whole, from the counts that are known, 0 to 1."""
        shards = self._view.shards
        return sum(shard.rate() for shard in shards) / len(shards)

    def info(self) -> FilterInfo:
        """Ask the server for all counts, and for the fill of some pages of each layer.

        Raises:
            RemoteError: it did not say.
        """
        self._look_again()
        return FilterInfo(
            path=self.path,
            layout=self.kind,
            scheme="blake2b",
            capacity=self.capacity,
            error_rate=self.error_rate,
            num_keys=self.num_keys,
            num_bytes=self.num_bytes(),
            clean=True,
            error_rate_estimate=self.rate(),
            layers=bitmapshards.layer_infos(self.server, self._view.shards),
            identity=self.identity,
        )

    def add_with(self, keys: Sequence[bytes], asks: Sequence[Ask]) -> tuple[list[bool], list[Any]] | None:
        if self.server.is_cluster or not 1 <= len(keys) <= self._at_once(True):
            return None
        return self._check_beside(keys, write=True, beside=asks)

    def contains_with(self, keys: Sequence[bytes], asks: Sequence[Ask]) -> tuple[list[bool], list[Any]]:
        return self._check_beside(keys, write=False, beside=asks)

    def _check(self, keys: list[bytes], *, write: bool) -> list[bool]:
        answers: list[bool] = []
        while len(answers) < len(keys):
            start = len(answers)
            answers += self._check_beside(keys[start : start + self._at_once(write)], write=write)[0]
        return answers

    def _at_once(self, write: bool) -> int:
        """Return how many keys to ask for in one go: when a shard is nearly full it grows before the rest."""
        shards = self._view.shards
        room = min(shard.limit - shard.counts[-1] for shard in shards) * len(shards)
        return max(_LEAST, min(_BATCH, room)) if write else _BATCH

    def _ask(
        self, keys: Sequence[bytes], *, write: bool, beside: Sequence[Ask]
    ) -> tuple[bytes, list[bool] | None, list[Any]]:
        view = self._view
        digest = bitmaps.digest_function(view.secret)
        shard_of = bitmaps.shard_function(len(view.shards))
        waiting: dict[int, list[tuple[int, bytes]]] = {}
        for position, key in enumerate(keys):
            cut = digest(key)
            waiting.setdefault(shard_of(cut), []).append((position, cut))
        seen = [False] * len(keys)
        beside_answers: list[Any] = []
        for _ in range(_MAX_STALE):
            numbers = sorted(waiting)
            groups = [[number] for number in numbers] if self.server.is_cluster else [numbers]
            asks: list[Ask] = [
                (scripts.CHECK, self._call(view, group, waiting, write=write)) for group in groups
            ]
            answers = self.server.each([*asks, *beside])
            if beside:
                beside_answers, beside = answers[len(asks) :], ()
            for group, answer in zip(groups, answers, strict=False):
                if answer[0] == scripts.EMPTIED:
                    return view.epoch, None, beside_answers
                if answer[0] == scripts.STALE:
                    if not all(self._reload(view, number) for number in group):
                        return view.epoch, None, beside_answers
                    continue
                flags = iter(answer[1 + len(group) :])
                for number, newest in zip(group, answer[1:], strict=False):
                    for position, _ in waiting.pop(number):
                        seen[position] = next(flags) == 1
                    if write:
                        self._counted(view, number, newest)
            if not waiting:
                return view.epoch, seen, beside_answers
        raise RemoteUnavailable(errno.EAGAIN, f"{self.path} grows faster than it can be asked")

    def _call(
        self, view: _View, group: list[int], waiting: Mapping[int, list[tuple[int, bytes]]], *, write: bool
    ) -> Call:
        names: list[str] = []
        arguments: list[Any] = [b"add" if write else b"test"]
        for number in group:
            shard = view.shards[number]
            digests = [cut for _, cut in waiting[number]]
            names += shard.names
            arguments.append(len(shard.layers))
            for layer in shard.layers:
                arguments += [layer.fixed, bitmaps.probes(layer, digests)]
        return names, arguments

    def _reload(self, view: _View, number: int) -> bool:
        """Read a shard that has grown; return whether it is there."""
        shard = bitmapshards.load(self.server, view.shards[number].start, view.epoch)
        if shard is None:
            return False
        view.shards[number] = shard
        return True

    def _counted(self, view: _View, number: int, newest: int) -> None:
        """Note that the newest layer of a shard has *newest* keys; grow when it is full."""
        with self._lock:
            shard = view.shards[number] = view.shards[number].counted(newest)
            if newest < shard.limit:
                return
            error: Exception | None = None
            try:
                grown = bitmapshards.grow(self.server, shard, self.error_rate)
            except (RemoteError, ConfigurationError) as exc:
                error = exc
                # The answers that were got are right: go on over-full, and try again a little later.
                grown = shard.later()
            if grown is not None:  # else it is gone, which the next question says
                view.shards[number] = shard = grown
        if self.on_growth is not None:
            whole = len(view.shards)
            counts = shard.num_keys * whole, shard.capacity * whole
            self.on_growth(Growth(len(shard.layers), *counts, shard.rate(), error))

    @staticmethod
    def _num_shards(server: Server, capacity: int, error_rate: float, at_least: int) -> int:
        nodes = len(server.on_nodes("PING")) if server.is_cluster else 1
        return bitmaps.num_shards_for(capacity, error_rate, max(nodes, at_least))

    def groups(self, meta: Meta) -> list[list[str]]:
        # A layer may have been added by somebody who did not tell.
        return [[f"{start}:{number}" for number in range(bitmaps.MAX_LAYERS)] for start in self._starts(meta)]

    def _starts(self, meta: Meta) -> list[str]:
        number = int(meta.params["shards"])
        return [self._kept.part(shard, number, "bits", meta) for shard in range(number)]

    def _make(self, meta: Meta) -> None:
        params = meta.params
        starts = self._starts(meta)
        layer = bitmaps.first_bitmap(
            meta.epoch, int(params["capacity"]), float(params["error_rate"]), len(starts)
        )
        for start in starts:  # one by one: up to half a gigabyte each
            bitmapshards.make(self.server, start, layer)

    def _load(self, meta: Meta) -> None:
        shards = []
        for start in self._starts(meta):
            shard = bitmapshards.load(self.server, start, meta.epoch)
            if shard is None:
                raise self._kept.emptied()
            shards.append(shard)
        self._view = _View(meta.epoch, meta.secret, shards)

    def _parts(self, meta: Meta) -> list[str]:
        known = [name for shard in self._view.shards if shard.epoch == meta.epoch for name in shard.names]
        return known or [f"{start}:0" for start in self._starts(meta)]
