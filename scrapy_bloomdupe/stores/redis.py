"""Was this key certainly seen, on any machine? Whole keys in sets on a Redis or Valkey server.

Keys are kept as they are, in one set, or in several that lie on the nodes of a Cluster. Exact, and dear: a
filter before it saves questions, and none of the server's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

from scrapy_bloomdupe.errors import ConfigurationError, RemoteRefused, StoreError
from scrapy_bloomdupe.remote.client import Ask, Call, Script, Server
from scrapy_bloomdupe.remote.kept import Kept
from scrapy_bloomdupe.remote.memory import Memory
from scrapy_bloomdupe.remote.memory import read as read_memory
from scrapy_bloomdupe.remote.meta import Meta
from scrapy_bloomdupe.remote.naming import MAX_SHARDS
from scrapy_bloomdupe.stores.base import Valueless

MAX_KEY_SIZE = 511
#: Keys in one question: some 5 ms of the server, in which it answers nobody else.
_BATCH = 5_000
_SCAN_COUNT = 1000

#: One member of every set, before the epoch: a set without it was flushed or evicted, and one without any
#: member does not exist. No key is this one: the epoch is random.
_MARK = b"bloomdupe epoch "

#: KEYS: the sets. ARGV: the mark, ``SADD``, ``SREM`` or ``SISMEMBER``, then for each set how many keys, and
#: they. Returns {} when a set is gone, and nothing was done; else what the command says of each key.
_EACH = Script(
    """
for _, name in ipairs(KEYS) do
  if redis.call('SISMEMBER', name, ARGV[1]) == 0 then return {} end
