"""Do info, check, rebuild and clear of a server or a database say what is there, and touch nothing else?"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import Cli
from kinds import key, name, open_filter
from servers import Valkey, free_port

from scrapy_bloomdupe.remote.client import Server, connect
from scrapy_bloomdupe.stores.redis import RedisStore
from scrapy_bloomdupe.stores.sql import SqlStore

DB = 9
COUNT = 3_000
KEYS = [key(number) for number in range(COUNT)]
WHO = {"canary": "abc", "fingerprinter": "some.Fingerprinter"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
    """redis-py's own, on the same database."""
    with valkey.client(db=DB) as client:
        yield client


def fill(server: Server, prefix: str, kind: str = "bitmap", keys: list[bytes] = KEYS) -> None:
    """Put *keys* into a filter and a store."""
    open_filter(kind, server, prefix, 10_000, 0.001, identity=WHO).add_many(keys)
    RedisStore.open(server, prefix, identity=WHO).put_many(keys)


@pytest.fixture
def server(url: str) -> Iterator[Server]:
    """The same, with a filter and a store under ``shop:seen``, and others under ``shop:seen2``."""
    server = connect(f"{url}?timeout=5")
    fill(server, "shop:seen")
    fill(server, "shop:seen2", "bitmap-sharded", KEYS[:10])
    yield server
    server.close()


def test_info_says_what_is_on_a_server_in_words_and_in_json(bloomdupe: Cli, server: Server, url: str) -> None:
    found = bloomdupe.json("info", url)
    assert (url, 0, "noeviction", "") == (
        found["server"],
        *(found["memory"][word] for word in ("maximum", "policy", "trouble")),
    )
    assert ["shop:seen", "shop:seen2"] == [row["key"] for row in found["keys"]]
    made, store = found["keys"][0]["filter"], found["keys"][0]["store"]
    assert ("bitmap", 1, 10_000, 0.001, True, WHO) == tuple(
        made[word] for word in ("kind", "shards", "capacity", "error_rate", "ready", "identity")
    )
    assert COUNT - 10 < made["num_keys"] <= COUNT
    assert 0.05 < made["fill"] < 0.6
    assert 0 < made["error_rate_estimate"] < 0.001
    assert 10_000 < made["num_bytes"] < 30_000
    assert time.time() - 600 < made["created"] <= time.time()
    assert ("set", 1, COUNT, WHO) == tuple(store[word] for word in ("kind", "shards", "num_keys", "identity"))
    assert 20 * COUNT < store["num_bytes"] < 200 * COUNT
    assert 32 == len(made["epoch"]) == len(store["epoch"])
    assert 3 == found["keys"][1]["filter"]["shards"]
    code, out, err = bloomdupe("info", url, "--key", "shop:seen")
    assert (0, "") == (code, err)
    for line in (
        f"server               {url}\n",
        ", no limit, noeviction, 0 keys evicted\n",
        "key                  shop:seen\n",
        "filter               bitmap, 1 shard, ",
        f"keys in the filter   {made['num_keys']:,} (made for 10,000)\n",
        "error rate           ",
        f"exact store          set, 1 shard, {COUNT:,} keys, ",
        f"epoch {made['epoch'][:16]}\n",
        "keys made by         some.Fingerprinter\n",
    ):
        assert line in out
    assert "shop:seen2" not in out


def test_no_answer_shows_the_secret_that_keys_are_hashed_under(
    bloomdupe: Cli, server: Server, url: str, client: Any
) -> None:
    secrets = [json.loads(client.get(f"shop:seen:{part}:meta"))["secret"] for part in ("filter", "store")]
    said = "".join("".join(bloomdupe("info", url, *words)[1:]) for words in ((), ("--json",)))
    assert [False, False] == [secret in said for secret in secrets]


def test_what_others_put_on_the_server_does_not_reach_the_terminal(
    bloomdupe: Cli, server: Server, url: str, client: Any
) -> None:
    change(client, identity={"fingerprinter": "\x1b[2Jx"})
    client.set("\x1b[2J:filter:meta", "\x1b[2J")
    for words in (("info", url), ("check", url), ("info", url, "--key", "no")):
        said = "".join(bloomdupe(*words)[1:])
        assert "\x1b" not in said
        assert "\\x1b[2J" in said


