"""Does a counting filter forget what it is told to, and nothing else?"""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
from collections import Counter
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.filters.base import Filter, RemovingFilter
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counters import COUNTING, WIDTH, CountingLayer
from scrapy_bloomdupe.filters.counting import CountingFilter, open_filter
from scrapy_bloomdupe.filters.layouts import PAGE_BITS, PAGE_BYTES

DATA = Path(__file__).parent / "data"
PAGE = WIDTH * PAGE_BYTES


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.bloom"


def create(path: Path, capacity: int = 1000, error_rate: float = 1e-9) -> CountingFilter:
    return CountingFilter.create(path, capacity=capacity, error_rate=error_rate)


def probe(*positions: int, page: int = 0) -> bytes:
    return struct.pack(f"<I{len(positions)}H", page, *positions)


def counters(memory: bytes | bytearray, page: int = 0) -> Counter[int]:
    """The counters that are not 0, read as the docstring of the module says."""
    planes = [
        int.from_bytes(memory[page * PAGE + i * PAGE_BYTES : page * PAGE + (i + 1) * PAGE_BYTES], "little")
        for i in range(WIDTH)
    ]
    found: Counter[int] = Counter()
    for weight, plane in enumerate(planes):
        while plane:
            low = plane & -plane
            found[low.bit_length() - 1] += 1 << weight
            plane ^= low
    return found


def test_it_is_a_filter_that_can_forget_and_others_cannot(path: Path, tmp_path: Path) -> None:
    found = create(path)
    assert isinstance(found, Filter)
    assert isinstance(found, RemovingFilter)
    found.close()
    plain = BloomFilter.create(tmp_path / "plain", capacity=10, error_rate=0.1)
    assert not isinstance(plain, RemovingFilter)
    plain.close()


def test_the_counters_of_a_key_lie_in_four_planes_of_one_page() -> None:
    memory = bytearray(3 * PAGE)
    layer = COUNTING.layer(memoryview(memory), 3 * PAGE_BITS, 3)
    # Page 5 mod 3 is 2; positions 1, 0x1234 and 0xFFFF; what follows is for layers of more hashes.
    one = bytes.fromhex("05000000 0100 3412 ffff 7777 0000")
    for times in range(1, 4):
        layer.set(one)
        assert {1: times, 0x1234: times, 0xFFFF: times} == counters(memory, page=2)
    # 3 is bits 0 and 1: a bit in each of the first two planes.
    assert [2, 2] == [memory[2 * PAGE + plane * PAGE_BYTES] for plane in (0, 1)]
    assert bytes(2 * PAGE) == memory[: 2 * PAGE]
    assert bytes(2 * PAGE_BYTES) == memory[2 * PAGE + 2 * PAGE_BYTES :]
    layer.release()


def test_a_position_that_a_key_has_twice_is_counted_once() -> None:
    memory = bytearray(PAGE)
    layer = COUNTING.layer(memoryview(memory), PAGE_BITS, 4)
    layer.set(probe(7, 7, 7, 9))
    assert {7: 1, 9: 1} == counters(memory)
    assert layer.take(probe(7, 7, 7, 9))
    assert {} == counters(memory)
    layer.release()


def test_a_counter_that_is_full_stays_full() -> None:
    memory = bytearray(PAGE)
    layer = COUNTING.layer(memoryview(memory), PAGE_BITS, 2)
    for _ in range(40):
        layer.set(probe(1, 2))
    layer.set(probe(2, 3))
    assert {1: 15, 2: 15, 3: 1} == counters(memory)
    for _ in range(40):
        assert layer.take(probe(1, 2))
    assert layer.take(probe(2, 3))
    assert not layer.take(probe(2, 3))
    assert {1: 15, 2: 15} == counters(memory)
    layer.release()


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), min_size=3, max_size=3)), max_size=150))
def test_counters_are_those_of_a_plain_count(steps: list[tuple[bool, list[int]]]) -> None:
    memory = bytearray(PAGE)
    layer = COUNTING.layer(memoryview(memory), PAGE_BITS, 3)
    plain: dict[int, int] = dict.fromkeys(range(10), 0)
    for adds, positions in steps:
        there = all(plain[at] for at in positions)
        assert there == layer.test(probe(*positions))
        if adds:
            layer.set(probe(*positions))
            plain |= {at: min(15, plain[at] + 1) for at in set(positions)}
        else:
            assert there == layer.take(probe(*positions))
            if there:
                plain |= {at: plain[at] - (plain[at] < 15) for at in set(positions)}
        assert +Counter(plain) == counters(memory)
    assert sum(map(bool, plain.values())) / PAGE_BITS == layer.fill(1)
    layer.release()