end
local command, at, answer = ARGV[2], 3, {0}
for _, name in ipairs(KEYS) do
  local count = tonumber(ARGV[at])
  for number = at + 1, at + count do
    answer[#answer + 1] = redis.call(command, name, ARGV[number])
  end
  at = at + count + 1
end
return answer
"""
)

#: The cheaper form for many keys that nobody asks about. KEYS, ARGV as above, with one command for all.
_ALL = Script(
    """
for _, name in ipairs(KEYS) do
  if redis.call('SISMEMBER', name, ARGV[1]) == 0 then return {} end
end
local at = 3
for _, name in ipairs(KEYS) do
  local count = tonumber(ARGV[at])
  redis.call(ARGV[2], name, unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end
return {0}
"""
)


class RedisStore(Valueless):
    """An exact store in sets on a server; the contract is ``stores.base.Store``. Made by ``open``.

    Any thread may use it. What it took is on the server at once. Every question raises RemoteError, which is
    a StoreError, when the server did not answer it.
    """

    kind = "set"

    def __init__(
        self,
        server: Server,
        prefix: str,
        shards: int,
        required: int | None,
        identity: Mapping[str, str] | None,
    ) -> None:
        self.server = server
        self._view: tuple[bytes, list[str]] = b"", []
        self._kept = Kept(
            server,
            f"{prefix}:store",
            Meta(self.kind, {"shards": shards}, dict(identity or {})),
            {"kind": self.kind, "shards": required},
            make=self._make,
            load=self._load,
            parts=self._parts,
        )

    @classmethod
    def open(
        cls,
        server: Server,
        prefix: str,
        *,
        shards: int | None = None,
        identity: Mapping[str, str] | None = None,
        create: bool | None = None,
        renew: bool = False,
    ) -> RedisStore:
        """Find the store, or make it.

        Args:
            server: where.
            prefix: what its names begin with, see ``remote.naming.prefix``.
            shards: sets, 1 to 1024; None: one, and in a Cluster one for each node.
            identity: what the keys mean, for a store that is made.
            create: True: only if there is none. False: only if there is one. None: either.
            renew: what is there and has lost a part is made anew, empty.

        Raises:
            ConfigurationError: a value is out of its range.
            StateMismatch: it was made with other values.
            StateExists, StateNotFound: see *create*.
            RemoteError: the server did not do it.
        """
        if shards is not None and not 1 <= shards <= MAX_SHARDS:
            raise ConfigurationError(f"shards={shards!r} is not a number from 1 to {MAX_SHARDS}")
        number = shards or (len(server.on_nodes("PING")) if server.is_cluster else 1)
        self = cls(server, prefix, number, shards, identity)
        self._kept.open(create=create, renew=renew)
        return self

    @property
    def path(self) -> str:
        """Server and name, for people."""
        return f"{self.server.address} {self._kept.name}"

    @property
    def store_id(self) -> bytes:
        """16 bytes, others after every time that it was made anew."""
        return self._kept.meta.epoch

    @property
    def identity(self) -> Mapping[str, str]:
        """What the keys mean; without ``canary``: not known yet."""
        return self._kept.meta.identity

    @property
    def num_shards(self) -> int:
        return int(self._kept.meta.params["shards"])

    @property
    def was_created(self) -> bool:
        """Whether it was made, not found, when it was opened or renewed the last time."""
        return self._kept.was_created

    def set_identity(self, identity: Mapping[str, str]) -> None:
        """Write what the keys mean.

        Raises:
            RemoteError: not written.
        """
        self._kept.set_identity(identity)

    def verify(self) -> None:
        """Look whether it is still the one that was opened; for a timer. See ``Kept.verify``."""
        self._kept.verify()

    def renew(self) -> bool:
        """Take what is there now, or make it anew: after ``RemoteEmptied``. See ``Kept.renew``."""
        return self._kept.renew()

    def clear(self) -> int:
        """Remove the store from the server; return how many keys of the server it took.

        Raises:
            RemoteError: not all of it was removed.
        """
        return self._kept.clear()

    def memory(self) -> Memory | None:
        """Return the server's memory; None: it does not tell this user.

        Raises:
            RemoteError: no answer.
        """
        return read_memory(self.server)

    def add(self, key: bytes, value: bytes = b"") -> bool:
        return self.add_many([key])[0]

    def put(self, key: bytes, value: bytes = b"") -> None:
        self.put_many([key])

    def remove(self, key: bytes) -> None:
        self.remove_many([key])

    def add_many(self, keys: Sequence[bytes], value: bytes = b"") -> list[bool]:
        """Add *keys* in one round trip; return the answers of ``add``. Of workers that add the same key at
        once exactly one is told that it is new."""
        return self._each("SADD", keys)

    def adding(self, keys: Sequence[bytes]) -> tuple[list[Ask], Callable[[list[Any]], list[bool]]] | None:
        """Return what ``add_many`` would ask, to be asked together with something else on the same server,
        and what makes its result of the answers; None: it would ask more than once.

        Raises:
            StoreError: a key is none; nothing must be asked.
        """
        if not 1 <= len(keys) <= _BATCH or self.server.is_cluster:
            return None
        groups, calls = self._calls("SADD", keys)

        def read(answers: list[Any]) -> list[bool]:
            found = [False] * len(keys)
            self._read(groups, answers, found, 0)
            return found

        return [(_EACH, call) for call in calls], read

    def put_many(self, keys: Sequence[bytes], value: bytes = b"") -> None:
        self._all("SADD", keys)

    def remove_many(self, keys: Sequence[bytes]) -> None:
        """Forget *keys*, in one round trip.

        Raises:
            RemoteError: some may be forgotten.
        """
        self._all("SREM", keys)

    def contains_many(self, keys: Sequence[bytes]) -> list[bool]:
        """Return for each key what ``in`` does, in one round trip.

        Raises:
            RemoteError: nothing is known of any of them.
        """
        return self._each("SISMEMBER", keys)

    def __contains__(self, key: bytes) -> bool:
        return self.contains_many([key])[0]

    def iter_keys(self) -> Iterator[bytes]:
        """Give every key once, in no order. One can come twice while others are removed (``SSCAN``).

        Raises:
            RemoteError: the server did not give them all.
        """
        epoch, names = self._view
        mark = _MARK + epoch
        for name in names:
            cursor: Any = 0
            marked = False
            while True:
                cursor, members = self.server.run("SSCAN", name, cursor, "COUNT", _SCAN_COUNT, slow=True)
                for member in members:
                    if member == mark:
                        marked = True
                    else:
                        yield member
                if int(cursor) == 0:
                    break
            if not marked:
                raise self._kept.emptied()

    def count(self) -> int:
        names = self._view[1]
        counts = [int(self.server.run("SCARD", name)) for name in names]
        if not all(counts):
            raise self._kept.emptied()
        return sum(counts) - len(counts)

    def num_bytes(self) -> int | None:
        """Return the memory that the sets take, as the server estimates it; None: it does not tell this user.

        Raises:
            RemoteError: no answer.
        """
        try:
            return sum(int(self.server.run("MEMORY", "USAGE", name) or 0) for name in self._view[1])
        except RemoteRefused:
            return None

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing to write; the server's connections belong to whoever made it."""

    def _each(self, command: str, keys: Sequence[bytes]) -> list[bool]:
        found = [False] * len(keys)
        for start in range(0, len(keys), _BATCH):
            groups, calls = self._calls(command, keys[start : start + _BATCH])
            self._read(groups, self.server.scripts(_EACH, calls), found, start)
        return found

    def _all(self, command: str, keys: Sequence[bytes]) -> None:
        for start in range(0, len(keys), _BATCH):
            _, calls = self._calls(command, keys[start : start + _BATCH])
            if not all(self.server.scripts(_ALL, calls)):
                raise self._kept.emptied()

    def _read(self, groups: list[list[int]], answers: list[Any], found: list[bool], start: int) -> None:
        """Put the answers into *found*, for keys that begin at *start* of it."""
        if not all(answers):
            raise self._kept.emptied()
        for numbers, answer in zip(groups, answers, strict=True):
            for number, said in zip(numbers, answer[1:], strict=True):
                found[start + number] = said == 1

    def _calls(self, command: str, keys: Sequence[bytes]) -> tuple[list[list[int]], list[Call]]:
        """Return the numbers of the keys in each call, in its order, and the calls."""
        epoch, names = self._view
        shards: dict[int, list[int]] = {}
        for number, key in enumerate(keys):
            if not 1 <= len(key) <= MAX_KEY_SIZE:
                raise StoreError(
                    22, f"a key has {len(key)} bytes, the store takes 1 to {MAX_KEY_SIZE}: {key[:20]!r}"
                )
            shards.setdefault(crc32(key) * len(names) >> 32, []).append(number)
        calls: list[Call] = []
        groups = []
        for some in [[shard] for shard in shards] if self.server.is_cluster else [list(shards)]:
            arguments: list[Any] = [_MARK + epoch, command]
            for shard in some:
                arguments += [len(shards[shard]), *[keys[number] for number in shards[shard]]]
            calls.append(([names[shard] for shard in some], arguments))
            groups.append([number for shard in some for number in shards[shard]])
        return groups, calls

    def _parts(self, meta: Meta) -> list[str]:
        number = int(meta.params["shards"])
        return [self._kept.part(shard, number, "set", meta) for shard in range(number)]

    def _make(self, meta: Meta) -> None:
        for name in self._parts(meta):
            self.server.run("SADD", name, _MARK + meta.epoch)

    def _load(self, meta: Meta) -> None:
        names = self._parts(meta)
        for name in names:
            if not self.server.run("SISMEMBER", name, _MARK + meta.epoch):
                raise self._kept.emptied()
        self._view = meta.epoch, names
