"""Was this key possibly seen, on any machine? RedisBloom's filter, where the server has the module loaded.

The module's commands make a filter of 100 keys when there is none (``BF.ADD``, "creates the key if it does
not exist"). Here it is made by ``BF.RESERVE`` alone, and every batch looks first whether it is there. It
hashes with a public seed; what it gets are digests under the secret in the meta key.

Past its capacity the module adds filters of its own, twice as large and with half the rate (``EXPANSION``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.base import FilterInfo, LayerInfo
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.remote.client import Ask, Script, Server
from scrapy_bloomdupe.remote.meta import Meta
from scrapy_bloomdupe.remote.naming import MAX_SHARDS

#: What stands for a key: 128 bits are as good as none that meet, and the module hashes them to 64 anyhow.
DIGEST_SIZE = 16
_BATCH = 5_000
# RedisBloom src/sb.c: ERROR_TIGHTENING_RATIO; the first filter of a growing chain has it too.
_TIGHTENING = 0.5
_EXPANSION = 2

#: KEYS: the filter. ARGV: ``add`` or ``test``, then digests. Returns {} when it is gone, and nothing was
#: done; else the keys in it and for each digest 1: not seen before, as the module says it.
_CHECK = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local found
if ARGV[1] == 'add' then
  found = redis.call('BF.MADD', KEYS[1], unpack(ARGV, 2))
else
  found = redis.call('BF.MEXISTS', KEYS[1], unpack(ARGV, 2))
end
local answer = {redis.call('BF.CARD', KEYS[1])}
for number, one in ipairs(found) do
  if type(one) == 'table' then return redis.error_reply(one.err or 'BF failed') end
  if one == true then one = 1 elseif one == false then one = 0 end
  if ARGV[1] == 'test' then one = 1 - one end
  answer[number + 1] = one
end
return answer
"""
)

