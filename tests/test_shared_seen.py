"""Is a key ever called seen that nobody has? Two crawls, a server that fails, and a model of who has what."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import key

from scrapy_bloomdupe.errors import BloomdupeError, RemoteUnavailable, StoreError
from scrapy_bloomdupe.seen import SeenSet, Verdict
from scrapy_bloomdupe.shared.claims import Claims
from scrapy_bloomdupe.shared.known import FOREIGN_LIFETIME
from scrapy_bloomdupe.shared.seen import UNUSED_AFTER, SharedSeen
from scrapy_bloomdupe.stores.memory import MemoryStore

#: What is shared, and what each crawl keeps.
KINDS = ["filter", "store", "filter and store", "negatives", "filter and local store"]


#: Of events, for each kind. The long version: BLOOMDUPE_SHARED_EXAMPLES=5000.
EXAMPLES = int(os.environ.get("BLOOMDUPE_SHARED_EXAMPLES", "40"))


class SetFilter:
    """A filter that is never wrong."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self.keys = set(keys)

    def add(self, key: bytes) -> bool:
        seen = key in self.keys
        self.keys.add(key)
        return seen

    def __contains__(self, key: bytes) -> bool:
        return key in self.keys


class World:
    """The server, as ``SharedParts`` is to a crawl. ``fails``: ``before`` or ``after`` it has worked."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.filter = None if kind in ("store", "negatives") else object()
        self.store = None if kind in ("filter", "filter and local store") else object()
        self.taken: set[bytes] = set()
        self.fails = ""
        self.asked = 0

    def judge(self, keys: Sequence[bytes]) -> list[Verdict]:
        self.asked += 1
        self._fail("before")
        seen = Verdict.UNCONFIRMED if self.store is None else Verdict.DUPLICATE
        found = [seen if key in self.taken else Verdict.NEW for key in keys]
        self.taken.update(keys)
        self._fail("after")
        return found

    def give_back(self, keys: Sequence[bytes]) -> bool:
        if self.store is None:
            return False
        self._fail("before")
        self.taken.difference_update(keys)
        self._fail("after")
        return True

    def _fail(self, when: str) -> None:
        if self.fails == when:
            raise RemoteUnavailable(110, "no answer")


class Crawl:
    """A crawl and what it has written.

    Attributes:
        written: its frontier, and where it has one its own store.
        failed: its pages that failed and are to be new again, for this crawl at least.
        scheduled: requests that wait for the next commit.
        questions, returns: what its threads are about to ask and to give back.
    """

    def __init__(self, world: World, path: Path, cache_size: int = 0) -> None:
        self.world, self.path, self.cache_size = world, path, cache_size
        self.written: set[bytes] = set()
        self.in_filter: set[bytes] = set()
        self.failed: set[bytes] = set()
        self.now = 0.0
        self.open()

    def open(self) -> None:
        self.scheduled: set[bytes] = set()
        self.held: set[bytes] = set()
        self.questions: list[tuple[list[bytes], Any]] = []
        self.returns: list[tuple[list[bytes], bool | None]] = []
        self.claims = Claims.open(self.path)
        store = None
        if self.world.kind == "filter and local store":
            store = MemoryStore()
            store.put_many(list(self.written))
        self.filter = SetFilter(self.in_filter)
        local = SeenSet(self.filter, store, deferred=True)  # type: ignore[arg-type]
        policy = "negatives" if self.world.kind == "negatives" else "positives"
        self.seen = SharedSeen(
            local,
            self.world,  # type: ignore[arg-type]
            policy,
            claims=self.claims,
            cache_size=self.cache_size,
            clock=lambda: self.now,
        )

    def request(self, key: bytes) -> bool:
        """Schedule a request of *key*; return whether it passes."""
        try:
            seen = self.seen.check_and_add(key).seen
        except BloomdupeError:
            seen = False
        if not seen:
            self.scheduled.add(key)
            self.failed.discard(key)
        return not seen

    def commit(self) -> None:
        self.written |= self.scheduled - self.held
        self.scheduled &= self.held
        self.seen.settle()
        self.in_filter = set(self.filter.keys)

    def crash(self) -> None:
        self.claims.close()
        self.open()

    def has(self, key: bytes, *, failed: bool = False) -> bool:
        """Whether it has the page of *key*, or will let its next request pass."""
        return (
            (failed and key in self.failed)
            or key in self.written | self.scheduled
            or key in self.seen._owed
            or key in self.seen._asking
            or (
                key in self.seen._left
                and self.seen._left[key][0] not in (Verdict.DUPLICATE, Verdict.UNCONFIRMED)
            )
        )


class Model:
    """Two crawls, and whatever can happen to them: a method for each, ``who`` and ``number`` say to whom."""

    def __init__(self, kind: str, cache_size: int, folder: Path) -> None:
        self.world = World(kind)
        self.crawls = [Crawl(self.world, folder / f"claims{who}", cache_size) for who in (0, 1)]

    def request(self, crawl: Crawl, number: int) -> None:
        others = [other for other in self.crawls if other is not crawl]
        had = crawl.has(key(number)) or any(other.has(key(number), failed=True) for other in others)
        if not crawl.request(key(number)):
            assert had, f"{number} is called seen, and nobody has it"

    def ask_ahead(self, crawl: Crawl, number: int) -> None:
        if unknown := crawl.seen.unknown([key(number), key(number + 1), key(number)]):
            crawl.seen.begin(unknown)
            crawl.questions.append((unknown, None))

    def go_on(self, crawl: Crawl, number: int) -> None:
        """A thread asks the server, or its answer arrives."""
        if not crawl.questions:
            return
        keys, answer = crawl.questions.pop(0)
        if answer is not None:
            crawl.seen.leave(keys, answer)
            return
        try:
            answer = self.world.judge(keys)
        except BloomdupeError as exc:
            answer = exc
        crawl.questions.insert(0, (keys, answer))

    def return_unused(self, crawl: Crawl, number: int) -> None:
        if keys := crawl.seen.unused(all_of_them=True):
            crawl.returns.append((keys, None))

    def go_on_returning(self, crawl: Crawl, number: int) -> None:
        """A thread gives keys back to the server, or its answer arrives."""
        if not crawl.returns:
            return
        keys, done = crawl.returns.pop(0)
        if done is not None:
            crawl.seen.given_back(keys, done=done)
            return
        try:
            done = self.world.give_back(keys)
        except BloomdupeError:
            done = False
        crawl.returns.insert(0, (keys, done))

    def commit(self, crawl: Crawl, number: int) -> None:
        crawl.commit()

    def crash(self, crawl: Crawl, number: int) -> None:
        crawl.crash()

    def hold(self, crawl: Crawl, number: int) -> None:
        """Its request cannot be written."""
        one = key(number)
        if one in crawl.scheduled - crawl.held - crawl.written:
            crawl.seen.hold(one)
            crawl.held.add(one)

    def release(self, crawl: Crawl, number: int) -> None:
        for one in sorted(crawl.held):
            crawl.seen.release(one)
        crawl.held.clear()

    def forget(self, crawl: Crawl, number: int) -> None:
        """Its page failed, and is to be new again."""
        one = key(number)
        if one in crawl.written | crawl.scheduled and one not in crawl.held:
            crawl.seen.forget(one)
            crawl.written.discard(one)
            crawl.scheduled.discard(one)
            crawl.failed.add(one)

    def fail(self, crawl: Crawl, number: int) -> None:
        self.world.fails = ["", "before", "after", "", ""][number]

    def empty(self, crawl: Crawl, number: int) -> None:
        if not self.world.fails and number == 0:
            self.world.taken.clear()

    def somebody_has(self, one: bytes) -> bool:
        return any(crawl.has(one) for crawl in self.crawls)

    def check(self) -> None:
        for one in self.world.taken:
            assert self.somebody_has(one), f"{one.hex()} is taken, and nobody has it"


EVENTS = [
    "request",
    "request",
    "ask_ahead",
    "ask_ahead",
    "go_on",
    "go_on",
    "go_on",
    "return_unused",
    "go_on_returning",
    "commit",
    "crash",
    "hold",
    "release",
    "forget",
    "fail",
    "empty",
]
# Numbers are few, so that the crawls meet.
HAPPENING = st.tuples(st.sampled_from(EVENTS), st.integers(0, 1), st.integers(0, 4))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES)
@given(st.lists(HAPPENING, min_size=40, max_size=60), st.sampled_from([0, 10_000]))
def test_what_the_server_has_taken_one_of_the_crawls_has(
    kind: str, events: list[tuple[str, int, int]], cache_size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(kind, cache_size, Path(folder))
        for event, who, number in events:
            getattr(model, event)(model.crawls[who], number)
            model.check()
        for crawl in model.crawls:
            crawl.claims.close()


@pytest.fixture(params=KINDS)
def crawl(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crawl]:
    made = Crawl(World(request.param), tmp_path / "claims", cache_size=10_000)
    yield made
    made.claims.close()


def asked_ahead(crawl: Crawl, *numbers: int) -> None:
    keys = crawl.seen.unknown([key(number) for number in numbers])
    crawl.seen.begin(keys)
    crawl.seen.leave(keys, crawl.world.judge(keys))


def test_what_was_asked_ahead_is_not_asked_again(crawl: Crawl) -> None:
    asked_ahead(crawl, 1, 2)
    assert [True, True, False, False] == [crawl.request(key(number)) for number in (1, 2, 1, 2)]
    assert [] == crawl.seen.unknown([key(1), key(2)])
    assert 1 == crawl.world.asked


def test_a_request_that_comes_while_its_key_is_on_its_way_back_passes(crawl: Crawl) -> None:
    # Its items were slow: the key counts as never used, and the server still calls it seen.
    asked_ahead(crawl, 1)
    crawl.now = UNUSED_AFTER + 1
    keys = crawl.seen.unused()
    assert ([] if crawl.world.store is None else [key(1)]) == keys
    assert 1 == crawl.seen.num_unused
    assert crawl.request(key(1))
    crawl.seen.given_back(keys, done=True)
    assert not crawl.request(key(1))
    crawl.commit()
    crawl.crash()
    assert 0 == crawl.seen.num_owed


def test_what_was_asked_ahead_waits_for_its_request_for_some_time(crawl: Crawl) -> None:
    asked_ahead(crawl, 1)
    crawl.now = UNUSED_AFTER - 1
    assert ([], 0) == (crawl.seen.unused(), crawl.seen.num_unused)


def test_an_answer_that_was_lost_is_not_asked_for_again(crawl: Crawl) -> None:
    crawl.world.fails = "after"
    with pytest.raises(RemoteUnavailable):
        crawl.seen.check_and_add(key(1))
    crawl.world.fails = ""
    assert Verdict.DUPLICATE is crawl.seen.check_and_add(key(1))
    assert 1 == crawl.world.asked


def test_what_was_granted_and_not_written_passes_once_after_a_crash(crawl: Crawl) -> None:
    assert [True, True] == [crawl.request(key(number)) for number in (1, 2)]
    crawl.commit()
    assert crawl.request(key(3))
    asked_ahead(crawl, 4)
    crawl.crash()
    assert 2 == crawl.seen.num_owed
    assert [False, False] == [crawl.request(key(number)) for number in (1, 2)]
    assert [True, True, False, False] == [crawl.request(key(number)) for number in (3, 4, 3, 4)]
    assert 2 == crawl.seen.num_owed_passed


def test_a_key_that_is_forgotten_is_new_again_once(crawl: Crawl) -> None:
    assert crawl.request(key(1))
    assert crawl.seen.forget(key(1))
    assert [True, False] == [crawl.request(key(1)), crawl.request(key(1))]
    crawl.commit()
    assert not crawl.request(key(1))


def test_a_key_that_is_forgotten_before_it_was_written_is_so_after_a_crash(crawl: Crawl) -> None:
    assert crawl.request(key(1))
    crawl.world.fails = "before"
    assert crawl.seen.forget(key(1))
    crawl.world.fails = ""
    crawl.commit()
    crawl.crash()
    assert crawl.request(key(1))


def test_a_key_that_cannot_be_noted_is_not_asked_for(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(keys: Iterable[bytes]) -> None:
        raise StoreError(28, "no space left")

    monkeypatch.setattr(crawl.claims, "begin", full)
    with pytest.raises(StoreError):
        crawl.seen.check_and_add(key(1))
    with pytest.raises(StoreError):
        crawl.seen.begin([key(2)])
    assert (0, set()) == (crawl.world.asked, crawl.world.taken)


def test_what_is_on_its_way_back_stays_noted_until_it_is_back(crawl: Crawl) -> None:
    asked_ahead(crawl, 1)
    keys = crawl.seen.unused(all_of_them=True)
    crawl.seen.given_back(keys, done=False)
    crawl.commit()
    crawl.crash()
    assert crawl.request(key(1))


def test_what_is_back_is_asked_for_again(crawl: Crawl) -> None:
    asked_ahead(crawl, 1)
    keys = crawl.seen.unused(all_of_them=True)
    crawl.seen.given_back(keys, done=bool(keys) and crawl.world.give_back(keys))
    assert crawl.request(key(1))
    assert (1 if crawl.world.store is None else 2) == crawl.world.asked


def test_a_key_that_is_on_its_way_is_a_duplicate_and_is_not_remembered_as_one(crawl: Crawl) -> None:
    crawl.seen.begin([key(1)])
    assert not crawl.request(key(1))
    assert not crawl.seen.is_own(key(1))
    crawl.seen.leave([key(1)], crawl.world.judge([key(1)]))
    assert [True, False] == [crawl.request(key(1)), crawl.request(key(1))]
    assert 1 == crawl.world.asked


def test_what_is_forgotten_and_given_back_at_the_end_is_new_in_the_next_run(crawl: Crawl) -> None:
    assert crawl.request(key(1))
    crawl.commit()
    assert crawl.seen.forget(key(1))
    crawl.written.discard(key(1))
    keys = crawl.seen.still_owed()
    crawl.seen.given_back(keys, done=bool(keys) and crawl.world.give_back(keys))
    crawl.crash()
    assert crawl.request(key(1))


@pytest.mark.parametrize("with_queue", [False, True])
def test_an_emptied_server_takes_what_others_were_granted_with_it(tmp_path: Path, with_queue: bool) -> None:
    world = World("store")
    ours, other = (Crawl(world, tmp_path / name, cache_size=100_000) for name in ("ours", "other"))
    assert (True, True) == (ours.request(key(1)), other.request(key(2)))
    assert not ours.request(key(2))
    told: list[None] = []
    ours.seen.on_forget = lambda: told.append(None)
    world.taken.clear()
    ours.seen.emptied(with_queue=with_queue)
    assert 1 == len(told)
    # Its own pages are pending here, if the queue is not on the server.
    assert (with_queue, True) == (ours.request(key(1)), ours.request(key(2)))


def test_under_negatives_the_filter_of_an_emptied_server_is_not_believed(tmp_path: Path) -> None:
    world = World("negatives")
    ours, other = (Crawl(world, tmp_path / name) for name in ("ours", "other"))
    assert (True, False) == (other.request(key(1)), ours.request(key(1)))
    ours.commit()
    asked = world.asked
    assert (False, asked) == (ours.request(key(1)), world.asked)
    world.taken.clear()
    ours.seen.emptied(with_queue=False)
    assert ours.request(key(1))


def test_what_another_crawl_was_granted_is_known_for_a_short_time_only(tmp_path: Path) -> None:
    world = World("store")
    ours, other = (Crawl(world, tmp_path / name, cache_size=100_000) for name in ("ours", "other"))
    assert (True, True) == (ours.request(key(1)), other.request(key(2)))
    assert [False, False] == [ours.request(key(number)) for number in (1, 2)]
    world.give_back([key(2)])
    assert not ours.request(key(2))
    ours.now = FOREIGN_LIFETIME + 0.1
    assert [False, True] == [ours.request(key(number)) for number in (1, 2)]
