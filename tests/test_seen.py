"""Does every pair of answers of filter and store give its verdict, and no failure a lost page?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from scrapy_bloomdupe.errors import ConfigurationError, StoreError
from scrapy_bloomdupe.filters.base import FilterInfo
from scrapy_bloomdupe.seen import SeenSet, Verdict
from scrapy_bloomdupe.stores.memory import MemoryStore

KEY, OTHER = b"k" * 20, b"o" * 20


class StubFilter:
    """A filter of a set; *wrong* are its false positives."""

    def __init__(self, log: list[str] | None = None, wrong: tuple[bytes, ...] = ()) -> None:
        self.keys: set[bytes] = set()
        self.wrong = wrong
        self.log = log if log is not None else []

    def add(self, key: bytes) -> bool:
        self.log.append("filter.add")
        if key in self.keys or key in self.wrong:
            return True
        self.keys.add(key)
        return False

    def add_many(self, keys: Sequence[bytes]) -> list[bool]:
        return [self.add(key) for key in keys[:3]]  # as if it grew after each third key

    def __contains__(self, key: bytes) -> bool:
        self.log.append("filter.contains")
        return key in self.keys or key in self.wrong

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def info(self) -> FilterInfo:
        raise AssertionError("a seen-set does not ask this")


class SpyStore(MemoryStore):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def add(self, key: bytes, value: bytes = b"") -> bool:
        self.log.append("store.add")
        return super().add(key, value)

    def put(self, key: bytes, value: bytes = b"") -> None:
        self.log.append("store.put")
        super().put(key, value)

    def put_many(self, keys: Sequence[bytes], value: bytes = b"") -> None:
        for key in keys:
            self.put(key, value)

    def __contains__(self, key: bytes) -> bool:
        self.log.append("store.contains")
        return super().__contains__(key)


class FailingStore:
    """A store that cannot do anything."""

    def add(self, key: bytes, value: bytes = b"") -> bool:
        raise StoreError(5, "Input/output error")

    def put(self, key: bytes, value: bytes = b"") -> None:
        raise StoreError(5, "Input/output error")

    def get(self, key: bytes) -> bytes | None:
        raise StoreError(5, "Input/output error")

    def add_many(self, keys: Sequence[bytes], value: bytes = b"") -> list[bool]:
        raise StoreError(5, "Input/output error")

    def put_many(self, keys: Sequence[bytes], value: bytes = b"") -> None:
        raise StoreError(5, "Input/output error")

    def iter_items(self) -> Iterator[tuple[bytes, bytes]]:
        raise StoreError(5, "Input/output error")

    def __contains__(self, key: bytes) -> bool:
        raise StoreError(5, "Input/output error")

    def iter_keys(self) -> Iterator[bytes]:
        raise StoreError(5, "Input/output error")

    def count(self) -> int:
        raise StoreError(5, "Input/output error")

    def flush(self) -> None:
        raise StoreError(5, "Input/output error")

    def close(self) -> None:
        raise StoreError(5, "Input/output error")


def test_only_the_verdicts_that_filter_a_request_are_seen() -> None:
    assert [Verdict.DUPLICATE, Verdict.UNCONFIRMED] == [verdict for verdict in Verdict if verdict.seen]


def test_the_verdicts_keep_their_names() -> None:
    names = ["new", "duplicate", "false_positive", "unconfirmed", "expired"]
    assert names == [verdict.value for verdict in Verdict]


def test_a_first_look_is_new_and_a_second_one_a_duplicate() -> None:
    seen = SeenSet(StubFilter(), MemoryStore())
    assert Verdict.NEW is seen.check_and_add(KEY)
    assert Verdict.DUPLICATE is seen.check_and_add(KEY)
    assert Verdict.NEW is seen.check_and_add(OTHER)


def test_what_the_filter_alone_calls_seen_is_a_false_positive_once() -> None:
    seen = SeenSet(StubFilter(wrong=(KEY,)), MemoryStore())
    assert Verdict.FALSE_POSITIVE is seen.check_and_add(KEY)
    assert Verdict.DUPLICATE is seen.check_and_add(KEY)


def test_without_a_store_the_filters_word_is_unconfirmed() -> None:
    seen = SeenSet(StubFilter(wrong=(OTHER,)), None)
    assert Verdict.NEW is seen.check_and_add(KEY)
    assert Verdict.UNCONFIRMED is seen.check_and_add(KEY)
    assert Verdict.UNCONFIRMED is seen.check_and_add(OTHER)


def test_the_filter_is_told_first_and_the_store_asked_only_of_what_the_filter_knows() -> None:
    log: list[str] = []
    seen = SeenSet(StubFilter(log, wrong=(OTHER,)), SpyStore(log))
    seen.check_and_add(KEY)
    assert ["filter.add", "store.put"] == log
    log.clear()
    seen.check_and_add(KEY)
    assert ["filter.add", "store.contains"] == log
    log.clear()
    seen.check_and_add(OTHER)
    assert ["filter.add", "store.contains", "store.add", "store.contains"][: len(log)] == log


def test_looking_adds_nothing() -> None:
    filter_, store = StubFilter(wrong=(OTHER,)), MemoryStore()
    seen = SeenSet(filter_, store)
    assert (False, False) == (KEY in seen, OTHER in seen)
    assert (set(), 0) == (filter_.keys, store.count())
    seen.check_and_add(KEY)
    assert (True, False) == (KEY in seen, OTHER in seen)


def test_looking_without_a_store_takes_the_filters_word() -> None:
    seen = SeenSet(StubFilter(wrong=(OTHER,)), None)
    assert (False, True) == (KEY in seen, OTHER in seen)


@pytest.mark.parametrize("wrong", [(), (KEY,)], ids=["new", "false positive"])
def test_a_store_that_fails_never_makes_a_key_seen(wrong: tuple[bytes, ...]) -> None:
    seen = SeenSet(StubFilter(wrong=wrong), FailingStore())
    for _ in range(3):
        with pytest.raises(StoreError):
            seen.check_and_add(KEY)


def test_a_key_whose_store_failed_is_judged_right_when_the_store_is_back() -> None:
    filter_, store = StubFilter(), MemoryStore()
    with pytest.raises(StoreError):
        SeenSet(filter_, FailingStore()).check_and_add(KEY)
    # The filter knows it, the store does not: the page is not lost, and is remembered from now on.
    seen = SeenSet(filter_, store)
    assert Verdict.FALSE_POSITIVE is seen.check_and_add(KEY)
    assert Verdict.DUPLICATE is seen.check_and_add(KEY)


def test_a_frozen_set_knows_what_it_knows_and_takes_nothing_more() -> None:
    filter_ = StubFilter()
    seen = SeenSet(filter_, None)
    assert not seen.frozen
    seen.check_and_add(KEY)
    seen.frozen = True
    assert Verdict.UNCONFIRMED is seen.check_and_add(KEY)
    assert [Verdict.NEW] * 3 == [seen.check_and_add(OTHER) for _ in range(3)]
    assert {KEY} == filter_.keys


MANY = [bytes([number % 7]) * 20 for number in (0, 1, 0, 2, 3, 3, 3, 4, 5, 6, 0, 5)]


@pytest.mark.parametrize("with_store", [True, False])
@pytest.mark.parametrize("wrong", [(), (MANY[1], MANY[4]), tuple(MANY)])
def test_many_keys_have_the_verdicts_of_one_by_one(with_store: bool, wrong: tuple[bytes, ...]) -> None:
    one, many = (SeenSet(StubFilter(wrong=wrong), MemoryStore() if with_store else None) for _ in range(2))
    assert [one.check_and_add(key) for key in MANY] == many.check_and_add_many(MANY)
    assert [one.check_and_add(key) for key in MANY] == many.check_and_add_many(MANY)
    assert [] == many.check_and_add_many([])


def test_of_many_keys_the_filter_is_told_first() -> None:
    log: list[str] = []
    SeenSet(StubFilter(log), SpyStore(log)).check_and_add_many([KEY, OTHER, KEY])
    assert ["filter.add"] * 3 + ["store.put"] * 2 + ["store.add"] == log


@pytest.mark.parametrize("wrong", [(), (KEY,)], ids=["new", "false positive"])
def test_a_store_that_fails_makes_none_of_many_keys_seen(wrong: tuple[bytes, ...]) -> None:
    filter_ = StubFilter(wrong=wrong)
    for _ in range(2):
        with pytest.raises(StoreError):
            SeenSet(filter_, FailingStore()).check_and_add_many([KEY, OTHER])
    seen = SeenSet(filter_, MemoryStore())
    assert [Verdict.FALSE_POSITIVE] * 2 == seen.check_and_add_many([KEY, OTHER])


def test_a_set_that_is_frozen_in_the_middle_of_many_keys_takes_no_more_of_them() -> None:
    class Growing(StubFilter):
        def add_many(self, keys: Sequence[bytes]) -> list[bool]:
            answers = super().add_many(keys)
            seen.frozen = True
            return answers

    filter_ = Growing()
    seen = SeenSet(filter_, None)
    a, b, c, d = (bytes([number]) * 20 for number in range(4))
    new, known = Verdict.NEW, Verdict.UNCONFIRMED
    assert [new, known, new, new, known, new, new] == seen.check_and_add_many([a, a, b, c, a, d, d])
    assert {a, b} == filter_.keys


@pytest.mark.parametrize("policy", ["negatives", "", "Positives"])
def test_a_policy_that_is_not_one_of_a_single_crawl_is_refused(policy: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SeenSet(StubFilter(), None, policy)
    expected = f"policy={policy!r} is not one of a single crawl; take 'positives' or 'always'"
    assert expected == str(caught.value)


def test_deferred_keys_are_seen_and_reach_the_filter_when_they_are_settled() -> None:
    filter_ = StubFilter()
    seen = SeenSet(filter_, None, deferred=True)
    assert [Verdict.NEW, Verdict.UNCONFIRMED] == [seen.check_and_add(KEY) for _ in range(2)]
    assert (True, False, 1) == (KEY in seen, OTHER in seen, seen.num_deferred)
    assert set() == filter_.keys
    seen.settle()
    assert ({KEY}, 0, True) == (filter_.keys, seen.num_deferred, KEY in seen)
    assert Verdict.UNCONFIRMED is seen.check_and_add(KEY)
    seen.settle()
    assert {KEY} == filter_.keys


def test_with_a_store_nothing_is_deferred() -> None:
    filter_ = StubFilter()
    seen = SeenSet(filter_, MemoryStore(), deferred=True)
    seen.check_and_add(KEY)
    assert ({KEY}, 0) == (filter_.keys, seen.num_deferred)


def test_a_deferred_set_takes_the_filters_word_too() -> None:
    seen = SeenSet(StubFilter(wrong=(KEY,)), None, deferred=True)
    assert Verdict.UNCONFIRMED is seen.check_and_add(KEY)
    assert 0 == seen.num_deferred


def test_a_filter_that_is_over_full_in_the_middle_of_settling_takes_no_more() -> None:
    class Full(StubFilter):
        def add(self, key: bytes) -> bool:
            seen.frozen = True
            return super().add(key)

    filter_ = Full()
    seen = SeenSet(filter_, None, deferred=True)
    for one in (KEY, OTHER):
        seen.check_and_add(one)
    seen.settle()
    assert (1, 0) == (len(filter_.keys), seen.num_deferred)


@pytest.mark.parametrize("exact", [True, False])
def test_a_held_key_is_seen_and_in_nobodys_file_until_it_is_released(exact: bool) -> None:
    filter_, store = StubFilter(), MemoryStore() if exact else None
    seen = SeenSet(filter_, store, deferred=True)
    assert Verdict.NEW is seen.check_and_add(KEY)
    seen.hold(KEY)
    seen.settle()
    assert (Verdict.DUPLICATE if exact else Verdict.UNCONFIRMED) is seen.check_and_add(KEY)
    assert KEY in seen
    if store is not None:
        assert KEY not in store
    else:
        assert (set(), 1) == (filter_.keys, seen.num_deferred)
    seen.release(KEY)
    seen.settle()
    assert KEY in (filter_.keys if store is None else store)
    assert (Verdict.DUPLICATE if exact else Verdict.UNCONFIRMED) is seen.check_and_add(KEY)
    # Of what is not held nothing is to be released.
    seen.release(OTHER)
    assert OTHER not in seen


def test_a_frozen_set_knows_what_is_held() -> None:
    seen = SeenSet(StubFilter(), None, deferred=True)
    seen.check_and_add(KEY)
    seen.hold(KEY)
    seen.frozen = True
    assert Verdict.UNCONFIRMED is seen.check_and_add(KEY)


def test_a_key_that_was_forgotten_is_new() -> None:
    seen = SeenSet(StubFilter(), MemoryStore())
    seen.check_and_add(KEY)
    assert seen.forget(KEY)
    assert KEY not in seen
    assert [Verdict.FALSE_POSITIVE, Verdict.DUPLICATE] == [seen.check_and_add(KEY) for _ in range(2)]


def test_a_held_key_that_was_forgotten_is_new() -> None:
    seen = SeenSet(StubFilter(), MemoryStore())
    seen.check_and_add(KEY)
    seen.hold(KEY)
    assert seen.forget(KEY)
    seen.release(KEY)
    assert KEY not in seen
    assert Verdict.FALSE_POSITIVE is seen.check_and_add(KEY)


class Removing(StubFilter):
    """It can forget what is not ``wrong``."""

    def remove(self, key: bytes) -> bool:
        self.log.append("filter.remove")
        there = key in self.keys
        self.keys.discard(key)
        return there


def test_a_filter_that_counts_forgets_without_a_store() -> None:
    found = Removing(wrong=(OTHER,))
    seen = SeenSet(found, None)
    told: list[None] = []
    seen.on_forget = lambda: told.append(None)
    assert seen.can_forget
    seen.check_and_add(KEY)
    assert seen.forget(KEY)
    assert 1 == len(told)
    assert KEY not in seen
    assert Verdict.NEW is seen.check_and_add(KEY)
    assert not seen.forget(OTHER)
    assert 1 == len(told)


def test_what_is_not_in_the_filter_yet_is_forgotten_there_where_it_is() -> None:
    found = Removing()
    seen = SeenSet(found, None, deferred=True)
    seen.check_and_add(KEY)
    assert seen.forget(KEY)
    assert "filter.remove" not in found.log
    assert KEY not in seen
    seen.check_and_add(KEY)
    seen.settle()
    assert KEY in found.keys
    assert seen.forget(KEY)
    assert KEY not in seen


def test_with_a_store_a_filter_that_counts_is_left_as_it_is() -> None:
    found = Removing()
    seen = SeenSet(found, MemoryStore())
    seen.check_and_add(KEY)
    assert seen.forget(KEY)
    assert KEY in found.keys


def test_a_filter_alone_cannot_forget() -> None:
    seen = SeenSet(StubFilter(), None)
    seen.check_and_add(KEY)
    assert not seen.can_forget
    assert not seen.forget(KEY)
    assert KEY in seen
