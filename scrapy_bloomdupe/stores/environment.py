"""How do several parts share one LMDB file, and how does it grow, fail and get to the disk?

It knows transactions, not keys: ``stores.lmdb`` keeps the seen keys in one of its named databases, and
another part can write to another one in the same transaction.

Traps that this module takes care of: a full map aborts the transaction and with it all that was put
into it; the map must not be resized while a transaction is open; a file cut short kills the process
(SIGBUS) when a lost page is read; a commit without sync survives ``kill -9`` but not a power loss.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import lmdb
from lmdb import verify as lmdb_verify

from scrapy_bloomdupe.errors import (
    StateCorrupt,
    StateExists,
    StateNotFound,
    StateUnusable,
    StoreError,
)

# Address space, not disk: LMDB's file grows with what is in it.
INITIAL_MAP_SIZE = 64 << 20
# A group is some thousand keys. Every key may copy a leaf of 4 KiB and a few pages above it.
_HEADROOM = 32 << 20
_MAX_DATABASES = 16

Transaction = Any  # lmdb.Transaction is generic in its stub only, not at run time


class Participant(Protocol):
    """A part that keeps what it has to write until the next ``Environment.commit``."""

    def work(self) -> Callable[[Transaction], None] | None:
        """Return what writes it, None: nothing. It may be run more than once."""

    def written(self) -> None:
        """Forget what waited: it is committed."""


class Environment:
    """One LMDB file; made by ``create`` or ``open``. Writes belong to one thread.

    Parts that ``join`` it are committed together: whatever one of them knows of another one is true
    after a crash.
    """

    def __init__(self, env: lmdb.Environment, path: Path) -> None:
        self.path = path
        #: When another process has written to it last, in seconds since 1970; 0: it is new.
        self.last_write = 0.0
        self._env = env
        self._reader: Transaction | None = None
        self._participants: list[Participant] = []
        self._closed = False
        self._page_size = env.stat()["psize"]

    @classmethod
    def create(cls, path: Path, *, map_size: int = INITIAL_MAP_SIZE, sync: bool = False) -> Environment:
        """Make a new, empty file.

        Args:
            sync: see ``open``.

        Raises:
            StateExists: something is at *path*.
            StateUnusable: the system refused.
        """
        if path.exists() and (not path.is_file() or path.stat().st_size):
            raise StateExists(17, f"{path} exists and is not overwritten; move it aside first")
        return cls._open(path, map_size, readonly=False, sync=sync)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        map_size: int = INITIAL_MAP_SIZE,
        readonly: bool = False,
        sync: bool = False,
        extend: bool = False,
    ) -> Environment:
        """Open what is there.

        Args:
            sync: bring every commit to the disk, in an order that keeps the file whole if the machine goes
                down; a few milliseconds each. Else the file can be torn by that, not by ``kill -9``.
            extend: make a short file as long as its pages need, instead of reading all of them: who reads a
                page behind its end is killed (SIGBUS). The caller has it verified.

        Raises:
            StateNotFound: nothing is there.
            StateUnusable: the system refused, or it is no file.
            StateCorrupt: it does not check out; it was left as it is.
        """
        if not path.exists():
            raise StateNotFound(2, f"there is no exact store at {path}")
        if not path.is_file():
            raise StateUnusable(21, f"{path} is not a file; move it aside. Nothing was deleted")
        if path.stat().st_size == 0:
            # LMDB takes an empty file for a new one: all keys would be gone without a word.
            raise corrupt(path, "the file is empty")
        found = path.stat()
        self = cls._open(path, max(map_size, found.st_size + _HEADROOM), readonly=readonly, sync=sync)
        self.last_write = found.st_mtime
        try:
            if self.is_short:
                if extend:
                    self._extend()
                elif problems := verify(path):
                    raise corrupt(path, f"the file is too short: {problems[0]}")
        except BaseException:
            self.close()
            raise
        return self

    @classmethod
    def _open(cls, path: Path, map_size: int, *, readonly: bool, sync: bool) -> Environment:
        try:
            env = lmdb.open(
                # As bytes: a path need not be UTF-8.
                os.fsencode(path),
                map_size=map_size,
                subdir=False,
                readonly=readonly,
                create=not readonly,
                sync=sync,
                metasync=sync,
                readahead=False,
                max_dbs=_MAX_DATABASES,
                max_spare_txns=2,
            )
        except (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError) as exc:
            raise corrupt(path, f"LMDB says {exc}") from exc
        except (lmdb.Error, OSError) as exc:
            raise StateUnusable(
                getattr(exc, "code", 0),
                f"cannot open {path}: {exc}; check the path, its permissions and the free space of the "
                "disk. Nothing was deleted",
            ) from exc
        return cls(env, path)

    def database(self, name: bytes, *, create: bool) -> Any:
        """Return the named database.

        Raises:
            StateCorrupt: it is not there and *create* is false, or cannot be read.
            StoreError: it could not be made.
        """
        self._drop_reader()
        try:
            return self._env.open_db(name, create=create)
        except lmdb.NotFoundError as exc:
            raise corrupt(self.path, f"it has no database {name!r}") from exc
        except (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError) as exc:
            raise corrupt(self.path, f"LMDB says {exc}") from exc
        except lmdb.Error as exc:
            raise _store_error(self.path, "write to", exc) from exc

    def reader(self) -> Transaction:
        """Return a read transaction that sees the last commit; good until the next ``write``."""
        if self._reader is None:
            self._reader = self._begin()
        return self._reader

    def read(self, database: Any, key: bytes) -> bytes | None:
        """Return the value of *key*, or None.

        Raises:
            StoreError: the file could not be read.
        """
        try:
            # By place: naming the database costs a fifth of the look-up.
            value: bytes | None = (self._reader or self.reader()).get(key, None, database)
        except lmdb.Error as exc:
            raise _store_error(self.path, "read", exc) from exc
        return value

    def join(self, participant: Participant) -> None:
        """Let *participant* take part in every ``commit`` from now on."""
        self._participants.append(participant)

    def commit(self) -> bool:
        """Write what all participants have to write, in one transaction; return whether there was any.

        Raises:
            StoreError: nothing of it was written, and all of it keeps waiting.
        """
        works = [work for part in self._participants if (work := part.work()) is not None]

        def write_all(txn: Transaction) -> None:
            for work in works:
                work(txn)

        if works:
            self.write(write_all)
        for part in self._participants:
            part.written()
        return bool(works)

    def write(self, work: Callable[[Transaction], None]) -> None:
        """Run *work* in one write transaction and commit it.

        Args:
            work: puts into the transaction; run again, from the start, if the map had to grow.

        Raises:
            StoreError: nothing of it was written (disk full, input/output error).
        """
        self._drop_reader()
        try:
            self._make_room(_HEADROOM)
            while True:
                try:
                    with self._env.begin(write=True) as txn:
                        work(txn)
                    return
                except lmdb.MapFullError:
                    self._make_room(2 * self._env.info()["map_size"])
        except (lmdb.Error, OSError) as exc:
            raise _store_error(self.path, "write to", exc) from exc

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Give a read transaction of its own; it holds back the reuse of pages for as long as it is open.

        Raises:
            StoreError: the file could not be read.
        """
        try:
            with self._begin() as txn:
                yield txn
        except lmdb.Error as exc:
            raise _store_error(self.path, "read", exc) from exc

    def _begin(self) -> Transaction:
        try:
            return self._env.begin()
        except lmdb.MapResizedError:
            # Another process writes (we only look) and its map has grown: take its size.
            self._drop_reader()
            self._env.set_mapsize(0)
            return self._env.begin()

    def sync(self) -> None:
        """Bring all commits to the disk. May take seconds; any thread may call it.

        Raises:
            StoreError: the system could not.
        """
        try:
            self._env.sync(True)
        except lmdb.Error as exc:
            raise _store_error(self.path, "sync", exc) from exc

    def num_bytes(self) -> int:
        """Return the size of the file in bytes."""
        return self.path.stat().st_size

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._drop_reader()
        self._env.close()

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.abort()
            self._reader = None

    def _make_room(self, headroom: int) -> None:
        info = self._env.info()
        used = (info["last_pgno"] + 1) * self._page_size
        size = info["map_size"]
        if used + headroom > size:
            while used + headroom > size:
                size *= 2
            self._env.set_mapsize(size)

    @property
    def is_short(self) -> bool:
        """Whether the file has fewer bytes than its pages need. Pages at its end that were taken and given
        back
        within one transaction are never written, so a short file may be whole: ``verify`` tells."""
        needed: int = (self._env.info()["last_pgno"] + 1) * self._page_size
        return self.path.stat().st_size < needed

    def _extend(self) -> None:
        needed = (self._env.info()["last_pgno"] + 1) * self._page_size
        try:
            os.truncate(self.path, needed)
        except OSError as exc:
            raise _store_error(self.path, "extend", exc) from exc


