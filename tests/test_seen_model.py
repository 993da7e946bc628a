"""Does a seen-set on files answer like a plain set, whatever happens to it in between?

A crash is what ``kill -9`` leaves: the files as they lie on the disk at that moment, copied from under the
process that works on them.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from hashlib import sha1
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.state import State

# Of so high a rate that false positives happen, of so small a capacity that it grows.
OPTIONS = StateOptions(
    capacity=30,
    error_rate=0.2,
    layout="classic",
    scheme="murmur3",
    store="lmdb",
    identity={"fingerprinter": "of the test", "canary": "c0ffee"},
)

numbers = st.integers(0, 300)


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


class Files(RuleBasedStateMachine):
    """What every seen-set on files must do; a subclass says which one."""

    options = OPTIONS

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.place = 0
        self.state = self.opened()
        assert self.state.is_new

    @property
    def directory(self) -> Path:
        return Path(self.root.name, str(self.place))

    def opened(self) -> State:
        return open_or_create(self.directory, self.options)

    def crash(self) -> None:
        old, before = self.state, self.directory
        self.place += 1
        shutil.copytree(before, self.directory)
        old.close()
        self.state = self.opened()
        assert not self.state.is_new
        assert not self.state.was_clean

    @rule()
    def close_and_open(self) -> None:
        layers = self.state.filter.info().layers
        self.state.close()
        self.state = self.opened()
        assert self.state.was_clean
        assert not self.state.is_new
        assert [] == self.state.notices
        assert layers == self.state.filter.info().layers

    def teardown(self) -> None:
        self.state.close()
        self.root.cleanup()


class WithStore(Files):
    """A verdict is a fact: new or not. Only what a crash took from the store is asked for twice."""

    def __init__(self) -> None:
        super().__init__()
        self.written: set[int] = set()
        self.waiting: set[int] = set()
        # In the filter, not in the store: a crash came before the commit.
        self.forgotten: set[int] = set()

    def look(self, number: int) -> None:
        known = number in self.written or number in self.waiting
        assert known is (key(number) in self.state.seen)

    def add(self, number: int) -> None:
        self.judged(number, self.state.seen.check_and_add(key(number)))

    def judged(self, number: int, verdict: Verdict) -> None:
        if number in self.written or number in self.waiting:
            assert Verdict.DUPLICATE is verdict
        elif number in self.forgotten:
            # The filter's bits outlive the process, so this is never NEW.
            assert Verdict.FALSE_POSITIVE is verdict
            self.forgotten.remove(number)
            self.waiting.add(number)
        else:
            assert verdict in (Verdict.NEW, Verdict.FALSE_POSITIVE)
            self.waiting.add(number)

    @rule(number=numbers)
    def look_for_one(self, number: int) -> None:
        self.look(number)

    @rule(number=numbers)
    def add_one(self, number: int) -> None:
        self.add(number)

    @rule(start=numbers, count=st.integers(1, 60))
    def add_many(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.add(number)

    @rule(batch=st.lists(numbers, max_size=60))
    def add_at_once(self, batch: list[int]) -> None:
        verdicts = self.state.seen.check_and_add_many([key(number) for number in batch])
        for number, verdict in zip(batch, verdicts, strict=True):
            self.judged(number, verdict)

    def all_written(self) -> None:
        self.written |= self.waiting
        self.waiting.clear()

    @rule()
    def flush(self) -> None:
        self.state.flush()
        self.all_written()

    @rule()
    def sync(self) -> None:
        self.state.sync()

    @rule()
    def close_and_open(self) -> None:
        super().close_and_open()
        self.all_written()

    @rule()
    def crash_and_open(self) -> None:
        self.crash()
        self.forgotten |= self.waiting
        self.waiting.clear()

    @precondition(lambda self: self.waiting)
    @rule()
    def crash_right_after_a_flush(self) -> None:
        self.flush()
        self.crash()

    @invariant()
    def the_store_counts_what_was_added(self) -> None:
        assert len(self.written) + len(self.waiting) == self.state.num_keys()


class Bare(Files):
    """Without a store a key that was added is never called new, not even after a crash."""

    options = replace(OPTIONS, store=None, layout="paged", error_rate=0.01)

    def __init__(self) -> None:
        super().__init__()
        self.added: set[int] = set()

    @rule(start=numbers, count=st.integers(1, 60))
    def add_many(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.judged(number, self.state.seen.check_and_add(key(number)))

    @rule(batch=st.lists(numbers, max_size=60))
    def add_at_once(self, batch: list[int]) -> None:
        verdicts = self.state.seen.check_and_add_many([key(number) for number in batch])
        for number, verdict in zip(batch, verdicts, strict=True):
            self.judged(number, verdict)

    def judged(self, number: int, verdict: Verdict) -> None:
        if number in self.added:
            assert Verdict.UNCONFIRMED is verdict
        assert verdict in (Verdict.NEW, Verdict.UNCONFIRMED)
        self.added.add(number)

    @rule()
    def flush(self) -> None:
        self.state.flush()

    @rule()
    def crash_and_open(self) -> None:
        self.crash()

    @invariant()
    def every_added_key_is_known(self) -> None:
        assert all(key(number) in self.state.seen for number in self.added)


class WithFrontier(Files):
    """With a frontier only what was committed survives a crash: no mark without its request."""

    # Of so small a rate that the filter is never wrong.
    options = replace(OPTIONS, error_rate=1e-9, frontier=True)

    def __init__(self) -> None:
        super().__init__()
        self.written: set[int] = set()
        self.known: set[int] = set()
        self.held: set[int] = set()

    def add(self, number: int) -> bool:
        verdict = self.state.seen.check_and_add(key(number))
        assert verdict.seen is (number in self.known or number in self.held)
        if not verdict.seen:
            self.known.add(number)
        return not verdict.seen

    @rule(start=numbers, count=st.integers(1, 60))
    def add_many(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.add(number)

    @rule(number=numbers)
    def hold_one(self, number: int) -> None:
        if self.add(number):
            self.state.seen.hold(key(number))
            self.known.remove(number)
            self.held.add(number)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release_one(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        self.state.seen.release(key(number))
        self.held.remove(number)
        self.known.add(number)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def forget_one(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.known)))
        # What cannot forget says so, and keeps it.
        has_store = self.state.store is not None
        assert has_store is self.state.seen.forget(key(number))
        if has_store:
            self.known.remove(number)

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
        self.held.clear()

    @rule()
    def crash_and_open(self) -> None:
        self.crash()
        self.known = set(self.written)
        self.held.clear()

    @invariant()
    def it_knows_what_was_added_and_nothing_else(self) -> None:
        known = self.known | self.held
        assert known == {number for number in range(361) if key(number) in self.state.seen}


class BareWithFrontier(WithFrontier):
    options = replace(WithFrontier.options, store=None)


TestWithStore = WithStore.TestCase
TestBare = Bare.TestCase
TestWithFrontier = WithFrontier.TestCase
TestBareWithFrontier = BareWithFrontier.TestCase
TestWithStore.settings = TestBare.settings = settings(max_examples=30, stateful_step_count=20)
TestWithFrontier.settings = TestBareWithFrontier.settings = settings(max_examples=20, stateful_step_count=20)
