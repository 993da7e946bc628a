"""Does a bare seen-set that forgets, by name or by time, keep all that was not forgotten, whatever happens?

Without a store: counters of which keys are taken out again, or a ring of generations. A crash is what
``kill -9`` leaves: see ``test_seen_model``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from test_seen_model import OPTIONS, Files, key, numbers

from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.state import State

BEGIN = 1_700_000_000.0
EXPIRE = 100.0
#: A ring of four forgets a third of that later at the latest.
LONGEST = EXPIRE * 4 / 3


class Bare(Files):
    """A key that passed and was not forgotten is called seen. A subclass says what is forgotten."""

    def __init__(self) -> None:
        self.now = BEGIN
        #: When each key passed, and those of them that a crash leaves.
        self.known: dict[int, float] = {}
        self.written: dict[int, float] = {}
        super().__init__()

    def opened(self) -> State:
        return open_or_create(self.directory, replace(self.options, clock=lambda: self.now))

    def lasts(self, number: int) -> bool:
        """Whether *number*, which is known, must be called seen."""
        return True

    def add(self, number: int) -> None:
        must_be_seen = number in self.known and self.lasts(number)
        verdict = self.state.seen.check_and_add(key(number))
        assert verdict in (Verdict.NEW, Verdict.UNCONFIRMED)
        if not verdict.seen:
            assert not must_be_seen
            self.known[number] = self.now

    @rule(number=numbers)
    def add_one(self, number: int) -> None:
        self.add(number)

    @rule(start=numbers, count=st.integers(1, 60))
    def add_many(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.add(number)

    @rule()
    def flush(self) -> None:
        self.state.flush()
        self.written = dict(self.known)

    @rule()
    def close_and_open(self) -> None:
        self.state.close()
        self.state = self.opened()
        assert (True, []) == (self.state.was_clean, self.state.notices)
        self.written = dict(self.known)

    @rule()
    def crash_and_open(self) -> None:
        self.crash()
        if self.options.frontier:
            self.known = dict(self.written)

    @invariant()
    def what_was_not_forgotten_is_there(self) -> None:
        kept = [number for number in self.known if self.lasts(number)]
        assert kept == [number for number in kept if key(number) in self.state.seen]


class Counting(Bare):
    """Of so high a rate that other keys share a key's counters, and of so many that some are full."""

    options = replace(OPTIONS, store=None, layout="counting", error_rate=0.05)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def forget_some(self, data: Any) -> None:
        for number in data.draw(st.lists(st.sampled_from(sorted(self.known)), unique=True, max_size=20)):
            assert self.state.seen.forget(key(number))
            del self.known[number]
            self.written.pop(number, None)


class CountingWithFrontier(Counting):
    options = replace(Counting.options, frontier=True)


class Generations(Bare):
    """A key lasts as long as asked for, and a third longer at the most."""

    options = replace(OPTIONS, store=None, layout="paged", error_rate=1e-9, expire=EXPIRE)

    def lasts(self, number: int) -> bool:
        return self.now - self.known[number] < EXPIRE

    @rule(seconds=st.sampled_from([7, 15, 30, 60, 200]))
    def wait(self, seconds: int) -> None:
        # A request that waits to be written is remembered from its commit on.
        self.flush()
        self.now += seconds

    @invariant()
    def what_has_had_its_time_is_forgotten(self) -> None:
        late = [number for number, when in self.known.items() if self.now - when >= LONGEST]
        assert [] == [number for number in late if key(number) in self.state.seen]


class GenerationsWithFrontier(Generations):
    options = replace(Generations.options, frontier=True)


TestCounting = Counting.TestCase
TestCountingWithFrontier = CountingWithFrontier.TestCase
TestGenerations = Generations.TestCase
TestGenerationsWithFrontier = GenerationsWithFrontier.TestCase
TestCounting.settings = TestCountingWithFrontier.settings = settings(max_examples=12, stateful_step_count=25)
TestGenerations.settings = TestGenerationsWithFrontier.settings = TestCounting.settings
