"""Do several databases, threads and processes share one LMDB file without harm?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from conftest import StartPython

from scrapy_bloomdupe.stores.environment import Environment
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


def test_two_databases_are_written_in_one_transaction_or_not_at_all(environment: Environment) -> None:
    one, two = (environment.database(name, create=True) for name in (b"seen", b"pending"))

    def work(txn: Any, fail: bool) -> None:
        txn.put(key(1), b"one", db=one)
        if fail:
            raise RuntimeError
        txn.put(key(1), b"two", db=two)

    with pytest.raises(RuntimeError):
        environment.write(lambda txn: work(txn, fail=True))
    assert (None, None) == (environment.read(one, key(1)), environment.read(two, key(1)))
    environment.write(lambda txn: work(txn, fail=False))
    assert (b"one", b"two") == (environment.read(one, key(1)), environment.read(two, key(1)))


def test_a_read_sees_every_commit(environment: Environment) -> None:
    database = environment.database(b"seen", create=True)
    for number in range(5):
        assert environment.read(database, key(number)) is None
        put: Callable[[Any], None] = lambda txn, number=number: txn.put(key(number), b"x", db=database)  # noqa: E731
        environment.write(put)
        assert b"x" == environment.read(database, key(number))


def test_a_sync_from_another_thread_works_beside_an_open_transaction(environment: Environment) -> None:
    database = environment.database(b"seen", create=True)
    done: list[bool] = []

    def sync() -> None:
        environment.sync()
        done.append(True)

    def work(txn: Any) -> None:
        txn.put(key(1), b"x", db=database)
        thread = threading.Thread(target=sync)
        thread.start()
        thread.join(60)

    environment.write(work)
    assert [True] == done
    assert b"x" == environment.read(database, key(1))


def test_an_environment_may_be_closed_twice(environment: Environment) -> None:
    environment.close()
    environment.close()


_LOOK = """
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

for line in sys.stdin:
    environment = Environment.open(Path("seen.lmdb"), readonly=True)
    print(LmdbStore(environment).count(), flush=True)
    environment.close()
"""


def test_another_process_may_look_while_this_one_writes(path: Path, start_python: StartPython) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    other = start_python(_LOOK)
    assert other.stdin is not None
    assert other.stdout is not None
    for start in range(0, 50_000, 10_000):
        for number in range(start, start + 10_000):
            store.put(key(number))
        store.flush()
        other.stdin.write("look\n")
        other.stdin.flush()
        assert start + 10_000 == int(other.stdout.readline())
    environment.close()


_LOOK_TWICE = """
import scrapy_bloomdupe.stores.environment as environments
from scrapy_bloomdupe.stores.lmdb import LmdbStore

environments._HEADROOM = 0
environment = environments.Environment.open(Path("seen.lmdb"), map_size=1, readonly=True)
store = LmdbStore(environment)
for line in sys.stdin:
    print(store.count(), len(set(store.iter_keys())), key(999) in store, flush=True)
"""


def test_a_reader_follows_a_map_that_another_process_has_grown(path: Path, start_python: StartPython) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    for number in range(1_000):
        store.put(key(number))
    store.flush()
    other = start_python(_LOOK_TWICE)
    assert other.stdin is not None
    assert other.stdout is not None
    answers = []
    for num_keys in (1_000, 30_000):
        for number in range(num_keys):
            store.put(key(number))
        store.flush()
        other.stdin.write("look\n")
        other.stdin.flush()
        answers.append(other.stdout.readline())
    environment.close()
    assert ["1000 1000 True\n", "30000 30000 True\n"] == answers
