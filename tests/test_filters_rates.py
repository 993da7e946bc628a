"""Does a filter keep its promise: no more than 1.1 times the asked false positives, at no more than its size?

Keys and secrets are fixed, so a figure is the same in every run and the bounds need no room for chance: 1.1
times the asked rate at capacity, the asked rate itself after growth. By the binomial distribution a filter
whose true rate is 1.5 times the asked one has a probability below 1e-3 to stay under the bound with the
smallest samples here (100 false positives at the asked rate).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.filters.bloom import BloomFilter

pytestmark = pytest.mark.usefixtures("fixed_secret")


def fill(path: Path, keys: list[bytes], layout: str, scheme: str, error_rate: float) -> BloomFilter:
    """Return a filter at its capacity: the last key is the one before it grows."""
    found = BloomFilter.create(
        path, capacity=len(keys) + 1, error_rate=error_rate, layout=layout, scheme=scheme
    )
    for key in keys:
        found.add(key)
    assert 1 == found.num_layers
    return found


def false_positives(found: BloomFilter, keys: list[bytes]) -> int:
    return sum(key in found for key in keys)


@pytest.mark.parametrize(("error_rate", "sample"), [(1e-2, 100_000), (1e-3, 200_000), (1e-4, 1_000_000)])
@pytest.mark.parametrize(("layout", "most"), [("classic", 1.06), ("paged", 1.10)])
def test_a_million_keys_keep_the_rate_and_the_size(
    tmp_path: Path,
    million_keys: list[bytes],
    other_keys: list[bytes],
    layout: str,
    most: float,
    error_rate: float,
    sample: int,
) -> None:
    found = fill(tmp_path / "seen.bloom", million_keys, layout, "murmur3", error_rate)
    wrong = false_positives(found, other_keys[:sample])
    assert 1.1 * error_rate * sample >= wrong
    # The figure that it gives of itself is right, too: five deviations have a probability below 1e-6.
    expected = found.info().error_rate_estimate * sample
    assert expected == pytest.approx(wrong, abs=5 * expected**0.5)
    found.close()
    formula = sizing.optimal_num_bits(1_000_000, error_rate) / 8
    assert formula <= (tmp_path / "seen.bloom").stat().st_size <= most * formula


@pytest.mark.parametrize("scheme", ["blake2b", "fnv1a"])
@pytest.mark.parametrize("layout", ["classic", "paged"])
@pytest.mark.parametrize(("error_rate", "sample"), [(1e-2, 40_000), (1e-3, 100_000)])
def test_the_other_schemes_keep_the_rate(
    tmp_path: Path,
    million_keys: list[bytes],
    other_keys: list[bytes],
    layout: str,
    scheme: str,
    error_rate: float,
    sample: int,
) -> None:
    found = fill(tmp_path / "seen.bloom", million_keys[:50_000], layout, scheme, error_rate)
    assert 1.1 * error_rate * sample >= false_positives(found, other_keys[:sample])
    found.close()


@pytest.mark.parametrize("scheme", ["blake2b", "fnv1a", "murmur3"])
def test_a_number_of_pages_that_is_a_power_of_two_keeps_the_rate(
    tmp_path: Path, million_keys: list[bytes], other_keys: list[bytes], scheme: str
) -> None:
    # The page is then the low bits of the digest alone; they must not tell the positions.
    found = fill(tmp_path / "seen.bloom", million_keys[:51_000], "paged", scheme, 0.01)
    assert 8 * 65_536 == found.info().layers[0].num_bits
    assert 1.1 * 0.01 * 40_000 >= false_positives(found, other_keys[:40_000])
    found.close()


@pytest.mark.parametrize("layout", ["classic", "paged"])
def test_a_small_filter_keeps_a_low_rate(
    tmp_path: Path, million_keys: list[bytes], other_keys: list[bytes], layout: str
) -> None:
    # Of a small array double hashing knows m^2 progressions only, so that one key alone can have all the
    # positions of another one.
    found = fill(tmp_path / "seen.bloom", million_keys[:100], layout, "murmur3", 1e-4)
    assert 1.1 * 1e-4 * 300_000 >= false_positives(found, other_keys[:300_000])
    found.close()


@pytest.mark.parametrize(("layout", "capacity"), [("classic", 10_000), ("paged", 20_000)])
def test_ten_times_the_capacity_keeps_the_rate(
    tmp_path: Path, million_keys: list[bytes], other_keys: list[bytes], layout: str, capacity: int
) -> None:
    found = BloomFilter.create(
        tmp_path / "seen.bloom", capacity=capacity, error_rate=0.01, layout=layout, scheme="murmur3"
    )
    for key in million_keys[: 10 * capacity]:
        found.add(key)
    # 1 + 2 + 4 + 8 times the capacity hold it.
    assert 4 == found.num_layers
    assert 0.01 * 100_000 >= false_positives(found, other_keys[:100_000])
    assert 0.01 >= found.info().error_rate_estimate
    assert all(key in found for key in million_keys[: 10 * capacity])
    found.close()
