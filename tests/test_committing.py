"""Is the journal written in the order of the program, in the right turn, and never after a failure?

The crawl's clock is played by hand; the state is real.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from crawling import idle_crawler

import scrapy_bloomdupe.committing as committing
import scrapy_bloomdupe.engine as engine
from scrapy_bloomdupe.committing import Committer
from scrapy_bloomdupe.errors import StoreError
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.records import Record
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import GROUP_SIZE, LmdbStore
from scrapy_bloomdupe.watch import Watch

EXACT = StateOptions(5000, 0.0001, "classic", "murmur3", "lmdb", journal=True)
BARE = StateOptions(5000, 0.0001, "classic", "murmur3", None, journal=True)

stores = pytest.mark.parametrize("options", [EXACT, BARE], ids=["exact", "bare"])


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


class Units:
    on_complete: Callable[[], None]


class Stub:
    """What a committer asks of ``Journaling``."""

    def __init__(self) -> None:
        self.units, self.failed = Units(), False
        self.log: list[str] = []

    def prepare(self) -> None:
        self.log.append("prepare")

    def publish(self) -> None:
        self.log.append("publish")

    def stop(self, exc: Exception) -> None:
        self.failed = True
        self.log.append(f"stop: {exc.args[-1]}")


class Clock:
    """The crawl's loop: what is called soon, and what is repeated."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.now = 100.0
        #: Seconds that pass between two looks at it.
        self.pace = 0.0

    def perf_counter(self) -> float:
        self.now += self.pace
        return self.now

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for function in soon:
            function()


class Repeater:
    def __init__(self, function: Callable[[], None], interval: float) -> None:
        self.function = function

    def stop(self) -> None: ...


class Rig:
    def __init__(self, folder: Path, options: StateOptions, clock: Clock) -> None:
        self.folder, self.options, self.clock = folder, options, clock
        self.state: State = open_or_create(folder / "job", options)
        assert self.state.journal is not None
        self.journal = self.state.journal
        self.journaling: Any = Stub()
        self.committer = Committer(self.state, Watch(idle_crawler()), self.journaling)
        self.committer.start()

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            number = self.journal.next_number()
            self.state.seen.check_and_add(key(number))
            self.journal.add(Record(number, key(number), "s", b"r"))

    def after_a_crash(self) -> tuple[list[int], list[int]]:
        """Pending requests, and those of the first 3000 keys that are seen."""
        shutil.copytree(self.folder / "job", self.folder / "copy")
        state = open_or_create(self.folder / "copy", self.options)
        try:
            assert state.journal is not None
            seen = [number for number in range(1, 3000) if key(number) in state.seen]
            return [record.number for record in state.journal.records()], seen
        finally:
            state.close()
            shutil.rmtree(self.folder / "copy")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(engine, "call_soon", found.soon.append)
    monkeypatch.setattr(engine, "Repeater", Repeater)
    monkeypatch.setattr(committing.time, "perf_counter", found.perf_counter)
    return found


@pytest.fixture
def rig(tmp_path: Path, clock: Clock) -> Iterator[Callable[[StateOptions], Rig]]:
    made: list[Rig] = []

    def make(options: StateOptions) -> Rig:
        made.append(Rig(tmp_path, options, clock))
        return made[-1]

    yield make
    for each in made:
        each.committer.stop()
        each.state.close()


def full(*_: Any) -> None:
    raise StoreError(28, "No space left on device")


def tick(rig: Rig) -> None:
    rig.clock.now += 1
    rig.committer._tick()


def test_what_is_complete_is_written_in_a_later_turn(rig: Callable[[StateOptions], Rig]) -> None:
    crawl = rig(EXACT)
    crawl.add()
    # In the middle of a turn: the request that completed it is not in the journal yet.
    crawl.journaling.units.on_complete()
    crawl.journaling.units.on_complete()
    assert [] == crawl.journaling.log
    assert ([], []) == crawl.after_a_crash()
    crawl.add()
    crawl.clock.turn()
    assert ["prepare", "publish"] == crawl.journaling.log
    assert ([1, 2], [1, 2]) == crawl.after_a_crash()
    crawl.clock.turn()
    assert ["prepare", "publish"] == crawl.journaling.log


