"""Is it worth asking a server that has just failed?"""

from __future__ import annotations

import pytest

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.remote.breaker import Breaker, Circuit


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(failures=3, wait=1.0, max_wait=5.0, clock=clock)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        assert breaker.allows()
        breaker.failed()


def test_it_opens_after_some_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert breaker.allows()
    breaker.succeeded()
    fail(breaker, 2)
    assert (Circuit.CLOSED, 0) == (breaker.state, breaker.num_opened)
    fail(breaker, 1)
    assert (Circuit.OPEN, 1, False) == (breaker.state, breaker.num_opened, breaker.allows())


def test_a_single_probe_is_let_through(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 0.9
    assert not breaker.allows()
    assert pytest.approx(0.1) == breaker.seconds_to_probe
    clock.now += 0.1
    assert [True, False, False] == [breaker.allows() for _ in range(3)]
    assert Circuit.HALF_OPEN is breaker.state
    breaker.succeeded()
    assert (Circuit.CLOSED, 0.0) == (breaker.state, breaker.seconds_to_probe)
    assert [True, True] == [breaker.allows() for _ in range(2)]


def test_probes_that_fail_come_more_and_more_rarely(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    waits = []
    for _ in range(5):
        waits.append(breaker.seconds_to_probe)
        clock.now += breaker.seconds_to_probe
        assert breaker.allows()
        breaker.failed()
    assert [1.0, 2.0, 4.0, 5.0, 5.0] == waits
    assert 1 == breaker.num_opened


def test_a_probe_that_nothing_is_heard_of_is_followed_by_another(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 1.0
    assert breaker.allows()
    clock.now += 1.0
    assert breaker.allows()


def test_answers_that_were_on_their_way_when_it_opened_count_once(breaker: Breaker, clock: Clock) -> None:
    assert [True] * 6 == [breaker.allows() for _ in range(6)]
    for _ in range(6):
        breaker.failed()
    assert (1, 1.0) == (breaker.num_opened, breaker.seconds_to_probe)


def test_the_seconds_for_which_it_was_open_are_counted(breaker: Breaker, clock: Clock) -> None:
    assert 0.0 == breaker.open_seconds
    fail(breaker, 3)
    clock.now += 2.5
    assert 2.5 == breaker.open_seconds  # it still is
    assert breaker.allows()
    breaker.failed()
    clock.now += 4.0
    assert breaker.allows()
    breaker.succeeded()
    clock.now += 100
    assert 6.5 == breaker.open_seconds
    fail(breaker, 3)
    clock.now += 0.5
    assert (7.0, 2) == (breaker.open_seconds, breaker.num_opened)


@pytest.mark.parametrize("values", [{"failures": 0}, {"wait": 0}, {"wait": 2.0, "max_wait": 1.0}])
def test_a_wrong_value_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="a circuit breaker needs failures >= 1"):
        Breaker(**values)  # type: ignore[arg-type]
