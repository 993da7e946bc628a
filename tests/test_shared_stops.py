"""What becomes of crawls whose server fails in the middle? No page is lost, and the log says it once.

A long version, with a server that hangs for 20 s: ``BLOOMDUPE_FLEET=4``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawl, run
from fleets import LONG, Fleet, fleets, sharing
from forking import wait_until
from killsite import Tree
from servers import Proxy, Valkey

# Every third page is slow, so that there is a middle.
TREE = Tree(90, 1, "pps", extra=6)
# Seconds that an answer is waited for: of who does not answer, and of who is slow on a busy machine.
QUICK, PATIENT = 1, 5
HANGS = 20.0 if LONG else 3.0

GONE = "what had been seen is gone from the server"
UNJUDGED = "Counted in bloomdupe/error/server, shown once"


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Fleet]]:
    with fleets(tmp_path_factory.mktemp("fleets")) as make:
        yield make


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    folder = tmp_path / "server"
    folder.mkdir()
    with Valkey(folder) as valkey:
        yield valkey


@pytest.fixture
def fleet(
    make: Callable[..., Fleet], tmp_path: Path, server: Valkey, request: pytest.FixtureRequest
) -> Callable[..., Fleet]:
    """Make two crawls that share what lies on *server*."""

    def build(
        kind: str, url: str | None = None, *, timeout: int = PATIENT, jobs: bool = False, **settings: Any
    ) -> Fleet:
        options = f"timeout={timeout}&connect_timeout={PATIENT}&failures=2"
        shared = sharing(kind, request, f"{url or server.url}?{options}")
        return make(tmp_path / "fleet", TREE, {**shared, **settings}, size=2, jobs=jobs)

    return build


def crawl_while(fleet: Fleet, happens: Callable[[], object], until: str | None = None) -> list[Crawl]:
    """Crawl; when a third is done something happens, and no crawl ends before it says *until*."""
    stays = fleet.folder / "stays"
    fleet.folder.mkdir(exist_ok=True)
    stays.touch()
    options = {"EXTENSIONS": {"fleets.Stays": 0}, "STAYS_FOR": str(stays)}
    with fleet.going(prepare="fleets.look_often", **options) as started:
        # Who comes later finds what the others have made anew, and has nothing to say.
        wait_until(lambda: all("Seen-set: shared by" in going.log() for going in started), "crawl is open")
        fleet.wait_for(TREE.size // 3, started)
        assert not any(going.ended() for going in started)
        happens()
        if until is not None:
            wait_until(lambda: all(until in going.log() for going in started), until)
        stays.unlink()
        return fleet.finish(started)


def says(runs: list[Crawl], text: str) -> list[int]:
    """How many lines of each log have *text*."""
    return [len(run.lines(text)) for run in runs]


def restart(server: Valkey, *, data: bool) -> None:
    if data:
        server.client().save()
    server.kill()
    server.start()


@pytest.mark.parametrize("kind", ["bitmap", "filter and store"])
@pytest.mark.parametrize("how", ["killed", "FLUSHALL"])
def test_a_server_that_is_emptied_is_made_anew_and_no_page_is_lost(
    fleet: Callable[..., Fleet], server: Valkey, kind: str, how: str
) -> None:
    crawls = fleet(kind)
    runs = crawl_while(
        crawls,
        lambda: restart(server, data=False) if how == "killed" else server.client().flushall(),
        until="is in use again",
    )
    crawls.check(once=False)
    assert [1, 1] == says(runs, GONE), crawls.story()
    assert [1, 1] == says(runs, "is in use again"), crawls.story()
    assert max(says(runs, UNJUDGED)) <= 1
    assert all(run.stats["bloomdupe/server/emptied"] >= 1 for run in runs)


def test_a_server_that_is_emptied_is_filled_from_the_crawls_own_stores(
    fleet: Callable[..., Fleet], server: Valkey
) -> None:
    crawls = fleet("filter and local lmdb", BLOOMDUPE_ON_EMPTY="refill")
    runs = crawl_while(crawls, lambda: restart(server, data=False), until="is in use again")
    crawls.check(once=False)
    assert [1, 1] == says(runs, GONE), crawls.story()
    assert [1, 1] == says(runs, "keys of this crawl"), crawls.story()
    # All is there again: who comes later finds nothing to do but its first page.
    (later,) = crawls.finish([crawls.start(0)])
    assert 2 == later.stats["response_received_count"], crawls.story()


def test_a_crawl_can_stop_when_its_server_is_emptied_and_go_on_later(
    fleet: Callable[..., Fleet], server: Valkey
) -> None:
    crawls = fleet("bitmap", jobs=True, BLOOMDUPE_ON_EMPTY="stop")
    runs = crawl_while(crawls, lambda: restart(server, data=False), until="the crawl is stopped")
    assert ["bloomdupe_emptied"] * 2 == [run.stats["finish_reason"] for run in runs], crawls.story()
    assert [1, 1] == says(runs, "BLOOMDUPE_ON_EMPTY is 'stop': the crawl is stopped")
    refused = crawls.run()
    assert [(1, "bloomdupe_refused")] * 2 == [(run.code, run.stats["finish_reason"]) for run in refused]
    assert [1, 1] == says(refused, "take 'pass' or 'refill' to go on")
    crawls.run(BLOOMDUPE_ON_EMPTY="pass")
    crawls.check(once=False)


@pytest.mark.parametrize("kind", ["bitmap", "filter and store"])
def test_a_server_that_comes_back_with_its_data_is_used_again(
    fleet: Callable[..., Fleet], server: Valkey, kind: str
) -> None:
    crawls = fleet(kind)
    # What was taken between the two is forgotten, as with every server that saves now and then.
    runs = crawl_while(crawls, lambda: restart(server, data=True))
    crawls.check(once=False)
    assert [0, 0] == says(runs, GONE), crawls.story()
    assert max(says(runs, UNJUDGED)) <= 1, crawls.story()


def test_a_server_that_hangs_does_not_hold_up_the_crawl(fleet: Callable[..., Fleet], server: Valkey) -> None:
    crawls = fleet("filter and store", timeout=QUICK)

    def hang() -> None:
        server.freeze()
        time.sleep(HANGS)
        server.thaw()

    runs = crawl_while(crawls, hang, until="answers again")
    crawls.check(once=False)
    assert 1 == max(says(runs, UNJUDGED)), crawls.story()
    assert max(says(runs, "does not answer")) <= 1, crawls.story()
    assert all(run.stats["bloomdupe/circuit_open_seconds"] > 0.5 for run in runs), crawls.story()


@pytest.mark.parametrize("mode", ["swallow", "cut", "garble"] if LONG else ["swallow", "garble"])
@pytest.mark.parametrize("kind", ["bitmap", "store"] if LONG else ["store"])
def test_answers_that_are_lost_cost_no_page(
    fleet: Callable[..., Fleet], server: Valkey, kind: str, mode: str
) -> None:
    with Proxy(server.port) as proxy:
        crawls = fleet(kind, proxy.url, timeout=2 * QUICK)

        def lose() -> None:
            proxy.mode = mode
            time.sleep(0.5)
            proxy.mode = "pass"

        runs = crawl_while(crawls, lose)
    crawls.check(once=False)
    assert max(says(runs, UNJUDGED)) <= 1, crawls.story()
    assert [0, 0] == says(runs, GONE)


def test_a_slow_server_changes_nothing(fleet: Callable[..., Fleet], server: Valkey) -> None:
    with Proxy(server.port) as proxy:
        crawls = fleet("filter and store", proxy.url)

        def slow() -> None:
            proxy.delay = 0.05

        runs = crawl_while(crawls, slow)
    crawls.check()
    assert [0, 0] == says(runs, "WARNING"), crawls.story()


@pytest.mark.parametrize("kind", ["bitmap", "filter and store"])
def test_a_server_without_memory_lets_all_pass(
    fleet: Callable[..., Fleet], server: Valkey, kind: str
) -> None:
    crawls = fleet(kind)
    runs = crawl_while(crawls, lambda: server.client().config_set("maxmemory", "1mb"))
    crawls.check(once=False)
    # A crawl can have asked for all of its links by then.
    assert 1 == max(says(runs, UNJUDGED)), crawls.story()
    assert says(runs, UNJUDGED) == says(runs, "takes no more"), crawls.story()


@pytest.mark.parametrize("kind", ["bitmap", "filter and store"])
def test_a_server_that_evicts_is_complained_of_and_no_page_is_lost(
    fleet: Callable[..., Fleet], server: Valkey, kind: str
) -> None:
    crawls = fleet(kind)
    client = server.client()

    def evict() -> None:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", "1kb")
        wait_until(lambda: client.info()["evicted_keys"] > 0, "key that is evicted")
        client.config_set("maxmemory", "100mb")

    runs = crawl_while(crawls, evict, until=GONE)
    crawls.check(once=False)
    assert [1, 1] == says(runs, GONE), crawls.story()
    assert [1, 1] == says(runs, "Set maxmemory-policy to noeviction"), crawls.story()


def test_a_master_that_becomes_a_replica_lets_all_pass(fleet: Callable[..., Fleet], server: Valkey) -> None:
    crawls = fleet("filter and store")
    runs = crawl_while(crawls, lambda: server.client().replicaof("127.0.0.1", 1))
    crawls.check(once=False)
    assert 1 == max(says(runs, UNJUDGED)), crawls.story()
    assert max(says(runs, "is a replica and takes no writes")) <= 2, crawls.story()


def test_a_replica_is_refused_at_the_start(tmp_path: Path, server: Valkey) -> None:
    server.client().replicaof("127.0.0.1", 1)
    refused(tmp_path, server.url, "is a")


def refused(folder: Path, url: str, *said: str, **settings: Any) -> None:
    crawl = run(folder, {**SHARED, "BLOOMDUPE_FILTER": url, **settings}, start=["http://127.0.0.1:9/"])
    assert (1, "bloomdupe_refused") == (crawl.code, crawl.stats["finish_reason"]), crawl.log
    lines = crawl.lines("The crawl does not start")
    assert 1 == len(lines), crawl.log
    for text in said:
        assert text in lines[0]
    assert 0 == crawl.stats.get("downloader/request_count", 0)
    assert [] == crawl.lines("Traceback")


SHARED = {"DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter", "BLOOMDUPE_KEY": "refused"}


def test_a_server_that_cannot_be_reached_refuses_the_start(tmp_path: Path) -> None:
    refused(tmp_path, "redis://127.0.0.1:1", "redis://127.0.0.1:1/0", "gave no answer")
    refused(tmp_path, "redis://127.0.0.1:1", "gave no answer", JOBDIR=str(tmp_path / "jobdir"))


def test_a_server_that_does_not_speak_tls_refuses_the_start(tmp_path: Path, server: Valkey) -> None:
    # The server of the tests has no TLS of its own.
    refused(tmp_path, server.url.replace("redis:", "rediss:"), "gave no answer", "rediss://")


@pytest.mark.parametrize("user", ["", "me:secret@"])
def test_a_server_that_wants_another_password_refuses_the_start(
    tmp_path: Path, server: Valkey, user: str
) -> None:
    server.client().config_set("requirepass", "open sesame")
    refused(tmp_path, server.url.replace("//", f"//{user}"), "asks for another user or password")
    for log in tmp_path.glob("*.log"):
        assert "secret@" not in log.read_text()


def test_crawls_that_know_the_password_share(fleet: Callable[..., Fleet], server: Valkey) -> None:
    server.client().config_set("requirepass", "open sesame")
    crawls = fleet("filter and store", server.url.replace("//", "//:open%20sesame@"))
    crawls.run()
    crawls.check()
    for one in crawls.runs:
        assert "sesame" not in "".join(one.lines("Seen-set")), one.log
