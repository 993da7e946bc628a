"""Whose keys are in a database? It lists the namespaces of a table, and changes nothing.

Not here: what is done with one of them (``sql``), which makes tables that are missing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_bloomdupe.errors import StateNotFound
from scrapy_bloomdupe.stores.sqlengine import Database
from scrapy_bloomdupe.stores.sqltables import TABLE, describe, sqlalchemy

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class Namespace:
    """One exact store in a table.

    Attributes:
        name: of the namespace.
        num_keys: rows of it.
        epoch: 16 bytes.
        created: seconds since 1970.
        identity: what the keys mean; None: it cannot be read.
    """

    name: str
    num_keys: int
    epoch: bytes
    created: int
    identity: Mapping[str, str] | None


def namespaces(url: str, table: str = TABLE) -> tuple[list[Namespace], int]:
    """Return the namespaces of *table*, and how many keys in it belong to none.

    Raises:
        ConfigurationError: a value is wrong, or a package is missing.
        StateNotFound: there is no such table.
        RemoteError: the database did not say.
    """
    tables = describe(table)
    database = Database(url)
    try:
        # Before SQLAlchemy opens it, which makes a file, and brings one into the form that ours has.
        _look_for_file(database, url, tables.meta.name)
        return database.run(lambda to: _listed(to, database, table), slow=True)
    finally:
        database.close()


def _listed(to: Connection, database: Database, table: str) -> tuple[list[Namespace], int]:
    sql = sqlalchemy()
    tables = describe(table)
    meta, seen = tables.meta, tables.seen
    if not all(sql.inspect(to).has_table(one.name) for one in (meta, seen)):
        raise _none(database, meta.name)
    counted = sql.select(seen.c.namespace_id, sql.func.count()).group_by(seen.c.namespace_id)
    counts = {int(number): int(count) for number, count in to.execute(counted)}
    found = [
        Namespace(
            row.namespace, counts.pop(row.id, 0), bytes(row.epoch), int(row.created), _read(row.identity)
        )
        for row in to.execute(sql.select(meta).order_by(meta.c.namespace))
    ]
    return found, sum(counts.values())


def _read(text: str) -> Mapping[str, str] | None:
    with contextlib.suppress(ValueError):
        values: Any = json.loads(text)
        if isinstance(values, dict):
            return {str(name): str(value) for name, value in values.items()}
    return None


def _look_for_file(database: Database, url: str, name: str) -> None:
    address = sqlalchemy().make_url(url)
    if address.get_backend_name() != "sqlite" or address.database in (None, "", ":memory:"):
        return
    path = Path(address.database).absolute()
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as file:
            asked = "SELECT count(*) FROM sqlite_master WHERE name = ?"
            if file.execute(asked, [name]).fetchone() == (1,):
                return
    except sqlite3.Error as exc:
        raise _none(database, name, f" ({exc})") from exc
    raise _none(database, name)


def _none(database: Database, name: str, why: str = "") -> StateNotFound:
    return StateNotFound(
        errno.ENOENT, f"{database} has no table {name}: there is no store there{why}. See --table"
    )
