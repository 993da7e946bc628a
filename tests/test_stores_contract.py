"""Does every store keep the contract of ``stores.base.Store``? One suite, run for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kinds import STORES, key, made_store, store_url

from scrapy_bloomdupe.stores.base import Store


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> tuple[str, str | None]:
    return request.param, store_url(request.param, request)


@pytest.fixture
def store(kind: tuple[str, str | None], tmp_path: Path) -> Iterator[Store]:
    with made_store(kind[0], tmp_path, kind[1]) as found:
        yield found


def test_it_is_a_store(store: Store) -> None:
    assert isinstance(store, Store)


def test_add_says_once_that_a_key_is_new(store: Store) -> None:
    assert [True] * 25 == [store.add(key(number)) for number in range(25)]
    assert [False] * 25 == [store.add(key(number)) for number in range(25)]
    assert 25 == store.count()


def test_it_contains_what_was_added_and_nothing_else(store: Store) -> None:
    assert key(1) not in store
    store.add(key(1))
    assert key(1) in store
    assert key(2) not in store
    assert 1 == store.count()  # asking adds nothing


def test_a_key_is_visible_before_it_is_written_and_after(store: Store) -> None:
    store.put(key(1))
    assert (True, False, 1) == (key(1) in store, store.add(key(1)), store.count())
    store.flush()
    assert (True, False, 1) == (key(1) in store, store.add(key(1)), store.count())


def test_putting_twice_does_no_harm(store: Store) -> None:
    for _ in range(2):
        store.put(key(1))
    store.flush()
    store.put(key(1))
    assert (1, [key(1)]) == (store.count(), list(store.iter_keys()))
    store.flush()
    assert (1, [key(1)]) == (store.count(), list(store.iter_keys()))


def test_an_empty_store_has_no_keys(store: Store) -> None:
    assert (0, []) == (store.count(), list(store.iter_keys()))
    store.flush()
    assert (0, []) == (store.count(), list(store.iter_keys()))


def test_all_keys_are_given_once_written_or_not(store: Store) -> None:
    for number in range(25):  # two groups are written, five keys wait
        store.add(key(number))
    assert sorted(key(number) for number in range(25)) == sorted(store.iter_keys())


def test_keys_may_be_added_while_all_are_given(store: Store) -> None:
    for number in range(25):
        store.add(key(number))
    given_keys = []
    for number, one in enumerate(store.iter_keys()):
        store.add(key(1000 + number))
        given_keys.append(one)
        if number == 500:
            break
    assert len(given_keys) == len(set(given_keys))
    assert {key(number) for number in range(25)} <= set(given_keys)


@pytest.mark.parametrize("size", [1, 2, 20, 511])
def test_a_key_of_1_to_511_bytes_is_kept_whole(store: Store, size: int) -> None:
    keys = [bytes([first]) * size for first in (0, 1, 255)]
    assert [True] * 3 == [store.add(one) for one in keys]
    store.flush()
    assert keys == sorted(store.iter_keys())
    # A key that only begins or continues another one is another one.
    assert [False] * 3 == [one[:-1] + b"x" in store for one in keys]


def test_a_key_that_was_removed_can_be_added_anew(store: Store) -> None:
    store.remove(key(1))
    for flushed in (False, True):
        store.add(key(1))
        store.add(key(2))
        if flushed:
            store.flush()
        store.remove(key(1))
        store.remove(key(1))
        assert (False, True, 1) == (key(1) in store, key(2) in store, store.count())
        assert [key(2)] == list(store.iter_keys())
        assert store.add(key(1))
        assert (2, {key(1), key(2)}) == (store.count(), set(store.iter_keys()))


def test_many_at_once_have_the_answers_of_one_by_one(store: Store) -> None:
    keys = [key(number % 40) for number in range(100)]
    store.add(key(3))
    expected = [number < 40 and number != 3 for number in range(100)]
    assert expected[:15] == store.add_many(keys[:15])
    assert expected[15:] == store.add_many(keys[15:])
    assert 40 == store.count()
    assert [] == store.add_many([])


def test_many_are_put_at_once(store: Store) -> None:
    store.put_many([])
    assert 0 == store.count()
    store.put_many([key(number % 30) for number in range(60)])
    store.put_many((key(31),))
    assert sorted(key(number) for number in (*range(30), 31)) == sorted(store.iter_keys())


@pytest.fixture(params=["memory", "lmdb"])
def keeping(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store that keeps the values of its keys; one on a server does not."""
    with made_store(request.param, tmp_path, None) as found:
        yield found


@pytest.mark.parametrize("kind", [kind for kind in STORES if kind not in ("memory", "lmdb")], indirect=True)
def test_a_store_on_a_server_keeps_no_values(store: Store) -> None:
    assert store.add(key(1), b"first")
    store.put(key(2), b"second")
    assert (b"", b"", None) == tuple(store.get(key(number)) for number in (1, 2, 3))
    assert sorted([(key(1), b""), (key(2), b"")]) == sorted(store.iter_items())


def test_a_value_stays_with_its_key_written_or_not(keeping: Store) -> None:
    assert keeping.get(key(1)) is None
    for flush in (lambda: None, keeping.flush):
        assert keeping.add(key(1), b"first")
        flush()
        assert not keeping.add(key(1), b"second")
        assert b"first" == keeping.get(key(1))
        keeping.put(key(1), b"third")
        flush()
        assert (b"third", 1) == (keeping.get(key(1)), keeping.count())
        keeping.put(key(1), b"4")
        flush()
        assert b"4" == keeping.get(key(1))
        keeping.remove(key(1))
        assert keeping.get(key(1)) is None
        flush()
        assert (None, 0) == (keeping.get(key(1)), keeping.count())


def test_a_key_without_a_value_is_in(store: Store) -> None:
    store.put(key(1))
    store.flush()
    assert (b"", True) == (store.get(key(1)), key(1) in store)


def test_all_keys_are_given_with_their_values(keeping: Store) -> None:
    keeping.put_many([key(number) for number in range(15)], b"many")
    assert [True, False] == keeping.add_many([key(15), key(3)], b"more")
    keeping.put(key(16), b"last")
    expected = {**{key(number): b"many" for number in range(15)}, key(15): b"more", key(16): b"last"}
    assert sorted(expected.items()) == sorted(keeping.iter_items())


def test_it_may_be_closed_twice(store: Store) -> None:
    store.add(key(1))
    store.close()
    store.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "put", "many", "remove", "contains", "flush", "count", "iter"]),
            st.binary(min_size=1, max_size=3) | st.binary(min_size=1, max_size=255),
        ),
        max_size=40,
    ),
)
def test_it_does_what_a_set_does(
    kind: tuple[str, str | None], tmp_path: Path, steps: list[tuple[str, bytes]]
) -> None:
    model: set[bytes] = set()
    with made_store(kind[0], tmp_path, kind[1]) as store:
        for step, one in steps:
            if step == "add":
                assert (one not in model) is store.add(one)
                model.add(one)
            elif step == "put":
                store.put(one)
                model.add(one)
            elif step == "remove":
                store.remove(one)
                model.discard(one)
            elif step == "many":
                store.put_many([one])
                assert [False, one + one not in model] == store.add_many([one, one + one])
                model |= {one, one + one}
            elif step == "remove":
                store.remove(one)
                model.discard(one)
            elif step == "contains":
                assert (one in model) is (one in store)
            elif step == "flush":
                store.flush()
            elif step == "count":
                assert len(model) == store.count()
            else:
                assert sorted(model) == sorted(store.iter_keys())
        store.close()
