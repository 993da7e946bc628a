"""Is a shared filter rebuilt without a gap? Workers go on and follow, any end leaves one valid version."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartPython
from kinds import key, name, open_filter, url_for
from servers import Valkey

import scrapy_bloomdupe.mending as mending
import scrapy_bloomdupe.remote.replacing as replacing
import scrapy_bloomdupe.shared.versions as versions
from scrapy_bloomdupe.errors import (
    ConfigurationError,
    FilterError,
    RemoteEmptied,
    StateLocked,
    StateMismatch,
)
from scrapy_bloomdupe.remote.client import connect
from scrapy_bloomdupe.remote.kept import parts_found
from scrapy_bloomdupe.remote.meta import Meta, unpack
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.shared.parts import SharedParts
from scrapy_bloomdupe.shared.versions import VersionPlan, rebuild
from scrapy_bloomdupe.stores.redis import RedisStore

KINDS = ["bitmap", "bitmap-sharded", "bitmap-cluster", "redisbloom", "redisbloom-sharded"]
COUNT = 1_000
KEYS = [key(number) for number in range(COUNT)]
GRANTED = (Verdict.NEW, Verdict.FALSE_POSITIVE)


class Place:
    """A name on a server, where workers open a filter and a store, each with connections of its own."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url, self.prefix = kind, url, name()
        self.server = connect(url)
        self._opened = [self.server]

    @property
    def filter_name(self) -> str:
        return f"{self.prefix}:filter"

    def worker(self, capacity: int = 200, error_rate: float = 1e-6) -> SharedParts:
        server = connect(self.url)
        self._opened.append(server)
        found = open_filter(self.kind, server, self.prefix, capacity, error_rate)
        return SharedParts(found, RedisStore.open(server, self.prefix))

    def parts(self, *, old: bool) -> list[bytes]:
        return [one for one in parts_found(self.server, self.filter_name) if one.endswith(b":old") is old]

    def meta(self) -> Meta:
        return unpack(self.server.run("GET", f"{self.filter_name}:meta"), self.filter_name)

    def unlock(self) -> None:
        """As if a minute had passed since its holder was killed."""
        self.server.run("DEL", replacing.lock_name(self.filter_name))

    def check(self) -> list[str]:
        return list(mending.check(self.server, self.prefix, lambda keys, _: keys))

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(request.param, url_for(request.param, request))
    yield made
    made.close()


