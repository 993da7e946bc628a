"""Does what is found in a sample tell what is outside of it? Tables, sums by hand, and the truth itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.estimating import at_least, at_most, estimate


def exactly(found: int, tries: int, share: float) -> float:
    return math.comb(tries, found) * share**found * (1 - share) ** (tries - found)


# Exact 95 % bounds of a Poisson count x: half the chi-square quantiles at 0.025 of 2x and at 0.975 of 2x + 2
# degrees of freedom. As in E. S. Pearson, H. O. Hartley, "Biometrika Tables for Statisticians" I, table 40.
@pytest.mark.parametrize(
    ("found", "low", "high"),
    [
        (0, 0.0, 3.689),
        (1, 0.0253, 5.572),
        (2, 0.242, 7.225),
        (3, 0.619, 8.767),
        (5, 1.623, 11.668),
        (10, 4.795, 18.390),
        (20, 12.217, 30.888),
        (50, 37.111, 65.919),
        (100, 81.364, 121.627),
    ],
)
def test_of_a_small_share_the_bounds_are_those_of_the_poisson_tables(
    found: int, low: float, high: float
) -> None:
    share = 1e-6
    got = estimate(found, share)
    assert low == pytest.approx((got.low + found) * share, abs=0.0006 if found else 2e-6)
    assert high == pytest.approx((got.high + found) * share, abs=0.0006)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("tries", [1, 2, 7, 40, 200])
def test_tails_are_the_sums_of_their_terms(tries: int, share: float) -> None:
    for found in range(tries + 1):
        below = math.fsum(exactly(k, tries, share) for k in range(found + 1))
        above = math.fsum(exactly(k, tries, share) for k in range(found, tries + 1))
        if found < tries * share:
            assert below == pytest.approx(at_most(found, tries, share), rel=1e-9, abs=1e-200)
        else:
            # No small tail: the median of a binomial is a neighbour of its mean.
            assert below > 0.3
            assert 1 == at_most(found, tries, share)
        if found > tries * share:
            assert above == pytest.approx(at_least(found, tries, share), rel=1e-9, abs=1e-200)
        else:
            assert above > 0.3
            assert 1 == at_least(found, tries, share)


@pytest.mark.parametrize("share", [0.003, 0.05, 0.2, 0.5, 0.8, 0.97])
@pytest.mark.parametrize("tries", [0, 1, 3, 10, 50, 300])
def test_the_bounds_hold_with_95_percent_whatever_the_truth_is(tries: int, share: float) -> None:
    covered = 0.0
    mean = 0.0
    for found in range(tries + 1):
        got = estimate(found, share)
        chance = exactly(found, tries, share)
        covered += chance * (got.low <= tries - found <= got.high)
        mean += chance * got.others
    assert covered >= 0.95 - 1e-9
    # Unbiased: on the average what it says is what there is.
    assert tries * (1 - share) == pytest.approx(mean, rel=1e-9, abs=1e-12)


def test_a_whole_sample_leaves_nothing_to_guess() -> None:
    assert (17, 0.0, 0, 0) == (lambda e: (e.found, e.others, e.low, e.high))(estimate(17, 1.0))


def test_large_counts_have_the_bounds_of_the_normal_approximation() -> None:
    found, share = 1_000_000, 0.001
    got = estimate(found, share)
    spread = 1.96 * math.sqrt(found * (1 - share))
    assert (found - spread) / share - found == pytest.approx(got.low, rel=1e-5)
    assert (found + spread) / share - found == pytest.approx(got.high, rel=1e-5)


def test_more_confidence_is_a_wider_interval() -> None:
    wide, narrow = estimate(10, 0.01, 0.999), estimate(10, 0.01, 0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


@given(found=st.integers(0, 5000), share=st.floats(1e-9, 1, exclude_min=True))
def test_the_estimate_lies_between_its_bounds(found: int, share: float) -> None:
    got = estimate(found, share)
    assert 0 <= got.low <= got.others + 1
    # At an integer T the estimate can lie between two of them.
    assert got.others <= got.high + 1