def verify(path: Path) -> list[str]:
    """Return what is wrong with the pages of an LMDB file that nobody writes to; empty: nothing.

    Reads the file without LMDB, so that no damage can kill the process. About ten seconds per 10^6 keys.
    """
    try:
        walk: Any = lmdb_verify.verify
        return [str(problem) for problem in walk(os.fsencode(path), subdir=False)]
    except (lmdb_verify.VerifyError, OSError) as exc:
        return [str(exc)]


class Verification:
    """``verify`` beside a crawl that writes to the file: a thread that waits for a process of its own.

    The process holds a read transaction, so that no page is used again while it reads, and a torn page, or
    the time that it takes, is not the crawl's.

    Attributes:
        problems: what was found; None: it is under way, or was stopped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scrapy_bloomdupe.stores.environment", os.fsencode(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._thread = threading.Thread(target=self._wait, name="bloomdupe-verify", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process, and wait for the thread."""
        if self._process.poll() is None:
            self._process.terminate()
        self._thread.join()

    def _wait(self) -> None:
        output, _ = self._process.communicate()
        if self._process.returncode in (0, 1):
            self.problems = output.decode(errors="replace").splitlines()
        elif self._process.returncode != -signal.SIGTERM:
            self.problems = [f"the process that read it ended with {self._process.returncode}"]


def _main(path: Path) -> int:
    env = lmdb.open(os.fsencode(path), subdir=False, readonly=True, max_dbs=_MAX_DATABASES)
    with env.begin():
        problems = verify(path)
    for problem in problems:
        sys.stdout.write(problem + "\n")
    return 1 if problems else 0


def corrupt(path: Path, what: str) -> StateCorrupt:
    """Return the error of a file that does not check out."""
    return StateCorrupt(
        f"{path}: {what}; the file was left as it is. Restore it from a copy, or move its directory "
        "aside to start anew"
    )


def _store_error(path: Path, verb: str, exc: Exception) -> StoreError:
    with contextlib.suppress(AttributeError):
        return StoreError(exc.code, f"cannot {verb} {path}: {exc}")  # type: ignore[attr-defined]
    return StoreError(getattr(exc, "errno", 0) or 0, f"cannot {verb} {path}: {exc}")


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
