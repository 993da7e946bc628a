"""What does a person ask of a database? ``bloomdupe info | check | clear`` of an exact store in a table.

It prints; the answers come from ``stores.sqlnamespaces``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from scrapy_bloomdupe.cli_places import date, is_wanted, maker
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
            f"{one.name:<20} {one.num_keys:,} keys, made {date(one.created)}, keys made by "
            f"{maker(one.identity or {})}"
        )
    if orphans:
        print(f"of no namespace      {orphans:,} keys")
    return 0


def check(arguments: argparse.Namespace) -> int:
    if arguments.sample is not None:
        raise ConfigurationError("--sample is for a filter and a store on one server")
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
    store = SqlStore.open(arguments.directory, key, table=arguments.table or TABLE, create=False)
    try:
        print(f"{store.clear():,} keys were removed")
    finally:
        store.close()
    return 0


def _namespaces(arguments: argparse.Namespace) -> tuple[list[Namespace], int]:
    found, orphans = namespaces(arguments.directory, arguments.table or TABLE)
    if arguments.key is None:
        return found, orphans
    chosen = [one for one in found if one.name == arguments.key]
    if not chosen:
        known = f"; there are: {', '.join(one.name for one in found)}" if found else ""
        raise StateNotFound(2, f"there is no namespace {arguments.key!r} in the table{known}")
    return chosen, 0
