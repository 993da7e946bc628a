"""Does a filter on a server keep the contract of ``filters.base.Filter``? The same suite runs for a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kinds import FILTERS, REMOTE_FILTERS, FilterKind, key, name, open_filter, url_for

from scrapy_bloomdupe.errors import ConfigurationError, StateExists, StateMismatch, StateNotFound
from scrapy_bloomdupe.filters.base import Filter
from scrapy_bloomdupe.filters.redis import open_filter as open_any
from scrapy_bloomdupe.remote.client import connect
from scrapy_bloomdupe.seen import SeenSet, Verdict
from scrapy_bloomdupe.stores.memory import MemoryStore


@pytest.fixture(params=FILTERS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FilterKind]:
    url = None if request.param == "mapped" else url_for(request.param, request)
    found = FilterKind(request.param, tmp_path, url)
    yield found
    found.close()


@pytest.fixture(params=REMOTE_FILTERS)
def remote(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param, url_for(request.param, request)


def in_batches(found: Filter, keys: list[bytes], size: int) -> list[bool]:
    answers: list[bool] = []
    while len(answers) < len(keys):
        answers += found.add_many(keys[len(answers) : len(answers) + size])
    return answers


def test_it_is_a_filter(kind: FilterKind) -> None:
    found = kind.make()
    assert isinstance(found, Filter)
    # scrapy-redis asks `if not self.df`: an empty filter that is falsy would be made again and again.
    assert found
    assert not hasattr(found, "__len__")
    found.close()


def test_add_says_false_once_and_true_from_then_on(kind: FilterKind) -> None:
    found = kind.make(error_rate=1e-9)
    assert [False] * 50 == [found.add(key(number)) for number in range(50)]
    assert [True] * 50 == [found.add(key(number)) for number in range(50)]
    assert 50 == found.num_keys
    found.close()


def test_it_contains_what_was_added_and_nothing_else(kind: FilterKind) -> None:
    found = kind.make(error_rate=1e-9)
    assert key(1) not in found
    found.add(key(1))
    assert key(1) in found
    assert key(2) not in found
    assert 1 == found.info().num_keys  # asking adds nothing
    found.close()


@pytest.mark.parametrize("size", [1, 7, 100, 3000])
def test_many_at_once_have_the_answers_of_one_by_one(kind: FilterKind, size: int) -> None:
    found = kind.make(capacity=5000, error_rate=1e-9)
    numbers = [number * 7919 % 600 for number in range(1000) for _ in range(1 + number % 2)]
    if size == 1:
        numbers = numbers[:300]
    known: set[int] = set()
    expected = []
    for number in numbers:
        expected.append(number in known)
        known.add(number)
    assert expected == in_batches(found, [key(number) for number in numbers], size)
    assert [] == found.add_many([])
    assert len(known) == found.info().num_keys
    found.close()


def test_more_than_fit_into_one_question_are_asked_in_several(kind: FilterKind) -> None:
    found = kind.make(capacity=20_000, error_rate=1e-9)
    keys = [key(number) for number in range(12_000)]
    assert [False] * 12_000 == in_batches(found, keys, 12_000)
    assert [True] * 12_000 == in_batches(found, keys, 12_000)
    found.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.sets(st.binary(min_size=1, max_size=40), max_size=60),
    st.integers(1, 40),
    st.sampled_from([0.5, 0.01, 1e-6, 1e-12]),
)
def test_a_key_that_was_added_is_never_denied(
    kind: FilterKind, keys: set[bytes], capacity: int, error_rate: float
) -> None:
    prefix = name()
    found = kind.make(capacity, error_rate, prefix)
    in_batches(found, sorted(keys), 100)
    assert [True] * len(keys) == [one in found for one in keys]
    found.close()
    again = kind.make(capacity, error_rate, prefix)
    assert [True] * len(keys) == in_batches(again, sorted(keys), 100)
    again.close()


def test_it_grows_and_keeps_all_keys_and_its_rate(kind: FilterKind) -> None:
    found = kind.make(capacity=500, error_rate=0.01)
    growths = []
    found.on_growth = growths.append
    keys = [key(number) for number in range(10_000)]
    in_batches(found, keys, 100)
    assert growths
    assert {None} == {growth.error for growth in growths}
    # 500 + 1,000 + 2,000 + 4,000 + 8,000: the last of the growths gave room for all.
    assert 5 == max(growth.layers for growth in growths)
    assert [True] * len(keys) == in_batches(found, keys, 100)
    strangers = [key(number) for number in range(100_000, 110_000)]
    # Ten thousand draws at 0.01: 200 would be ten standard deviations too many.
    assert sum(one in found for one in strangers[:200]) < 40
    if hasattr(found, "contains_many"):
        assert sum(found.contains_many(strangers)) < 200
    info = found.info()
    assert 5 == len(info.layers)
    # A few keys were called seen by mistake and not counted.
    assert 9_700 < info.num_keys <= 10_000
    assert info.error_rate_estimate < 0.01
    found.close()


def test_a_seen_set_with_it_proves_what_it_says(kind: FilterKind) -> None:
    seen = SeenSet(kind.make(error_rate=1e-9), MemoryStore())
    keys = [key(number % 70) for number in range(140)]
    verdicts = seen.check_and_add_many(keys)
    assert [Verdict.NEW] * 70 + [Verdict.DUPLICATE] * 70 == verdicts
    seen.filter.close()


def test_it_says_what_it_is(remote: tuple[str, str]) -> None:
    kind, url = remote
    server = connect(url)
    prefix = name()
    found = open_filter(kind, server, prefix, 1000, 0.001, identity={"canary": "x"})
    assert found.was_created
    found.add_many([key(number) for number in range(400)])
    again = open_filter(kind, server, prefix, 1000, 0.001)
    assert not again.was_created
    info = again.info()
    assert f"{server.address} {prefix}:filter" == info.path
    assert (kind.partition("-")[0], "blake2b") == (info.layout, info.scheme)
    assert (1000, 0.001, {"canary": "x"}) == (info.capacity, info.error_rate, info.identity)
    assert 398 <= info.num_keys <= 400
    (layer,) = info.layers
    assert layer.num_bits >= 14_378
    assert info.num_bytes * 8 >= layer.num_bits
    assert 0 < layer.fill < 0.5
    assert 0 < info.error_rate_estimate < 0.001
    assert found.filter_id == again.filter_id
    again.set_identity({"canary": "y"})
    assert {"canary": "y"} == open_filter(kind, server, prefix, 1000, 0.001).identity
    server.close()


def test_it_is_made_once_and_found_from_then_on(remote: tuple[str, str]) -> None:
    kind, url = remote
    server = connect(url)
    prefix = name()
    with pytest.raises(StateNotFound, match=re.escape(f"{prefix}:filter:meta does not exist")):
        open_filter(kind, server, prefix, 1000, 0.001, create=False)
    found = open_filter(kind, server, prefix, 1000, 0.001, create=True)
    with pytest.raises(StateExists, match=re.escape(f"{prefix}:filter:meta exists and is not overwritten")):
        open_filter(kind, server, prefix, 1000, 0.001, create=True)
    found.add(key(1))
    assert key(1) in open_filter(kind, server, prefix, 1000, 0.001, create=False)
    server.close()


@pytest.mark.parametrize(
    ("capacity", "error_rate", "message"),
    [
        (
            2000,
            0.001,
            "was made with capacity=1000, settings ask for 2000; take 1000, use another ",
        ),
        (1000, 0.01, "was made with error_rate=0.001, settings ask for 0.01; take 0.001, use another"),
    ],
)
def test_other_values_are_refused(
    remote: tuple[str, str], capacity: int, error_rate: float, message: str
) -> None:
    kind, url = remote
    server = connect(url)
    prefix = name()
    open_filter(kind, server, prefix, 1000, 0.001)
    with pytest.raises(StateMismatch, match=re.escape(message)):
        open_filter(kind, server, prefix, capacity, error_rate)
    server.close()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"capacity": 0}, "capacity=0 is not a whole number"),
        ({"error_rate": 1.0}, "error_rate=1.0 is not a share"),
        ({"shards": 0}, "shards=0 is not a number from 1 to 1024"),
        ({"kind": "cuckoo"}, "filter='cuckoo' is not known on a server; take one of bitmap, redisbloom"),
    ],
)
@pytest.mark.parametrize("kind", ["bitmap", "redisbloom"])
def test_a_wrong_value_makes_nothing(
    request: pytest.FixtureRequest, kind: str, values: dict[str, object], message: str
) -> None:
    server = connect(url_for(kind, request))
    prefix = name()
    arguments: dict[str, object] = {"capacity": 100, "error_rate": 0.01, "kind": kind, **values}
    with pytest.raises(ConfigurationError, match=message):
        open_any(server, prefix, **arguments)  # type: ignore[arg-type]
    assert [] == server.scan(f"{prefix}:*", 100)
    server.close()


def test_the_filter_that_is_there_is_taken_else_the_best(request: pytest.FixtureRequest) -> None:
    plain, module = (connect(url_for(kind, request)) for kind in ("bitmap", "redisbloom"))
    values: dict[str, float] = {"capacity": 100, "error_rate": 0.01}
    assert "bitmap" == open_any(plain, name(), **values).kind  # type: ignore[arg-type]
    assert "redisbloom" == open_any(module, name(), **values).kind  # type: ignore[arg-type]
    prefix = name()
    open_any(module, prefix, kind="bitmap", **values)  # type: ignore[arg-type]
    assert "bitmap" == open_any(module, prefix, **values).kind  # type: ignore[arg-type]
    with pytest.raises(StateMismatch, match="was made with kind='bitmap', settings ask for 'redisbloom'"):
        open_any(module, prefix, kind="redisbloom", **values)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="has no RedisBloom: it does not know"):
        open_any(plain, name(), kind="redisbloom", **values)  # type: ignore[arg-type]
    plain.close()
    module.close()


def test_clearing_takes_all_of_it_and_nothing_else(remote: tuple[str, str]) -> None:
    kind, url = remote
    server = connect(url)
    prefix = name()
    one, other = (open_filter(kind, server, prefix + ending, 100, 0.01) for ending in ("a", "ab"))
    for found in (one, other):
        in_batches(found, [key(number) for number in range(500)], 100)
    assert one.clear() > 1
    assert [] == server.scan(f"{prefix}a:*", 100)
    assert [True] * 500 == other.add_many([key(number) for number in range(500)])
    assert open_filter(kind, server, f"{prefix}a", 100, 0.01).was_created
    server.close()


def test_two_filters_have_different_secrets(remote: tuple[str, str]) -> None:
    kind, url = remote
    server = connect(url)
    one, two = (open_filter(kind, server, name(), 1000, 0.001) for _ in range(2))
    assert one.filter_id != two.filter_id
    assert one._kept.meta.secret != two._kept.meta.secret
    server.close()
