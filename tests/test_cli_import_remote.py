"""Does what scrapy-redis has seen arrive whole, wherever it is imported, and stay where it is from?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import Cli, filtering
from kinds import key, name
from scrapy import Request
from servers import Valkey

import scrapy_bloomdupe.redisset as redisset
from scrapy_bloomdupe import ScrapyRedisFingerprinter
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.redis import open_filter
from scrapy_bloomdupe.opening import open_existing
from scrapy_bloomdupe.remote.client import Server, connect
from scrapy_bloomdupe.stores.redis import RedisStore
from scrapy_bloomdupe.stores.sql import SqlStore

DB = 10
COUNT = 20_000
KEYS = [key(number) for number in range(COUNT)]
OTHERS = [key(-number) for number in range(1, 2_001)]
SET = "shop:dupefilter"
TO = "shop:seen"


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def url(valkey: Valkey) -> str:
    """A database of the server with nothing in it."""
    valkey.client(db=DB).flushdb()
    return f"{valkey.url}/{DB}"


@pytest.fixture
def client(valkey: Valkey, url: str) -> Iterator[Any]:
    """redis-py's own, on a database that has the set."""
    with valkey.client(db=DB) as client:
        client.sadd(SET, *[one.hex() for one in KEYS])
        yield client


@pytest.fixture
def server(url: str, client: Any) -> Iterator[Server]:
    found = connect(f"{url}?timeout=5")
    yield found
    found.close()


def opened(server: Server, prefix: str = TO) -> tuple[Any, RedisStore]:
    made = open_filter(server, prefix, capacity=1_000_000, error_rate=0.001, create=False)
    return made, RedisStore.open(server, prefix, create=False)


def test_into_a_directory_all_members_arrive_and_a_second_time_none_is_new(
    bloomdupe: Cli, client: Any, url: str, tmp_path: Path
) -> None:
    before = client.dump(SET)
    code, out, err = bloomdupe("import", url, "--to", tmp_path / "state")
    assert (0, "") == (code, err)
    assert f"{url} {SET}: 20,000 fingerprints, 20,000 of them new in {tmp_path}/state\n" in out
    assert "ScrapyRedisFingerprinter" in out
    _, out, _ = bloomdupe("import", url, "--set", SET, "--to", tmp_path / "state")
    assert "20,000 fingerprints, 0 of them new" in out
    assert before == client.dump(SET)
    state = open_existing(tmp_path / "state")
    assert state.store is not None
    assert [True] * COUNT == [one in state.store for one in KEYS]
    assert [True] * COUNT == [one in state.filter for one in KEYS]
    assert COUNT == state.store.count()
    assert "importing" not in state.filter.identity
    assert sum(one in state.seen for one in OTHERS) == 0
    state.close()
    assert 0 == bloomdupe("check", tmp_path / "state")[0]


def test_a_crawl_with_the_fingerprints_of_scrapy_redis_knows_what_was_imported(
    bloomdupe: Cli, url: str, valkey: Valkey, tmp_path: Path
) -> None:
    requests = [Request(f"http://shop.example/?page={number}") for number in range(100)]
    theirs = ScrapyRedisFingerprinter()
    valkey.client(db=DB).sadd(SET, *[theirs.fingerprint(one).hex() for one in requests[:60]])
    assert 0 == bloomdupe("import", url, "--to", tmp_path / "job" / "bloomdupe")[0]
    setting = {"REQUEST_FINGERPRINTER_CLASS": "scrapy_bloomdupe.ScrapyRedisFingerprinter"}
    with filtering(tmp_path / "job", **setting) as (ours, _):
        assert [True] * 60 + [False] * 40 == [ours.request_seen(one) for one in requests]