def test_who_has_just_written_waits_for_the_clock(rig: Callable[[StateOptions], Rig]) -> None:
    crawl = rig(EXACT)
    crawl.add()
    # A commit takes so long; fifteen times as much is for the crawl.
    crawl.clock.pace = 0.002
    crawl.committer._tick()
    assert ["prepare", "publish"] == crawl.journaling.log
    crawl.add()
    crawl.journaling.units.on_complete()
    crawl.committer._tick()
    assert ([], 2) == (crawl.clock.soon, len(crawl.journaling.log))
    crawl.clock.now += 0.03
    crawl.journaling.units.on_complete()
    assert 1 == len(crawl.clock.soon)


@stores
def test_with_a_journal_no_mark_is_written_before_it_is_time(
    rig: Callable[[StateOptions], Rig], options: StateOptions
) -> None:
    crawl = rig(options)
    for number in range(1, GROUP_SIZE + 100):
        # Its request comes next: one that was written now would be seen, and nobody's.
        crawl.state.seen.check_and_add(key(number))
    assert ([], []) == crawl.after_a_crash()


def test_so_much_that_waits_is_written_at_once_and_nothing_is_done_by_that(
    rig: Callable[[StateOptions], Rig],
) -> None:
    crawl = rig(EXACT)
    crawl.add(GROUP_SIZE // 2 - 1)
    crawl.committer.relieve()
    assert [] == crawl.journaling.log
    crawl.add()
    crawl.committer.relieve()
    # Not "prepare": this is in the middle of a turn.
    assert ["publish"] == crawl.journaling.log
    assert list(range(1, GROUP_SIZE // 2 + 1)) == crawl.after_a_crash()[0]


@stores
def test_a_commit_that_failed_is_the_last_one(
    rig: Callable[[StateOptions], Rig], options: StateOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig(options)
    crawl.add()
    tick(crawl)
    crawl.add()
    with monkeypatch.context() as patched:
        patched.setattr(Environment, "write", full)
        tick(crawl)
    assert ["prepare", "publish", "prepare", "stop: No space left on device"] == crawl.journaling.log
    # There is room again, and what is written now would be written without what was lost in between.
    crawl.add(GROUP_SIZE)
    tick(crawl)
    crawl.committer.relieve()
    crawl.journaling.units.on_complete()
    crawl.clock.turn()
    assert 4 == len(crawl.journaling.log)
    assert ([1], [1]) == crawl.after_a_crash()


@stores
def test_a_feed_that_cannot_be_written_is_the_end_too(
    rig: Callable[[StateOptions], Rig], options: StateOptions
) -> None:
    crawl = rig(options)

    def fail() -> None:
        raise OSError(28, "No space left on device")

    crawl.journaling.prepare = fail
    crawl.add()
    tick(crawl)
    assert ["stop: No space left on device"] == crawl.journaling.log
    assert ([], []) == crawl.after_a_crash()


@stores
def test_marks_in_the_filter_follow_the_commit(
    rig: Callable[[StateOptions], Rig], options: StateOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig(options)
    crawl.add(20)
    at_commit: list[list[int]] = []
    write = Environment.write

    def note(self: Environment, work: Any) -> None:
        if self is crawl.state.environment:
            at_commit.append(crawl.after_a_crash()[1])
        write(self, work)

    monkeypatch.setattr(Environment, "write", note)
    tick(crawl)
    assert [[]] == at_commit
    assert list(range(1, 21)) == crawl.after_a_crash()[1]


@stores
def test_a_state_that_is_let_go_after_a_failure_is_one_that_was_killed(
    tmp_path: Path, options: StateOptions
) -> None:
    state = open_or_create(tmp_path / "job", options)
    assert state.journal is not None
    state.journal.begin()
    state.flush()
    number = state.journal.next_number()
    state.seen.check_and_add(key(number))
    state.journal.add(Record(number, key(number), "s", b"r"))
    state.close(write=False)
    state = open_or_create(tmp_path / "job", options)
    assert state.journal is not None
    assert (False, None, 0) == (state.was_clean, state.journal.seal, len(state.journal))
    assert key(number) not in state.seen
    state.close()


def test_a_store_beside_a_journal_has_no_group_size(tmp_path: Path) -> None:
    for _ in range(2):
        state = open_or_create(tmp_path / "job", EXACT)
        assert isinstance(state.store, LmdbStore)
        assert None is state.store._group_size
        state.close()