@pytest.fixture
def plain(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place("bitmap", url_for("bitmap", request))
    yield made
    made.close()


def made_anew(parts: SharedParts, **plan: Any) -> versions.Rebuilt:
    assert parts.filter is not None
    assert parts.store is not None
    done = rebuild(parts.filter, parts.store, VersionPlan(**plan))
    assert done is not None
    return done


def filter_of(parts: SharedParts) -> Any:
    return parts.filter


def test_a_worker_follows_at_its_next_question_and_nothing_is_missing(place: Place) -> None:
    one, two, three = (place.worker() for _ in range(3))
    assert {Verdict.NEW, Verdict.FALSE_POSITIVE} >= set(one.judge(KEYS))
    layers = filter_of(one).info().layers
    assert len(layers) > 2
    before = set(place.parts(old=False))
    done = made_anew(one)
    assert (1, 2, COUNT, 0, 2 * COUNT) == (done.old, done.new, done.count, done.caught_up, done.capacity)
    for worker, ask in ((two, two.judge), (three, filter_of(three).contains_many)):
        assert 1 == filter_of(worker).version
        assert {Verdict.DUPLICATE} == set(two.judge(KEYS)) if ask == two.judge else all(ask(KEYS))
        assert (2, 2 * COUNT) == (filter_of(worker).version, filter_of(worker).capacity)
    assert 1 == filter_of(two).num_layers == len(filter_of(two).info().layers)
    assert [Verdict.NEW, Verdict.DUPLICATE] == [*two.judge([key(-1)]), *three.judge([key(-1)])]
    # The old one is kept for an hour, and is nobody's problem.
    assert {one + b":old" for one in before} == set(place.parts(old=True))
    assert all(0 < place.server.run("TTL", one) <= 3600 for one in place.parts(old=True))
    assert [-1] * len(place.parts(old=False)) == [
        place.server.run("TTL", one) for one in place.parts(old=False)
    ]
    assert [] == place.check()
    (note,) = mending.notes(place.server, place.prefix)
    assert f"{len(before):,} keys of the server are of the version before 2" in note
    # The next one takes it away, and who slept through both is told of the last.
    four = place.worker()
    made_anew(one)
    made_anew(two)
    assert [Verdict.DUPLICATE] == four.judge([key(1)])
    assert 4 == filter_of(four).version
    assert {f"{place.meta().replaces[0].hex()[:16]}".encode()} == {
        one.split(b"{")[1].split(b".")[0] for one in place.parts(old=True)
    }


@pytest.mark.parametrize("place", ["bitmap-sharded", "bitmap-cluster", "redisbloom"], indirect=True)
def test_workers_judge_while_it_is_rebuilt_and_each_key_is_granted_once(place: Place) -> None:
    workers = [place.worker() for _ in range(3)]
    builder = workers.pop()
    builder.judge(KEYS)
    granted: list[list[bytes]] = [[], []]
    errors: list[BaseException] = []
    ended = threading.Event()

    def work(number: int) -> None:
        at = COUNT
        try:
            while not ended.is_set():
                # All ask for the same, and for what was there; two of them share their connections.
                batch = [key(one) for one in range(at - 30, at + 20)]
                answers = workers[number].judge(batch)
                granted[number] += [
                    one for one, verdict in zip(batch, answers, strict=True) if verdict in GRANTED
                ]
                at += 20
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1, 1)]
    for thread in threads:
        thread.start()
    done = made_anew(builder)
    made_anew(builder)
    ended.set()
    for thread in threads:
        thread.join()
    assert [] == errors
    assert done.count >= COUNT
    both = granted[0] + granted[1]
    assert len(both) == len(set(both))
    numbers = {key(number) for number in range(COUNT, COUNT + len(both))}
    assert numbers == set(both)
    found = filter_of(builder).contains_many([*KEYS, *both])
    # In a Cluster the store is asked after the filter: a batch of each worker may be between the two.
    assert found.count(False) <= 3 * 50
    assert [1] * 2 == [len(set(worker.judge(both))) for worker in workers]
    assert {3} == {filter_of(worker).version for worker in workers}


BUILD = """
import scrapy_bloomdupe.remote.replacing as replacing
import scrapy_bloomdupe.shared.versions as versions
from scrapy_bloomdupe.filters.redis import open_filter
from scrapy_bloomdupe.remote.client import connect
from scrapy_bloomdupe.stores.redis import RedisStore

url, prefix, moment = sys.argv[1:]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
real = getattr(replacing.Replacing, moment.partition("-")[2], None)
def before(*arguments):
    die()
def after(*arguments):
    real(*arguments)
    die()
if moment == "filling":
    versions._check = before
else:
    when, _, method = moment.partition("-")
    setattr(replacing.Replacing, method, before if when == "before" else after)
server = connect(url)
made = open_filter(server, prefix, capacity=200, error_rate=1e-6)
versions.rebuild(made, RedisStore.open(server, prefix), versions.VersionPlan())
"""


@pytest.mark.parametrize(
    ("kind", "moment", "version"),
    [
        ("bitmap", "before-keep_unfinished", 1),
        ("bitmap-sharded", "filling", 1),
        ("redisbloom", "before-switch", 1),
        ("bitmap", "after-switch", 2),
        ("redisbloom-sharded", "after-switch", 2),
        ("bitmap", "after-retire", 2),
    ],
)
def test_a_builder_that_is_killed_leaves_one_valid_version(
    kind: str, moment: str, version: int, start_python: StartPython, request: pytest.FixtureRequest
) -> None:
    place = Place(kind, url_for(kind, request))
    one, two = (place.worker() for _ in range(2))
    one.judge(KEYS)
    builder = start_python(BUILD, place.url, place.prefix, moment)
    assert -9 == builder.wait(60)
    # Half made parts go by themselves, those in force do not.
    lasting = [part for part in place.parts(old=False) if place.server.run("TTL", part) == -1]
    assert set(lasting) >= {part for part in place.parts(old=False) if replacing.is_of(part, place.meta())}
    two.verify()
    assert version == filter_of(two).version
    for worker in (one, two):
        assert {Verdict.DUPLICATE} == set(worker.judge(KEYS))
    assert [Verdict.NEW, Verdict.DUPLICATE] == [*one.judge([key(-1)]), *two.judge([key(-1)])]
    assert version == place.worker().filter.version  # type: ignore[union-attr]
    with pytest.raises(StateLocked, match="by another process, or by one that was killed less than 60 s ago"):
        made_anew(one)
    place.unlock()
    left = moment != "after-retire"
    assert left is any("are left of a version that is not in force" in one for one in place.check())
    assert version + 1 == made_anew(one).new
    assert [] == place.check()
    assert {Verdict.DUPLICATE} == set(two.judge([*KEYS, key(-1)]))
    assert version + 1 == filter_of(two).version
    assert all(replacing.is_of(part, place.meta()) for part in place.parts(old=False))
    place.close()


