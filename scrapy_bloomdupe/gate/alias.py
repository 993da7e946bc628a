"""Which version of a gate is in force on a server, who may build the next one, and how does it take over?

::

    <key>:{gate}:alias       what is in force: JSON, format 1
    <key>:{gate}:lock        who builds; goes by itself when the builder is gone
    <key>:{gate}:added       texts added since the build began
    <key>:gate:v<N>:filter:  the filter of version N (``remote.naming``)

The first three are changed together, by scripts that the server runs in one go. A version is whole before the
alias names it, and the alias carries its epoch: a filter that was emptied, or made by somebody else under the
same name, is not the one that is meant.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import scrapy_bloomdupe.remote.lock as locks
from scrapy_bloomdupe.errors import (
    ConfigurationError,
    RemoteEmptied,
    StateCorrupt,
    StateMismatch,
    StateNotFound,
)
from scrapy_bloomdupe.gate.header import GateHeader, of_identity
from scrapy_bloomdupe.remote.client import Ask, Script, Server
from scrapy_bloomdupe.remote.lock import LOCK_SECONDS, ServerLock

FORMAT = 1
_LOOK = Script("return redis.call('GET', KEYS[1])")

# In all: KEYS: alias, lock, added.
#: ARGV: seconds, then texts. Returns the alias, and whether a build is under way.
_NOTE = Script(
    """
local building = redis.call('EXISTS', KEYS[2])
if building == 1 then
  for number = 2, #ARGV do redis.call('RPUSH', KEYS[3], ARGV[number]) end
  redis.call('EXPIRE', KEYS[3], ARGV[1])
end
return {redis.call('GET', KEYS[1]), building}
"""
)
#: ARGV: the lock, the next alias, how many added texts it has. Who has the lock is the only one to switch.
#: Returns 1; 0: there are more added texts; -1: the lock is another.
_SWITCH = Script(
    """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
if redis.call('LLEN', KEYS[3]) ~= tonumber(ARGV[3]) then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[2], KEYS[3])
return 1
"""
)
_CHANGE = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
)


@dataclass(frozen=True)
class InForce:
    """What an alias says.

    Attributes:
        header: of the gate, with its version.
        epoch: of its filter, 16 bytes in hexadecimal.
    """

    header: GateHeader
    epoch: str

    def pack(self) -> bytes:
        return json.dumps(
            {"format": FORMAT, "epoch": self.epoch, "identity": self.header.identity()}, sort_keys=True
        ).encode()


class Alias:
    """The names of the gate called *key* on *server*, and what may be done to them.

    Raises:
        ConfigurationError: there is no name, or it has braces.
    """

    def __init__(self, server: Server, key: str | None) -> None:
        if not key or set(key) & set("{}"):
            raise ConfigurationError(
                f"key={key!r} is no name for a gate on a server: it needs at least one letter, and no braces "
                "(on the command line: --key NAME)"
            )
        self.server = server
        self.key = key
        self.where = f"{server.address} {key}"
        self._names = [f"{key}:{{gate}}:{part}" for part in ("alias", "lock", "added")]

    def prefix(self, version: int) -> str:
        """Return what the names of a version's filter begin with."""
        return f"{self.key}:gate:v{version}"

    @property
    def look(self) -> Ask:
        """What to ask the server for the alias."""
        return _LOOK, (self._names[:1], [])

    def read(self) -> bytes | None:
        """Return the alias; None: there is none.

        Raises:
            RemoteError: the server did not say.
        """
        found: bytes | None = self.server.run("GET", self._names[0])
        return found

    def unpack(self, data: bytes | None) -> InForce:
        """Return what an alias says.

        Raises:
            StateNotFound: there is none.
            StateMismatch, StateCorrupt: it is of another release, or not ours.
        """
        if data is None:
            raise StateNotFound(
                errno.ENOENT,
                f"there is no gate at {self.where}: it was never built, or the server was emptied; make one "
                "with `bloomdupe gate build`",
            )
        try:
            values = json.loads(data)
            number = values["format"]
            if number == FORMAT:
                epoch, identity = str(values["epoch"]), dict(values["identity"])
        except (ValueError, KeyError, TypeError) as exc:
            raise StateCorrupt(
                f"{self.where}: {data[:40]!r} does not say which gate is in force; build it again"
            ) from exc
        if number != FORMAT:
            raise StateMismatch(
                f"{self.where} is of format {number!r}, this release reads {FORMAT}; upgrade "
                "scrapy-bloomdupe, or build it again with this release"
            )
        return InForce(of_identity(identity, self.where), epoch)

    def emptied(self) -> RemoteEmptied:
        """Return the error that says that the filter in force is gone."""
        return RemoteEmptied(
            errno.ENOENT,
            f"{self.where}: the filter of the gate is gone from the server, or a part of it; build it again",
        )

    def note(self, texts: Sequence[str]) -> tuple[bytes | None, bool]:
        """Give *texts* to the build under way, if there is one; return the alias, and whether there is one.

        Raises:
            RemoteError: not known whether it has them.
        """
        data = [json.dumps(text).encode() for text in texts]
        raw, building = self._run(_NOTE, LOCK_SECONDS, *data)
        return raw, bool(building)

    def change(self, old: bytes, new: InForce) -> bool:
        """Put *new* in the place of *old*; return whether that was still there.

        Raises:
            RemoteError: the server did not say.
        """
        return bool(self._run(_CHANGE, old, new.pack()))

    @contextmanager
    def building(self) -> Iterator[Build]:
        """Be the one who builds.

        Raises:
            StateLocked: another process does.
            RemoteError: the server did not say.
        """
        with locks.held(self.server, self._names[1:], self.where) as lock:
            yield Build(self, lock)

    def _run(self, script: Script, *arguments: Any) -> Any:
        return self.server.scripts(script, [(self._names, arguments)], slow=True)[0]


class Build:
    """A build under way, which holds the lock."""

    def __init__(self, alias: Alias, lock: ServerLock) -> None:
        self.holds = lock.holds
        self._alias = alias
        self._lock = lock
        self._taken = 0

    def added(self) -> list[str]:
        """Return the texts that were added meanwhile and were not returned yet.

        Raises:
            RemoteError: the server did not say.
        """
        found = self._alias.server.run("LRANGE", self._alias._names[2], self._taken, -1, slow=True)
        self._taken += len(found)
        return [str(json.loads(text)) for text in found]

    def switch(self, new: InForce) -> bool:
        """Put *new* in force; False: more was added meanwhile, see ``added``.

        Raises:
            StateLocked: somebody else builds, or has built; nothing was changed.
            RemoteError: not known which one is in force.
        """
        done = self._alias._run(_SWITCH, self._lock.token, new.pack(), self._taken)
        if done < 0:
            raise locks.lost(self._alias.where)
        return bool(done)