def test_a_filter_of_redisbloom_is_looked_at_checked_and_removed(
    bloomdupe: Cli, valkey_bloom: Valkey
) -> None:
    prefix = name()
    server = connect(f"{valkey_bloom.url}?timeout=5")
    fill(server, prefix, "redisbloom-sharded")
    (row,) = bloomdupe.json("info", valkey_bloom.url, "--key", prefix)["keys"]
    assert ("redisbloom", 3) == (row["filter"]["kind"], row["filter"]["shards"])
    assert COUNT - 10 < row["filter"]["num_keys"] <= COUNT
    assert 0 == bloomdupe("check", valkey_bloom.url, "--key", prefix)[0]
    code, out, _ = bloomdupe("clear", valkey_bloom.url, "--key", prefix, "--yes")
    assert (0, True) == (code, "6 keys of the server were removed" in out)
    assert [] == valkey_bloom.client().keys(f"{prefix}*")
    server.close()


def test_a_name_that_is_not_there_is_an_error_that_names_those_that_are(
    bloomdupe: Cli, server: Server, url: str, valkey: Valkey
) -> None:
    for command in (("info",), ("check",), ("clear", "--yes"), ("rebuild",)):
        code, out, err = bloomdupe(command[0], url, "--key", "shop", *command[1:])
        assert (2, "") == (code, out)
        assert "no filter and no store under 'shop'. There are: shop:seen, shop:seen2" in err
    valkey.client(db=DB).flushdb()
    for command in ("info", "check"):
        code, out, err = bloomdupe(command, url)
        assert (2, "") == (code, out)
        assert "has no filter and no store; see that the URL has the right number of the database" in err


def test_check_finds_that_all_is_whole(bloomdupe: Cli, server: Server, url: str) -> None:
    code, out, err = bloomdupe("check", url)
    assert (0, "") == (code, err)
    assert f"{url} shop:seen, shop:seen2: whole; all keys of a store are in the filter beside it\n" == out
    code, out, _ = bloomdupe("check", url, "--key", "shop:seen", "--sample", "100")
    assert (0, f"{url} shop:seen: whole; the sampled keys are in the filter beside it\n") == (code, out)


def test_check_finds_keys_that_the_filter_lacks_and_rebuild_makes_one_that_has_them(
    bloomdupe: Cli, server: Server, url: str
) -> None:
    RedisStore.open(server, "shop:seen").put_many([key(-number) for number in range(1, 51)])
    code, out, _ = bloomdupe("check", url)
    assert 1 == code
    assert f"shop:seen:filter lacks 50 of {COUNT + 50:,} keys of the store" in out
    assert f"`bloomdupe rebuild {url} --key shop:seen` makes a filter that has them" in out
    code, out, _ = bloomdupe(
        "rebuild", url, "--key", "shop:seen", "--capacity", "20_000", "--error-rate", "1e-6"
    )
    assert 0 == code
    assert (
        f"shop:seen: the filter is version 2, in the place of version 1: {COUNT + 50:,} keys of the store, "
        "and 0 that came meanwhile; made for 20,000 at an error rate of 1e-06\n"
    ) in out
    code, out, _ = bloomdupe("check", url)
    assert (0, True) == (
        code,
        "1 keys of the server are of the version before 2; they go by themselves" in out,
    )
    found = bloomdupe.json("info", url, "--key", "shop:seen")["keys"][0]
    assert (2, 20_000, WHO) == tuple(found["filter"][word] for word in ("version", "capacity", "identity"))
    out = bloomdupe("info", url, "--key", "shop:seen")[1]
    assert (True, 1) == (", version 2, epoch " in out, out.count("keys made by"))


