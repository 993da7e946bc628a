"""Does a full filter grow, say so, keep its rate, and go on over-full when it cannot?"""

from __future__ import annotations

import errno
import itertools
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from conftest import Python
from hypothesis import given
from hypothesis import strategies as st

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counters import layout_called
from scrapy_bloomdupe.filters.growth import Growth, first_layer, next_layer
from scrapy_bloomdupe.filters.header import HEADER_SIZE, MAX_LAYERS, Header
from scrapy_bloomdupe.filters.mapped import MappedFile

LAYOUTS = ["classic", "counting", "paged"]


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def create(path: Path, layout: str, capacity: int = 100, error_rate: float = 1e-6) -> BloomFilter:
    return BloomFilter.create(path, capacity=capacity, error_rate=error_rate, layout=layout)


def header_of(layout: str, capacity: int, error_rate: float) -> Header:
    first = first_layer(layout_called(layout), capacity, error_rate)
    return Header("murmur3", layout, bytes(16), bytes(32), 0, capacity, error_rate, (first,), {}, clean=True)


def grown(header: Header, num_layers: int) -> Header:
    while len(header.layers) < num_layers:
        layer = next_layer(header, layout_called(header.layout))
        header = replace(header, layers=(*header.layers, layer))
    return header


@given(st.sampled_from(LAYOUTS), st.integers(1, 10**9), st.floats(1e-9, 0.5), st.integers(2, 20))
def test_the_layers_together_keep_the_rate_however_many_there_are(
    layout: str, capacity: int, error_rate: float, num_layers: int
) -> None:
    header = grown(header_of(layout, capacity, error_rate), num_layers)
    found = layout_called(layout)
    rates = [found.rate_at(one.num_bits, one.num_hashes, one.capacity) for one in header.layers]
    # The first layer's own rate, and what the others were asked for, are a sum that the promise allows.
    assert 1.1 * error_rate >= rates[0] + sum(one.error_rate for one in header.layers[1:])
    assert [True] * (num_layers - 1) == [
        rate <= one.error_rate for rate, one in zip(rates[1:], header.layers[1:], strict=True)
    ]
    assert 1.1 * error_rate >= sizing.combined_error_rate(rates)


def test_layers_double_and_their_rates_fall_by_a_fifth() -> None:
    # Almeida 2007, section 4.
    layers = grown(header_of("paged", 10**6, 0.001), 24).layers
    assert [10**6 * 2**number for number in range(24)] == [one.capacity for one in layers]
    rates = [one.error_rate for one in layers]
    assert rates[0] == 0.001
    assert [0.8] * 22 == pytest.approx([two / one for one, two in itertools.pairwise(rates[1:])])
    # A fifth of what the first layer leaves is for the second.
    left = 0.001 - layout_called("paged").rate_at(layers[0].num_bits, layers[0].num_hashes, 10**6)
    assert 0.2 * left == pytest.approx(rates[1])


def test_no_layer_is_made_for_more_than_a_filter_may_hold() -> None:
    layers = grown(header_of("classic", 6 * 10**12, 0.001), 4).layers
    assert [6 * 10**12, 10**13, 10**13, 10**13] == [one.capacity for one in layers]


@given(st.sampled_from(LAYOUTS), st.integers(1, 10**13), st.floats(1e-12, 0.999_999))
def test_no_layer_lies_on_another_one(layout: str, capacity: int, error_rate: float) -> None:
    layers = grown(header_of(layout, capacity, error_rate), 5).layers
    assert HEADER_SIZE == layers[0].offset
    for before, after in itertools.pairwise(layers):
        assert before.end <= after.offset < before.end + HEADER_SIZE
        assert 0 == after.offset % HEADER_SIZE


def test_a_header_that_is_full_of_layers_takes_no_more() -> None:
    header = grown(header_of("classic", 10, 0.01), MAX_LAYERS)
    with pytest.raises(
        ConfigurationError, match="has 58 layers and can hold no more; run `bloomdupe rebuild`"
    ):
        next_layer(header, layout_called("classic"))
    assert HEADER_SIZE == len(header.pack())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("fixed_secret")