class Dying:
    """A plane whose process dies when it is to write for the last time."""

    def __init__(self, plane: Any, left: list[int]) -> None:
        self.plane, self.left = plane, left

    def __getitem__(self, positions: list[int]) -> Any:
        return self.plane[positions]

    def __setitem__(self, positions: list[int], bits: Any) -> None:
        # As a process does that is killed: some of the bits are written and others are not.
        for at, bit in zip(positions, bits, strict=True):
            if not self.left[0]:
                raise KeyboardInterrupt
            self.left[0] -= 1
            self.plane[at] = bit


@pytest.mark.parametrize("takes", [False, True])
@pytest.mark.parametrize("start", range(1, 16))
@pytest.mark.parametrize("writes", range(9))
def test_an_end_between_two_bits_leaves_too_much_and_never_too_little(
    takes: bool, start: int, writes: int
) -> None:
    memory = bytearray(PAGE)
    layer = COUNTING.layer(memoryview(memory), PAGE_BITS, 2)
    for _ in range(start):
        layer.set(probe(1, 2))
    planes = layer._view(0)
    layer._views[0] = [Dying(plane, left) for left in [[writes]] for plane in planes]  # type: ignore[misc]
    with contextlib.suppress(KeyboardInterrupt):
        (layer.take if takes else layer.set)(probe(1, 2))
    # Of what was set before none but that which is being taken may be missing.
    least = start - 1 if takes else start
    assert all(counters(memory)[at] >= least for at in (1, 2))
    layer.release()


def test_what_is_removed_is_new_again_and_others_are_not(path: Path, fixed_secret: None) -> None:
    found = create(path)
    for number in range(1000):
        assert not found.add(key(number))
    for number in range(0, 1000, 2):
        assert found.remove(key(number))
    assert [number % 2 == 1 for number in range(1000)] == [key(number) in found for number in range(1000)]
    assert 500 == found.num_keys
    assert not found.add(key(0))
    assert found.add(key(0))
    assert found.remove(key(0))  # added twice, counted once
    assert key(0) not in found
    found.close()


def test_what_is_certainly_not_in_is_not_removed(path: Path, fixed_secret: None) -> None:
    found = create(path)
    found.add(key(1))
    before = path.read_bytes()
    assert not found.remove(key(2))
    assert (1, before) == (found.num_keys, path.read_bytes())
    assert found.remove(key(1))
    assert not found.remove(key(1))
    assert 0 == found.num_keys
    found.close()


@pytest.mark.parametrize(("capacity", "layers"), [(40_500, 1), (10_000, 3)])
def test_after_a_hundred_thousand_adds_and_removes_no_kept_key_is_missing(
    path: Path,
    million_keys: list[bytes],
    other_keys: list[bytes],
    fixed_secret: None,
    capacity: int,
    layers: int,
) -> None:
    rng = random.Random(1)
    found = create(path, capacity, 0.01)
    kept: list[bytes] = []
    fresh = iter(million_keys)
    adds = removes = refused = 0
    while adds + removes < 200_000:
        if not kept or rng.random() < 0.6:
            one = next(fresh)
            adds += 1
            # A false positive is not counted, so it is nothing that could be removed.
            if not found.add(one):
                kept.append(one)
        else:
            at = rng.randrange(len(kept))
            kept[at], kept[-1] = kept[-1], kept[at]
            removes += 1
            if not found.remove(kept[-1]):
                refused += 1
            else:
                kept.pop()
    assert adds > 100_000
    assert removes > 70_000
    assert all(one in found for one in kept)
    assert (layers, len(kept)) == (found.num_layers, found.num_keys)
    # Only where more than one layer says that it has the key, and no more often than the rate allows.
    assert refused <= (0.01 * removes if layers > 1 else 0)
    wrong = sum(one in found for one in other_keys[:100_000])
    assert wrong <= 1.1 * 0.01 * 100_000
    for one in kept:
        found.remove(one)
    # Nothing is left but counters that were full, or that two layers claim.
    assert found.info().fill < 0.001 * layers
    found.close()


@pytest.mark.parametrize(("error_rate", "sample"), [(1e-2, 100_000), (1e-3, 200_000)])
def test_a_filter_of_which_half_was_removed_keeps_the_rate_at_its_capacity(
    path: Path,
    million_keys: list[bytes],
    other_keys: list[bytes],
    fixed_secret: None,
    error_rate: float,
    sample: int,
) -> None:
    found = create(path, 50_001, error_rate)
    in_it = [one for one in million_keys[:50_000] if not found.add(one)]
    gone = in_it[::2]
    assert all(found.remove(one) for one in gone)
    rest = in_it[1::2] + [one for one in million_keys[50_000 : 50_000 + len(gone)] if not found.add(one)]
    assert 1 == found.num_layers
    assert all(one in found for one in rest)
    assert sum(one in found for one in other_keys[:sample]) <= 1.1 * error_rate * sample
    # Four times a plain one of the same values.
    plain = 1.1 * sizing.optimal_num_bits(50_000, error_rate) / 8
    assert path.stat().st_size <= 4 * plain + 4 * PAGE_BYTES + 4096
    found.close()