def test_a_store_in_a_database_is_compared_with_its_filter_on_the_server(
    bloomdupe: Cli, valkey_bloom: Valkey, postgres_url: str
) -> None:
    prefix = name()
    words = (valkey_bloom.url, "--key", prefix, "--store", postgres_url)
    server = connect(f"{valkey_bloom.url}?timeout=5")
    made = open_filter("redisbloom", server, prefix, 10_000, 0.001, identity=WHO)
    made.add_many(KEYS[:2_500])
    code, _, err = bloomdupe("check", *words, "--table", name())
    assert (2, True) == (code, "there is no store there" in err)
    store = SqlStore.open(postgres_url, prefix, identity=WHO)
    store.put_many(KEYS)
    code, out, _ = bloomdupe("check", *words)
    assert 1 == code
    assert f"{prefix}:filter lacks " in out
    assert "--store postgresql+psycopg://postgres:***@/" in out
    assert 2 == bloomdupe("rebuild", valkey_bloom.url, "--key", prefix)[0]
    code, out, _ = bloomdupe("rebuild", *words)
    assert (0, True) == (code, f"version 1: {COUNT:,} keys of the store, and 0 that came meanwhile" in out)
    assert [True] * COUNT == made.contains_many(KEYS)
    assert 0 == bloomdupe("check", *words)[0]
    assert 0 == bloomdupe("clear", valkey_bloom.url, "--key", prefix, "--yes")[0]
    assert COUNT == store.count()
    store.clear()
    store.close()
    server.close()


META = "shop:seen:filter:meta"


def dumped(client: Any) -> dict[bytes, bytes]:
    """All that is in the database."""
    return {one: client.dump(one) for one in client.scan_iter()}


def lose_the_bits(client: Any) -> None:
    (found,) = client.keys("shop:seen:filter:{*")
    client.delete(found)


def change(client: Any, **values: object) -> None:
    client.set(META, json.dumps(json.loads(client.get(META)) | values))


WRONG: list[Any] = [
    pytest.param(lose_the_bits, "what had been seen is gone from the server", id="bits lost"),
    pytest.param(lambda to: to.delete(META), "has lost its description; 1 keys", id="description lost"),
    pytest.param(lambda to: to.set(META, "text"), "is no description of a filter", id="not a description"),
    pytest.param(lambda to: change(to, format=2), "is of format 2", id="of a later release"),
    pytest.param(lambda to: change(to, kind="cuckoo"), "of the kind 'cuckoo'", id="of an unknown kind"),
    pytest.param(lambda to: change(to, kind="redisbloom"), "has no RedisBloom", id="without the module"),
    pytest.param(lambda to: change(to, params={}), "which makes no filter", id="without parameters"),
    pytest.param(lambda to: change(to, ready=False), "its making was cut short", id="half made"),
    pytest.param(lambda to: change(to, identity={"canary": "x"}), "by different projects", id="of others"),
    pytest.param(
        lambda to: (to.delete(META), to.hset(META, "a", "b")), "is taken by something else", id="taken"
    ),
]


@pytest.mark.parametrize(("harm", "says"), WRONG)
def test_check_says_what_is_wrong_changes_nothing_and_clear_removes_it(
    bloomdupe: Cli, server: Server, url: str, client: Any, harm: Any, says: str
) -> None:
    harm(client)
    before = dumped(client)
    code, out, err = bloomdupe("check", url, "--key", "shop:seen")
    assert (1, "") == (code, err)
    assert says in out
    assert len(out.splitlines()) == 1
    assert bloomdupe("info", url)[0] in (0, 1)
    assert before == dumped(client)
    assert 0 == bloomdupe("clear", url, "--key", "shop:seen", "--yes")[0]
    assert {b"shop:seen2"} == {b":".join(one.split(b":")[:2]) for one in dumped(client)}
    assert 0 == bloomdupe("check", url)[0]