@pytest.mark.parametrize("place", ["bitmap", "redisbloom"], indirect=True)
def test_what_was_emptied_says_so_after_a_rebuild_too(place: Place) -> None:
    one, two = (place.worker() for _ in range(2))
    one.judge(KEYS)
    made_anew(one)
    epoch = one.epoch
    for part in place.parts(old=False):
        place.server.run("DEL", part)
    for worker in (one, two):  # the second one still has the version before
        with pytest.raises(RemoteEmptied, match="what had been seen is gone from the server"):
            filter_of(worker).add_many(KEYS[:2])
    assert one.renew() is True
    # It has the size of what it replaces, and nothing that anybody knew.
    assert (2, 2 * COUNT, ()) == (place.meta().version, filter_of(one).capacity, place.meta().replaces)
    assert not one.is_successor_of(epoch)
    with pytest.raises(RemoteEmptied):
        two.verify()
    assert two.renew() is False
    assert filter_of(one).filter_id == filter_of(two).filter_id
    place.server.run("DEL", f"{place.filter_name}:meta")
    with pytest.raises(RemoteEmptied):
        one.verify()


def test_a_parts_epoch_of_before_the_rebuild_is_known_and_others_are_not(plain: Place) -> None:
    parts = plain.worker()
    parts.judge(KEYS[:10])
    before = parts.epoch
    made_anew(parts)
    assert before != parts.epoch
    assert [True, True, False, False, False] == [
        parts.is_successor_of(epoch)
        for epoch in (
            before,
            parts.epoch,
            before.partition("/")[0] + "/00",
            "ff" + before[2:],
            "text/" + before,
        )
    ]


def test_only_one_builds_at_a_time(plain: Place) -> None:
    one, two = (plain.worker() for _ in range(2))
    one.judge(KEYS[:100])
    with filter_of(one).replacing() as work:
        new = filter_of(one).begin(work, capacity=100, error_rate=0.5)
        with pytest.raises(StateLocked):
            made_anew(two)
        # The lock was lost meanwhile, and another one has begun.
        plain.unlock()
        made_anew(two)
        with pytest.raises(RemoteEmptied):
            new.add_many(KEYS[:1])
        with pytest.raises(RemoteEmptied):
            work.switch()

    def lose_the_lock() -> None:
        with filter_of(one).replacing() as work:
            filter_of(one).begin(work, capacity=100, error_rate=0.5)
            plain.unlock()
            work.switch()

    with pytest.raises(StateLocked, match="stood still for more than 60 s"):
        lose_the_lock()
    assert 2 == plain.meta().version
    # Whoever could not switch takes what he has made with him.
    assert all(replacing.is_of(part, plain.meta()) for part in plain.parts(old=False))
    assert {Verdict.DUPLICATE} == set(one.judge(KEYS[:100]))


