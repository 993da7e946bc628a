"""Does what lies on a server belong together, and how is its filter made anew?

The store is on the same server, or in a database. ``check`` changes nothing. How a new version takes the
place of the one in force is the business of ``shared.versions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import scrapy_bloomdupe.remote.memory as memories
import scrapy_bloomdupe.remote.meta as metas
import scrapy_bloomdupe.shared.versions as versions
from scrapy_bloomdupe.building import Progress
from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.inventory import PARTS, clearing, look
from scrapy_bloomdupe.remote.client import Server
from scrapy_bloomdupe.remote.kept import parts_found
from scrapy_bloomdupe.remote.replacing import OLD, OLD_SECONDS, leftovers, lock_name
from scrapy_bloomdupe.shared.parts import RemoteStore
from scrapy_bloomdupe.shared.versions import Rebuilt, VersionPlan
from scrapy_bloomdupe.stores.sql import SqlStore

_BATCH = 2_000
# What decides whether a key means the same in a filter and in the store behind it.
_MEANING = ("canary", "rules")


def check(
    server: Server,
    prefix: str,
    progress: Progress,
    *,
    sample: int | None = None,
    store: SqlStore | None = None,
) -> Iterator[str]:
    """Give every problem of what lies under *prefix*; nothing: it is whole.

    Args:
        sample: keys of the store to look for in the filter, at least 1; None: all.
        store: the one behind the filter, where it is in a database.

    Raises:
        RemoteUnavailable, RemoteRefused: the server did not say.
    """
    found = look(server, prefix)
    yield from found.problems
    for part in PARTS:
        left = parts_found(server, f"{prefix}:{part}")
        if left and not server.run("EXISTS", f"{prefix}:{part}:meta"):
            yield (
                f"{server.address} {prefix}:{part} has lost its description; {len(left):,} keys of the "
                f"server are left, which nobody asks. {clearing(server, prefix, 'removes them')}"
            )
    for part, meta in found.metas.items():
        if "importing" in meta.identity:
            yield (
                f"{server.address} {prefix}:{part}: an import is under way, or was cut short and leaves out "
                "part of what had been seen; run it again"
            )
    if found.filter is not None and (unfinished := _left(found.filter)[0]):
        yield (
            f"{found.filter.path}: {unfinished:,} keys of the server are left of a version that is not in "
            "force, and nobody asks them; the next `bloomdupe rebuild` removes them"
        )
    exact = found.store or store
    if found.filter is None or exact is None:
        return
    if different := _different(found.filter, exact):
        yield _of_others(server, prefix, found.filter, exact, different)
        return
    count = min(exact.count(), sample or 2**63)
    missing = sum(
        answers.count(False)
        for answers in map(
            found.filter.contains_many,
            _batches(progress(islice(exact.iter_keys(), sample), count)),
        )
    )
    if missing:
        behind = f" --store {store.database}" if store is exact else ""
        yield (
            f"{found.filter.path} lacks {missing:,} of {count:,} keys of the store: their pages can be "
            f"crawled again. `bloomdupe rebuild {server.address} --key {prefix}{behind}` makes a "
            "filter that has them"
        )


def notes(server: Server, prefix: str) -> Iterator[str]:
    """Give what is under *prefix* beside what is in force, and is no problem.

    Raises:
        RemoteError: the server did not say.
    """
    found = look(server, prefix).filter
    if found is not None and (old := _left(found)[1]):
        yield (
            f"{found.path}: {old:,} keys of the server are of the version before {found.version}; they go by "
            f"themselves within {OLD_SECONDS // 60} minutes, or with the next `bloomdupe rebuild`"
        )


def _left(made: RemoteFilter) -> tuple[int, int]:
    """Return how many parts are of no version in force and stay, and how many were put aside and go."""
    names = parts_found(made.server, made.name)
    meta = metas.read(made.server, f"{made.name}:meta")
    if meta is None or made.server.run("EXISTS", lock_name(made.name)):
        return 0, 0  # somebody is at it
    left = leftovers(names, meta)
    old = sum(one.endswith(OLD.encode()) and made.server.run("TTL", one) != -1 for one in left)
    return len(left) - old, old


def _shown(identity: Mapping[str, str], names: Iterable[str]) -> str:
    fingerprinter = identity.get("fingerprinter", "nobody yet")
    return f"{fingerprinter} ({', '.join(f'{name}={identity.get(name)!r:.20}' for name in names)})"


def check_memory(server: Server) -> Iterator[str]:
    """Give what is wrong with the memory of the server; nothing: all is well, or it does not tell.

    Raises:
        RemoteError: no answer.
    """
    memory = memories.read(server)
    if memory is None:
        return
    if trouble := memory.trouble():
        yield f"{server.address}: {trouble}"
    elif memory.free == 0:
        yield (
            f"{server.address}: all of its maxmemory of {memory.maximum:,} bytes are in use, and it takes "
            "nothing new; raise maxmemory"
        )


def rebuild(
    server: Server, prefix: str, plan: VersionPlan, progress: Progress, *, store: SqlStore | None = None
) -> Rebuilt:
    """Make the filter under *prefix* anew from the store, while workers go on.

    Args:
        store: the one behind the filter, where it is in a database.

    Raises:
        ConfigurationError: there are not both, or a value is out of its range.
        StateCorrupt: one of them has a problem.
        StateLocked, StateMismatch, RemoteError: see ``shared.versions.rebuild``.
    """
    found = look(server, prefix)
    if found.problems:
        raise StateCorrupt(found.problems[0])
    exact = found.store or store
    if found.filter is None or exact is None:
        raise ConfigurationError(
            f"{server.address} {prefix} has not both a filter and a store: a filter alone cannot be rebuilt, "
            "since its keys cannot be read back. --store names a store in a database"
        )
    if different := _different(found.filter, exact):
        raise StateCorrupt(_of_others(server, prefix, found.filter, exact, different))
    rebuilt = versions.rebuild(found.filter, exact, plan, progress=progress)
    assert rebuilt is not None
    return rebuilt


def _different(made: RemoteFilter, exact: RemoteStore) -> list[str]:
    """Return in what the keys of a filter and a store mean something else."""
    one, other = made.identity, exact.identity
    # Without a canary it was imported, and no project has called the keys its own yet.
    if "canary" not in one or "canary" not in other:
        return []
    return [name for name in _MEANING if one.get(name) != other.get(name)]


def _of_others(
    server: Server, prefix: str, made: RemoteFilter, exact: RemoteStore, different: list[str]
) -> str:
    return (
        f"{server.address} {prefix}: the keys of the filter and of the store were made by different "
        f"projects: {_shown(made.identity, different)} and {_shown(exact.identity, different)}. "
        f"{clearing(server, prefix, 'removes what is on the server')}"
    )


def _batches(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(keys)
    while batch := list(islice(rest, _BATCH)):
        yield batch
