"""Was this key certainly seen, on any machine? Whole keys in a table of a database that SQLAlchemy speaks to.

PostgreSQL and SQLite take a batch in one statement that says which keys were new (``INSERT ... ON CONFLICT DO
NOTHING RETURNING``); any other database gets the keys one by one, each in a savepoint. Either way exactly one
of several workers gets a new key: the primary key decides.

Not here: the tables (``sqltables``), engines and time limits (``sqlengine``).
"""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scrapy_bloomdupe.errors import (
    ConfigurationError,
    RemoteEmptied,
    StateExists,
    StateNotFound,
    StoreError,
)
from scrapy_bloomdupe.stores.base import Valueless
from scrapy_bloomdupe.stores.sqlengine import Database
from scrapy_bloomdupe.stores.sqltables import MAX_KEY_SIZE, MAX_NAMESPACE_SIZE, TABLE, describe, sqlalchemy

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Seconds for an answer.
SQL_TIMEOUT = 2.0
#: Keys in one statement, two values each: SQLite takes 32,766 values at most, PostgreSQL 65,535.
_BATCH = 1_000
_CHUNK = 10_000


class SqlStore(Valueless):
    """An exact store in a database; the contract is ``stores.base.Store``. Made by ``open``.

    Any thread may use it. Every call is a transaction of its own: what it took is in the database when it
    returns.
    """

    def __init__(self, database: Database, table: str, namespace: str) -> None:
        self.database = database
        self.namespace = namespace
        self.table = table
        self._sql = sqlalchemy()
        self._tables = describe(table)
        self._id = 0
        self._epoch = b""
        self._identity: Mapping[str, str] = {}
        self._all_at_once: Any = None
        self._some_at_once: Any = None
        self.was_created = False

    @classmethod
    def open(
        cls,
        url: str,
        namespace: str = "default",
        *,
        table: str = TABLE,
        identity: Mapping[str, str] | None = None,
        create: bool | None = None,
        timeout: float = SQL_TIMEOUT,
        failures: int = 3,
    ) -> SqlStore:
        """Find the store, or make it; tables are made when they are missing.

        Args:
            url: as SQLAlchemy reads it: ``postgresql+psycopg://user@host/db``, ``sqlite:////path``.
            namespace: whose keys they are, 1 to 200 letters; others in the same table are others.
            table: its name, at most 55 letters, digits and ``_``.
            identity: what the keys mean, for a store that is made.
            create: True: only if there is none. False: only if there is one. None: either.
            timeout: seconds for an answer, > 0.
            failures: in a row until the database is not asked for a while, see ``remote.breaker``.

        Raises:
            ConfigurationError: a value is wrong, or a package is missing.
            StateExists, StateNotFound: see *create*.
            RemoteError: the database did not do it.
        """
        if not 1 <= len(namespace) <= MAX_NAMESPACE_SIZE:
            raise ConfigurationError(
                f"namespace={namespace!r} has {len(namespace)} letters, a store takes 1 to "
                f"{MAX_NAMESPACE_SIZE}"
            )
        self = cls(Database(url, timeout=timeout, failures=failures), table, namespace)
        self._identity = dict(identity or {})
        try:
            self._open(create)
        except BaseException:
            self.database.close()
            raise
        return self

    @property
    def path(self) -> str:
        """Database, table and namespace, for people."""
        return f"{self.database} {self.table} {self.namespace}"

    @property
    def store_id(self) -> bytes:
        """16 bytes, others after every time that it was made anew."""
        return self._epoch

    @property
    def identity(self) -> Mapping[str, str]:
        """What the keys mean; without ``canary``: not known yet."""
        return self._identity

    def set_identity(self, identity: Mapping[str, str]) -> None:
        """Write what the keys mean.

        Raises:
            RemoteError: not written.
        """
        meta = self._tables.meta
        text = json.dumps(dict(identity), sort_keys=True)
        self._run(lambda to: to.execute(meta.update().where(meta.c.id == self._id).values(identity=text)))
        self._identity = dict(identity)

    def verify(self) -> None:
        """Look whether it is still the one that was opened; for a timer.

        Raises:
            RemoteEmptied: it is gone, or another one.
            RemoteError: the database did not say.
        """
        self.database.run(self._check)

    def renew(self) -> bool:
        """Take what is there now, or make it anew: after ``RemoteEmptied``; return whether it was made.

        Raises:
            RemoteError: the database did not do it.
        """
        self._open(None)
        return self.was_created

    def clear(self) -> int:
        """Remove the namespace from the database; return how many keys it had.

        Raises:
            RemoteError: nothing was removed.
        """
        meta, seen = self._tables.meta, self._tables.seen

        def remove(to: Connection) -> int:
            to.execute(meta.delete().where(meta.c.id == self._id))
            return int(to.execute(seen.delete().where(seen.c.namespace_id == self._id)).rowcount)

        return self.database.run(remove, slow=True)

    def add(self, key: bytes, value: bytes = b"") -> bool:
        return self.add_many([key])[0]

    def put(self, key: bytes, value: bytes = b"") -> None:
        self.put_many([key])

    def remove(self, key: bytes) -> None:
        self.remove_many([key])

    def add_many(self, keys: Sequence[bytes], value: bytes = b"") -> list[bool]:
        """Add *keys* in one transaction; return the answers of ``add``."""
        # In order: two workers that add the same keys each in its own would wait for each other forever.
        unique = sorted(set(self._checked(keys)))
        if not unique:
            return []
        new = self._run(lambda to: self._insert(to, unique), single=self._all_at_once is not None)
        found = []
        for key in keys:
            found.append(key in new)
            new.discard(key)
        return found

    def put_many(self, keys: Sequence[bytes], value: bytes = b"") -> None:
        self.add_many(keys)

    def remove_many(self, keys: Sequence[bytes]) -> None:
        """Forget *keys*, in one transaction.

        Raises:
            RemoteError: none or all are forgotten.
        """
        seen = self._tables.seen
        unique = sorted(set(self._checked(keys)))

        def remove(to: Connection) -> None:
            for start in range(0, len(unique), _BATCH):
                to.execute(
                    seen.delete().where(
                        seen.c.namespace_id == self._id, seen.c.key.in_(unique[start : start + _BATCH])
                    )
                )

        if unique:
            self._run(remove)

    def contains_many(self, keys: Sequence[bytes]) -> list[bool]:
        """Return for each key what ``in`` does.

        Raises:
            RemoteError: nothing is known of any of them.
        """
        seen = self._tables.seen
        unique = sorted(set(self._checked(keys)))

        def ask(to: Connection) -> set[bytes]:
            found: set[bytes] = set()
            for start in range(0, len(unique), _BATCH):
                asked = self._sql.select(seen.c.key).where(
                    seen.c.namespace_id == self._id, seen.c.key.in_(unique[start : start + _BATCH])
                )
                found.update(bytes(key) for key in to.execute(asked).scalars())
            return found

        if not unique:
            return []
        known = self._run(ask)
        return [key in known for key in keys]

    def __contains__(self, key: bytes) -> bool:
        return self.contains_many([key])[0]

    def iter_keys(self) -> Iterator[bytes]:
        """Give every key once, in their order.

        Raises:
            RemoteError: the database did not give them all.
        """
        last: bytes | None = None
        while chunk := self._chunk(last):
            yield from chunk
            last = chunk[-1]

    def count(self) -> int:
        seen = self._tables.seen
        asked = (
            self._sql.select(self._sql.func.count()).select_from(seen).where(seen.c.namespace_id == self._id)
        )
        return int(self._run(lambda to: to.execute(asked).scalar_one(), slow=True))

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Let go of the connections."""
        self.database.close()

    def _checked(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        for key in keys:
            if not 1 <= len(key) <= MAX_KEY_SIZE:
                raise StoreError(
                    22, f"a key has {len(key)} bytes, the store takes 1 to {MAX_KEY_SIZE}: {key[:20]!r}"
                )
        return keys

    def _chunk(self, last: bytes | None) -> list[bytes]:
        seen = self._tables.seen
        asked = self._sql.select(seen.c.key).where(seen.c.namespace_id == self._id)
        if last is not None:
            asked = asked.where(seen.c.key > last)
        asked = asked.order_by(seen.c.key).limit(_CHUNK)
        found: list[bytes] = self._run(
            lambda to: [bytes(key) for key in to.execute(asked).scalars()], slow=True
        )
        return found

    def _insert(self, to: Connection, keys: list[bytes]) -> set[bytes]:
        """Insert *keys*, which are all different and in order; return the new ones."""
        if self._all_at_once is not None:
            return {bytes(key) for key in to.execute(self._all_at_once, {"keys": keys}).scalars()}
        rows = [{"namespace_id": self._id, "key": key} for key in keys]
        if self._some_at_once is not None:
            return {bytes(key) for key in to.execute(self._some_at_once, rows).scalars()}
        new: set[bytes] = set()
        for key, row in zip(keys, rows, strict=True):
            try:
                with to.begin_nested():
                    to.execute(self._tables.seen.insert(), row)
            except self._sql.exc.IntegrityError:
                continue
            new.add(key)
        return new

    def _compile(self) -> None:
        """Make the statements for databases that take a batch at once."""
        seen, sql = self._tables.seen, self._sql
        self._all_at_once = self._some_at_once = None
        if self.database.dialect == "postgresql":
            # All keys as one value: no statement grows with them.
            from sqlalchemy.dialects import postgresql

            given = sql.bindparam("keys", type_=postgresql.ARRAY(sql.LargeBinary))
            rows = sql.select(sql.literal(self._id, sql.Integer), sql.func.unnest(given))
            insert = postgresql.insert(seen).from_select(["namespace_id", "key"], rows)
            self._all_at_once = insert.on_conflict_do_nothing().returning(seen.c.key)
        elif self.database.dialect == "sqlite":
            # SQLAlchemy's "insertmanyvalues": few statements, compiled once.
            from sqlalchemy.dialects import sqlite

            self._some_at_once = sqlite.insert(seen).on_conflict_do_nothing().returning(seen.c.key)

    def _run(self, work: Any, *, slow: bool = False, single: bool = False) -> Any:
        return self.database.run(work, check=self._check, slow=slow, single=single)

    def _check(self, to: Connection) -> None:
        """Look whether the namespace is still the same; once for each connection."""
        meta = self._tables.meta
        epoch = to.execute(self._sql.select(meta.c.epoch).where(meta.c.id == self._id)).scalar_one_or_none()
        if epoch is None or bytes(epoch) != self._epoch:
            raise self._emptied()

    def _emptied(self) -> RemoteEmptied:
        return RemoteEmptied(
            errno.ENOENT,
            f"{self.path}: what had been seen is gone from the database. It was cleared, or is another one "
            "than it was. Pages that were crawled before can be crawled again; none is lost",
        )

    def _open(self, create: bool | None) -> None:
        meta, sql = self._tables.meta, self._sql
        mine = sql.select(meta.c.id, meta.c.epoch, meta.c.identity).where(meta.c.namespace == self.namespace)
        row: dict[str, Any] = {
            "namespace": self.namespace,
            "epoch": secrets.token_bytes(16),
            "identity": json.dumps(dict(self._identity), sort_keys=True),
            "created": int(time.time()),
            # Never one that was used before: keys of a namespace that was cleared belong to nobody.
            "id": secrets.randbelow(2**31 - 1) + 1,
        }
        self.database.make([meta, self._tables.seen])
        found = self.database.run(lambda to: to.execute(mine).one_or_none(), slow=True)
        if found is not None and create:
            raise StateExists(errno.EEXIST, f"{self.path} exists and is not overwritten; clear it first")
        if found is None and create is False:
            raise StateNotFound(errno.ENOENT, f"{self.path} does not exist: there is no store there")
        if found is None:
            with contextlib.suppress(sql.exc.IntegrityError):  # somebody else was faster
                self.database.run(lambda to: to.execute(meta.insert(), row), slow=True, wrapped=False)
            found = self.database.run(lambda to: to.execute(mine).one_or_none(), slow=True)
            if found is None:
                raise self._emptied()
        self._id, self._epoch = int(found.id), bytes(found.epoch)
        self._identity = {str(name): str(value) for name, value in json.loads(found.identity).items()}
        self.was_created = self._epoch == row["epoch"]
        self._compile()
        self.database.forget_checks()
