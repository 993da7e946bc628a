"""Do the formulas give the known values, hold in their whole range, and refuse what is outside of it?"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.sizing import size_for

capacities = st.integers(1, sizing.MAX_CAPACITY)
error_rates = st.floats(sizing.MIN_ERROR_RATE, 0.999_999)


def test_a_million_keys_at_one_percent_take_1_14_mib_and_7_hashes() -> None:
    size = size_for(10**6, 0.01)
    assert 9_585_059 == size.num_bits
    assert 1.14 == round(size.num_bytes / 2**20, 2)
    assert 7 == size.num_hashes


@pytest.mark.parametrize(
    ("capacity", "error_rate", "gigabytes", "num_hashes"),
    [(10**9, 0.01, 1.2, 7), (10**9, 0.001, 1.8, 10), (10**10, 0.01, 12.0, 7)],
)
def test_billions_of_keys_take_the_gigabytes_of_the_literature(
    capacity: int, error_rate: float, gigabytes: float, num_hashes: int
) -> None:
    size = size_for(capacity, error_rate)
    assert gigabytes == round(size.num_bytes / 1e9, 1)
    assert num_hashes == size.num_hashes


def test_ten_billion_keys_at_one_percent_take_9_59e10_bits() -> None:
    assert "9.59e+10" == f"{size_for(10**10, 0.01).num_bits:.2e}"


def test_a_text_of_20_gb_and_12_hashes_for_ten_billion_keys_describes_a_rate_of_0_0005() -> None:
    num_bits = 20e9 * 8
    assert sizing.optimal_num_hashes(num_bits, 10**10) in (11, 12)
    assert 0.0005 == round(sizing.expected_error_rate(num_bits, 12, 10**10), 4)


def test_the_rate_is_known_at_every_load() -> None:
    size = size_for(10**6, 0.01)
    loads = [f"{size.rate_at(load * 10**6):.3g}" for load in (0, 0.5, 1, 2, 4)]
    assert ["0", "0.000251", "0.01", "0.157", "0.679"] == loads


def test_layers_without_keys_have_the_rate_that_people_call_zero() -> None:
    assert "0" == f"{sizing.combined_error_rate([0.0, 0.0]):g}"


def test_two_gigabytes_hold_1_67_billion_keys_at_one_percent() -> None:
    assert 1_669_264_742 == sizing.capacity_for(2e9, 0.01)


@pytest.mark.parametrize("error_rate", [0.5, 0.01, 1e-6, 1e-12])
@pytest.mark.parametrize("num_bytes", [1_000, 1_000_003, 2 * 10**9])
def test_what_fits_into_some_bytes_takes_no_more_than_these(num_bytes: int, error_rate: float) -> None:
    capacity = sizing.capacity_for(num_bytes, error_rate)
    assert num_bytes >= size_for(capacity, error_rate).num_bytes
    assert num_bytes <= size_for(capacity * 1.001 // 1 + 1, error_rate).num_bytes


def test_hashes_are_capped_and_the_bits_make_up_for_it() -> None:
    size = size_for(10**6, 1e-12)
    assert 30 == size.num_hashes
    assert 59_092_822 == size.num_bits
    assert size.num_bits > sizing.optimal_num_bits(10**6, 1e-12)
    assert 1e-12 == pytest.approx(size.rate_at(10**6), rel=1e-6)


def test_slack_buys_a_lower_rate() -> None:
    assert size_for(10**6, 0.01).rate_at(10**6) > 1.2 * size_for(10**6, 0.01, slack=1.05).rate_at(10**6)


@pytest.mark.parametrize("capacity", [0, -1, 0.5, 1.5, 10**13 + 1, math.nan, math.inf])
def test_a_capacity_that_is_no_number_of_keys_is_refused(capacity: float) -> None:
    with pytest.raises(ConfigurationError) as caught:
        size_for(capacity, 0.01)
    assert (
        f"capacity={capacity!r} is not a whole number of keys from 1 to 1e+13; give the number of URLs that "
        "you expect, for example 1_000_000"
    ) == str(caught.value)


@pytest.mark.parametrize("error_rate", [0, 1, 1.5, -0.01, 9e-13, math.nan, math.inf])
def test_an_error_rate_that_is_no_share_is_refused(error_rate: float) -> None:
    with pytest.raises(ConfigurationError) as caught:
        size_for(1000, error_rate)
    assert (
        f"error_rate={error_rate!r} is not a share from 1e-12 up to, not including, 1; give for example "
        "0.001 for one key in a thousand"
    ) == str(caught.value)


def test_a_whole_float_is_a_capacity() -> None:
    capacity = size_for(1e9, 0.01).capacity
    assert (10**9, int) == (capacity, type(capacity))


@given(capacities, error_rates)
def test_every_size_in_range_keeps_its_rate(capacity: int, error_rate: float) -> None:
    size = size_for(capacity, error_rate)
    assert 1 <= size.num_hashes <= sizing.MAX_HASHES
    assert size.num_bits >= 64
    # 1.1 is the promise: k has to be a whole number.
    assert 1.1 * error_rate >= size.rate_at(capacity)


@given(capacities, capacities, error_rates)
def test_more_keys_never_take_fewer_bits(one: int, two: int, error_rate: float) -> None:
    few, many = sorted((one, two))
    assert size_for(few, error_rate).num_bits <= size_for(many, error_rate).num_bits


@given(capacities, error_rates, error_rates)
def test_a_lower_rate_never_takes_fewer_bits(capacity: int, one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert size_for(capacity, high).num_bits <= size_for(capacity, low).num_bits


@given(capacities, error_rates, st.floats(0, 100), st.floats(0, 100))
def test_the_rate_never_falls_with_the_load(capacity: int, error_rate: float, one: float, two: float) -> None:
    size = size_for(capacity, error_rate)
    low, high = sorted((one, two))
    assert 0 <= size.rate_at(low * capacity) <= size.rate_at(high * capacity) <= 1


@given(capacities, error_rates, st.floats(0.01, 3))
def test_the_number_of_keys_is_the_inverse_of_the_fill(capacity: int, error_rate: float, load: float) -> None:
    size = size_for(capacity, error_rate)
    num_keys = load * capacity
    assume(size.num_hashes * num_keys / size.num_bits < 10)
    fill = 1 - math.exp(-size.num_hashes * num_keys / size.num_bits)
    assume(fill < 1 - 1 / size.num_bits)
    assert num_keys == pytest.approx(sizing.estimate_num_keys(size.num_bits, size.num_hashes, fill), rel=1e-6)


def test_an_empty_filter_holds_no_key_and_a_full_one_a_finite_number() -> None:
    assert 0 == sizing.estimate_num_keys(1000, 7, 0.0)
    assert 986 == int(sizing.estimate_num_keys(1000, 7, 1.0))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=58))
def test_layers_together_are_worse_than_the_worst_and_better_than_their_sum(rates: list[float]) -> None:
    combined = sizing.combined_error_rate(rates)
    assert 1 - math.prod(1 - rate for rate in rates) == pytest.approx(combined, abs=1e-12)
    assert max(rates) <= combined + 1e-12
    assert min(1.0, sum(rates)) >= combined - 1e-12


def _poisson_rate(load: float, page_bits: int, num_hashes: int) -> float:
    weights = {
        count: math.exp(count * math.log(load) - load - math.lgamma(count + 1))
        for count in range(int(load - 10 * math.sqrt(load)), int(load + 10 * math.sqrt(load)))
    }
    return sum(
        weight * sizing.expected_error_rate(page_bits, num_hashes, count) for count, weight in weights.items()
    )


@pytest.mark.parametrize(("num_hashes", "load"), [(7, 6_800), (10, 4_500), (13, 3_400), (20, 2_300)])
def test_the_rate_of_pages_agrees_with_the_sum_over_their_loads(num_hashes: int, load: int) -> None:
    exact = _poisson_rate(load, 65_536, num_hashes)
    found = sizing.spread_error_rate(65_536 * 1_000, num_hashes, load * 1_000, 65_536)
    assert exact == pytest.approx(found, rel=0.001)
    assert found > sizing.expected_error_rate(65_536, num_hashes, load)


@pytest.mark.parametrize("wrong", ["1000", None, b"1"])
def test_text_is_no_capacity(wrong: Any) -> None:
    with pytest.raises(TypeError):
        size_for(wrong, 0.01)
