"""Does a bare seen-set that forgets keep all that was not forgotten, whatever happens?

Without a store: counters of which keys are taken out again. A crash is what ``kill -9`` leaves: see
``test_seen_model``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from test_seen_model import OPTIONS, Files, key, numbers

from scrapy_bloomdupe.seen import Verdict


class Counting(Files):
    """A key that passed and was not forgotten is called seen. The filter is of so high a rate that other keys
    share a key's counters, and of so many that some are full."""

    options = replace(OPTIONS, store=None, layout="counting", error_rate=0.05)

    def __init__(self) -> None:
        #: The keys that passed, and those of them that a crash leaves.
        self.known: set[int] = set()
        self.written: set[int] = set()
        super().__init__()

    def add(self, number: int) -> None:
        verdict = self.state.seen.check_and_add(key(number))
        assert verdict in (Verdict.NEW, Verdict.UNCONFIRMED)
        if not verdict.seen:
            assert number not in self.known
            self.known.add(number)

    @rule(number=numbers)
    def add_one(self, number: int) -> None:
        self.add(number)

    @rule(start=numbers, count=st.integers(1, 60))
    def add_many(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.add(number)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def forget_some(self, data: Any) -> None:
        for number in data.draw(st.lists(st.sampled_from(sorted(self.known)), unique=True, max_size=20)):
            assert self.state.seen.forget(key(number))
            self.known.discard(number)
            self.written.discard(number)

    @rule()
    def flush(self) -> None:
        self.state.flush()
        self.written = set(self.known)

    @rule()
    def close_and_open(self) -> None:
        self.state.close()
        self.state = self.opened()
        assert (True, []) == (self.state.was_clean, self.state.notices)
        self.written = set(self.known)

    @rule()
    def crash_and_open(self) -> None:
        self.crash()
        if self.options.frontier:
            self.known = set(self.written)

    @invariant()
    def what_was_not_forgotten_is_there(self) -> None:
        assert all(key(number) in self.state.seen for number in self.known)


class CountingWithFrontier(Counting):
    options = replace(Counting.options, frontier=True)


TestCounting = Counting.TestCase
TestCountingWithFrontier = CountingWithFrontier.TestCase
TestCounting.settings = TestCountingWithFrontier.settings = settings(max_examples=12, stateful_step_count=25)
