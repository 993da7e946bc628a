"""Is the header's encoding frozen, and is a header that does not check out refused at every byte?"""

from __future__ import annotations

import shutil
import struct
import zlib
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scrapy_bloomdupe.filters.header as header
from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt, StateError, StateMismatch
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.header import HEADER_SIZE, Header, LayerHeader

DATA = Path(__file__).parent / "data"

# What tests/data/seen-v1-*.bloom hold: written by the first release, never written again.
STORED = {
    "classic": Header(
        scheme="murmur3",
        layout="classic",
        filter_id=bytes.fromhex("e898366a2b29e3d450243a4b7b4b6d0e"),
        secret=bytes(range(100, 132)),
        created=1_764_000_000,
        capacity=200,
        error_rate=0.01,
        layers=(
            LayerHeader(4096, 2017, 7, 200, 0.01, 200),
            LayerHeader(8192, 6469, 11, 400, 0.00042705205789400825, 298),
        ),
        identity={
            "canary": "c0ffee",
            "fingerprinter": "scrapy.utils.request.RequestFingerprinter",
            "store": "none",
        },
        clean=True,
    ),
}
STORED["paged"] = replace(
    STORED["classic"],
    layout="paged",
    layers=(
        LayerHeader(4096, 65_536, 7, 200, 0.01, 200),
        LayerHeader(12_288, 65_536, 9, 400, 0.001999999999583653, 300),
    ),
)
STORED["counting"] = replace(
    STORED["paged"],
    layout="counting",
    layers=(
        LayerHeader(4096, 65_536, 7, 200, 0.01, 200, 4),
        LayerHeader(36_864, 65_536, 9, 400, 0.001999999999583653, 300, 4),
    ),
)
LAYOUTS = sorted(STORED)


def sealed(data: bytes) -> bytes:
    """Return a header with the checksum that its content gives."""
    return (
        data[:12] + zlib.crc32(data[:12] + bytes(4) + data[16:HEADER_SIZE]).to_bytes(4, "little") + data[16:]
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_header_is_packed_into_the_frozen_bytes(layout: str) -> None:
    stored = (DATA / f"seen-v1-{layout}.bloom").read_bytes()
    assert stored[:HEADER_SIZE] == STORED[layout].pack()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_frozen_bytes_are_read(layout: str) -> None:
    stored = (DATA / f"seen-v1-{layout}.bloom").read_bytes()
    assert STORED[layout] == header.unpack(stored[:HEADER_SIZE], "it", len(stored))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_fields_stand_at_their_places(layout: str) -> None:
    # The table in the module's docstring, read by hand.
    data = (DATA / f"seen-v1-{layout}.bloom").read_bytes()
    assert b"BLOOMDUP" == data[:8]
    assert (1, 1, 2) == (*struct.unpack_from("<I", data, 8), *struct.unpack_from("<II", data, 16))
    assert b"murmur3".ljust(16, b"\0") == data[24:40]
    assert layout.encode().ljust(16, b"\0") == data[40:56]
    assert bytes(range(100, 132)) == data[72:104]
    assert (1_764_000_000, 200, 0.01, 99) == struct.unpack_from("<QQdI", data, 104)
    assert (4096, 7, 4 if layout == "counting" else 0, 200, 0.01, 200) == (
        *struct.unpack_from("<Q", data, 256),
        *struct.unpack_from("<IIQdQ", data, 256 + 16),
    )
    assert data[3072:].startswith(b'{"canary": "c0ffee", "fingerprinter": "scrapy.utils.request')
    assert zlib.crc32(data[:12] + bytes(4) + data[16:4096]) == int.from_bytes(data[12:16], "little")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_stored_file_of_the_first_release_is_opened_and_knows_its_keys(tmp_path: Path, layout: str) -> None:
    path = Path(shutil.copy(DATA / f"seen-v1-{layout}.bloom", tmp_path / "seen.bloom"))
    found = BloomFilter.open(path)
    keys = [sha1(b"https://shop.example/item/%d" % number).digest() for number in range(1000)]
    assert [True] * 500 == [key in found for key in keys[:500]]
    # Of 500 others 5 may be wrong at the asked rate; how many really are is part of the encoding.
    assert {"classic": 4, "counting": 0, "paged": 0}[layout] == sum(key in found for key in keys[500:])
    found.add(keys[500])
    found.close()
    again = BloomFilter.open(path)
    assert [True] * 501 == [key in again for key in keys[:501]]
    again.close()


names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=16)
layers = st.builds(
    LayerHeader,
    st.just(HEADER_SIZE),
    st.integers(1, 2**40),
    st.integers(1, 30),
    st.integers(1, 2**63),
    st.floats(1e-12, 1),
    st.integers(0, 2**63),
)


@given(
    st.builds(
        Header,
        scheme=st.sampled_from(["blake2b", "fnv1a", "murmur3"]),
        layout=names,
        filter_id=st.binary(min_size=16, max_size=16),
        secret=st.binary(min_size=32, max_size=32),
        created=st.integers(0, 2**63),
        capacity=st.integers(1, 10**13),
        error_rate=st.floats(1e-12, 1),
        layers=st.lists(layers, min_size=1, max_size=1).map(tuple),
        identity=st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=4),
        clean=st.booleans(),
    )
)
def test_what_is_packed_is_unpacked(one: Header) -> None:
    data = one.pack()
    assert HEADER_SIZE == len(data)
    assert one == header.unpack(data, "it", one.end)