def test_the_source_is_only_read_and_piece_by_piece(
    bloomdupe: Cli, client: Any, url: str, tmp_path: Path
) -> None:
    client.config_resetstat()
    assert 0 == bloomdupe("import", url, "--to", tmp_path / "state")[0]
    asked = {name: each["calls"] for name, each in client.info("commandstats").items()}
    names = {name.removeprefix("cmdstat_") for name in asked}
    assert {"scan", "type", "scard", "sscan"} == names - {
        "client|setinfo",
        "config|resetstat",
        "hello",
        "info",
        "select",
    }
    assert COUNT / 2_000 < asked["cmdstat_sscan"] < COUNT / 500


@pytest.mark.parametrize("kind", ["valkey", "valkey_bloom"])
def test_into_a_server_all_members_arrive_and_a_second_time_none_is_new(
    bloomdupe: Cli, client: Any, url: str, kind: str, request: pytest.FixtureRequest
) -> None:
    target = request.getfixturevalue(kind).url
    prefix = name()
    before = client.dump(SET)
    code, out, err = bloomdupe("import", url, "--to", target, "--key", prefix)
    assert (0, "") == (code, err)
    assert f"{url} {SET}: 20,000 fingerprints, 20,000 of them new in {target}/0 {prefix}\n" in out
    _, out, _ = bloomdupe("import", url, "--to", target, "--key", prefix)
    assert "20,000 fingerprints, 0 of them new" in out
    assert before == client.dump(SET)
    server = connect(f"{target}?timeout=5")
    made, store = opened(server, prefix)
    assert [True] * COUNT == made.contains_many(KEYS)
    assert [True] * COUNT == store.contains_many(KEYS)
    assert COUNT == store.count()
    assert sum(made.contains_many(OTHERS)) < 20  # 2 at the promised rate
    assert ({}, {}) == (made.identity, store.identity)
    assert 0 == bloomdupe("check", target, "--key", prefix)[0]
    made._kept.clear()
    store.clear()
    server.close()


def test_a_cluster_is_filled_looked_at_checked_and_cleared(
    bloomdupe: Cli, valkey_cluster: list[Valkey]
) -> None:
    url = f"redis+cluster://127.0.0.1:{valkey_cluster[0].port}"
    server = connect(url)
    for start in range(0, COUNT, 1_000):
        server.run("SADD", SET, *[one.hex() for one in KEYS[start : start + 1_000]])
    code, out, err = bloomdupe("import", url, "--to", url, "--key", TO)
    assert (0, "") == (code, err)
    assert f"{url}/0 {SET}: 20,000 fingerprints, 20,000 of them new in {url}/0 {TO}\n" in out
    (row,) = bloomdupe.json("info", url)["keys"]
    assert (3, 3, COUNT) == (row["filter"]["shards"], row["store"]["shards"], row["store"]["num_keys"])
    assert 20 * COUNT < row["store"]["num_bytes"] < 200 * COUNT
    assert 0 == bloomdupe("check", url)[0]
    code, out, _ = bloomdupe("clear", url, "--key", TO, "--yes")
    assert (0, True) == (code, "8 keys of the server were removed" in out)
    assert [SET.encode()] == server.scan("*", 100)
    server.run("UNLINK", SET)
    server.close()


def test_only_what_is_not_known_yet_is_new(bloomdupe: Cli, server: Server, url: str) -> None:
    who = {"canary": "abc"}
    open_filter(server, TO, capacity=50_000, error_rate=0.01, identity=who).add_many(KEYS[:300])
    RedisStore.open(server, TO, identity=who).put_many(KEYS[:300])
    code, out, _ = bloomdupe("import", url, "--to", url, "--key", TO)
    assert (0, True) == (code, "20,000 fingerprints, 19,700 of them new" in out)
    (row,) = bloomdupe.json("info", url)["keys"]
    assert (50_000, 0.01, who) == tuple(
        row["filter"][word] for word in ("capacity", "error_rate", "identity")
    )
    code, _, err = bloomdupe("import", url, "--to", url, "--key", TO, "--capacity", "60_000")
    assert (2, True) == (code, "was made with capacity=50000, settings ask for 60000" in err)


