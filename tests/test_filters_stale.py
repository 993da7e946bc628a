"""Does a filter notice bytes that are not its own: behind its last layer, or all over its body?"""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path

import pytest

from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.header import HEADER_SIZE


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


@pytest.mark.parametrize("layout", ["paged", "classic"])
@pytest.mark.parametrize("tail", [b"\xff", b"\xa5"])
def test_a_new_layer_is_empty_whatever_lies_behind_the_last_one(
    tmp_path: Path, layout: str, tail: bytes
) -> None:
    # A copy that was made while the filter grew, or a power loss: the header is older than the file.
    path = tmp_path / "seen.bloom"
    found = BloomFilter.create(path, capacity=20_000, error_rate=1e-4, layout=layout)
    for number in range(19_000):
        found.add(key(number))
    found.close()
    with path.open("ab") as file:
        file.write(tail * 500_000)
    found = BloomFilter.open(path)
    # The expected 1e-4 of 20,000 is 2; 20 and more come once in 10^13 runs.
    assert 20 > sum(found.add(key(number)) for number in range(19_000, 39_000))
    assert 2 == found.num_layers
    found.close()


@pytest.mark.parametrize("layout", ["paged", "classic"])
@pytest.mark.parametrize("num_keys", [0, 10, 15_000])
def test_a_body_that_is_far_too_full_is_refused(tmp_path: Path, layout: str, num_keys: int) -> None:
    path = tmp_path / "seen.bloom"
    found = BloomFilter.create(path, capacity=20_000, error_rate=1e-4, layout=layout)
    for number in range(num_keys):
        found.add(key(number))
    found.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:HEADER_SIZE] + b"\xff" * (len(whole) - HEADER_SIZE))
    with pytest.raises(StateCorrupt, match=r"but 100\.0% are set"):
        BloomFilter.open(path)


@pytest.mark.parametrize("layout", ["paged", "classic"])
def test_a_body_that_is_far_too_full_after_an_unclean_end_is_refused_too(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "seen.bloom"
    found = BloomFilter.create(path, capacity=20_000, error_rate=1e-4, layout=layout)
    found.abandon()
    whole = path.read_bytes()
    path.write_bytes(whole[:HEADER_SIZE] + b"\xff" * (len(whole) - HEADER_SIZE))
    with pytest.raises(StateCorrupt):
        BloomFilter.open(path)


@pytest.mark.parametrize("num_keys", [0, 1, 50, 5_000, 25_000])
def test_no_count_that_is_right_is_refused(tmp_path: Path, num_keys: int) -> None:
    path = tmp_path / "seen.bloom"
    found = BloomFilter.create(path, capacity=20_000, error_rate=0.01)
    for number in range(num_keys):
        found.add(key(number))
    for end in (found.abandon, found.close):
        end()
        found = BloomFilter.open(path)
        assert key(0) in found or num_keys == 0
        found.close()
        found = BloomFilter.open(path)
    found.close()


def test_the_estimate_is_the_worse_of_count_and_bits(tmp_path: Path) -> None:
    path = tmp_path / "seen.bloom"
    found = BloomFilter.create(path, capacity=2_000, error_rate=0.01, layout="classic")
    for number in range(2_000):
        found.add(key(number))
    found.abandon()  # the header still says 0 keys, the bits know better
    found = BloomFilter.open(path, readonly=True)
    assert found.info().error_rate_estimate > 0.005
    found.abandon()