def test_a_flip_of_any_byte_of_the_header_is_refused_and_the_file_left_as_it_is(tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / "seen-v1-classic.bloom", tmp_path / "seen.bloom"))
    whole = path.read_bytes()
    refused = 0
    with path.open("r+b", buffering=0) as file:
        for at in range(HEADER_SIZE):
            for flip in (1 << at % 8, 0xFF):
                wrong = bytes([whole[at] ^ flip])
                file.seek(at)
                file.write(wrong)
                for readonly in (False, True):
                    with pytest.raises((StateCorrupt, StateMismatch), match=r"seen.bloom"):
                        BloomFilter.open(path, readonly=readonly)
                    refused += 1
                assert whole[:at] + wrong + whole[at + 1 :] == path.read_bytes()
            file.seek(at)
            file.write(whole[at : at + 1])
    assert 4 * HEADER_SIZE == refused
    BloomFilter.open(path, readonly=True).close()


def test_a_file_of_something_else_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "seen.bloom"
    path.write_bytes(b"<!DOCTYPE html>" * 1000)
    with pytest.raises(StateCorrupt) as caught:
        BloomFilter.open(path)
    assert str(caught.value) == (
        f"{path}: it starts with b'<!DOCTYP', a filter file starts with b'BLOOMDUP'; the file was left as it "
        "is. Run `bloomdupe rebuild` on its directory to make a new filter from the exact store, restore the "
        "file from a copy, or move the directory aside to start anew"
    )


def test_a_later_format_is_refused_with_the_way_to_read_it(tmp_path: Path) -> None:
    path = tmp_path / "seen.bloom"
    data = bytearray((DATA / "seen-v1-paged.bloom").read_bytes())
    data[8] = 2
    path.write_bytes(sealed(bytes(data)))
    with pytest.raises(StateMismatch) as caught:
        BloomFilter.open(path)
    assert f"{path} has format 2, this release reads format 1; upgrade scrapy-bloomdupe" == str(caught.value)


@pytest.mark.parametrize(
    ("at", "wrong", "message"),
    [
        (20, struct.pack("<I", 0), "it names 0 layers, there can be 1 to 58"),
        (20, struct.pack("<I", 59), "it names 59 layers, there can be 1 to 58"),
        (24, b"md5\0\0\0\0", "scheme='md5' is not known"),
        (24, b"\xff", "its names cannot be read"),
        (40, b"wedge", "layout='wedge' is not known"),
        (128, struct.pack("<I", 98), "its names cannot be read"),
        (128, struct.pack("<I", 2000), "its names cannot be read"),
        (3072, b'["', "its names cannot be read"),
        (256, struct.pack("<Q", 4095), "layer 0 makes no sense"),
        (264, struct.pack("<Q", 0), "layer 0 makes no sense"),
        (272, struct.pack("<I", 0), "layer 0 makes no sense"),
        (272, struct.pack("<I", 31), "layer 0 makes no sense"),
        (280, struct.pack("<Q", 0), "layer 0 makes no sense"),
        (288, struct.pack("<d", float("nan")), "layer 0 makes no sense"),
        (304, struct.pack("<Q", 4096), "layer 1 makes no sense"),
        (304, struct.pack("<Q", 2**63), "the file has 20480 bytes, its 2 layers need 9223372036854784000"),
    ],
)
def test_values_that_make_no_sense_are_refused_even_under_a_right_checksum(
    tmp_path: Path, at: int, wrong: bytes, message: str
) -> None:
    path = tmp_path / "seen.bloom"
    data = (DATA / "seen-v1-paged.bloom").read_bytes()
    path.write_bytes(sealed(data[:at] + wrong + data[at + len(wrong) :]))
    before = path.read_bytes()
    with pytest.raises(StateCorrupt) as caught:
        BloomFilter.open(path)
    assert message in str(caught.value)
    assert before == path.read_bytes()


@given(st.binary(max_size=HEADER_SIZE + 100))
def test_no_bytes_at_all_raise_anything_else(data: bytes) -> None:
    stored = (DATA / "seen-v1-paged.bloom").read_bytes()
    for head in (data, sealed(data.ljust(HEADER_SIZE, b"\0")), sealed(stored[:16] + data.ljust(4080, b"\0"))):
        with pytest.raises(StateError):
            header.unpack(head[:HEADER_SIZE], "it", 20_480)


def test_an_identity_that_does_not_fit_is_refused_before_anything_is_written() -> None:
    too_long = replace(STORED["paged"], identity={"fingerprinter": "x" * 1100})
    with pytest.raises(ConfigurationError, match=r"takes 1121 bytes, a header holds 1024: .*; use shorter"):
        too_long.pack()
    assert HEADER_SIZE == len(replace(too_long, identity={"fingerprinter": "x" * 1003}).pack())