def test_a_filter_grows_with_the_key_that_fills_it(tmp_path: Path, layout: str) -> None:
    events: list[Growth] = []
    found = create(tmp_path / "seen.bloom", layout)
    found.on_growth = events.append
    for number in range(99):
        found.add(key(number))
    assert ([], 1) == (events, found.num_layers)
    found.add(key(99))
    (event,) = events
    assert (2, 100, 300, None) == (event.layers, event.num_keys, event.capacity, event.error)
    assert 0 < event.rate < 1e-6
    for number in range(100, 701):
        found.add(key(number))
    assert [2, 3, 4] == [event.layers for event in events]
    assert [100, 300, 700] == [event.num_keys for event in events]
    assert [300, 700, 1500] == [event.capacity for event in events]
    info = found.info()
    assert [100, 200, 400, 800] == [layer.capacity for layer in info.layers]
    assert [100, 200, 400, 1] == [layer.num_keys for layer in info.layers]
    found.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("fixed_secret")
def test_a_grown_filter_is_found_again_and_grows_on(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "seen.bloom"
    found = create(path, layout)
    for number in range(1000):
        found.add(key(number))
    before = found.info()
    found.close()
    again = BloomFilter.open(path)
    assert before.layers == again.info().layers
    assert [True] * 1000 == [key(number) in again for number in range(1000)]
    assert [True] * 1000 == [again.add(key(number)) for number in range(1000)]
    added = sum(not again.add(key(number)) for number in range(1000, 2000))
    assert (before.num_keys + added, 5) == (again.num_keys, again.num_layers)
    assert [True] * 2000 == [key(number) in again for number in range(2000)]
    again.close()


def no_space(self: MappedFile, size: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("fixed_secret")
def test_a_filter_that_cannot_grow_goes_on_over_full_and_grows_when_it_can(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "seen.bloom"
    events: list[Growth] = []
    found = create(path, layout, capacity=1000)
    found.on_growth = events.append
    size = path.stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "reserve", no_space)
        for number in range(1055):
            assert not found.add(key(number))
        # It tries again with every hundredth of its capacity, not with every key.
        assert [1000, 1010, 1020, 1030, 1040, 1050] == [event.num_keys for event in events]
        assert {1} == {event.layers for event in events}
        assert {errno.ENOSPC} == {getattr(event.error, "errno", None) for event in events}
        rates = [event.rate for event in events]
        assert sorted(set(rates)) == rates
        assert size == path.stat().st_size
        found.flush()
    for number in range(1055, 1100):
        found.add(key(number))
    assert (2, 1060, None) == (events[-1].layers, events[-1].num_keys, events[-1].error)
    assert 7 == len(events)
    assert [True] * 1100 == [key(number) in found for number in range(1100)]
    found.close()
    again = BloomFilter.open(path)
    assert [1060, 40] == [layer.num_keys for layer in again.info().layers]
    assert [True] * 1100 == [key(number) in again for number in range(1100)]
    again.close()


@pytest.mark.usefixtures("fixed_secret")
def test_an_over_full_filter_that_is_opened_anew_grows_with_its_next_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "seen.bloom"
    found = create(path, "paged")
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "reserve", no_space)
        for number in range(150):
            found.add(key(number))
    found.close()
    again = BloomFilter.open(path)
    assert (150, 1) == (again.num_keys, again.num_layers)
    again.add(key(150))
    assert (151, 2) == (again.num_keys, again.num_layers)
    assert [True] * 151 == [key(number) in again for number in range(151)]
    again.close()


_GROW_ON_A_FULL_DISK = """
from scrapy_bloomdupe.filters.bloom import BloomFilter

found = BloomFilter.create("seen.bloom", capacity=100, error_rate=1e-9, layout=sys.argv[1])
size = os.path.getsize("seen.bloom")
limit_files(size)
events = []
found.on_growth = events.append
for number in range(150):
    found.add(key(number))
assert all(key(number) in found for number in range(150))
assert size == os.path.getsize("seen.bloom")
print(type(events[0].error).__name__, events[0].error, len(events))
limit_files(resource.RLIM_INFINITY)
found.add(key(150))
print(found.num_layers)
found.close()
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_full_disk_is_an_event_and_not_the_end_of_the_process(
    tmp_path: Path, layout: str, python: Python
) -> None:
    done = python(_GROW_ON_A_FULL_DISK, layout)
    assert (0, "") == (done.returncode, done.stderr)
    assert ["OSError [Errno 27] File too large 51", "2"] == done.stdout.splitlines()
    again = BloomFilter.open(tmp_path / "seen.bloom")
    assert [True] * 151 == [key(number) in again for number in range(151)]
    again.close()
