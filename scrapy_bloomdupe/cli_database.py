"""What does a person ask of a database? ``bloomdupe info | check | clear`` of an exact store in a table.

It prints; the answers come from ``stores.sqlnamespaces``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from scrapy_bloomdupe.cli_places import date, is_wanted, maker, plain
from scrapy_bloomdupe.errors import ConfigurationError, StateNotFound
from scrapy_bloomdupe.remote.address import hidden
from scrapy_bloomdupe.stores.sql import SqlStore
from scrapy_bloomdupe.stores.sqlnamespaces import Namespace, namespaces
from scrapy_bloomdupe.stores.sqltables import TABLE


def info(arguments: argparse.Namespace) -> int:
    found, orphans = _namespaces(arguments)
    if arguments.json:
        rows = [{**asdict(one), "epoch": one.epoch.hex()} for one in found]
        print(json.dumps({"namespaces": rows, "keys_of_none": orphans}))
        return 0
    print(f"database             {hidden(arguments.directory)}")
    print(f"table                {arguments.table or TABLE}")
    for one in found:
        print(
            f"{plain(one.name):<20} {one.num_keys:,} keys, made {date(one.created)}, keys made by "
            f"{maker(one.identity or {})}"
        )
    if orphans:
        print(f"of no namespace      {orphans:,} keys")
    return 0


def check(arguments: argparse.Namespace) -> int:
    if arguments.sample is not None or arguments.store is not None:
        raise ConfigurationError("--sample and --store are for a filter on a server")
    found, orphans = _namespaces(arguments)
    problems = list(_database_problems(found, orphans))
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{len(found):,} namespaces, {sum(one.num_keys for one in found):,} keys: whole")
    return 1 if problems else 0


def _database_problems(found: list[Namespace], orphans: int) -> Iterator[str]:
    for one in found:
        if len(one.epoch) != 16 or one.identity is None:
            yield (
                f"the namespace {one.name!r} does not say what its keys mean: restore its row from a copy, "
                "or run `bloomdupe clear` on it"
            )
        elif "importing" in one.identity:
            yield f"an import into the namespace {one.name!r} was cut short: run it again"
    if orphans:
        yield (
            f"{orphans:,} keys belong to no namespace, and nobody asks them: delete the rows whose "
            "namespace_id is not in the meta table"
        )


def clear(arguments: argparse.Namespace, key: str) -> int:
    ((one,), _) = _namespaces(arguments)
    print(f"namespace {key}: {one.num_keys:,} keys")
    if not is_wanted(arguments):
        return 1
    with opened(arguments.directory, arguments.table or TABLE, key) as store:
        print(f"{store.clear():,} keys were removed")
    return 0


@contextmanager
def opened(url: str, table: str, key: str) -> Iterator[SqlStore]:
    """Give the store of a namespace that is there.

    Raises:
        StateNotFound: it is not.
    """
    _chosen(url, table, key)
    store = SqlStore.open(url, key, table=table, create=False)
    try:
        yield store
    finally:
        store.close()


def _chosen(url: str, table: str, key: str | None) -> tuple[list[Namespace], int]:
    """Return one namespace; without *key* all of them, and the number of keys of none."""
    found, orphans = namespaces(url, table)
    if key is None:
        return found, orphans
    chosen = [one for one in found if one.name == key]
    if not chosen:
        known = f"; there are: {', '.join(plain(one.name) for one in found)}" if found else ""
        raise StateNotFound(2, f"there is no namespace {key!r} in the table{known}")
    return chosen, 0


def _namespaces(arguments: argparse.Namespace) -> tuple[list[Namespace], int]:
    return _chosen(arguments.directory, arguments.table or TABLE, arguments.key)
