"""When was a key last seen, on which host, by which rule? The eight bytes that a store keeps with it.

====== ===== ==========================================================================
offset bytes what; little-endian
====== ===== ==========================================================================
     0     4 seconds since 1970
     4     2 tag of the host, see ``tag``; 0: none
     6     2 tag of the name of the rule, or preset, that the key was made under; 0: none
====== ===== ==========================================================================

Frozen as format 1; another format will have another length. No bytes at all: an older release wrote the key.

A tag is no name: one in 65,535 pairs of names has the same one. Whoever forgets by it forgets a few keys too
many, whose pages are crawled again; no page is lost by it.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from struct import Struct, error

_STAMP = Struct("<IHH")
SIZE = _STAMP.size
_LATEST = 2**32 - 1


@lru_cache(maxsize=4096)
def tag(name: str) -> int:
    """Return 1 to 65,535 for a name, 0 for none."""
    # CRC-32: as even as another hash over names that nobody chose for it, and what a site can win by a
    # collision is to be crawled again.
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % 65_535 + 1 if name else 0


def host_of(url: str) -> str:
    """Return the host of *url* in lower case, without user and port; empty: it has none."""
    _, found, rest = url.partition("://")
    if not found:
        return ""
    for end in "/?#\\":
        rest = rest.partition(end)[0]
    host = rest.rpartition("@")[2].lower()
    host = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return host.rstrip(".")


@lru_cache(maxsize=4096)
def _tag_of_authority(authority: str) -> int:
    return tag(host_of(f"http://{authority}"))


def stamp(now: float, url: str, rule: str | None) -> bytes:
    """Return the eight bytes of a key.

    Args:
        now: seconds since 1970.
        url: what was asked for, empty: not known.
        rule: name of the rule or preset, None: there is none.
    """
    parts = url.split("/", 3)
    host = _tag_of_authority(parts[2]) if len(parts) > 2 else tag(host_of(url))
    by = tag(rule) if rule else 0
    try:
        return _STAMP.pack(int(now), host, by)
    except error:
        # A clock that is out of all bounds.
        return _STAMP.pack(0 if now < 0 else _LATEST, host, by)


def time_of(value: bytes) -> int | None:
    """Return the seconds since 1970 in what a store keeps with a key; None: not known."""
    return int.from_bytes(value[:4], "little") if len(value) == SIZE else None


def tags_of(value: bytes) -> tuple[int, int]:
    """Return the tags of host and rule; 0: none, or not known."""
    if len(value) != SIZE:
        return 0, 0
    _, host, rule = _STAMP.unpack(value)
    return host, rule
