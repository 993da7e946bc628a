"""Does the LMDB file open, grow and fail as it promises, and is every damaged one refused?"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from conftest import Python

import scrapy_bloomdupe.stores.environment as environments
from scrapy_bloomdupe.errors import (
    StateCorrupt,
    StateError,
    StateExists,
    StateNotFound,
    StateUnusable,
    StoreError,
)
from scrapy_bloomdupe.stores.environment import Environment, verify
from scrapy_bloomdupe.stores.lmdb import LmdbStore


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.lmdb"


@pytest.fixture
def environment(path: Path) -> Iterator[Environment]:
    found = Environment.create(path)
    yield found
    found.close()


def write_store(path: Path, num_keys: int) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    for number in range(num_keys):
        store.add(key(number))
    store.close()
    environment.close()


def test_opening_never_creates(tmp_path: Path, path: Path) -> None:
    for readonly in (False, True):
        with pytest.raises(StateNotFound, match=f"there is no exact store at {path}"):
            Environment.open(path, readonly=readonly)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("there", ["store", "text", "directory"])
def test_creating_never_overwrites(path: Path, there: str) -> None:
    if there == "store":
        write_store(path, 10)
    elif there == "text":
        path.write_bytes(b"somebody's")
    else:
        path.mkdir()
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StateExists, match=f"{path} exists and is not overwritten; move it aside first"):
        Environment.create(path)
    assert before == (path.read_bytes() if path.is_file() else None)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", StateCorrupt, "the file is empty; the file was left as it is. Restore it from a copy"),
        (
            b"x" * 100,
            StateCorrupt,
            "LMDB says .*; the file was left as it is. Restore it from a copy, or move",
        ),
        (bytes(range(256)) * 64, StateCorrupt, "LMDB says .*; the file was left as it is"),
        (bytes(16_384), StateCorrupt, "LMDB says .*; the file was left as it is"),
        (None, StateUnusable, "is not a file; move it aside. Nothing was deleted"),
    ],
    ids=["empty", "short", "garbage", "zeros", "directory"],
)
@pytest.mark.parametrize("readonly", [False, True])
def test_what_is_no_store_is_refused_and_left_as_it_is(
    path: Path, content: bytes | None, error: type[StateError], message: str, readonly: bool
) -> None:
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        Environment.open(path, readonly=readonly)
    assert str(path) in str(caught.value)
    assert content == (None if content is None else path.read_bytes())


_OPEN_TRUNCATED = """
from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

whole = Path("seen.lmdb").read_bytes()
pages = range(4096, len(whole), 4096)
lengths = sorted({*pages, *(page + 1 for page in pages[::7]), *(page - 1 for page in pages[::7]), 1, 100})
refused = opened = 0
for length in lengths:
    path = Path("cut.lmdb")
    path.write_bytes(whole[:length])
    try:
        environment = Environment.open(path)
    except StateCorrupt as exc:
        assert str(exc).startswith("cut.lmdb: ") and "left as it is" in str(exc), exc
        refused += 1
    else:
        # It may be whole without its end. Then it has every key.
        assert set(LmdbStore(environment).iter_keys()) == {key(number) for number in range(3_000)}
        environment.close()
        opened += 1
    assert path.read_bytes() == whole[:length]
print(refused, opened)
"""


def test_a_file_that_was_cut_is_refused_and_kills_nobody(tmp_path: Path, path: Path, python: Python) -> None:
    write_store(path, 3_000)
    done = python(_OPEN_TRUNCATED)
    # A page that is read behind the end of the file would be signal 7.
    assert (0, "") == (done.returncode, done.stderr)
    refused, opened = map(int, done.stdout.split())
    assert refused > 40
    assert opened <= 2


def test_every_page_of_a_store_is_verified(path: Path) -> None:
    write_store(path, 3_000)
    assert [] == verify(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8192])
    assert verify(path)
    path.write_bytes(b"nonsense" * 4096)
    assert verify(path)
    path.unlink()
    assert verify(path)


def test_the_work_of_a_transaction_is_done_again_as_a_whole_when_the_map_is_full(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "_HEADROOM", 0)
    environment = Environment.create(path, map_size=65_536)
    database = environment.database(b"large", create=True)
    runs: list[list[int]] = []

    def work(txn: Any) -> None:
        runs.append([])
        for number in range(50):
            txn.put(key(number), bytes(10_000), db=database)
            runs[-1].append(number)

    environment.write(work)
    assert len(runs) >= 2
    assert len(runs[0]) < 50
    assert list(range(50)) == runs[-1]
    assert [10_000] * 50 == [len(environment.read(database, key(number)) or b"") for number in range(50)]
    environment.close()
    assert [] == verify(path)


_CREATE_ON_A_FULL_DISK = """
from scrapy_bloomdupe.errors import StateUnusable
from scrapy_bloomdupe.stores.environment import Environment

limit_files(0)
try:
    Environment.create(Path("seen.lmdb"))
except StateUnusable as exc:
    print(exc)
limit_files(resource.RLIM_INFINITY)
Environment.create(Path("seen.lmdb")).close()
"""


def test_a_full_disk_at_creation_is_an_error_and_creation_works_when_there_is_room(
    path: Path, python: Python
) -> None:
    done = python(_CREATE_ON_A_FULL_DISK)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("[Errno 27] cannot open seen.lmdb: ")
    assert "File too large; check the path, its permissions and the free space of the disk" in done.stdout
    Environment.open(path).close()


def test_a_failed_write_says_what_and_where(environment: Environment, path: Path) -> None:
    def work(txn: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StoreError) as caught:
        environment.write(work)
    assert (errno.EIO, f"cannot write to {path}: [Errno 5] Input/output error") == caught.value.args


class Part:
    """A participant that writes its waiting values, and notes what happens."""

    def __init__(self, environment: Environment, name: bytes, log: list[str]) -> None:
        self.name, self.log, self.waiting = name, log, [b"a", b"b"]
        self.database = environment.database(name, create=True)
        environment.join(self)

    def work(self) -> Any:
        if not self.waiting:
            return None

        def write(txn: Any) -> None:
            self.log.append(f"write {self.name.decode()}")
            for value in self.waiting:
                txn.put(value, value, db=self.database)

        return write

    def written(self) -> None:
        self.log.append(f"written {self.name.decode()}")
        self.waiting.clear()


def test_all_participants_are_written_in_one_transaction_and_told_after_it(environment: Environment) -> None:
    log: list[str] = []
    parts = [Part(environment, name, log) for name in (b"one", b"two")]
    assert environment.commit()
    assert ["write one", "write two", "written one", "written two"] == log
    assert [b"a"] * 2 == [environment.read(part.database, b"a") for part in parts]
    assert not environment.commit(), "nothing waits"
    assert "write" not in log[4:]
    parts[1].waiting.append(b"c")
    assert environment.commit()
    assert b"c" == environment.read(parts[1].database, b"c")


def test_if_one_participant_fails_none_is_written_and_all_keep_waiting(environment: Environment) -> None:
    log: list[str] = []
    parts = [Part(environment, name, log) for name in (b"one", b"two", b"three")]

    def fail() -> Any:
        def write(txn: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        return write

    parts[1].work = fail  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="No space left on device"):
        environment.commit()
    assert ["write one"] == log
    assert [None] * 3 == [environment.read(part.database, b"a") for part in parts]
    assert [[b"a", b"b"]] * 3 == [part.waiting for part in parts]
    del parts[1].work  # type: ignore[method-assign]
    assert environment.commit()
    assert [b"b"] * 3 == [environment.read(part.database, b"b") for part in parts]