#: KEYS: the filter. ARGV: error rate, capacity, expansion.
_MAKE = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('BF.RESERVE', KEYS[1], ARGV[1], ARGV[2], 'EXPANSION', ARGV[3])
return 1
"""
)


@dataclass(frozen=True)
class _View:
    """What belongs together: a version, its secret and shards, and what is known of each of them.

    Attributes:
        counts: keys in it.
        limits: keys at which the module adds a filter to it.
        capacity, error_rate: what each was made for.
    """

    epoch: bytes
    secret: bytes
    names: list[str]
    counts: list[int]
    limits: list[int]
    capacity: int
    error_rate: float


class RedisBloomFilter(RemoteFilter):
    """A filter of RedisBloom; the contract is ``filters.base.Filter``. Made by ``open``."""

    kind = "redisbloom"

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
        self._view = _View(b"", b"", [], [], [], 1, 0.5)

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
    ) -> RedisBloomFilter:
        """Find the filter, or make it: see ``RedisBitmapFilter.open``, whose arguments these are.

        Raises:
            ConfigurationError: the server has no RedisBloom, or a value is out of its range.
            StateMismatch, StateExists, StateNotFound, RemoteError: likewise.
        """
        sizing.size_for(capacity, error_rate)  # refuses what is out of range
        if shards is not None and not 1 <= shards <= MAX_SHARDS:
            raise ConfigurationError(f"shards={shards!r} is not a number from 1 to {MAX_SHARDS}")
        if not server.has_command("BF.RESERVE"):
            raise ConfigurationError(
                f"{server.address} has no RedisBloom: it does not know BF.RESERVE. Load the module, or take "
                "the filter 'bitmap', which needs none"
            )
        number = shards or cls._num_shards(server, capacity, error_rate, 1)
        asked = {"capacity": capacity, "error_rate": error_rate}
        self = cls(server, prefix, {**asked, "shards": number}, {**asked, "shards": shards}, identity)
        self._kept.open(create=create, renew=renew)
        return self

    @property
    def num_keys(self) -> int:
        return sum(self._view.counts)

    @property
    def num_layers(self) -> int:
        view = self._view
        return max(len(_layers(view, count)) for count in view.counts)

    def rate(self) -> float:
        """Return the expected false-positive rate of the whole, from the counts that are known, 0 to 1."""
        view = self._view
        rates = [_rate(_layers(view, count)) for count in view.counts]
        return sum(rates) / len(rates)

    def info(self) -> FilterInfo:
        """Ask the server. The fill of the layers is what their counts let expect, not measured.

        Raises:
            RemoteError: it did not say.
        """
        self._look_again()
        view = self._view
        sizes = [_figures(self.server.run("BF.INFO", name)).get("Size", 0) for name in view.names]
        shards = [_layers(view, count) for count in view.counts]
        layers = []
        for number in range(max(map(len, shards))):
            parts = [shard[number] for shard in shards if len(shard) > number]
            layers.append(
                LayerInfo(
                    num_bits=sum(part.num_bits for part in parts),
                    num_hashes=parts[0].num_hashes,
                    capacity=sum(part.capacity for part in parts),
                    error_rate=parts[0].error_rate,
                    num_keys=sum(part.num_keys for part in parts),
                    fill=sum(part.fill for part in parts) / len(parts),
                    rate=sum(part.rate for part in parts) / len(parts),
                )
            )
        return FilterInfo(
            path=self.path,
            layout=self.kind,
            scheme="blake2b",
            capacity=self.capacity,
            error_rate=self.error_rate,
            num_keys=self.num_keys,
            num_bytes=sum(sizes),
            clean=True,
            error_rate_estimate=self.rate(),
            layers=tuple(layers),
            identity=self.identity,
        )

    def add_with(self, keys: Sequence[bytes], asks: Sequence[Ask]) -> tuple[list[bool], list[Any]] | None:
        if self.server.is_cluster or not keys:
            return None
        return self._check_beside(keys, write=True, beside=asks)

    def contains_with(self, keys: Sequence[bytes], asks: Sequence[Ask]) -> tuple[list[bool], list[Any]]:
        return self._check_beside(keys, write=False, beside=asks)

    def _check(self, keys: list[bytes], *, write: bool) -> list[bool]:
        return self._check_beside(keys, write=write)[0]

    def _ask(
        self, keys: Sequence[bytes], *, write: bool, beside: Sequence[Ask]
    ) -> tuple[bytes, list[bool] | None, list[Any]]:
        view = self._view
        names = view.names
        keyed = blake2b(key=view.secret, digest_size=DIGEST_SIZE)
        groups: dict[int, list[int]] = {}
        digests = []
        for position, key in enumerate(keys):
            state = keyed.copy()
            state.update(key)
            cut = state.digest()
            digests.append(cut)
            # The last four bytes: what the module does with all of them is another hash.
            groups.setdefault(int.from_bytes(cut[-4:], "little") * len(names) >> 32, []).append(position)
        batches = [
            (number, positions[start : start + _BATCH])
            for number, positions in groups.items()
            for start in range(0, len(positions), _BATCH)
        ]
        mode = b"add" if write else b"test"
        asks: list[Ask] = [
            (_CHECK, ([names[number]], [mode, *[digests[at] for at in positions]]))
            for number, positions in batches
        ]
        answers = self.server.each([*asks, *beside])
        seen = [False] * len(keys)
        for (number, positions), answer in zip(batches, answers, strict=False):
            if not answer:
                return view.epoch, None, answers[len(asks) :]
            for position, new in zip(positions, answer[1:], strict=True):
                seen[position] = not new
            if write:
                self._counted(view, number, answer[0])
        return view.epoch, seen, answers[len(asks) :]

    def _counted(self, view: _View, number: int, count: int) -> None:
        with self._lock:
            view.counts[number] = count
            if count <= view.limits[number]:
                return
            layers = _layers(view, count)
            view.limits[number] = sum(layer.capacity for layer in layers)
            whole = len(view.counts)
            growth = Growth(
                len(layers),
                count * whole,
                view.limits[number] * whole,
                _rate(layers),
                None,
            )
        if self.on_growth is not None:
            self.on_growth(growth)

    @staticmethod
    def _num_shards(server: Server, capacity: int, error_rate: float, at_least: int) -> int:
        sizing.size_for(capacity, error_rate)  # refuses what is out of range
        return max(at_least, len(server.on_nodes("PING")) if server.is_cluster else 1)

    def groups(self, meta: Meta) -> list[list[str]]:
        return [[name] for name in self._parts(meta)]

    def _share(self, meta: Meta) -> int:
        """Return the keys that a shard is made for: its part, and four standard deviations more."""
        number = int(meta.params["shards"])
        share = int(meta.params["capacity"]) / number
        return math.ceil(share + (4 * math.sqrt(share) if number > 1 else 0))

    def _parts(self, meta: Meta) -> list[str]:
        number = int(meta.params["shards"])
        return [self._kept.part(shard, number, "bloom", meta) for shard in range(number)]

    def _make(self, meta: Meta) -> None:
        arguments = [repr(float(meta.params["error_rate"])), self._share(meta), _EXPANSION]
        for name in self._parts(meta):
            self.server.scripts(_MAKE, [([name], arguments)], slow=True)

    def _load(self, meta: Meta) -> None:
        names = self._parts(meta)
        counts = []
        for name in names:
            if not self.server.run("EXISTS", name):
                raise self._kept.emptied()
            counts.append(int(self.server.run("BF.CARD", name)))
        view = _View(
            meta.epoch,
            meta.secret,
            names,
            counts,
            [],
            self._share(meta),
            float(meta.params["error_rate"]),
        )
        view.limits.extend(sum(layer.capacity for layer in _layers(view, count)) for count in counts)
        self._view = view


def _layers(view: _View, count: int) -> list[LayerInfo]:
    """Return what the module has made of a shard with *count* keys in it."""
    capacity, error_rate = view.capacity, view.error_rate * _TIGHTENING
    layers: list[LayerInfo] = []
    left = count
    while not layers or left > 0:
        num_bits = math.ceil(-capacity * math.log(error_rate) / math.log(2) ** 2)
        num_hashes = math.ceil(-math.log2(error_rate))  # RedisBloom deps/bloom/bloom.c, bloom_init
        inside = min(left, capacity)
        rate = sizing.expected_error_rate(num_bits, num_hashes, inside)
        fill = -math.expm1(-num_hashes * inside / num_bits)
        layers.append(LayerInfo(num_bits, num_hashes, capacity, error_rate, inside, fill, rate))
        left -= inside
        capacity *= _EXPANSION
        error_rate *= _TIGHTENING
    return layers


def _rate(layers: list[LayerInfo]) -> float:
    return sizing.combined_error_rate([layer.rate for layer in layers])


def _figures(answer: Any) -> dict[str, int]:
    """Return what ``BF.INFO`` says; redis-py gives it as a list, or as an object of its own."""
    if isinstance(answer, Mapping):
        pairs = list(answer.items())
    elif isinstance(answer, list | tuple):
        pairs = list(zip(answer[::2], answer[1::2], strict=True))
    else:
        return {}
    return {
        (name.decode() if isinstance(name, bytes) else str(name)): int(value or 0) for name, value in pairs
    }
