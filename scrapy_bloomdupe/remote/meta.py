"""What is kept under a name on a server, and is it still what it was? One small JSON value, format 1.

It is made once: whoever comes first wins (``SET ... NX``), the others take what they find. It carries the
epoch, 16 random bytes that every other key of the same filter or store is named and marked with: a server
that comes back empty, or was flushed and filled by somebody else, is told by it.

A filter that was made anew from its store (``replacing``) has a description with a number and an epoch of its
own, which names the epochs that it replaces: whoever worked with one of them goes on with it.

It does not know filters, stores or scripts.
"""

from __future__ import annotations

import errno
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scrapy_bloomdupe.errors import RemoteEmptied, StateCorrupt, StateExists, StateMismatch, StateNotFound
from scrapy_bloomdupe.remote.client import Script, Server

FORMAT = 1
EPOCH_SIZE = 16
SECRET_SIZE = 32
# Who has been away for more versions than that is told that all is gone, and looks.
_MAX_REPLACED = 16

# What a new version may have otherwise than settings say: its rate stays what was asked, whatever they are.
_OF_SIZE = ("capacity", "shards")

_SWAP = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
)


@dataclass(frozen=True)
class Meta:
    """What a filter or store on a server says of itself.

    Attributes:
        kind: ``bitmap``, ``redisbloom`` or ``set``; frozen names.
        params: what it was made with; numbers and names.
        identity: what the keys mean, as in the header of a filter's file.
        epoch: 16 random bytes.
        secret: 32 random bytes under which keys are hashed.
        created: seconds since 1970.
        ready: all its keys were made; without it whoever comes makes the missing ones.
        version: which one of its name it is, 1 for the first.
        replaces: the epochs of the versions before it that were whole until it came, youngest first.
    """

    kind: str
    params: Mapping[str, Any]
    identity: Mapping[str, str] = field(default_factory=dict)
    epoch: bytes = field(default_factory=lambda: secrets.token_bytes(EPOCH_SIZE))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_SIZE), repr=False)
    created: int = field(default_factory=lambda: int(time.time()))
    ready: bool = False
    version: int = 1
    replaces: tuple[bytes, ...] = ()

    def pack(self) -> bytes:
        values = {
            "format": FORMAT,
            "kind": self.kind,
            "params": dict(self.params),
            "identity": dict(self.identity),
            "epoch": self.epoch.hex(),
            "secret": self.secret.hex(),
            "created": self.created,
            "ready": self.ready,
        }
        # Not of the first one: byte for byte what releases wrote that knew no versions.
        if self.version > 1:
            values["version"] = self.version
        if self.replaces:
            values["replaces"] = [epoch.hex() for epoch in self.replaces]
        return json.dumps(values, sort_keys=True).encode()

    def next(self, params: Mapping[str, Any]) -> Meta:
        """Return the description of the version that is to replace this one."""
        return Meta(
            self.kind,
            params,
            self.identity,
            ready=True,
            version=self.version + 1,
            replaces=(self.epoch, *self.replaces)[:_MAX_REPLACED],
        )


def unpack(data: bytes, where: str) -> Meta:
    """Return what *data* says.

    Raises:
        StateMismatch: it is of a later release.
        StateCorrupt: it is not ours.
    """
    try:
        values = json.loads(data)
        number = values["format"]
        if number == FORMAT:
            meta = Meta(
                kind=str(values["kind"]),
                params=dict(values["params"]),
                identity={str(name): str(value) for name, value in values["identity"].items()},
                epoch=bytes.fromhex(values["epoch"]),
                secret=bytes.fromhex(values["secret"]),
                created=int(values["created"]),
                ready=bool(values["ready"]),
                version=int(values.get("version", 1)),
                replaces=tuple(bytes.fromhex(epoch) for epoch in values.get("replaces", ())),
            )
            if (len(meta.epoch), len(meta.secret)) == (EPOCH_SIZE, SECRET_SIZE):
                return meta
    except (ValueError, KeyError, TypeError, AttributeError):
        number = FORMAT
    if number != FORMAT:
        raise StateMismatch(
            f"{where} is of format {number!r}, this release reads format {FORMAT}; use the release that made "
            "it, or another BLOOMDUPE_KEY"
        )
    raise StateCorrupt(
        f"{where} holds {data[:40]!r}, which is no description of a filter or store; it was left as it is. "
        "Use another BLOOMDUPE_KEY, or run `bloomdupe clear` if nobody needs it"
    )


