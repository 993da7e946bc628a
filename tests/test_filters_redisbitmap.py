"""Which bits does a filter in bitmaps set, and what happens when several processes fill and grow it?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import key, name
from servers import Valkey

from scrapy_bloomdupe.errors import ConfigurationError, RemoteEmptied
from scrapy_bloomdupe.filters import bitmaps, bitmapshards
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.redisbitmap import RedisBitmapFilter
from scrapy_bloomdupe.remote.client import Server, connect
from scrapy_bloomdupe.sizing import BloomSize

EPOCH = bytes(range(16))


@pytest.fixture
def server(valkey: Valkey) -> Iterator[Server]:
    found = connect(f"{valkey.url}?timeout=5")
    yield found
    found.close()


def strings(server: Server, found: RedisBitmapFilter) -> list[bytes]:
    return [server.run("GET", part, slow=True) for part in found._parts(found._kept.meta)]


def test_bits_are_frozen(server: Server, fixed_secret: None) -> None:
    found = RedisBitmapFilter.open(server, name(), capacity=300, error_rate=1e-3, shards=2)
    found.add_many([key(number) for number in range(500)])
    shards = strings(server, found)
    # Header: magic, epoch, 10 hashes, 1 page, capacity 150 + 4 sigma, rate, count, not sealed.
    expected = (
        b"BDBITS01" + EPOCH + b"\x0a\0\0\0\1\0\0\0\xc7\0\0\0\0\0\0\0" + b"\xfc\xa9\xf1\xd2\x4d\x62\x50\x3f"
    )
    assert expected == shards[0][:48]
    assert GOLDEN == [sha256(one).hexdigest()[:16] for one in shards]


GOLDEN = ["6abad29e1e644686", "64d2ac7ddbb95bcb", "b0d233ea62f0462f", "bbbc30ff6b4245c5"]


def test_names_are_frozen(server: Server, fixed_secret: None) -> None:
    prefix = name()
    RedisBitmapFilter.open(server, prefix, capacity=300, error_rate=1e-3, shards=2)
    assert [
        f"{prefix}:filter:meta",
        f"{prefix}:filter:{{0001020304050607.1}}:bits:0",
        f"{prefix}:filter:{{0001020304050607.2}}:bits:0",
    ] == sorted(one.decode() for one in server.scan(f"{prefix}:*", 100))


@pytest.mark.parametrize(("capacity", "error_rate"), [(100, 0.01), (20_000, 1e-4), (50, 1e-12)])
def test_bits_are_those_of_a_file_with_the_same_secret(
    server: Server, tmp_path: Path, fixed_secret: None, capacity: int, error_rate: float
) -> None:
    values = {"capacity": capacity, "error_rate": error_rate}
    found = RedisBitmapFilter.open(server, name(), **values)  # type: ignore[arg-type]
    file = BloomFilter.create(tmp_path / "seen", layout="paged", scheme="blake2b", **values)  # type: ignore[arg-type]
    for number in range(500):  # one by one: in a batch keys are not compared with each other
        assert file.add(key(number)) == found.add(key(number))
    layers = file._header.layers
    file.close()
    data = (tmp_path / "seen").read_bytes()
    expected = [data[layer.offset : layer.end] for layer in layers]
    assert expected == [one[bitmaps.HEADER_SIZE :] for one in strings(server, found)]


def test_a_shard_grows_once_whoever_fills_it(server: Server) -> None:
    prefix = name()
    workers = [RedisBitmapFilter.open(server, prefix, capacity=100, error_rate=1e-6) for _ in range(3)]
    growths: list[int] = []
    for worker in workers:
        worker.on_growth = lambda growth: growths.append(growth.layers)
    for number in range(0, 2000, 10):
        keys = [key(one) for one in range(number, number + 10)]
        # Each of them learns from the server what the others have made of it.
        assert [False] * 10 == workers[number // 10 % 3].add_many(keys)
        assert [True] * 10 == workers[(number // 10 + 1) % 3].add_many(keys)
    assert 2000 == workers[0].info().num_keys
    assert 5 == workers[0].num_layers
    assert [True] * 2000 == workers[2].contains_many([key(one) for one in range(2000)])
    assert {2, 3, 4, 5} == set(growths)


def test_two_that_grow_a_shard_at_once_make_one_layer(server: Server) -> None:
    found = RedisBitmapFilter.open(server, name(), capacity=100, error_rate=1e-6)
    shard = found._view.shards[0]
    once, twice = (bitmapshards.grow(server, shard, 1e-6) for _ in range(2))
    assert once is not None
    assert once == twice
    assert 2 == len(once.layers)


def test_a_filter_that_cannot_grow_goes_on_and_says_so(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bitmaps, "MAX_LAYERS", 1)
    found = RedisBitmapFilter.open(server, name(), capacity=200, error_rate=1e-6)
    growths = []
    found.on_growth = growths.append
    for number in range(220):
        assert found.add(key(number)) is False
    assert [True] * 220 == found.contains_many([key(number) for number in range(220)])
    # At its capacity, and with every hundredth more.
    assert 11 == len(growths)
    assert all(isinstance(growth.error, ConfigurationError) for growth in growths)
    assert "has 1 layers and takes no more" in str(growths[0].error)
    assert (1, 200, 200) == (growths[0].layers, growths[0].num_keys, growths[0].capacity)


def test_large_filters_are_cut_into_strings_of_512_mebibytes() -> None:
    # 10^10 keys at 0.01 take 12 GB.
    number = bitmaps.num_shards_for(10**10, 0.01)
    assert 24 == number
    layer = bitmaps.first_bitmap(EPOCH, 10**10, 0.01, number)
    assert layer.num_bytes <= 512 * 2**20
    assert 8 * layer.num_bytes <= 2**32
    with pytest.raises(
        ConfigurationError, match=re.escape("shards=20 are too few for capacity=10,000,000,000")
    ):
        bitmaps.first_bitmap(EPOCH, 10**10, 0.01, 20)
    # A layer cannot be larger than a string: from then on they stay the same.
    second = bitmaps.next_bitmap(EPOCH, [layer], 0.01)
    assert bitmaps.MAX_PAGES * 0.98 < second.num_pages <= bitmaps.MAX_PAGES
    assert 0.5 < second.capacity / layer.capacity < 1


@pytest.mark.parametrize("num_shards", [1, 3, 24])
def test_shards_get_equal_parts(num_shards: int) -> None:
    shard = bitmaps.shard_function(num_shards)
    counts = [0] * num_shards
    for number in range(24_000):
        counts[shard(key(number))] += 1
    assert min(counts) > 0.85 * 24_000 / num_shards  # five standard deviations


@given(st.binary(max_size=80))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    assert bitmaps.read_layer(data, EPOCH) is None


@given(st.integers(0, 63), st.integers(1, 255))
def test_a_header_that_was_changed_is_not_the_same(position: int, change: int) -> None:
    layer = bitmaps.make_layer(EPOCH, BloomSize(1000, 0.001, 65536, 10))
    header = bytearray(layer.fixed + bytes(16))
    assert (layer, 0, False) == bitmaps.read_layer(bytes(header), EPOCH)
    header[position] ^= change
    if position < 57:  # behind it are zeros that nobody reads
        assert (layer, 0, False) != bitmaps.read_layer(bytes(header), EPOCH)


@pytest.mark.parametrize("damage", ["DEL", "SET", "SETRANGE", "RENAME"])
def test_a_layer_that_is_not_what_it_was_is_noticed(server: Server, damage: str) -> None:
    found = RedisBitmapFilter.open(server, name(), capacity=100, error_rate=0.01)
    found.add_many([key(number) for number in range(250)])
    assert 2 == found.num_layers
    first = found._view.shards[0].names[0]
    server.run(damage, first, *{"DEL": [], "SET": [b"x"], "SETRANGE": [9, b"x"], "RENAME": [name()]}[damage])
    for ask in (found.add, found.__contains__):
        with pytest.raises(RemoteEmptied, match="what had been seen is gone from the server"):
            ask(key(1000))
