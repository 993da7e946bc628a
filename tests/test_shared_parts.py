"""Is a page judged in one round trip, by filter and store together, and is each answer that of its key?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kinds import key, name, url_for

from scrapy_bloomdupe.errors import RemoteEmptied, StoreError
from scrapy_bloomdupe.filters.redis import open_filter
from scrapy_bloomdupe.remote.client import Server, connect
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.shared.parts import SharedParts
from scrapy_bloomdupe.stores.redis import RedisStore


class Counted(SharedParts):
    """Parts on one server, which counts what it is asked."""

    def __init__(self, server: Server, prefix: str, capacity: int, kind: str) -> None:
        made = open_filter(server, prefix, capacity=capacity, error_rate=1e-6, kind=kind, shards=2)
        super().__init__(made, RedisStore.open(server, prefix, shards=3), server.close)
        self.asked: list[int] = []
        each = server.each

        def counted(asks: Sequence[Any], **options: Any) -> list[Any]:
            self.asked.append(len(asks))
            return each(asks, **options)

        server.each = counted  # type: ignore[method-assign]


@pytest.fixture(params=["bitmap", "redisbloom"])
def parts(request: pytest.FixtureRequest) -> Iterator[Counted]:
    kind = request.param
    made = Counted(connect(url_for(kind, request)), name(), 10_000, kind)
    yield made
    made.close()


def test_filter_and_store_answer_in_one_round_trip(parts: Counted) -> None:
    keys = [key(number) for number in range(100)]
    assert [Verdict.NEW] * 100 == parts.judge(keys)
    assert 1 == len(parts.asked)
    mixed = [key(number) for number in range(150, 50, -1)]
    expected = [Verdict.NEW if number >= 100 else Verdict.DUPLICATE for number in range(150, 50, -1)]
    assert expected == parts.judge(mixed)
    assert 2 == len(parts.asked)


def test_the_store_decides_about_what_the_filter_calls_seen(parts: Counted) -> None:
    assert parts.filter is not None
    parts.filter.add_many([key(1), key(2)])
    assert [Verdict.FALSE_POSITIVE, Verdict.NEW] == parts.judge([key(1), key(3)])


def test_a_server_that_has_forgotten_its_scripts_is_told_them_and_answers(parts: Counted) -> None:
    assert [Verdict.NEW] == parts.judge([key(1)])
    assert parts.filter is not None
    parts.filter.server.run("SCRIPT FLUSH")
    assert [Verdict.DUPLICATE, Verdict.NEW] == parts.judge([key(1), key(2)])
    assert [Verdict.DUPLICATE, Verdict.DUPLICATE] == parts.judge([key(1), key(2)])


def test_a_part_that_is_gone_is_said_and_not_taken_for_an_answer(parts: Counted) -> None:
    parts.judge([key(1)])
    assert isinstance(parts.store, RedisStore)
    for one in list(parts.store.server.scan("*:store:{*", 100)):
        parts.store.server.run("DEL", one)
    with pytest.raises(RemoteEmptied):
        parts.judge([key(1), key(2)])


def test_a_key_that_the_store_does_not_take_keeps_the_filter_from_being_asked(parts: Counted) -> None:
    with pytest.raises(StoreError):
        parts.judge([b"k" * 600])
    assert [] == parts.asked


def test_a_filter_that_grew_meanwhile_is_asked_again_and_the_store_is_not(
    request: pytest.FixtureRequest,
) -> None:
    url, prefix = url_for("bitmap", request), name()
    one, other = (Counted(connect(url), prefix, 200, "bitmap") for _ in range(2))
    # The other one sees full shards, and makes them grow; this one does not know.
    for start in range(0, 600, 20):
        other.judge([key(number) for number in range(start, start + 20)])
    asked = [key(number) for number in range(590, 606)]
    assert [Verdict.DUPLICATE] * 10 + [Verdict.NEW] * 6 == one.judge(asked)
    assert [Verdict.DUPLICATE] * 16 == other.judge(asked)
    assert one.asked[0] > one.asked[1]
    one.close()
    other.close()