def test_the_filter_alone_or_the_store_alone_is_filled(bloomdupe: Cli, server: Server, url: str) -> None:
    code, out, _ = bloomdupe("import", url, "--to", url, "--key", TO, "--no-store")
    assert (0, True) == (code, f"20,000 of them new in {url} {TO}\n" in out)
    (row,) = bloomdupe.json("info", url)["keys"]
    assert (1e-6, None) == (row["filter"]["error_rate"], row["store"])
    code, _, err = bloomdupe("import", url, "--to", url, "--key", TO)
    assert (2, True) == (code, "has a filter and no store: one that is made now lacks what the filter" in err)
    code, out, _ = bloomdupe("import", url, "--to", url, "--key", TO, "--no-filter")
    assert (0, True) == (code, "20,000 of them new" in out)
    (row,) = bloomdupe.json("info", url)["keys"]
    assert COUNT == row["store"]["num_keys"]


def test_into_a_database_all_members_arrive(
    bloomdupe: Cli, server: Server, url: str, postgres_url: str
) -> None:
    namespace = name()
    code, out, err = bloomdupe("import", url, "--to", postgres_url, "--key", namespace)
    assert (0, "") == (code, err)
    assert "20,000 fingerprints, 20,000 of them new in postgresql+psycopg://" in out
    store = SqlStore.open(postgres_url, namespace, create=False)
    assert [True] * COUNT == store.contains_many(KEYS)
    assert (COUNT, {}) == (store.count(), store.identity)
    store.clear()
    store.close()


def test_what_scrapys_own_filter_has_seen_can_be_shared(
    bloomdupe: Cli, server: Server, url: str, tmp_path: Path
) -> None:
    lines = b"".join(one.hex().encode() + b"\n" for one in OTHERS)
    (tmp_path / "requests.seen").write_bytes(lines)
    code, out, _ = bloomdupe("import", tmp_path, "--to", url, "--key", TO)
    assert 0 == code
    assert f"{tmp_path}/requests.seen: 2,000 fingerprints, 2,000 of them new in {url} {TO}\n" == out
    assert [True] * 2_000 == opened(server)[1].contains_many(OTHERS)


def test_members_that_are_no_fingerprints_are_named_counted_and_stop_nothing(
    bloomdupe: Cli, client: Any, url: str, tmp_path: Path
) -> None:
    wrong = [
        "",
        "text",
        "a" * 39,
        "a" * 41,
        "g" * 40,
        "é" * 20,
        b"\xff\x00\n\x1b[31m",
        "a" * 40 + "\n",
        "b" * 1000,
    ]
    client.sadd(SET, *wrong, "A" * 40)
    code, out, err = bloomdupe("import", url, "--to", tmp_path / "state")
    assert (0, "") == (code, err)
    assert "20,001 fingerprints, 20,001 of them new" in out
    assert "9 members are no fingerprint of 40 hexadecimal letters and were left out: b'" in out
    assert out.isascii()
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 600


def test_an_empty_or_missing_set_is_told_from_each_other(
    bloomdupe: Cli, client: Any, url: str, tmp_path: Path
) -> None:
    code, _, err = bloomdupe("import", url, "--set", "news:dupefilter", "--to", tmp_path / "state")
    assert 2 == code
    assert f"has nothing under 'news:dupefilter'. There are these sets:\n  {SET}  20,000 members\n" in err
    client.flushdb()
    code, _, err = bloomdupe("import", url, "--to", tmp_path / "state")
    assert (2, True) == (code, "has no set whose name contains 'dupefilter'; name that of" in err)
    assert not (tmp_path / "state").exists()