def test_a_rebuild_that_fails_leaves_the_old_version_and_nothing_else(
    plain: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = plain.worker()
    parts.judge(KEYS)
    before = set(plain.parts(old=False))

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild(parts.filter, parts.store, VersionPlan(), pace=interrupt)  # type: ignore[arg-type]
    real = type(parts.filter).add_many

    def forgets(self: Any, keys: list[bytes]) -> list[bool]:
        return real(self, keys[1:])[:1] + real(self, keys[1:])

    with monkeypatch.context() as patch:
        patch.setattr(type(parts.filter), "add_many", forgets)
        with pytest.raises(FilterError, match=r"lacks [0-9]+ keys that were put into it"):
            made_anew(parts)
    assert before == set(plain.parts(old=False))
    assert [] == plain.parts(old=True)
    assert 1 == plain.meta().version
    assert rebuild(parts.filter, parts.store, VersionPlan(), is_wanted=lambda _: False) is None  # type: ignore[arg-type]
    made_anew(parts)


def test_what_came_between_is_added_after_the_switch(plain: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (plain.worker() for _ in range(2))
    one.judge(KEYS[:500])
    switch = replacing.Replacing.switch

    def late(self: replacing.Replacing) -> None:
        two.judge(KEYS[500:700])
        # What the keys mean is written by the first crawl that knows it.
        filter_of(two).set_identity({"canary": "x"})
        switch(self)

    monkeypatch.setattr(replacing.Replacing, "switch", late)
    done = made_anew(one)
    assert (500, True) == (done.count, 198 <= done.caught_up <= 200)
    assert [True] * 700 == filter_of(one).contains_many(KEYS[:700])
    assert {"canary": "x"} == filter_of(one).identity


@pytest.mark.parametrize("place", ["bitmap", "redisbloom"], indirect=True)
def test_another_capacity_and_a_better_rate_hold_for_workers_of_the_old_settings(place: Place) -> None:
    parts = place.worker()
    parts.judge(KEYS)
    with pytest.raises(ConfigurationError, match="keeps to error_rate=1e-06, as its crawls asked"):
        made_anew(parts, error_rate=0.1)
    done = made_anew(parts, capacity=700, error_rate=1e-9)
    assert (700, 1e-9) == (done.capacity, done.error_rate)
    again = place.worker()
    assert (700, 1e-9) == (filter_of(again).capacity, filter_of(again).error_rate)
    assert {Verdict.DUPLICATE} == set(again.judge(KEYS))
    with pytest.raises(StateMismatch, match="was made with error_rate=1e-09, settings ask for 1e-12"):
        place.worker(error_rate=1e-12)


def test_an_import_under_way_is_not_rebuilt(plain: Place) -> None:
    parts = plain.worker()
    filter_of(parts).set_identity({"importing": "1"})
    with pytest.raises(StateMismatch, match="an import is under way, or was cut short"):
        made_anew(parts)


def test_the_description_of_a_first_version_is_what_older_releases_wrote(plain: Place) -> None:
    plain.worker()
    raw = plain.server.run("GET", f"{plain.filter_name}:meta")
    names = {"created", "epoch", "format", "identity", "kind", "params", "ready", "secret"}
    assert names == set(json.loads(raw))
    assert raw == plain.meta().pack()
    later = plain.meta().next({"capacity": 1})
    assert (2, (plain.meta().epoch,)) == (later.version, later.replaces)
    assert later == unpack(later.pack(), "here")
    for _ in range(40):
        later = later.next({})
    assert (42, 16) == (later.version, len(later.replaces))


def test_clearing_takes_every_version(plain: Place) -> None:
    parts = plain.worker()
    parts.judge(KEYS)
    made_anew(parts)
    assert plain.parts(old=True)
    parts.clear()
    assert [] == plain.server.scan(f"{plain.prefix}:*", 100)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Valkey]:
    """A server whose limits a test may change."""
    with Valkey(tmp_path) as found:
        yield found


def test_a_server_without_room_for_both_keeps_the_old_version(own: Valkey) -> None:
    place = Place("bitmap", own.url)
    one = place.worker()
    one.judge(KEYS)
    used = int(own.client().info("memory")["used_memory"])
    own.client().config_set("maxmemory", used + 3_000_000)
    with pytest.raises(FilterError, match="no room for a new version beside the old one: the server has"):
        made_anew(one, capacity=2_000_000)
    assert ([], 1) == (place.check(), place.meta().version)
    assert {Verdict.DUPLICATE} == set(one.judge(KEYS))
    assert 2 == made_anew(one, capacity=100_000).new
    place.close()
