"""Do positions lie where the layout's frozen name says, evenly and independently of each other?"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from hashlib import sha1
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.layouts import LAYOUTS, PAGE_BITS, PAGE_BYTES, Layer, get_layout
from scrapy_bloomdupe.hashing import SCHEMES, double_hash, get_scheme

SECRET = bytes(range(32))


def set_bits(memory: bytes | bytearray) -> list[int]:
    return [at for at in range(8 * len(memory)) if memory[at // 8] >> at % 8 & 1]


def chi_square(counts: Counter[Any], cells: int, total: int) -> float:
    expected = total / cells
    return sum(count * count for count in counts.values()) / expected - total


def bound(cells: int) -> float:
    # Mean and deviation of chi-square; seven deviations are exceeded with a probability below 1e-9. The
    # keys and the secret are fixed, so what holds once holds always.
    freedom = cells - 1
    return freedom + 7 * (2 * freedom) ** 0.5


def positions_of(layout: str, scheme: str, count: int) -> Iterable[tuple[int, ...]]:
    """Give (page, k positions) or the k positions of *count* keys, k = 10."""
    probe = get_layout(layout).probe_function(get_scheme(scheme), SECRET, 10)
    for number in range(count):
        found = probe(sha1(b"%d" % number).digest())
        if layout == "classic":
            yield tuple(double_hash(found[0], found[1], 10, 1_437_761))
        else:
            cut = [int.from_bytes(found[at : at + 2], "little") for at in range(4, 24, 2)]
            yield (int.from_bytes(found[:4], "little"), *cut)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_classic_positions_are_even_by_chi_square(scheme: str) -> None:
    found = list(positions_of("classic", scheme, 20_000))
    for place in range(10):
        counts = Counter(positions[place] * 256 // 1_437_761 for positions in found)
        assert bound(256) > chi_square(counts, 256, 20_000), place


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_paged_positions_are_even_by_chi_square(scheme: str) -> None:
    found = list(positions_of("paged", scheme, 20_000))
    for place in range(11):
        for shift in (0, 8):  # low and high byte
            counts = Counter(one[place] >> shift & 255 for one in found)
            assert bound(256) > chi_square(counts, 256, 20_000), (place, shift)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_the_page_says_nothing_of_the_positions_in_it(scheme: str) -> None:
    # Low bits matter: a number of pages that is a power of two takes the page from them alone.
    found = list(positions_of("paged", scheme, 40_000))
    for place in range(1, 11):
        for shift in (0, 12):
            counts = Counter((one[0] & 15, one[place] >> shift & 15) for one in found)
            assert bound(256) > chi_square(counts, 256, 40_000), (place, shift)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_two_positions_of_a_key_are_independent_of_each_other(scheme: str) -> None:
    found = list(positions_of("paged", scheme, 20_000))
    for one, two in itertools.combinations(range(1, 11), 2):
        counts = Counter((positions[one] >> 12, positions[two] >> 12) for positions in found)
        assert bound(256) > chi_square(counts, 256, 20_000), (one, two)
    found = list(positions_of("classic", scheme, 20_000))
    for one, two in itertools.combinations(range(10), 2):
        counts = Counter(
            (positions[one] * 16 // 1_437_761, positions[two] * 16 // 1_437_761) for positions in found
        )
        assert bound(256) > chi_square(counts, 256, 20_000), (one, two)


def test_the_layouts_keep_their_names() -> None:
    assert {"classic": "classic", "paged": "paged"} == {name: one.name for name, one in LAYOUTS.items()}


def test_a_classic_key_sets_the_bits_of_double_hashing() -> None:
    memory = bytearray(2_000)
    layer = get_layout("classic").layer(memoryview(memory), 15_991, 7)
    layer.set((12_345, 678_910))
    assert sorted((12_345 + i * 678_910) % 15_991 for i in range(7)) == set_bits(memory)
    layer.release()


def test_a_paged_key_sets_sixteen_bit_positions_of_one_page() -> None:
    memory = bytearray(3 * PAGE_BYTES)
    layer = get_layout("paged").layer(memoryview(memory), 3 * PAGE_BITS, 3)
    # Page 5 mod 3 is 2; positions 1, 0x1234 and 0xFFFF; what follows is for layers of more hashes.
    layer.set(bytes.fromhex("05000000 0100 3412 ffff 7777 0000"))
    start = 2 * PAGE_BITS
    assert [start + 1, start + 0x1234, start + 0xFFFF] == set_bits(memory)
    layer.release()


def make_layer(layout: str, num_hashes: int = 7) -> tuple[bytearray, Layer, Any]:
    memory = bytearray(4 * PAGE_BYTES)
    num_bits = 4 * PAGE_BITS if layout == "paged" else 4 * PAGE_BITS - 5
    found = get_layout(layout)
    probe = found.probe_function(get_scheme("murmur3"), SECRET, num_hashes)
    return memory, found.layer(memoryview(memory), num_bits, num_hashes), probe


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_asking_sets_nothing_and_setting_says_what_was_there(layout: str) -> None:
    memory, layer, probe = make_layer(layout)
    one, two, three = (probe(sha1(text).digest()) for text in (b"one", b"two", b"three"))
    assert not layer.test(one)
    assert bytes(len(memory)) == memory
    assert not layer.test_and_set(one)
    assert layer.test_and_set(one)
    assert layer.test(one)
    layer.set(two)
    assert layer.test(two)
    assert not layer.test(three)
    layer.release()


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_the_fill_is_the_share_of_set_bits(layout: str) -> None:
    memory, layer, probe = make_layer(layout)
    for number in range(3_000):
        layer.set(probe(sha1(b"%d" % number).digest()))
    exact = len(set_bits(memory)) / (4 * PAGE_BITS)
    assert exact == pytest.approx(layer.fill(100), rel=1e-4)
    # Half of the pages say the same within some percent; the keys and the secret are fixed.
    assert exact == pytest.approx(layer.fill(2), rel=0.05)
    layer.release()


@given(st.integers(1, 10**13), st.floats(1e-12, 0.999), st.floats(1.0, 1.05))
def test_paged_sizes_are_whole_pages_and_no_smaller_than_asked(
    capacity: int, error_rate: float, slack: float
) -> None:
    formula = sizing.size_for(capacity, error_rate, slack)
    paged = get_layout("paged").size_for(capacity, error_rate, slack)
    assert 0 == paged.num_bits % PAGE_BITS
    assert formula.num_bits <= paged.num_bits < formula.num_bits + PAGE_BITS
    assert formula.num_hashes == paged.num_hashes


@given(st.integers(1, 10**13), st.floats(1e-12, 0.999), st.floats(1.0, 1.05))
def test_classic_sizes_have_no_small_prime_and_are_no_smaller_than_asked(
    capacity: int, error_rate: float, slack: float
) -> None:
    formula = sizing.size_for(capacity, error_rate, slack)
    classic = get_layout("classic").size_for(capacity, error_rate, slack)
    assert formula.num_bits <= classic.num_bits
    assert [] == [prime for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29) if classic.num_bits % prime == 0]
    assert formula.num_hashes == classic.num_hashes


@pytest.mark.parametrize(("num_hashes", "size"), [(1, 16), (6, 16), (7, 32), (14, 32), (15, 48), (30, 64)])
def test_a_paged_probe_is_as_long_as_its_positions_need(num_hashes: int, size: int) -> None:
    probe = get_layout("paged").probe_function(get_scheme("murmur3"), SECRET, num_hashes)
    assert size == len(probe(bytes(20)))


def test_an_unknown_layout_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as caught:
        get_layout("spiral")
    assert "layout='spiral' is not known; take one of classic, paged" == str(caught.value)