def test_check_warns_of_a_server_that_evicts_or_is_full(bloomdupe: Cli, tmp_path: Path) -> None:
    with Valkey(tmp_path, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as evicting:
        server = connect(f"{evicting.url}?timeout=5")
        fill(server, "shop:seen")
        code, out, _ = bloomdupe("check", evicting.url)
        assert (1, True) == (code, "the server evicts keys" in out)
        assert "trouble              the server evicts keys" in bloomdupe("info", evicting.url)[1]
        evicting.client().config_set("maxmemory-policy", "noeviction")
        assert 0 == bloomdupe("check", evicting.url)[0]
        evicting.client().config_set("maxmemory", "1mb")
        code, out, _ = bloomdupe("check", evicting.url)
        assert (1, True) == (code, "maxmemory of 1,048,576 bytes are in use" in out)
        server.close()


def test_clear_removes_its_prefix_and_nothing_else(
    bloomdupe: Cli, server: Server, url: str, client: Any
) -> None:
    fill(server, "other:shop:seen", keys=KEYS[:5])
    fill(server, "shop:seen:more", keys=KEYS[:5])
    fill(server, "sh?p:*", keys=KEYS[:5])
    for other in ("shop:seen", "shop:seen:filter:note", "shop:seen:dupefilter", "unrelated"):
        client.set(other, 1)
    client.set(b"\xff:filter:meta", 1)
    before = set(client.keys())
    code, out, err = bloomdupe("clear", url, "--key", "shop:seen", "--yes")
    assert (0, "") == (code, err)
    assert f"{url} shop:seen: filter of " in out
    assert f"and store of {COUNT:,} keys; 4 keys of the server, " in out
    gone = before - set(client.keys())
    assert {b"shop:seen:filter:meta", b"shop:seen:store:meta"} < gone
    assert 4 == len(gone)
    assert [True] * 4 == [one.startswith((b"shop:seen:filter:", b"shop:seen:store:")) for one in gone]
    assert 0 == bloomdupe("clear", url, "--key", "sh?p:*", "--yes")[0]
    assert 4 == len(before - gone - set(client.keys()))


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 4), ("\n", 1, 4), ("", 1, 4)])
def test_clear_asks_first(
    bloomdupe: Cli,
    server: Server,
    url: str,
    client: Any,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    left: int,
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    found, out, _ = bloomdupe("clear", url, "--key", "shop:seen")
    assert code == found
    assert "Remove? [y/N]" in out
    assert left == len(client.keys("shop:seen:*"))


def test_clear_without_a_terminal_wants_to_be_told(
    bloomdupe: Cli, server: Server, url: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, _, err = bloomdupe("clear", url, "--key", "shop:seen")
    assert (2, True) == (code, "nothing was removed: there is no terminal to ask at; add --yes" in err)
    assert 4 == len(client.keys("shop:seen:*"))


def test_no_server_is_a_clear_error_at_once(bloomdupe: Cli) -> None:
    started = time.monotonic()
    for words in (("info",), ("check",), ("clear", "--key", "a", "--yes"), ("import", "--to", "somewhere")):
        code, out, err = bloomdupe(words[0], f"redis://:sesame@127.0.0.1:{free_port()}/0", *words[1:])
        assert (2, "") == (code, out)
        assert "gave no answer" in err
        assert "sesame" not in err
    assert time.monotonic() - started < 5


def test_a_wrong_password_is_a_clear_error_that_does_not_repeat_it(bloomdupe: Cli, tmp_path: Path) -> None:
    with Valkey(tmp_path, "--requirepass", "right") as guarded:
        fill(connect(f"redis://:right@127.0.0.1:{guarded.port}?timeout=5"), "shop:seen")
        for words in (
            ("info",),
            ("check",),
            ("clear", "--key", "shop:seen", "--yes"),
            ("import", "--to", "x"),
        ):
            for user in ("", ":sesame@"):
                code, out, err = bloomdupe(words[0], f"redis://{user}127.0.0.1:{guarded.port}", *words[1:])
                assert (2, "") == (code, out)
                assert "asks for another user or password" in err
                assert "sesame" not in err
        url = f"redis://:right@127.0.0.1:{guarded.port}"
        for words in (("info", url), ("check", url), ("info", url, "--json"), ("check", url, "--key", "no")):
            assert "right" not in "".join(bloomdupe(*words)[1:]).replace("right number", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("info", "redis://u:sesame@/0?what=1"), "'what' is not an option"),
        (("info", "nosuch://u:sesame@host/x"), "is not one that SQLAlchemy reads"),
        (("pending", "redis://u:sesame@host"), "give the JOBDIR"),
        (("info", ".", "--key", "a"), "--key is for a server or a database"),
        (("check", ".", "--sample", "3"), "--sample is for a server or a database"),
        (("check", "redis://host", "--sample", "0"), "not a number of keys"),
        (("clear", "job/", "--key", "a"), "a directory is moved aside: mv job/ job.old"),
        (("clear", "redis://host"), "say what: --key NAME"),
        (("rebuild", "redis://host"), "say what: --key NAME"),
        (("check", "redis://host", "--store", "sqlite:///x.db"), "say what: --key NAME"),
        (("check", "redis://host", "--store", "redis://u:sesame@host"), "--store names a database"),
        (("rebuild", ".", "--store", "sqlite:///x.db"), "--store is for a server"),
        (("check", "sqlite:///x.db", "--store", "sqlite:///x.db"), "are for a filter on a server"),
        (
            ("rebuild", "redis://host", "--key", "a", "--layout", "paged"),
            "--layout is for a filter in a file",
        ),
        (("rebuild", "sqlite:///x.db", "--key", "a"), "a database has no filter"),
    ],
)
def test_what_cannot_be_meant_has_exit_code_2_and_shows_no_password(
    bloomdupe: Cli, words: tuple[str, ...], says: str
) -> None:
    code, out, err = bloomdupe(*words)
    assert (2, "") == (code, out)
    assert says in err
    assert "sesame" not in err


