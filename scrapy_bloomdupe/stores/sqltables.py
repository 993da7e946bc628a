"""Which tables does the exact store have in a database? Frozen: what was written has to be found again.

::

    <table>_meta   id (random), namespace (unique), epoch (16 bytes), identity (JSON), created (in seconds
                   since 1970)
    <table>        namespace_id, key: together the primary key

Many namespaces share a table: four bytes for each key say whose it is. sqlalchemy is imported when a store is
opened, and only in the ``sql`` modules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from scrapy_bloomdupe.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy import Table

TABLE = "bloomdupe_seen"
MAX_KEY_SIZE = 511
MAX_NAMESPACE_SIZE = 200
# As an identifier without quotes in every database; PostgreSQL cuts at 63, and ``_meta`` follows.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,54}")


@dataclass(frozen=True)
class Tables:
    """The two tables."""

    meta: Table
    seen: Table


def sqlalchemy() -> ModuleType:
    """Return the package.

    Raises:
        ConfigurationError: it is missing; says how to install it.
    """
    try:
        import sqlalchemy
    except ImportError as exc:
        raise ConfigurationError(
            "a database was named as the exact store, and the package to ask it is not installed: "
            "pip install scrapy-bloomdupe[sql], and the driver of the database, such as psycopg[binary]"
        ) from exc
    return sqlalchemy


def describe(table: str) -> Tables:
    """Return the tables called *table*.

    Raises:
        ConfigurationError: that is no name for one.
    """
    if not _NAME.fullmatch(table):
        raise ConfigurationError(
            f"table={table!r} is not a name of at most 55 letters, digits and _ that begins with a letter; "
            f"take for example {TABLE!r}"
        )
    sql = sqlalchemy()
    import sqlalchemy.dialects.mysql as mysql

    data = sql.MetaData()
    meta = sql.Table(
        f"{table}_meta",
        data,
        sql.Column("id", sql.Integer, primary_key=True, autoincrement=False),
        sql.Column("namespace", sql.String(MAX_NAMESPACE_SIZE), nullable=False, unique=True),
        sql.Column("epoch", sql.LargeBinary(16), nullable=False),
        sql.Column("identity", sql.Text, nullable=False),
        sql.Column("created", sql.BigInteger, nullable=False),
    )
    key = sql.LargeBinary(MAX_KEY_SIZE).with_variant(mysql.VARBINARY(MAX_KEY_SIZE), "mysql", "mariadb")
    seen = sql.Table(
        table,
        data,
        sql.Column("namespace_id", sql.Integer, primary_key=True, autoincrement=False),
        sql.Column("key", key, primary_key=True),
        sqlite_with_rowid=False,  # one tree, ordered by key, in place of a table and an index
    )
    return Tables(meta, seen)
