"""What do filters and stores on a server say when it fails? The right error, and never a wrong "seen"."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kinds import key, name
from servers import Proxy, Valkey

from scrapy_bloomdupe.errors import (
    CircuitOpen,
    ConfigurationError,
    FilterError,
    RemoteEmptied,
    RemoteError,
    RemoteFull,
    RemoteRefused,
    RemoteUnavailable,
    StateCorrupt,
    StateMismatch,
    StoreError,
)
from scrapy_bloomdupe.filters.redisbitmap import RedisBitmapFilter
from scrapy_bloomdupe.filters.redisbloom import RedisBloomFilter
from scrapy_bloomdupe.remote.breaker import Breaker, Circuit
from scrapy_bloomdupe.remote.client import Server, connect
from scrapy_bloomdupe.stores.redis import RedisStore
from scrapy_bloomdupe.stores.sql import SqlStore

KINDS = ["bitmap", "redisbloom", "store"]
TIMEOUT = "timeout=0.3&connect_timeout=0.3"


class Thing:
    """A filter or store; ``seen`` asks and adds."""

    def __init__(self, kind: str, server: Server, prefix: str) -> None:
        self.kind = kind
        if kind == "store":
            self.it: Any = RedisStore.open(server, prefix)
        else:
            cls = RedisBloomFilter if kind == "redisbloom" else RedisBitmapFilter
            self.it = cls.open(server, prefix, capacity=1000, error_rate=1e-9)

    def seen(self, *numbers: int) -> list[bool]:
        answers: list[bool] = self.it.add_many([key(number) for number in numbers])
        return [not answer for answer in answers] if self.kind == "store" else answers


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(kind: str, tmp_path: Path) -> Iterator[Callable[..., Valkey]]:
    servers = []

    def begin(*options: str) -> Valkey:
        folder = tmp_path / f"server{len(servers)}"
        folder.mkdir()
        servers.append(Valkey(folder, *options, bloom=kind == "redisbloom"))
        return servers[-1]

    yield begin
    for one in servers:
        one.kill()


def refuses(thing: Thing, error: type[RemoteError], message: str | None = None) -> RemoteError:
    """Every question ends with *error*."""
    asked = [
        lambda: thing.it.add(key(1)),
        lambda: thing.it.add_many([key(1), key(2)]),
        lambda: key(1) in thing.it,
    ]
    for ask in asked:
        with pytest.raises(error, match=message) as caught:
            ask()
        assert isinstance(caught.value, FilterError)
        assert isinstance(caught.value, StoreError)
    return caught.value


def test_a_server_that_was_killed_and_comes_back_with_its_data(
    kind: str, start: Callable[..., Valkey]
) -> None:
    valkey = start()
    server = connect(f"{valkey.url}?{TIMEOUT}&failures=100")
    thing = Thing(kind, server, name())
    assert [False, False] == thing.seen(1, 2)
    server.run("SAVE", slow=True)
    valkey.kill()
    refuses(thing, RemoteUnavailable, "gave no answer")
    valkey.start()
    assert [True, True, False] == thing.seen(1, 2, 3)
    server.close()


@pytest.mark.parametrize("how", ["restart", "FLUSHALL", "FLUSHALL and another fills it"])
def test_a_server_that_comes_back_empty_is_noticed(kind: str, how: str, start: Callable[..., Valkey]) -> None:
    valkey = start()
    server = connect(f"{valkey.url}?{TIMEOUT}")
    prefix = name()
    thing, other = (Thing(kind, server, prefix) for _ in range(2))
    assert [False, False] == thing.seen(1, 2)
    if how == "restart":
        valkey.kill()
        valkey.start()
    else:
        server.run("FLUSHALL")
    if "another" in how:
        # What another process has made in the meantime is not taken for one's own.
        assert [False] == Thing(kind, server, prefix).seen(2)
    refuses(thing, RemoteEmptied, "what had been seen is gone from the server")
    refuses(thing, RemoteEmptied)  # until it is told to go on
    assert ("another" not in how) is thing.it.renew()
    assert [False, "another" in how, False] == thing.seen(1, 2, 3)
    refuses(other, RemoteEmptied)
    assert other.it.renew() is False
    assert [True, True, True, False] == other.seen(1, 2, 3, 4)
    server.close()


def test_what_lost_a_part_is_made_anew(kind: str, start: Callable[..., Valkey]) -> None:
    # As an evicting server does it: one key goes, the others stay.
    valkey = start()
    server = connect(valkey.url)
    prefix = name()
    thing = Thing(kind, server, prefix)
    thing.seen(1)
    (part,) = server.scan(f"{prefix}:*{{*", 100)
    server.run("DEL", part)
    refuses(thing, RemoteEmptied)
    with pytest.raises(RemoteEmptied):
        Thing(kind, server, prefix)
    assert thing.it.renew() is True
    assert [False, True] == thing.seen(1, 1)
    assert [True, False] == Thing(kind, server, prefix).seen(1, 2)
    assert 2 == len(server.scan(f"{prefix}:*", 100))
    # And the description alone.
    server.run("DEL", f"{prefix}:{'store' if kind == 'store' else 'filter'}:meta")
    assert [True, False] == thing.seen(1, 3)
    with pytest.raises(RemoteEmptied):
        thing.it.verify()
    fresh = Thing(kind, server, prefix)
    assert fresh.it.was_created
    assert [False] == fresh.seen(1)
    fresh.it.verify()
    with pytest.raises(RemoteEmptied):
        thing.it.verify()
    assert thing.it.renew() is False
    assert [True, False] == thing.seen(1, 3)
    server.close()


@pytest.mark.parametrize("mode", ["swallow", "cut", "garble"])
def test_an_answer_that_is_lost_is_no_answer(kind: str, mode: str, start: Callable[..., Valkey]) -> None:
    valkey = start()
    with Proxy(valkey.port) as proxy:
        server = connect(f"{proxy.url}?{TIMEOUT}&failures=100")
        prefix = name()
        thing = Thing(kind, server, prefix)
        assert [False] == thing.seen(1)
        proxy.mode = mode
        # The server takes the key. Asked again, as redis-py does by itself, it would call it seen.
        with pytest.raises(RemoteUnavailable):
            thing.seen(7)
        with pytest.raises(RemoteUnavailable):
            thing.seen(*range(10, 60))  # perhaps not even sent: greeting the server fails already
        proxy.mode = "pass"
        # No late answer is taken for that to another question.
        assert [False, True, False] == thing.seen(100, 1, 101)
        server.close()
    direct = connect(valkey.url)
    assert [True, False] == Thing(kind, direct, prefix).seen(7, 60)
    direct.close()


def test_a_server_that_is_slow_is_waited_for_only_so_long(kind: str, start: Callable[..., Valkey]) -> None:
    valkey = start()
    with Proxy(valkey.port) as proxy:
        server = connect(f"{proxy.url}?{TIMEOUT}&failures=100")
        thing = Thing(kind, server, name())
        proxy.delay = 0.05
        assert [False] == thing.seen(1)
        proxy.delay = 1.0
        begin = time.monotonic()
        with pytest.raises(RemoteUnavailable):
            thing.seen(2)
        assert time.monotonic() - begin < 0.9
        server.close()


def test_a_server_that_hangs_is_not_asked_for_long(kind: str, start: Callable[..., Valkey]) -> None:
    valkey = start()
    server = connect(f"{valkey.url}?{TIMEOUT}&failures=2")
    server.breaker._first_wait = server.breaker._wait = 0.2
    thing = Thing(kind, server, name())
    thing.seen(1)
    valkey.freeze()
    try:
        for _ in range(2):
            with pytest.raises(RemoteUnavailable):
                thing.seen(2)
        begin = time.monotonic()
        for _ in range(100):
            with pytest.raises(CircuitOpen, match=r"was not asked: it failed 2 times in a row or more"):
                thing.seen(2)
        assert time.monotonic() - begin < 0.2
    finally:
        valkey.thaw()
    time.sleep(0.3)
    assert [True, False] == thing.seen(1, 3)
    assert Circuit.CLOSED is server.breaker.state
    assert 0.2 < server.breaker.open_seconds < 20
    server.close()


def test_a_server_that_asks_for_a_password(kind: str, start: Callable[..., Valkey]) -> None:
    valkey = start("--requirepass", "open sesame")
    for user in ("", "me:wrong@", ":wrong@"):
        server = connect(valkey.url.replace("//", f"//{user}"))
        with pytest.raises(RemoteRefused, match="asks for another user or password") as caught:
            Thing(kind, server, name())
        assert "wrong@" not in str(caught.value)
        assert Circuit.CLOSED is server.breaker.state
        server.close()
    server = connect(valkey.url.replace("//", "//:open%20sesame@"))
    assert [False, True] == Thing(kind, server, name()).seen(1, 1)
    server.close()


def test_a_replica_takes_nothing_and_says_so(kind: str, start: Callable[..., Valkey]) -> None:
    # By itself it waits for more replicas.
    master, replica = start("--repl-diskless-sync-delay", "0"), start()
    server, copy = connect(f"{master.url}?timeout=5"), connect(f"{replica.url}?timeout=5")
    prefix = name()
    Thing(kind, server, prefix).seen(1)
    copy.run("REPLICAOF", "127.0.0.1", master.port)
    deadline = time.monotonic() + 30
    while copy.run("DBSIZE") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    thing = Thing(kind, copy, prefix)
    assert key(1) in thing.it
    assert key(2) not in thing.it
    with pytest.raises(RemoteRefused, match="is a replica and takes no writes"):
        thing.seen(2)
    with pytest.raises(RemoteRefused, match="is a replica"):
        Thing(kind, copy, name())
    server.close()
    copy.close()


def test_a_server_without_memory_takes_nothing_and_says_so(kind: str, start: Callable[..., Valkey]) -> None:
    valkey = start("--maxmemory-policy", "noeviction")
    server = connect(valkey.url)
    thing = Thing(kind, server, name())
    assert [False] * 100 == thing.seen(*range(100))
    server.run("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(RemoteFull, match="takes no more"):
        thing.seen(1000)
    # What is known is known still, and what is not is not.
    assert key(1) in thing.it
    assert key(1000) not in thing.it
    memory = thing.it.memory()
    assert memory is not None
    assert (1 << 20, 0, False) == (memory.maximum, memory.free, memory.evicts)
    assert "the server has 0 bytes left of its maxmemory of 1,048,576, and 1 are needed" in memory.trouble(1)
    server.run("CONFIG", "SET", "maxmemory", "0")
    assert [True, False] == thing.seen(1, 1000)
    memory = thing.it.memory()
    assert memory is not None
    assert (None, "") == (memory.free, memory.trouble(10**12))
    server.close()


def test_a_server_that_evicts_is_known_by_its_policy(kind: str, start: Callable[..., Valkey]) -> None:
    valkey = start("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    server = connect(valkey.url)
    thing = Thing(kind, server, name())
    memory = thing.it.memory()
    assert memory is not None
    assert memory.evicts
    assert "maxmemory-policy allkeys-lru; 0 evicted so far" in memory.trouble()
    thing.seen(1)
    # It needs room for others.
    server.run("CONFIG", "SET", "maxmemory", "1kb")
    server.run("PING")
    with pytest.raises(RemoteError):
        thing.seen(1)
    server.run("CONFIG", "SET", "maxmemory", "100mb")
    refuses(thing, RemoteEmptied, "evicts keys")
    after = thing.it.memory()
    assert after is not None
    assert after.evicted_keys > 0
    server.close()


def test_what_is_not_ours_is_left_as_it_is(kind: str, start: Callable[..., Valkey]) -> None:
    server = connect(start().url)
    for number, (data, error) in enumerate(
        [
            (b"hello", StateCorrupt),
            (b"{}", StateCorrupt),
            (b'{"format": 2}', StateMismatch),
            (b"\xff", StateCorrupt),
        ]
    ):
        place = f"p{number}:{'store' if kind == 'store' else 'filter'}:meta"
        server.run("SET", place, data)
        with pytest.raises(error, match=re.escape(place)):
            Thing(kind, server, f"p{number}")
        assert data == server.run("GET", place)
    server.close()


def test_a_maker_that_died_is_followed_by_another(kind: str, start: Callable[..., Valkey]) -> None:
    server = connect(start().url)
    prefix = name()
    thing = Thing(kind, server, prefix)
    place = thing.it._kept.meta_name
    values = json.loads(server.run("GET", place))
    (part,) = server.scan(f"{prefix}:*{{*", 100)
    server.run("DEL", part)
    server.run("SET", place, json.dumps(values | {"ready": False}))
    assert [False, True] == Thing(kind, server, prefix).seen(1, 1)
    assert json.loads(server.run("GET", place))["ready"]
    assert [True] == thing.seen(1)
    server.close()


def test_nobody_listens(tmp_path: Path) -> None:
    for url in ("redis://127.0.0.1:1", f"unix://{tmp_path}/none.sock", "redis+cluster://127.0.0.1:1"):
        server = connect(url)
        with pytest.raises(RemoteUnavailable, match="gave no answer"):
            RedisStore.open(server, name())
        server.close()


def test_a_socket_in_the_file_system(tmp_path: Path) -> None:
    with Valkey(tmp_path, "--unixsocket", str(tmp_path / "s")):
        server = connect(f"unix://{tmp_path}/s")
        assert [True, False] == RedisStore.open(server, name()).add_many([key(1), key(1)])
        server.close()


def test_a_server_without_tls_is_not_asked_in_the_clear(valkey: Valkey) -> None:
    server = connect(valkey.url.replace("redis:", "rediss:"))
    with pytest.raises(RemoteUnavailable, match="rediss://"):
        server.run("PING")
    server.close()


def test_a_fault_of_a_program_is_not_taken_for_one_of_the_server(valkey: Valkey) -> None:
    server = connect(valkey.url)
    with pytest.raises(RemoteRefused, match="refused"):
        server.run("GET")
    with pytest.raises(RemoteRefused):
        server.run("SET", "a", object())
    assert Circuit.CLOSED is server.breaker.state
    server.close()


def test_filter_and_store_share_the_breaker_of_their_server(valkey: Valkey) -> None:
    server = connect(valkey.url)
    assert isinstance(server.breaker, Breaker)
    store = RedisStore.open(server, name())
    other = RedisBitmapFilter.open(server, name(), capacity=100, error_rate=0.1)
    for _ in range(3):
        server.breaker.failed()
    for ask in (store.add, other.add):
        with pytest.raises(CircuitOpen):
            ask(key(1))
    server.close()


@pytest.mark.parametrize(
    ("package", "url", "message"),
    [
        ("redis", "redis://127.0.0.1", r"pip install scrapy-bloomdupe\[redis\]"),
        ("sqlalchemy", "sqlite://", r"pip install scrapy-bloomdupe\[sql\]"),
    ],
)
def test_a_missing_package_is_named(
    package: str, url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=message):
        connect(url) if package == "redis" else SqlStore.open(url)