@pytest.mark.parametrize(
    ("place", "package", "extra"),
    [
        ("redis://h", "redis", "scrapy-bloomdupe[redis]"),
        ("sqlite:///x.db", "sqlalchemy", "scrapy-bloomdupe[sql]"),
    ],
)
def test_without_the_extra_the_error_says_which_to_install(
    bloomdupe: Cli, monkeypatch: pytest.MonkeyPatch, place: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for words in (("info",), ("check",), ("clear", "--key", "a"), ("import", "--to", "x")):
        if (package, words[0]) == ("sqlalchemy", "import"):
            continue
        code, out, err = bloomdupe(words[0], place, *words[1:])
        assert (2, "") == (code, out)
        assert f"pip install {extra}" in err


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/seen.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def test_the_namespaces_of_a_database_are_listed_checked_and_removed(bloomdupe: Cli, database: str) -> None:
    table = name()
    options = ("--table", table)
    for namespace, count in (("shop", COUNT), ("news", 7)):
        store = SqlStore.open(database, namespace, table=table, identity=WHO)
        store.put_many(KEYS[:count])
        store.close()
    found = bloomdupe.json("info", database, *options)
    assert [("news", 7, WHO), ("shop", COUNT, WHO)] == [
        (one["name"], one["num_keys"], one["identity"]) for one in found["namespaces"]
    ]
    code, out, err = bloomdupe("info", database, *options, "--key", "shop")
    assert (0, "") == (code, err)
    assert f"shop                 {COUNT:,} keys, made 20" in out
    assert "news" not in out
    code, out, _ = bloomdupe("check", database, *options)
    assert (0, f"2 namespaces, {COUNT + 7:,} keys: whole\n") == (code, out)
    code, out, err = bloomdupe("clear", database, *options, "--key", "shop")
    assert (2, True) == (code, "add --yes" in err)
    code, out, _ = bloomdupe("clear", database, *options, "--key", "shop", "--yes")
    assert (0, True) == (code, f"{COUNT:,} keys were removed" in out)
    assert ["news"] == [one["name"] for one in bloomdupe.json("info", database, *options)["namespaces"]]
    code, _, err = bloomdupe("clear", database, *options, "--key", "shop", "--yes")
    assert (2, True) == (code, "no namespace 'shop' in the table; there are: news" in err)


def test_looking_into_a_database_makes_nothing_in_it(bloomdupe: Cli, database: str, tmp_path: Path) -> None:
    for command in (("info",), ("check",), ("clear", "--key", "a", "--yes")):
        code, out, err = bloomdupe(command[0], database, "--table", "missing", *command[1:])
        assert (2, "") == (code, out)
        assert "has no table missing_meta: there is no store there" in err
    assert [] == list(tmp_path.iterdir())
