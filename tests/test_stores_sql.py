"""What is special about the exact store in a database? Namespaces, faults, time limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from kinds import key, name

from scrapy_bloomdupe.errors import (
    CircuitOpen,
    ConfigurationError,
    RemoteEmptied,
    RemoteRefused,
    RemoteUnavailable,
    StateExists,
    StateNotFound,
    StoreError,
)
from scrapy_bloomdupe.stores.sql import SqlStore


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/seen.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def engine(url: str) -> Iterator[sqlalchemy.Engine]:
    found = sqlalchemy.create_engine(url)
    yield found
    found.dispose()


def do(engine: sqlalchemy.Engine, text: str) -> None:
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(text))


def test_namespaces_and_tables_do_not_meet(url: str) -> None:
    table = name()
    stores = [
        SqlStore.open(url, "a", table=table),
        SqlStore.open(url, "b", table=table),
        SqlStore.open(url, "a", table=f"{table}_other"),
    ]
    for one in stores:
        assert [True, False] == one.add_many([key(1), key(1)])
    stores[0].remove(key(1))
    assert [False, True, True] == [key(1) in one for one in stores]
    stores[0].add(key(2))
    assert 1 == stores[0].clear()
    assert [key(1)] == list(stores[1].iter_keys())
    for one in stores:
        one.close()


def test_it_is_made_once_and_found_from_then_on(url: str) -> None:
    table = name()
    with pytest.raises(StateNotFound, match="does not exist"):
        SqlStore.open(url, "a", table=table, create=False)
    one = SqlStore.open(url, "a", table=table, create=True, identity={"canary": "x"})
    assert one.was_created
    with pytest.raises(StateExists, match="exists and is not overwritten"):
        SqlStore.open(url, "a", table=table, create=True)
    two = SqlStore.open(url, "a", table=table)
    assert (False, {"canary": "x"}, one.store_id) == (two.was_created, two.identity, two.store_id)
    two.set_identity({"canary": "y"})
    three = SqlStore.open(url, "a", table=table)
    assert {"canary": "y"} == three.identity
    for each in (one, two, three):
        each.close()


def test_more_than_fit_into_one_statement_are_added_in_several(url: str) -> None:
    store = SqlStore.open(url, name(), timeout=30)
    keys = [key(number) for number in range(12_345)]
    assert [True] * 12_345 == store.add_many(keys)
    assert [False] * 12_345 == store.add_many(keys)
    assert [True] * 12_345 == store.contains_many(keys)
    assert sorted(keys) == list(store.iter_keys())
    store.remove_many(keys[:12_000])
    assert 345 == store.count()
    store.close()


@pytest.mark.parametrize("how", ["cleared", "made anew", "dropped"])
def test_what_is_gone_is_noticed(url: str, engine: sqlalchemy.Engine, how: str) -> None:
    table = name()
    store = SqlStore.open(url, "a", table=table)
    store.add(key(1))
    if how == "dropped":
        do(engine, f"DROP TABLE {table}")
        do(engine, f"DROP TABLE {table}_meta")
    else:
        other = SqlStore.open(url, "a", table=table)
        other.clear()
        if how == "made anew":
            assert other.renew()
            assert [True, True] == other.add_many([key(1), key(2)])
        other.close()
    store.database.forget_checks()  # what a second does
    for ask in (store.add, store.__contains__, store.put, store.remove):
        with pytest.raises(RemoteEmptied, match="what had been seen"):
            ask(key(1))
    assert (how != "made anew") is store.renew()
    assert [how != "made anew", True, False] == store.add_many([key(1), key(3), key(3)])
    store.close()


def test_keys_of_a_namespace_that_was_cleared_belong_to_nobody(url: str, engine: sqlalchemy.Engine) -> None:
    # A worker that does not know yet goes on for a second.
    table = name()
    store, other = (SqlStore.open(url, "a", table=table) for _ in range(2))
    store.add(key(1))
    other.clear()
    assert store.add(key(2))
    assert other.renew()
    assert [True, True] == other.add_many([key(1), key(2)])
    store.close()
    other.close()


def test_who_waits_for_another_waits_only_so_long(url: str, engine: sqlalchemy.Engine) -> None:
    table = name()
    store = SqlStore.open(url, "a", table=table, timeout=0.3, failures=2)
    store.add(key(0))
    with engine.connect() as other:
        number = other.execute(sqlalchemy.text(f"SELECT id FROM {table}_meta")).scalar_one()
        insert = sqlalchemy.text(f"INSERT INTO {table} VALUES (:number, :key)")
        other.execute(insert, {"number": number, "key": key(1)})
        # Whether the key is new is not known as long as the other has not decided.
        for _ in range(2):
            begin = time.monotonic()
            with pytest.raises(RemoteUnavailable, match="gave no answer"):
                store.add(key(1))
            assert time.monotonic() - begin < 2
        with pytest.raises(CircuitOpen, match="was not asked: it failed several times in a row"):
            store.add(key(2))
        other.rollback()
    store.close()
    # Given back by the one; the other's question may have been answered in the meantime.
    again = SqlStore.open(url, "a", table=table)
    assert [True, False] == [again.add(key(3)), again.add(key(0))]
    again.close()


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(RemoteUnavailable, match="gave no answer"):
        SqlStore.open("postgresql+psycopg://me:hunter2@127.0.0.1:1/x")
    with pytest.raises(RemoteUnavailable, match="unable to open"):
        SqlStore.open(f"sqlite:///{tmp_path}/none/seen.db")


def test_a_database_that_takes_no_writes(url: str, engine: sqlalchemy.Engine, tmp_path: Path) -> None:
    table = name()
    store = SqlStore.open(url, "a", table=table)
    store.add(key(1))
    store.close()
    if url.startswith("sqlite"):
        readonly = f"sqlite:///file:{tmp_path}/seen.db?mode=ro&uri=true"
    else:
        readonly = url + "&options=-cdefault_transaction_read_only%3Don"
    found = SqlStore.open(readonly, "a", table=table, create=False)
    assert key(1) in found
    with pytest.raises(RemoteRefused, match="refused"):
        found.add(key(2))
    found.close()


@pytest.mark.parametrize(
    ("url", "values", "message"),
    [
        ("nonsense", {}, "is not one that SQLAlchemy reads"),
        ("nosuch://host/x", {}, "is not one that SQLAlchemy reads"),
        ("mysql+nosuch://host/x", {}, "is not one that SQLAlchemy reads"),
        ("sqlite://", {"table": "a-b"}, "table='a-b' is not a name"),
        ("sqlite://", {"table": "x" * 56}, "is not a name of at most 55"),
        ("sqlite://", {"namespace": ""}, "namespace='' has 0 letters, a store takes 1 to 200"),
    ],
)
def test_a_wrong_value_is_refused(url: str, values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SqlStore.open(url, **values)


def test_a_driver_that_is_missing_is_named() -> None:
    pytest.importorskip("sqlalchemy")
    with pytest.raises(ConfigurationError, match=r"the driver for mysql\+pymysql://me:\*\*\*@h/x is not"):
        SqlStore.open("mysql+pymysql://me:hunter2@h/x")


@pytest.mark.parametrize("size", [0, 512])
def test_a_key_that_does_not_fit_is_refused(size: int) -> None:
    store = SqlStore.open("sqlite://")
    with pytest.raises(StoreError, match=f"a key has {size} bytes, the store takes 1 to 511"):
        store.add(bytes(size))
    store.close()


def test_a_password_is_not_shown(postgres_url: str) -> None:
    store = SqlStore.open(postgres_url.replace("postgres:@", "postgres:hunter2@"), name())
    assert "hunter2" not in store.path
    store.close()