def test_of_several_sets_one_is_named(bloomdupe: Cli, client: Any, url: str, tmp_path: Path) -> None:
    client.sadd("dupefilter:1700000000", "c" * 40)
    client.set("a:dupefilter:note", 1)
    code, out, err = bloomdupe("import", url, "--to", tmp_path / "state")
    assert (2, "") == (code, out)
    assert "several sets: name one with --set:\n  dupefilter:1700000000  1 members\n" in err
    assert f"  {SET}  20,000 members\n" in err
    assert "note" not in err
    code, out, _ = bloomdupe("import", url, "--set", "dupefilter:1700000000", "--to", tmp_path / "state")
    assert (0, True) == (code, "1 fingerprints, 1 of them new" in out)


def test_what_is_no_set_is_refused(bloomdupe: Cli, client: Any, url: str, tmp_path: Path) -> None:
    client.setbit("shop:bloomfilter", 1000, 1)
    code, _, err = bloomdupe("import", url, "--set", "shop:bloomfilter", "--to", tmp_path / "state")
    assert (2, True) == (code, "shop:bloomfilter is a string, not a set of fingerprints" in err)


@pytest.mark.parametrize("shared", [True, False])
def test_an_import_that_is_cut_short_says_so_and_is_run_again(
    bloomdupe: Cli,
    server: Server,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shared: bool,
) -> None:
    words = ("import", url, "--to", *((url, "--key", TO) if shared else (tmp_path / "state",)))
    read = redisset.as_key
    left = iter(range(7_000))

    def stop(fingerprint: bytes) -> bytes:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return read(fingerprint)

    monkeypatch.setattr(redisset, "as_key", stop)
    code, _, err = bloomdupe(*words)
    assert (130, True) == (code, "interrupted" in err)
    monkeypatch.undo()
    if shared:
        assert ["1", "1"] == [one.identity.get("importing") for one in opened(server)]
        assert "an import was cut short: run it again" in bloomdupe("info", url)[1]
        assert "an import is under way, or was cut short" in bloomdupe("check", url)[1]
    else:
        filter_ = BloomFilter.open(tmp_path / "state" / "seen.bloom", readonly=True)
        assert "1" == filter_.identity["importing"]
        filter_.abandon()
    code, out, _ = bloomdupe(*words)
    assert 0 == code
    assert "20,000 fingerprints, 14,000 of them new" in out
    if shared:
        assert 0 == bloomdupe("check", url)[0]


WRONG: list[Any] = [
    (("redis://h",), "say where to"),
    (("redis://h", "--to", "redis://h"), "needs --key NAME"),
    (("redis://h", "--to", "d", "--key", "a"), "--key is for a server"),
    (("redis://h", "--to", "redis://h", "--key", "%(spider)s:seen"), "write the spider's name"),
    (("redis://h", "--to", "redis://h", "--key", "{a}"), "and no braces"),
    (("redis://h", "--to", "d", "--no-filter"), "a state directory always has a filter"),
    (("redis://h", "--to", "redis://h", "--key", "a", "--no-filter", "--no-store"), "leave nothing"),
    (("redis://h", "--to", "redis://h", "--key", "a", "--scheme", "blake2b"), "--layout and --scheme"),
    (("redis://h", "--to", "sqlite:///x", "--key", "a", "--no-store"), "a database has no filter"),
    ((".", "--set", "a"), "--set names a set on a server"),
    (("sqlite:///x", "--to", "d"), "is not the URL of a server"),
]


@pytest.mark.parametrize(("words", "says"), WRONG)
def test_what_does_not_fit_together_is_refused(bloomdupe: Cli, words: tuple[str, ...], says: str) -> None:
    code, out, err = bloomdupe("import", *words)
    assert (2, "") == (code, out)
    assert says in err


def test_without_the_package_the_error_says_which_extra(
    bloomdupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requests.seen").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "redis", None)
    code, _, err = bloomdupe("import", tmp_path, "--to", "redis://h", "--key", "a")
    assert (2, True) == (code, "pip install scrapy-bloomdupe[redis]" in err)
