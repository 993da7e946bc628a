"""What is left of a filter whose process ended in the middle of its work?"""

from __future__ import annotations

import shutil
from hashlib import sha1
from pathlib import Path

import pytest
from conftest import StartPython

from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.header import unpack

LAYOUTS = ["classic", "counting", "paged"]


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_keys", [200, 5_000, 95_000])
@pytest.mark.usefixtures("fixed_secret")
def test_after_an_unclean_end_the_keys_are_counted_by_the_bits(
    tmp_path: Path, layout: str, num_keys: int
) -> None:
    path, copy = tmp_path / "seen.bloom", tmp_path / "copy.bloom"
    found = BloomFilter.create(path, capacity=100_000, error_rate=0.001, layout=layout)
    for number in range(num_keys):
        found.add(key(number))
    # What a killed process would leave: the bits of the mapped file, and the header of the creation.
    shutil.copy(path, copy)
    found.close()
    again = BloomFilter.open(copy)
    assert not again.was_clean
    assert not again.info().clean
    # The estimate's deviation is below 0.4 % here; the secret and the keys are fixed.
    assert num_keys == pytest.approx(again.num_keys, rel=0.02)
    assert all(key(number) in again for number in range(num_keys))
    again.close()
    assert BloomFilter.open(copy, readonly=True).was_clean


@pytest.mark.usefixtures("fixed_secret")
def test_the_count_of_the_last_flush_is_a_lower_bound(tmp_path: Path) -> None:
    path, copy = tmp_path / "seen.bloom", tmp_path / "copy.bloom"
    found = BloomFilter.create(path, capacity=100_000, error_rate=0.001)
    for number in range(5_000):
        found.add(key(number))
    found.flush()
    shutil.copy(path, copy)
    found.close()
    again = BloomFilter.open(copy)
    assert 5_000 <= again.num_keys <= 5_100
    again.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("fixed_secret")
def test_a_grown_filter_counts_its_newest_layer_by_the_bits(tmp_path: Path, layout: str) -> None:
    path, copy = tmp_path / "seen.bloom", tmp_path / "copy.bloom"
    found = BloomFilter.create(path, capacity=10_000, error_rate=0.001, layout=layout)
    for number in range(22_000):
        found.add(key(number))
    shutil.copy(path, copy)
    found.close()
    again = BloomFilter.open(copy)
    oldest, newest = (layer.num_keys for layer in again.info().layers)
    assert 10_000 == oldest
    assert 12_000 == pytest.approx(newest, rel=0.02)
    again.close()


_ADD_AND_SAY_SO = """
from scrapy_bloomdupe.filters.bloom import BloomFilter

found = BloomFilter.create("seen.bloom", capacity=500, error_rate=1e-6, layout=sys.argv[1])
for number in range(10**9):
    found.add(key(number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_acknowledged_key_survives_kill_9(
    tmp_path: Path, layout: str, start_python: StartPython
) -> None:
    process = start_python(_ADD_AND_SAY_SO, layout)
    assert process.stdout is not None
    # Past two growths, at no moment in particular.
    for line in process.stdout:
        if int(line) == 3_000:
            break
    process.kill()
    rest = process.stdout.read()
    assert -9 == process.wait()
    # The last line may be torn: what it would have said was not acknowledged.
    acknowledged = 3_001 + rest.count("\n")
    again = BloomFilter.open(tmp_path / "seen.bloom")
    assert not again.was_clean
    assert again.num_layers >= 3
    assert all(key(number) in again for number in range(acknowledged))
    again.close()


def test_abandoning_leaves_the_file_unclean(tmp_path: Path) -> None:
    path = tmp_path / "seen.bloom"
    found = BloomFilter.create(path, capacity=100, error_rate=0.01)
    found.add(key(1))
    found.abandon()
    found.close()  # nothing is left to close
    again = BloomFilter.open(path)
    assert not again.was_clean
    assert key(1) in again
    again.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("fixed_secret")
def test_a_body_of_zeros_under_a_header_that_counts_keys_is_refused(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "seen.bloom"
    found = BloomFilter.create(path, capacity=1000, error_rate=0.001, layout=layout)
    for number in range(900):
        found.add(key(number))
    found.close()
    whole = path.read_bytes()
    emptied = whole[:4096] + bytes(len(whole) - 4096)
    path.write_bytes(emptied)
    for readonly in (False, True):
        with pytest.raises(
            StateCorrupt, match=r"counts 900 keys in a layer, .* 0.0% are set; the file was left"
        ):
            BloomFilter.open(path, readonly=readonly)
    assert emptied == path.read_bytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("fixed_secret")
def test_zeros_in_any_layer_are_refused(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "seen.bloom"
    found = BloomFilter.create(path, capacity=1000, error_rate=0.001, layout=layout)
    for number in range(2500):
        found.add(key(number))
    found.close()
    whole = path.read_bytes()
    layers = unpack(whole[:4096], str(path), len(whole)).layers
    assert 2 == len(layers)
    for layer in layers:
        path.write_bytes(whole[: layer.offset] + bytes(layer.num_bytes) + whole[layer.end :])
        with pytest.raises(StateCorrupt, match=r"0.0% are set"):
            BloomFilter.open(path)
