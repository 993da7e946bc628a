"""Does a seen key expire when it should, once, and never too late? With a clock of the test's own."""

from __future__ import annotations

import pytest
from test_seen import KEY, OTHER, StubFilter

from scrapy_bloomdupe.seen import SeenSet, Verdict
from scrapy_bloomdupe.stamps import stamp
from scrapy_bloomdupe.stores.memory import MemoryStore

NOW = 1_000_000
NEW, DUPLICATE, EXPIRED = Verdict.NEW, Verdict.DUPLICATE, Verdict.EXPIRED


class Clock:
    def __init__(self) -> None:
        self.now: float = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def seen(clock: Clock, store: MemoryStore) -> SeenSet:
    return SeenSet(StubFilter(), store, clock=clock, born=NOW - 50)


def test_a_key_expires_after_its_time_and_is_seen_again_from_then_on(seen: SeenSet, clock: Clock) -> None:
    verdicts = []
    for clock.now in (NOW, NOW + 99, NOW + 100, NOW + 101, NOW + 199, NOW + 200):
        verdicts.append(seen.check_and_add(KEY, expire=100))
    assert [NEW, DUPLICATE, EXPIRED, DUPLICATE, DUPLICATE, EXPIRED] == verdicts
    assert not EXPIRED.seen


def test_a_duplicate_does_not_renew_the_time_of_its_key(seen: SeenSet, clock: Clock) -> None:
    seen.check_and_add(KEY, expire=100)
    for clock.now in range(NOW, NOW + 100, 10):
        assert DUPLICATE is seen.check_and_add(KEY, expire=100)
    clock.now = NOW + 100
    assert EXPIRED is seen.check_and_add(KEY, expire=100)


def test_without_a_length_of_time_nothing_expires(seen: SeenSet, clock: Clock) -> None:
    seen.check_and_add(KEY)
    clock.now += 10**9
    assert DUPLICATE is seen.check_and_add(KEY)
    assert [DUPLICATE, NEW] == seen.check_and_add_many([KEY, OTHER])
    clock.now += 10
    # What was there before anything expired has its time nevertheless.
    assert [EXPIRED, EXPIRED] == [seen.check_and_add(one, expire=10) for one in (KEY, OTHER)]


def test_a_key_of_an_older_release_was_seen_when_the_state_was_made(
    seen: SeenSet, store: MemoryStore, clock: Clock
) -> None:
    seen.filter.add(KEY)
    store.put(KEY)
    assert DUPLICATE is seen.check_and_add(KEY, expire=51)
    assert EXPIRED is seen.check_and_add(KEY, expire=50)
    assert DUPLICATE is seen.check_and_add(KEY, expire=50)


def test_a_clock_that_is_set_back_a_little_changes_nothing(seen: SeenSet, clock: Clock) -> None:
    seen.check_and_add(KEY, expire=100)
    clock.now -= 60
    assert DUPLICATE is seen.check_and_add(KEY, expire=100)


def test_a_clock_that_is_set_back_far_lets_a_page_pass_once_rather_than_lose_it(
    seen: SeenSet, clock: Clock
) -> None:
    seen.check_and_add(KEY, expire=100)
    clock.now -= 1_000
    assert [EXPIRED, DUPLICATE] == [seen.check_and_add(KEY, expire=100) for _ in range(2)]
    clock.now += 100
    assert EXPIRED is seen.check_and_add(KEY, expire=100)


def test_a_held_key_keeps_its_time_and_is_seen_while_it_is_held(seen: SeenSet, clock: Clock) -> None:
    seen.check_and_add(KEY, expire=100)
    seen.hold(KEY)
    clock.now += 150
    assert DUPLICATE is seen.check_and_add(KEY, expire=100)
    seen.release(KEY)
    assert EXPIRED is seen.check_and_add(KEY, expire=100)


def test_an_expired_key_has_the_host_and_the_rule_of_its_last_visit(
    seen: SeenSet, store: MemoryStore, clock: Clock
) -> None:
    seen.check_and_add(KEY, "http://a.example/", "first")
    assert stamp(NOW, "http://a.example/", "first") == store.get(KEY)
    clock.now += 10
    seen.check_and_add(KEY, "http://b.example/", "second", 100)
    assert stamp(NOW, "http://a.example/", "first") == store.get(KEY)
    seen.check_and_add(KEY, "http://b.example/", "second", 10)
    assert stamp(NOW + 10, "http://b.example/", "second") == store.get(KEY)


def test_a_filter_alone_knows_no_times(clock: Clock) -> None:
    seen = SeenSet(StubFilter(), None, clock=clock)
    assert NEW is seen.check_and_add(KEY, expire=1)
    clock.now += 100
    assert Verdict.UNCONFIRMED is seen.check_and_add(KEY, expire=1)
