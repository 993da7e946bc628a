"""What does a person ask of a server or a database? ``bloomdupe info | check | rebuild | clear`` of a URL.

It parses, prints and asks before something is removed; the answers come from ``inventory`` and
``mending``. Databases: ``cli_database``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import scrapy_bloomdupe.cli_database as database
import scrapy_bloomdupe.inventory as inventory
import scrapy_bloomdupe.mending as mending
import scrapy_bloomdupe.remote.memory as memories
from scrapy_bloomdupe.cli_places import (
    date,
    is_server,
    is_url,
    is_wanted,
    maker,
    one_key,
    open_server,
    plain,
    progress,
)
from scrapy_bloomdupe.errors import ConfigurationError, StateNotFound
from scrapy_bloomdupe.remote.client import Server
from scrapy_bloomdupe.report import size
from scrapy_bloomdupe.shared.versions import VersionPlan
from scrapy_bloomdupe.stores.sql import SqlStore
from scrapy_bloomdupe.stores.sqltables import TABLE

Command = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_place(parser: argparse.ArgumentParser, *, store: bool = False) -> None:
    """Add a positional that is a directory or a URL, and what belongs to the latter."""
    parser.add_argument(
        "directory",
        metavar="DIR|URL",
        help="a JOBDIR, the directory of a state, redis://... or a database (postgresql+psycopg://...)",
    )
    parser.add_argument("--key", metavar="NAME", help="what names on the server begin with; a namespace")
    parser.add_argument("--table", metavar="NAME", help=f"of the database (default: {TABLE})")
    if store:
        parser.add_argument("--store", metavar="URL", help="of a database: the store behind the filter")


def add_clear(command: Command) -> None:
    """Add ``clear``."""
    sub = command("clear", _clear, "Remove a filter and a store from a server; asks first.")
    add_place(sub)
    sub.add_argument("--yes", action="store_true", help="do not ask")


def is_remote(arguments: argparse.Namespace, *options: str) -> bool:
    """Return whether the place is a URL.

    Raises:
        ConfigurationError: it is a directory, and one of *options*, which are for URLs, was given.
    """
    if is_url(arguments.directory):
        return True
    for option in options:
        if getattr(arguments, option) is not None:
            raise ConfigurationError(f"--{option} is for a server or a database, this is a directory")
    return False


def info(arguments: argparse.Namespace) -> int:
    """``bloomdupe info URL``."""
    if not is_server(arguments.directory):
        return database.info(arguments)
    with open_server(arguments.directory) as server:
        memory = memories.read(server)
        rows = [inventory.describe(inventory.look(server, key)) for key in _keys(server, arguments.key)]
        if arguments.json:
            shown = None if memory is None else {**asdict(memory), "trouble": memory.trouble()}
            print(json.dumps({"server": str(server.address), "memory": shown, "keys": rows}))
        else:
            _print_server(server, memory)
            for row in rows:
                _print_row(row)
        return 1 if any(row["problems"] for row in rows) else 0


def _keys(server: Server, key: str | None) -> list[str]:
    """Return the prefixes to look at.

    Raises:
        StateNotFound: there is nothing under *key*, or nothing at all.
    """
    if key is not None and inventory.exists(server, key):
        return [key]
    found = inventory.prefixes(server)
    known = (
        f". There are: {', '.join(map(plain, found))}"
        if found
        else ", nor under another name in this database"
    )
    if key is not None:
        raise StateNotFound(2, f"{server.address} has no filter and no store under {key!r}{known}")
    if not found:
        raise StateNotFound(
            2,
            f"{server.address} has no filter and no store; see that the URL has the right number of the "
            "database",
        )
    return found


def _print_server(server: Server, memory: memories.Memory | None) -> None:
    print(f"server               {server.address}")
    if memory is None:
        print("memory               not told to this user")
        return
    limit = f" of {size(memory.maximum)}" if memory.maximum else ", no limit"
    evicted = f"{memory.evicted_keys:,} keys evicted"
    print(f"memory               {size(memory.used)}{limit}, {memory.policy}, {evicted}")
    if trouble := memory.trouble():
        print(f"trouble              {trouble}")


def _print_row(row: Mapping[str, Any]) -> None:
    print(f"\nkey                  {plain(row['key'])}")
    made, store = row["filter"], row["store"]
    if made is None:
        print("filter               none")
    else:
        print(f"filter               {plain(made['kind'])}, {_shards(made)}, {_size(made)}")
        if "num_keys" in made:
            print(f"keys in the filter   {made['num_keys']:,} (made for {made['capacity']:,})")
            print(f"fill                 {made['fill']:.1%}")
            print(f"error rate           {made['error_rate_estimate']:.3g} now, {made['error_rate']:g} asked")
    if store is None:
        print("exact store          none")
    else:
        keys = f"{store['num_keys']:,} keys, " if "num_keys" in store else ""
        print(f"exact store          {plain(store['kind'])}, {_shards(store)}, {keys}{_size(store)}")
    for name, part in (("filter", made), ("store", store)):
        if part is not None:
            version = f", version {part['version']}" if name == "filter" else ""
            print(f"{name + ' made':<20} {date(part['created'])}{version}, epoch {part['epoch'][:16]}")
    for identity in {
        json.dumps(part["identity"]): part["identity"] for part in (made, store) if part
    }.values():
        print(f"keys made by         {maker(identity)}")
    for problem in row["problems"]:
        print(f"problem              {plain(problem)}")


def _shards(part: Mapping[str, Any]) -> str:
    return "1 shard" if part["shards"] == 1 else f"{part['shards']} shards"


def _size(part: Mapping[str, Any]) -> str:
    return "unknown size" if part.get("num_bytes") is None else size(part["num_bytes"])


def check(arguments: argparse.Namespace) -> int:
    """``bloomdupe check URL``."""
    if not is_server(arguments.directory):
        return database.check(arguments)
    with _store(arguments) as store, open_server(arguments.directory) as server:
        keys = _keys(server, arguments.key)
        problems = list(mending.check_memory(server))
        notes: list[str] = []
        for key in keys:
            bar = progress("checking")
            problems += mending.check(server, key, bar, sample=arguments.sample, store=store)
            notes += mending.notes(server, key)
        for said in (*problems, *notes):
            print(plain(said))
        if not problems:
            compared = "all keys of a store are" if arguments.sample is None else "the sampled keys are"
            print(f"{server.address} {plain(', '.join(keys))}: whole; {compared} in the filter beside it")
    return 1 if problems else 0


def _store(arguments: argparse.Namespace) -> AbstractContextManager[SqlStore | None]:
    """Give the store in a database that belongs to the filter; None: none was named."""
    if arguments.store is None:
        return nullcontext()
    if not is_url(arguments.store) or is_server(arguments.store):
        raise ConfigurationError(
            "--store names a database, such as postgresql+psycopg://...; one on the server itself is found"
        )
    return database.opened(arguments.store, arguments.table or TABLE, one_key(arguments))


def rebuild(arguments: argparse.Namespace) -> int:
    """``bloomdupe rebuild URL``."""
    if not is_server(arguments.directory):
        raise ConfigurationError("a database has no filter to rebuild; give the server that has it")
    for option in ("layout", "scheme"):
        if getattr(arguments, option):
            raise ConfigurationError(f"--{option} is for a filter in a file; a server has one of its own")
    plan = VersionPlan(arguments.capacity, arguments.error_rate)
    with _store(arguments) as store, open_server(arguments.directory) as server:
        (key,) = _keys(server, one_key(arguments))
        done = mending.rebuild(server, key, plan, progress("rebuilding"), store=store)
        print(
            f"{server.address} {key}: the filter is version {done.new}, in the place of version {done.old}: "
            f"{done.count:,} keys of the store, and {done.caught_up:,} that came meanwhile; made for "
            f"{done.capacity:,} at an error rate of {done.error_rate:g}"
        )
    return 0


def _clear(arguments: argparse.Namespace) -> int:
    if not is_url(arguments.directory):
        raise ConfigurationError(
            f"clear is for servers and databases; a directory is moved aside: mv {arguments.directory} "
            f"{arguments.directory.rstrip('/')}.old"
        )
    key = one_key(arguments)
    if not is_server(arguments.directory):
        return database.clear(arguments, key)
    with open_server(arguments.directory) as server:
        _keys(server, key)
        names = inventory.names_under(server, key)
        taken = inventory.num_bytes(server, names)
        print(
            f"{server.address} {key}: {_contents(server, key)}; {len(names):,} keys of the server, "
            f"{'unknown size' if taken is None else size(taken)}"
        )
        if not is_wanted(arguments):
            return 1
        # Asked again: a filter can have grown while a person was asked.
        count = inventory.remove(server, inventory.names_under(server, key))
        print(f"{count:,} keys of the server were removed")
    return 0


def _contents(server: Server, key: str) -> str:
    row = inventory.describe(inventory.look(server, key))
    parts = [
        f"{name} of {row[name]['num_keys']:,} keys"
        if "num_keys" in row[name]
        else f"{name} that is not whole"
        for name in inventory.PARTS
        if row[name] is not None
    ]
    return " and ".join(parts) or "parts without a description"
