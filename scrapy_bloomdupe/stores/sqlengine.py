"""How is a database asked once, in time, and what does each way of failing mean?

Nothing is asked twice: whether a transaction was committed before its answer was lost is not known. The one
exception is an answer that says that it was not (a deadlock, which the database ends by undoing one side).

Not here: what is asked (``sql``).
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_bloomdupe.errors import (
    BloomdupeError,
    CircuitOpen,
    ConfigurationError,
    RemoteEmptied,
    RemoteError,
    RemoteFull,
    RemoteRefused,
    RemoteUnavailable,
)
from scrapy_bloomdupe.remote.address import hidden
from scrapy_bloomdupe.remote.breaker import Breaker
from scrapy_bloomdupe.remote.deadline import Deadline, Overdue
from scrapy_bloomdupe.stores.sqltables import sqlalchemy

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

SLOW_SECONDS = 60.0
_CHECK_SECONDS = 1.0

T = TypeVar("T")

# SQLSTATE (PostgreSQL, "Appendix A. PostgreSQL Error Codes").
_UNDONE = ("40001", "40P01")
_FULL = ("53100", "53200")
_REFUSED = ("25006", "28000", "28P01", "42501", "3D000")
_GONE = ("42P01", "3F000")


class Database:
    """A database. Any thread may use it.

    Args:
        url: as SQLAlchemy reads it.
        timeout: seconds for an answer, > 0.
        failures: see ``remote.breaker``.
        breaker: None: one of its own.

    Raises:
        ConfigurationError: the URL is wrong, or SQLAlchemy or the driver is missing.
    """

    def __init__(
        self, url: str, *, timeout: float = 2.0, failures: int = 3, breaker: Breaker | None = None
    ) -> None:
        self._sql = sqlalchemy()
        self.breaker = breaker or Breaker(failures=failures)
        self._timeout = timeout
        self._generation = 0
        try:
            address = self._sql.make_url(url)
            self._shown = address.render_as_string(hide_password=True)
            self._is_file = address.get_backend_name() == "sqlite"
            options: dict[str, Any] = {"pool_size": 4, "max_overflow": 4, "pool_timeout": timeout}
            arguments: dict[str, Any] = {}
            if self._is_file:
                arguments = {"timeout": timeout, "check_same_thread": False}
                if address.database in (None, "", ":memory:"):
                    options = {"poolclass": self._sql.pool.StaticPool}
            elif address.get_driver_name() in ("psycopg", "psycopg2"):
                arguments = {"connect_timeout": max(1, round(timeout))}
            self._engine = self._sql.create_engine(address, connect_args=arguments, **options)
            self._autocommit = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        except self._sql.exc.ArgumentError as exc:
            # Some releases repeat the URL, with its password.
            said = str(exc).replace(url, hidden(url))
            raise ConfigurationError(
                "the exact store's URL is not one that SQLAlchemy reads; write for example "
                f"'postgresql+psycopg://user@host/database' or 'sqlite:////path/seen.db' ({said})"
            ) from None
        except ImportError as exc:
            raise ConfigurationError(
                f"the driver for {self._shown} is not installed ({exc}): pip install psycopg[binary] for "
                "postgresql+psycopg://, PyMySQL for mysql+pymysql://"
            ) from exc
        if self._is_file:
            self._sql.event.listen(self._engine, "connect", _tune_sqlite)
        # SQLite is a file of this machine and has its own time limit; a server may hang without a word.
        self._deadline = None if self._is_file else Deadline("bloomdupe-sql")

    def __str__(self) -> str:
        """The URL without its password."""
        return str(self._shown)

    @property
    def dialect(self) -> str:
        """``postgresql`` or ``sqlite``, if it can skip what is there and return what was new; else empty."""
        name = str(self._engine.dialect.name)
        if name == "sqlite" and self._engine.dialect.dbapi.sqlite_version_info < (3, 35):
            return ""
        return name if name in ("postgresql", "sqlite") else ""

    def run(
        self,
        work: Callable[[Connection], T],
        *,
        check: Callable[[Connection], None] | None = None,
        slow: bool = False,
        wrapped: bool = True,
        single: bool = False,
    ) -> T:
        """Return what *work* returns, done in one transaction.

        Args:
            check: done first on a connection that has not seen it in the last second.
            slow: wait ``SLOW_SECONDS``.
            wrapped: False: let an IntegrityError through.
            single: *work* is one statement, which needs no transaction around it: one round trip for three.

        Raises:
            RemoteError: see its kinds. After RemoteUnavailable the transaction may be committed nevertheless.
        """

        overdue = threading.Event()

        def transaction() -> T:
            engine = self._autocommit if single and not self._is_file else self._engine
            with engine.connect() as connection:
                try:
                    with connection.begin():
                        if check is not None:
                            self._check(connection, check)
                        return work(connection)
                finally:
                    if overdue.is_set():
                        connection.invalidate()  # its pool is gone

        def attempt() -> T:
            if self._deadline is None:
                return transaction()
            try:
                return self._deadline.run(transaction, SLOW_SECONDS if slow else self._timeout)
            except Overdue:
                overdue.set()
                # What is in the pool may hang as well.
                self._engine.dispose()
                raise

        if not self.breaker.allows():
            raise CircuitOpen(
                errno.ECONNREFUSED,
                f"{self} was not asked: it failed several times in a row, and is tried again in "
                f"{self.breaker.seconds_to_probe:.1f} s",
            )
        with self._watched(wrapped):
            try:
                return attempt()
            except self._sql.exc.DBAPIError as exc:
                if _state(exc) not in _UNDONE:
                    raise
                return attempt()

    def make(self, tables: Sequence[Table]) -> None:
        """Make the tables that are missing.

        Raises:
            RemoteError: see its kinds.
        """
        for table in tables:
            try:
                self.run(lambda to, one=table: one.create(to, checkfirst=True), slow=True)  # type: ignore[misc]
            except RemoteError:
                # Several workers that begin at once: the others find it there.
                if not self.run(lambda to, one=table: self._sql.inspect(to).has_table(one.name), slow=True):  # type: ignore[misc]
                    raise

    def forget_checks(self) -> None:
        """Let each connection be checked anew."""
        self._generation += 1

    def close(self) -> None:
        """Let go of the connections; a later question opens them again."""
        self._engine.dispose()
        if self._deadline is not None:
            self._deadline.close()

    def _check(self, connection: Connection, check: Callable[[Connection], None]) -> None:
        generation, until = connection.info.get("checked", (-1, 0.0))
        if generation != self._generation or time.monotonic() >= until:
            check(connection)
            connection.info["checked"] = self._generation, time.monotonic() + _CHECK_SECONDS

    @contextlib.contextmanager
    def _watched(self, wrapped: bool) -> Iterator[None]:
        try:
            yield
        except BloomdupeError:
            self.breaker.succeeded()
            raise
        except Overdue as exc:
            self.breaker.failed()
            raise RemoteUnavailable(errno.ETIMEDOUT, f"{self} gave no answer: {exc}") from exc
        except self._sql.exc.SQLAlchemyError as exc:
            if not wrapped and isinstance(exc, self._sql.exc.IntegrityError):
                self.breaker.succeeded()
                raise
            error = self._meaning(exc)
            if isinstance(error, RemoteUnavailable):
                self.breaker.failed()
            else:
                self.breaker.succeeded()
            raise error from exc
        except BaseException:
            self.breaker.failed()
            raise
        self.breaker.succeeded()

    def _meaning(self, exc: Exception) -> RemoteError:
        state, words = _state(exc), str(getattr(exc, "orig", None) or exc).strip()
        if state in _GONE or "no such table" in words:
            return RemoteEmptied(
                errno.ENOENT,
                f"{self}: the tables of what had been seen are gone ({words.splitlines()[0]}). Pages that "
                "were crawled before can be crawled again; none is lost",
            )
        if state in _FULL or "disk is full" in words:
            return RemoteFull(errno.ENOSPC, f"{self} takes no more: {words}")
        if state in _REFUSED or "readonly" in words or "password authentication failed" in words:
            return RemoteRefused(errno.EACCES, f"{self} refused: {words}")
        if isinstance(
            exc, self._sql.exc.OperationalError | self._sql.exc.InterfaceError | self._sql.exc.TimeoutError
        ):
            return RemoteUnavailable(errno.EHOSTUNREACH, f"{self} gave no answer: {words}")
        return RemoteRefused(errno.EPERM, f"{self} refused: {words}")


def _state(exc: BaseException) -> str:
    """Return the SQLSTATE of a driver's error; empty: it has none."""
    original = getattr(exc, "orig", None)
    return str(getattr(original, "sqlstate", None) or getattr(original, "pgcode", None) or "")


def _tune_sqlite(connection: Any, _record: object) -> None:
    # Readers beside a writer, and no sync per transaction: what is written survives the death of the process.
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