def test_in_a_filter_of_several_layers_the_one_that_has_the_key_loses_it(
    path: Path, fixed_secret: None
) -> None:
    found = create(path, 100)
    for number in range(500):
        found.add(key(number))
    assert [100, 200, 200] == [layer.num_keys for layer in found.info().layers]
    for number in (*range(10), *range(150, 170), *range(400, 440)):
        assert found.remove(key(number))
    assert [90, 180, 160] == [layer.num_keys for layer in found.info().layers]
    found.flush()
    beside = CountingFilter.open(path, readonly=True)
    assert [90, 180, 160] == [layer.num_keys for layer in beside._header.layers]
    beside.close()
    found.remove(key(20))
    found.close()
    again = CountingFilter.open(path)
    assert ([89, 180, 160], 429) == ([layer.num_keys for layer in again._header.layers], again.num_keys)
    assert [number not in (*range(10), 20) for number in range(100)] == [key(n) in again for n in range(100)]
    # There is room in the newest layer again.
    for number in range(1000, 1239):
        again.add(key(number))
    assert 3 == again.num_layers
    again.add(key(1239))
    assert 4 == again.num_layers
    again.close()


def test_a_key_that_two_layers_claim_is_left_in_both(path: Path, fixed_secret: None) -> None:
    found = create(path, 10)
    for number in range(11):
        found.add(key(number))
    found._newest.set(found._probe(key(3)))  # as if others had set the same
    assert not found.remove(key(3))
    assert key(3) in found
    assert 11 == found.num_keys
    found.close()


def test_after_an_unclean_end_what_was_removed_is_removed(
    path: Path, tmp_path: Path, fixed_secret: None
) -> None:
    found = create(path, 20_000, 1e-6)
    for number in range(10_000):
        found.add(key(number))
    found.flush()
    for number in range(9_000):
        found.remove(key(number))
    copy = Path(shutil.copy(path, tmp_path / "copy"))
    found.close()
    # The header counts ten times what is there: that is no damage.
    again = CountingFilter.open(copy)
    assert not again.was_clean
    assert 1_000 == pytest.approx(again.num_keys, rel=0.02)
    assert [False] * 9_000 + [True] * 1_000 == [key(number) in again for number in range(10_000)]
    again.close()


def test_after_an_end_in_order_bits_that_were_zeroed_are_refused(path: Path, fixed_secret: None) -> None:
    found = create(path)
    for number in range(1000):
        found.add(key(number))
    found.close()
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    with pytest.raises(StateCorrupt, match="its header counts 1000 keys in a layer, which sets"):
        open_filter(path)


def test_a_file_is_opened_as_what_it_is(tmp_path: Path) -> None:
    for layout in ("classic", "paged", "counting"):
        path = Path(shutil.copy(DATA / f"seen-v1-{layout}.bloom", tmp_path / layout))
        found = open_filter(path, begin=False)
        assert (layout == "counting") is isinstance(found, CountingFilter)
        assert layout == found.layout
        found.abandon()
    # What is no filter is refused by whoever reads it.
    (tmp_path / "short").write_bytes(b"short")
    with pytest.raises(StateCorrupt, match="the file has 5 bytes"):
        open_filter(tmp_path / "short")
    with pytest.raises(FileNotFoundError):
        open_filter(tmp_path / "missing")


def test_a_key_of_the_stored_file_can_be_removed(tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / "seen-v1-counting.bloom", tmp_path / "seen.bloom"))
    keys = [sha1(b"https://shop.example/item/%d" % number).digest() for number in range(2100)]
    found = CountingFilter.open(path)
    # 99 others were added and removed when it was made.
    assert 0 == sum(one in found for one in keys[2000:])
    assert all(found.remove(one) for one in keys[:500:5])
    assert [number % 5 > 0 for number in range(500)] == [one in found for one in keys[:500]]
    found.close()


def test_a_layer_counts_pages_apart(fixed_secret: None) -> None:
    memory = bytearray(2 * PAGE)
    layer = CountingLayer(memoryview(memory), 2 * PAGE_BITS, 2)
    layer.set(probe(1, 2, page=0))
    assert not layer.test(probe(1, 2, page=1))
    assert not layer.take(probe(1, 2, page=1))
    assert layer.test(probe(1, 2, page=2))
    layer.release()
