"""How is a server asked once, whatever it is: alone, a Cluster, or named by Sentinel?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kinds import key, name
from servers import Sentinel, Valkey, cluster

from scrapy_bloomdupe.errors import RemoteError, RemoteRefused, RemoteUnavailable
from scrapy_bloomdupe.remote.breaker import Circuit
from scrapy_bloomdupe.remote.client import Script, Server, connect
from scrapy_bloomdupe.stores.redis import RedisStore

ECHO = Script("return ARGV[1]")


def test_answers_are_bytes_and_numbers(valkey: Valkey) -> None:
    server = connect(valkey.url)
    place = name()
    assert [1, b"v", None] == [
        server.run("SADD", place, "m"),
        server.run("ECHO", "v"),
        server.run("GET", name()),
    ]
    assert [True] == server.on_nodes("PING")
    server.close()


def test_a_script_that_the_server_has_forgotten_is_sent_again(valkey: Valkey) -> None:
    server = connect(valkey.url)
    calls: list[Any] = [([name()], [number]) for number in range(3)]
    for _ in range(2):
        assert [b"0", b"1", b"2"] == server.scripts(ECHO, calls)
        assert [b"0"] == server.scripts(ECHO, calls[:1])
        server.run("SCRIPT FLUSH")
    server.close()


def test_a_script_that_fails_ends_with_an_error(valkey: Valkey) -> None:
    server = connect(valkey.url)
    wrong = Script("return redis.call('GET')")
    for calls in ([([name()], [])], [([name()], [])] * 2):
        with pytest.raises(RemoteRefused, match="refused"):
            server.scripts(wrong, calls)  # type: ignore[arg-type]
    server.close()


def test_a_command_is_there_or_not(
    valkey: Valkey, valkey_bloom: Valkey, valkey_cluster: list[Valkey]
) -> None:
    nodes = f"redis+cluster://127.0.0.1:{valkey_cluster[0].port}"
    plain, module, several = (connect(url) for url in (valkey.url, valkey_bloom.url, nodes))
    assert [True, False] == [plain.has_command(one) for one in ("GET", "BF.RESERVE")]
    assert [True, False] == [several.has_command(one) for one in ("GET", "BF.RESERVE")]
    assert module.has_command("BF.RESERVE")
    for one in (plain, module, several):
        one.close()


def test_a_server_that_was_let_go_of_is_asked_again(valkey: Valkey) -> None:
    server = connect(valkey.url)
    server.run("PING")
    server.close()
    assert server.run("PING")
    server.close()


def test_numbers_of_a_database_keep_its_keys_apart(valkey: Valkey) -> None:
    prefix = name()
    one, two = connect(f"{valkey.url}/1"), connect(f"{valkey.url}/2")
    assert [True, True] == [RedisStore.open(server, prefix).add(key(1)) for server in (one, two)]
    one.close()
    two.close()


def test_a_cluster_runs_a_script_where_its_keys_lie(valkey_cluster: list[Valkey]) -> None:
    # One node is named, the others are found.
    server = connect(f"redis+cluster://127.0.0.1:{valkey_cluster[1].port}?timeout=5")
    assert 3 == len(server.on_nodes("PING"))
    places = [name() for _ in range(20)]
    put = Script("redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]")
    assert [one.encode() for one in places] == server.scripts(put, [([one], [one]) for one in places])
    assert [one.encode() for one in places] == [server.run("GET", one) for one in places]
    assert set(places) <= {one.decode() for one in server.scan("*", 10)}
    wrong = Script("return redis.call('GET')")
    with pytest.raises(RemoteRefused):
        server.scripts(wrong, [([one], []) for one in places])
    server.close()
    assert 3 == len(server.on_nodes("PING"))
    server.close()


def test_a_cluster_that_loses_a_node_loses_only_its_part(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        server = connect(f"redis+cluster://127.0.0.1:{nodes[0].port}?timeout=0.5&failures=1000")
        store = RedisStore.open(server, name())
        assert 3 == store.num_shards
        assert [True] * 90 == store.add_many([key(number) for number in range(90)])
        nodes[2].kill()
        answers = []
        for number in range(30):
            try:
                answers.append(store.add(key(number)))
            except RemoteUnavailable:
                answers.append(None)
        # What was answered is right; the rest is not known.
        assert True not in answers
        assert None in answers
        with pytest.raises(RemoteUnavailable):
            store.add_many([key(number) for number in range(100, 190)])
        server.close()


def eventually(seconds: float, ask: Any) -> Any:
    """Return what *ask* returns as soon as that is something."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = ask()
        except RemoteError:
            found = None
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def test_the_master_that_sentinel_names_is_asked(tmp_path: Path) -> None:
    for part in ("master", "replica", "sentinel"):
        (tmp_path / part).mkdir()
    with Valkey(tmp_path / "master") as master, Valkey(tmp_path / "replica") as replica:
        direct = connect(replica.url)
        direct.run("REPLICAOF", "127.0.0.1", master.port)
        with Sentinel(tmp_path / "sentinel", master) as watcher:
            server: Server = connect(
                f"redis+sentinel://127.0.0.1:{watcher.port}/main?timeout=0.5&failures=1000"
            )
            store = eventually(30, lambda: RedisStore.open(server, "shop"))
            assert [True, False] == store.add_many([key(1), key(1)])
            # The watcher has to know of the replica, and the replica of the key, before the master goes.
            assert eventually(30, lambda: direct.run("DBSIZE") == 2)
            assert eventually(30, lambda: _knows_replica(watcher))
            master.kill()
            with pytest.raises(RemoteUnavailable):
                store.add(key(2))
            assert eventually(60, lambda: key(1) in store)
            assert eventually(60, lambda: store.add(key(3)))
            assert Circuit.CLOSED is server.breaker.state
            server.close()
        direct.close()


def _knows_replica(watcher: Valkey) -> bool:
    asked = connect(watcher.url)
    try:
        return bool(asked.run("SENTINEL REPLICAS", "main"))
    finally:
        asked.close()
