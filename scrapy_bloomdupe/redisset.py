"""Which fingerprints has scrapy-redis written? Reads its set on a server, which it leaves as it is.

The set holds 40 hexadecimal letters for each request, under ``<spider>:dupefilter`` or
``dupefilter:<seconds>``. It is read piece by piece (``SSCAN``), also beside a running crawl; what that adds
meanwhile may or may not come, and a member can come twice while the set grows.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scrapy_bloomdupe.errors import ConfigurationError, StateNotFound
from scrapy_bloomdupe.hashing import as_key
from scrapy_bloomdupe.remote.client import Server

_SCAN_COUNT = 1000
_FINGERPRINT = re.compile(rb"[0-9a-fA-F]{40}")
_MAX_SAMPLES = 5


@dataclass
class SetCounts:
    """What was found.

    Attributes:
        keys: fingerprints read.
        malformed: members that are none.
        samples: the first of those.
    """

    keys: int = 0
    malformed: int = 0
    samples: list[bytes] = field(default_factory=list)


def find_set(server: Server, name: str | None) -> str:
    """Return the name of the set: *name*, or the only one that scrapy-redis can have made.

    Raises:
        StateNotFound: there is none.
        ConfigurationError: *name* is something else, or there are several.
        RemoteError: the server did not say.
    """
    if name is not None:
        kind = _kind(server, name)
        if kind == "none":
            raise StateNotFound(errno.ENOENT, f"{server.address} has nothing under {name!r}{_known(server)}")
        if kind != "set":
            raise ConfigurationError(
                f"{server.address} {name} is a {kind}, not a set of fingerprints: they cannot be read back "
                f"from it, for example from a Bloom filter{_known(server)}"
            )
        return name
    found = _candidates(server)
    if not found:
        raise StateNotFound(
            errno.ENOENT,
            f"{server.address} has no set whose name contains 'dupefilter'; name that of scrapy-redis with "
            "--set, and see that the URL has the right number of the database",
        )
    if len(found) > 1:
        raise ConfigurationError(f"{server.address} has several sets: name one with --set{_listed(found)}")
    return next(iter(found))


def read_set(server: Server, name: str, counts: SetCounts) -> Iterator[bytes]:
    """Give the key of every member, and keep *counts*.

    Raises:
        RemoteError: the server did not give them all.
    """
    cursor: Any = 0
    while True:
        cursor, members = server.run("SSCAN", name, cursor, "COUNT", _SCAN_COUNT, slow=True)
        for member in members:
            if _FINGERPRINT.fullmatch(member):
                counts.keys += 1
                yield as_key(bytes.fromhex(member.decode()))
            else:
                counts.malformed += 1
                if len(counts.samples) < _MAX_SAMPLES:
                    counts.samples.append(member)
        if int(cursor) == 0:
            return


def size_of(server: Server, name: str) -> int:
    """Return how many members the set has.

    Raises:
        RemoteError: the server did not say.
    """
    return int(server.run("SCARD", name))


def _kind(server: Server, name: str) -> str:
    answer = server.run("TYPE", name)
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def _candidates(server: Server) -> dict[str, int]:
    names = {name.decode(errors="replace") for name in server.scan("*dupefilter*", _SCAN_COUNT)}
    return {name: size_of(server, name) for name in sorted(names) if _kind(server, name) == "set"}


def _known(server: Server) -> str:
    found = _candidates(server)
    return f". There are these sets{_listed(found)}" if found else ""


def _listed(found: dict[str, int]) -> str:
    return ":" + "".join(f"\n  {ascii(name)[1:-1]}  {count:,} members" for name, count in found.items())
