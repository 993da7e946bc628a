"""Is an audited key always judged right, whatever happens in between, and is every find counted once?

As ``test_seen_model``: a crash is what ``kill -9`` leaves.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from test_seen_model import OPTIONS, Files, key, numbers

from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.state import State


class Audited(Files):
    """Of an audited key the verdict is a fact; of another one it is the filter's word.

    The model knows what is audited and was added; a crash takes what no commit has written.
    """

    options = replace(OPTIONS, store=None, audit=0.5)

    def __init__(self) -> None:
        super().__init__()
        # Audited keys: those that are seen, those of them that were found lost; and as of the last commit.
        self.known: set[int] = set()
        self.lost: set[int] = set()
        self.held: set[int] = set()
        self.written: set[int] = set()
        self.lost_written: set[int] = set()
        # In the filter, or waiting for it.
        self.others: set[int] = set()

    def opened(self) -> State:
        # What is audited, and so what can be done next, must be the same in every run.
        with mock.patch.object(secrets, "token_bytes", lambda size: bytes(range(size))):
            return open_or_create(self.directory, self.options)

    def audited(self, number: int) -> bool:
        audit = self.state.audit
        assert audit is not None
        return audit.samples(key(number))

    def judged(self, number: int, verdict: Verdict) -> None:
        if not self.audited(number):
            assert verdict in (Verdict.NEW, Verdict.UNCONFIRMED)
            if number in self.others:
                assert Verdict.UNCONFIRMED is verdict
            self.others.add(number)
        elif number in self.known:
            assert Verdict.UNCONFIRMED is verdict
        else:
            assert verdict in (Verdict.NEW, Verdict.FALSE_POSITIVE)
            self.known.add(number)
            if verdict is Verdict.FALSE_POSITIVE:
                self.lost.add(number)

    @rule(start=numbers, count=st.integers(1, 60))
    def add_many(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.judged(number, self.state.seen.check_and_add(key(number)))

    @rule(batch=st.lists(numbers, max_size=60))
    def add_at_once(self, batch: list[int]) -> None:
        verdicts = self.state.seen.check_and_add_many([key(number) for number in batch])
        for number, verdict in zip(batch, verdicts, strict=True):
            self.judged(number, verdict)

    def all_written(self) -> None:
        self.written = self.known - self.held
        self.lost_written = self.lost - self.held

    @rule()
    def flush(self) -> None:
        self.state.flush()
        self.all_written()

    def back_to_the_last_commit(self) -> None:
        self.known, self.lost = set(self.written), set(self.lost_written)
        self.held.clear()

    @rule()
    def close_and_open(self) -> None:
        self.state.close()
        self.state = self.opened()
        assert (True, []) == (self.state.was_clean, self.state.notices)
        self.all_written()
        self.back_to_the_last_commit()

    @rule()
    def crash_and_open(self) -> None:
        self.crash()
        self.back_to_the_last_commit()

    @invariant()
    def it_counts_what_it_knows_and_what_it_found(self) -> None:
        audit = self.state.audit
        assert audit is not None
        assert (len(self.known), len(self.lost)) == (audit.num_keys, audit.num_lost)

    @invariant()
    def it_knows_what_was_added_and_of_the_audited_nothing_else(self) -> None:
        seen = {number for number in range(361) if key(number) in self.state.seen}
        assert self.others <= seen
        assert self.known == {number for number in seen if self.audited(number)}


class AuditedWithFrontier(Audited):
    """With a frontier all keys wait for the commit, and what cannot be written is held."""

    options = replace(Audited.options, frontier=True)

    def __init__(self) -> None:
        super().__init__()
        self.others_held: set[int] = set()
        self.others_written: set[int] = set()

    @rule(number=numbers)
    def hold_one(self, number: int) -> None:
        verdict = self.state.seen.check_and_add(key(number))
        self.judged(number, verdict)
        if not verdict.seen:
            self.state.seen.hold(key(number))
            (self.held if self.audited(number) else self.others_held).add(number)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release_one(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.held)))
        self.state.seen.release(key(number))
        self.held.remove(number)

    def all_written(self) -> None:
        super().all_written()
        self.others_written = self.others - self.others_held

    def back_to_the_last_commit(self) -> None:
        super().back_to_the_last_commit()
        self.others = set(self.others_written)
        self.others_held.clear()


TestAudited = Audited.TestCase
TestAuditedWithFrontier = AuditedWithFrontier.TestCase
TestAudited.settings = TestAuditedWithFrontier.settings = settings(max_examples=30, stateful_step_count=20)