def read(server: Server, name: str) -> Meta | None:
    """Return what is kept under *name*; None: nothing.

    Raises:
        RemoteError: the server did not say.
        StateCorrupt, StateMismatch: see ``unpack``.
    """
    data = server.run("GET", name)
    return None if data is None else unpack(data, f"{server.address} {name}")


def claim(server: Server, name: str, wanted: Meta, *, create: bool | None = None) -> tuple[Meta, bool]:
    """Return what is kept under *name*, and whether it is *wanted*, put there by this very call.

    Args:
        create: True: only if nothing is there. False: only if something is. None: either.

    Raises:
        RemoteError: the server did not say.
        StateExists, StateNotFound: see *create*.
        StateCorrupt, StateMismatch: see ``unpack``.
    """
    where = f"{server.address} {name}"
    for _ in range(3):
        found = read(server, name)
        if found is not None:
            if create:
                raise StateExists(errno.EEXIST, f"{where} exists and is not overwritten; clear it first")
            return found, False
        if create is False:
            raise StateNotFound(errno.ENOENT, f"{where} does not exist: there is no filter or store there")
        if server.run("SET", name, wanted.pack(), "NX") is not None:
            return wanted, True
    raise RemoteEmptied(errno.ENOENT, f"{where} is made and removed again and again by somebody else")


def swap(server: Server, name: str, old: Meta, **changes: Any) -> Meta:
    """Put *old* with *changes* in its place, and return that.

    Raises:
        RemoteEmptied: *old* is not there any more.
        RemoteError: the server did not say.
    """
    new = replace(old, **changes)
    if new == old:
        return old
    (done,) = server.scripts(_SWAP, [([name], [old.pack(), new.pack()])])
    if not done:
        found = read(server, name)
        if found is not None and found.epoch == old.epoch:
            # Another process made the same step; whichever of them was the last holds.
            return found if found.ready == new.ready else swap(server, name, found, **changes)
        raise emptied(server, name)
    return new


def emptied(server: Server, name: str) -> RemoteEmptied:
    """Return the error that says that what is described under *name* is gone."""
    return RemoteEmptied(
        errno.ENOENT,
        f"{server.address} {name}: what had been seen is gone from the server. It was restarted without its "
        "data, flushed, cleared, or it evicts keys (see its maxmemory-policy). Pages that were crawled "
        "before can be crawled again; none is lost",
    )


def compare(where: str, found: Meta, wanted: Mapping[str, Any]) -> None:
    """Refuse what was made with other parameters.

    A version that was made anew has the size that whoever made it wanted, which settings need not follow, and
    a rate that is not worse than theirs.

    Args:
        wanted: what is asked for, by name; None: whatever was found.

    Raises:
        StateMismatch: names both values and the next step.
    """
    for name, value in wanted.items():
        made = found.kind if name == "kind" else found.params.get(name)
        if value is None or made == value:
            continue
        if found.version > 1 and (name in _OF_SIZE or (name == "error_rate" and made and made < value)):
            continue
        rebuild = (
            " `bloomdupe rebuild` where it has a store, or" if name in ("capacity", "error_rate") else ""
        )
        raise StateMismatch(
            f"{where} was made with {name}={made!r}, settings ask for {value!r}; take {made!r}, use "
            f"another BLOOMDUPE_KEY, or run{rebuild} `bloomdupe clear` on it to start anew"
        )
