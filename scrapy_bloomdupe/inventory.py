"""What of ours lies on a Redis or Valkey server?

It finds by names and looks without changing anything; it makes nothing, not even what a filter that is
opened would make. What is removed goes by its prefix, whole or not. Not here: whether it belongs together
(``mending``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import scrapy_bloomdupe.remote.meta as metas
from scrapy_bloomdupe.errors import (
    ConfigurationError,
    RemoteEmptied,
    RemoteRefused,
    StateCorrupt,
    StateMismatch,
    message,
)
from scrapy_bloomdupe.filters.redis import KINDS
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.remote.client import Server
from scrapy_bloomdupe.remote.kept import parts_found
from scrapy_bloomdupe.remote.meta import Meta
from scrapy_bloomdupe.stores.redis import RedisStore

PARTS = ("filter", "store")

_SCAN_COUNT = 1000


@dataclass
class Found:
    """What lies under one prefix.

    Attributes:
        prefix: what the names begin with.
        metas: the descriptions that can be read, by ``filter`` and ``store``.
        filter, store: opened; None: none there, or it has a problem.
        problems: a sentence for each thing that is wrong.
    """

    prefix: str
    metas: dict[str, Meta] = field(default_factory=dict)
    filter: RemoteFilter | None = None
    store: RedisStore | None = None
    problems: list[str] = field(default_factory=list)


def prefixes(server: Server) -> list[str]:
    """Return the prefixes under which there is a description of a filter or a store.

    Raises:
        RemoteError: the server did not say.
    """
    found = set()
    for name in server.scan("*:meta", _SCAN_COUNT):
        for part in PARTS:
            start = name.removesuffix(f":{part}:meta".encode())
            if start != name:
                with contextlib.suppress(UnicodeDecodeError):  # not made by us
                    found.add(start.decode())
    return sorted(found)


def look(server: Server, prefix: str) -> Found:
    """Return what lies under *prefix*; empty: nothing.

    Raises:
        RemoteUnavailable, RemoteRefused: the server did not say.
    """
    found = Found(prefix)
    for part in PARTS:
        where = f"{server.address} {prefix}:{part}"
        try:
            meta = metas.read(server, f"{prefix}:{part}:meta")
            if meta is None:
                continue
            found.metas[part] = meta
            if not meta.ready:
                found.problems.append(
                    f"{where} is being made, or its making was cut short: it has no more than a description. "
                    "The next crawl that uses it makes the rest"
                )
            elif part == "filter":
                found.filter = _open_filter(server, prefix, meta)
            else:
                found.store = _open_store(server, prefix, meta)
        except RemoteEmptied as exc:
            found.problems.append(f"{message(exc)}. {clearing(server, prefix, 'removes what is left of it')}")
        except RemoteRefused as exc:
            if "WRONGTYPE" not in str(exc):
                raise
            found.problems.append(f"{where}: a name of it is taken by something else: {message(exc)}")
        except (StateCorrupt, StateMismatch, ConfigurationError) as exc:
            found.problems.append(message(exc))
        except (KeyError, TypeError, ValueError, ArithmeticError) as exc:
            found.problems.append(
                f"{where} says of itself {dict(found.metas[part].params)}, which makes no {part} "
                f"({type(exc).__name__}: {exc}). {clearing(server, prefix, 'removes it')}"
            )
    return found


def _open_filter(server: Server, prefix: str, meta: Meta) -> RemoteFilter:
    if meta.kind not in KINDS:
        raise StateMismatch(
            f"{server.address} {prefix}:filter is of the kind {meta.kind!r}, this release knows "
            f"{', '.join(KINDS)}; use the release that made it"
        )
    return KINDS[meta.kind].open(
        server,
        prefix,
        capacity=int(meta.params["capacity"]),
        error_rate=float(meta.params["error_rate"]),
        shards=int(meta.params["shards"]),
        create=False,
    )


def _open_store(server: Server, prefix: str, meta: Meta) -> RedisStore:
    return RedisStore.open(server, prefix, shards=int(meta.params["shards"]), create=False)


def clearing(server: Server, prefix: str, does: str) -> str:
    """Return the sentence that says what ``bloomdupe clear`` does here."""
    return f"`bloomdupe clear {server.address} --key {prefix}` {does}"


def describe(found: Found) -> dict[str, Any]:
    """Return the figures of what was found, for JSON: no secret is among them.

    Raises:
        RemoteError: the server did not say.
    """
    row: dict[str, Any] = {"key": found.prefix, "filter": None, "store": None}
    for part, meta in found.metas.items():
        row[part] = {
            "kind": meta.kind,
            "shards": meta.params.get("shards"),
            "epoch": meta.epoch.hex(),
            "created": meta.created,
            "version": meta.version,
            "ready": meta.ready,
            "identity": dict(meta.identity),
        }
    if found.filter is not None:
        info = found.filter.info()
        row["filter"] |= {
            "capacity": info.capacity,
            "error_rate": info.error_rate,
            "num_keys": info.num_keys,
            "num_bytes": info.num_bytes,
            "fill": info.fill,
            "error_rate_estimate": info.error_rate_estimate,
            "layers": [asdict(layer) for layer in info.layers],
        }
    if found.store is not None:
        row["store"] |= {"num_keys": found.store.count(), "num_bytes": found.store.num_bytes()}
    return {**row, "problems": found.problems}


def exists(server: Server, prefix: str) -> bool:
    """Return whether anything of ours is under *prefix*, whole or not.

    Raises:
        RemoteError: the server did not say.
    """
    # The parts are looked for among all keys of the server.
    return any(server.run("EXISTS", f"{prefix}:{part}:meta") for part in PARTS) or any(
        parts_found(server, f"{prefix}:{part}") for part in PARTS
    )


def names_under(server: Server, prefix: str) -> list[bytes]:
    """Return all names of ours under *prefix*, the descriptions first.

    Raises:
        RemoteError: the server did not say.
    """
    described = [f"{prefix}:{part}:meta".encode() for part in PARTS]
    names = [name for name in described if server.run("EXISTS", name)]
    for part in PARTS:
        names += sorted(parts_found(server, f"{prefix}:{part}"))
    return names


def num_bytes(server: Server, names: Iterable[bytes]) -> int | None:
    """Return the memory of *names*, by the server's own estimate; None: it does not tell this user.

    Raises:
        RemoteError: no answer.
    """
    try:
        return sum(int(server.run("MEMORY", "USAGE", name) or 0) for name in names)
    except RemoteRefused:
        return None


def remove(server: Server, names: Iterable[bytes]) -> int:
    """Remove *names*, in their order; return how many were there.

    Raises:
        RemoteError: not all of them were removed.
    """
    return sum(int(server.run("UNLINK", name, slow=True)) for name in names)
