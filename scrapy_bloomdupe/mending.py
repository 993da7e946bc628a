"""Does what lies on a server belong together, and how does its filter get what it lacks?

The store is on the same server, or in a database. ``check`` changes nothing; ``mend`` only adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import scrapy_bloomdupe.remote.memory as memories
from scrapy_bloomdupe.building import Progress
from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt
from scrapy_bloomdupe.inventory import PARTS, clearing, look
from scrapy_bloomdupe.remote.client import Server
from scrapy_bloomdupe.remote.kept import parts_found
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
    exact = found.store or store
    if found.filter is None or exact is None:
        return
    made, other = found.filter.identity, exact.identity
    different = [name for name in _MEANING if made.get(name) != other.get(name)]
    # Without a canary it was imported, and no project has called the keys its own yet.
    if different and "canary" in made and "canary" in other:
        yield (
            f"{server.address} {prefix}: the keys of the filter and of the store were made by different "
            f"projects: {_shown(made, different)} and {_shown(other, different)}. "
            f"{clearing(server, prefix, 'removes what is on the server')}"
        )
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
            f"crawled again. `bloomdupe rebuild {server.address} --key {prefix}{behind}` adds them"
        )


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


def mend(
    server: Server, prefix: str, progress: Progress, *, store: SqlStore | None = None
) -> tuple[int, int]:
    """Add what the store has and the filter lacks; return the keys of the store and those that were added.

    Nothing is made anew: workers may go on meanwhile.

    Args:
        store: the one behind the filter, where it is in a database.

    Raises:
        ConfigurationError: there are not both.
        StateCorrupt: one of them has a problem.
        RemoteError: the server did not do it; it can be done again.
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
    count = exact.count()
    added = sum(
        answers.count(False)
        for answers in map(found.filter.add_many, _batches(progress(exact.iter_keys(), count)))
    )
    return count, added


def _batches(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(keys)
    while batch := list(islice(rest, _BATCH)):
        yield batch
