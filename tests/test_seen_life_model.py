"""Does a seen-set on files that forgets, expires and is made anew answer like a plain dict, whatever happens?

The clock is the test's own. A crash is what ``kill -9`` leaves: see ``test_seen_model``.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from test_seen_model import OPTIONS, Files, key, numbers

from scrapy_bloomdupe.building import FilterValues
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.rebuilding import FilterPlan, rebuild
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.state import State

BEGIN = 1_700_000_000
#: Seconds after which a key of this remainder by 3 expires; the others never do.
EXPIRE = {0: 10, 1: 100}
HOSTS = ["a.example", "b.example"]


class Living(Files):
    """With a store: what the dict calls new, or expired, passes, and nothing else does. A page that the dict
    would crawl and the set does not is lost; there is none."""

    def __init__(self) -> None:
        self.now = BEGIN
        #: When each key was last let pass, and as of the last commit.
        self.known: dict[int, int] = {}
        self.written: dict[int, int] = {}
        super().__init__()

    def opened(self) -> State:
        return open_or_create(self.directory, replace(self.options, clock=lambda: float(self.now)))

    def add(self, number: int) -> None:
        expire = EXPIRE.get(number % 3)
        url = f"http://{HOSTS[number % 2]}/{number}"
        verdict = self.state.seen.check_and_add(key(number), url, None, expire)
        if number not in self.known:
            # The bits of what was forgotten stay.
            assert verdict in (Verdict.NEW, Verdict.FALSE_POSITIVE)
        elif expire is not None and self.now - self.known[number] >= expire:
            assert Verdict.EXPIRED is verdict
        else:
            assert Verdict.DUPLICATE is verdict
            return
        self.known[number] = self.now

    @rule(number=numbers)
    def add_one(self, number: int) -> None:
        self.add(number)

    @rule(start=numbers, count=st.integers(1, 60))
    def add_many(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.add(number)

    @rule(seconds=st.integers(1, 120))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def forget_one(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.known)))
        assert self.state.seen.forget(key(number))
        del self.known[number]

    @rule(number=numbers)
    def forget_what_may_not_be_there(self, number: int) -> None:
        assert self.state.seen.forget(key(number))
        self.known.pop(number, None)

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
    def rebuild(self) -> None:
        self.state.close()
        rebuild(
            self.directory, FilterPlan(), FilterValues(30, 0.2, "classic", "murmur3"), lambda keys, _: keys
        )
        self.state = self.opened()
        self.written = dict(self.known)

    @rule()
    def crash_and_open(self) -> None:
        self.crash()
        self.known = dict(self.written)

    def crash(self) -> None:
        self.place += 1
        shutil.copytree(Path(self.root.name, str(self.place - 1)), self.directory)
        self.state.close()
        self.state = self.opened()
        assert (False, False) == (self.state.is_new, self.state.was_clean)
        assert {} == self.state.recovered

    @invariant()
    def it_knows_what_was_added_and_nothing_else(self) -> None:
        assert self.known.keys() == {number for number in range(361) if key(number) in self.state.seen}
        assert (len(self.known), BEGIN) == (self.state.num_keys(), self.state.filter.created)


class LivingWithFrontier(Living):
    """Groups are written when somebody says so, together with their requests."""

    options = replace(OPTIONS, frontier=True)


class LivingWithoutFrontier(Living):
    """As long as no group is full, which none is here, nothing is written before it is flushed either."""


TestLiving = LivingWithoutFrontier.TestCase
TestLivingWithFrontier = LivingWithFrontier.TestCase
TestLiving.settings = TestLivingWithFrontier.settings = settings(max_examples=30, stateful_step_count=25)
