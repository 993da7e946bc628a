"""Does every scheme give the frozen values, never degenerate, and depend on its secret?"""

from __future__ import annotations

from hashlib import blake2b, sha1
from typing import Any

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scrapy_bloomdupe.hashing as hashing
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.layouts import get_layout
from scrapy_bloomdupe.hashing import as_key, double_hash, fnv1a_64, get_scheme

SECRET = bytes(range(32))
KEY = sha1(b"https://example.com/").digest()
SCHEMES = sorted(hashing.SCHEMES)

secrets_of_filters = st.binary(min_size=32, max_size=32)

# Frozen with format 1 of the filter file: whoever has to change a value needs a new name for the scheme.
GOLDEN_PAIRS = {
    "blake2b": (0x3341148FD59CB8D2, 0x156271CC6FA9774B),
    "fnv1a": (0xA15F25B44BB0BB67, 0x6D40C0D68A605E7E),
    "murmur3": (0x95C4A0064411D953, 0x01F7AEACE4A13BEF),
}
GOLDEN_DIGESTS = {
    "blake2b": (
        "d2b89cd58f1441334b77a96fcc7162158529f40a85996ab042e1516f921f0173"
        "92779382644a4d2180b5b552e8cb352c2d538da9f6fc5a338f9c8f7bdae5e365"
    ),
    "fnv1a": (
        "993f89e5aee9ba3294b341cb246fcd5c8dc1f3e7f91315960c6a920fad613a5d"
        "76ca517684c0a97405db5915a7dc6c55c02f6ceeb16fc2021468509f8c066c96"
    ),
    "murmur3": (
        "53d9114406a0c495ef3ba1e4acaef7011102dd0726d6da23912463cab6f7bb78"
        "316a971c13de302fdb2129934a4a6f9e049051ad0909d7be6435e858c1030b91"
    ),
}
GOLDEN_POSITIONS = {
    "blake2b": [2154458, 3243756, 4333054, 5422352, 6511650, 7600948, 8690246],
    "fnv1a": [4843702, 7061778, 9279854, 1912869, 4130945, 6349021, 8567097],
    "murmur3": [2920372, 3712867, 4505362, 5297857, 6090352, 6882847, 7675342],
}


def test_the_schemes_keep_their_names() -> None:
    assert ["blake2b", "fnv1a", "murmur3"] == SCHEMES


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_gives_its_frozen_pair(name: str) -> None:
    assert GOLDEN_PAIRS[name] == get_scheme(name).pair(SECRET)(KEY)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_gives_its_frozen_digest(name: str) -> None:
    assert GOLDEN_DIGESTS[name] == get_scheme(name).digest(SECRET, 64)(KEY).hex()


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_gives_its_frozen_positions(name: str) -> None:
    h1, h2 = get_scheme(name).pair(SECRET)(KEY)
    assert GOLDEN_POSITIONS[name] == double_hash(h1, h2, 7, 9_585_061)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Test vectors of draft-eastlake-fnv, "FNV-1a 64-bit".
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"foobar", 0x85944171F73967E8),
    ],
)
def test_fnv1a_gives_the_published_values(text: bytes, value: int) -> None:
    assert value == fnv1a_64(text)


@given(st.binary(max_size=64), secrets_of_filters)
def test_murmur3_is_mmh3_under_seeds_of_four_bytes_of_the_secret(key: bytes, secret: bytes) -> None:
    seeds = [int.from_bytes(secret[at : at + 4], "little") for at in (0, 4, 8, 12)]
    scheme = get_scheme("murmur3")
    assert mmh3.hash64(key, seeds[0], x64arch=True, signed=False) == scheme.pair(secret)(key)
    expected = b"".join(mmh3.hash_bytes(key, seed, x64arch=True) for seed in seeds)
    assert expected == scheme.digest(secret, 64)(key)


@given(st.binary(max_size=300), secrets_of_filters, st.sampled_from([16, 32, 48, 64]))
def test_blake2b_is_hashlibs_under_the_secret_as_key(key: bytes, secret: bytes, size: int) -> None:
    scheme = get_scheme("blake2b")
    expected = blake2b(key, key=secret).digest()
    assert expected[:size] == scheme.digest(secret, size)(key)
    halves = (int.from_bytes(expected[:8], "little"), int.from_bytes(expected[8:16], "little"))
    assert halves == scheme.pair(secret)(key)


@given(st.sampled_from(SCHEMES), st.binary(max_size=64), secrets_of_filters)
def test_a_shorter_digest_begins_a_longer_one(name: str, key: bytes, secret: bytes) -> None:
    digests = [get_scheme(name).digest(secret, size)(key) for size in (16, 32, 48, 64)]
    assert [16, 32, 48, 64] == [len(digest) for digest in digests]
    assert [True] * 4 == [digests[-1].startswith(digest) for digest in digests]


@given(st.sampled_from(SCHEMES), st.binary(max_size=300), secrets_of_filters)
def test_the_halves_of_a_pair_are_below_2_to_the_64(name: str, key: bytes, secret: bytes) -> None:
    h1, h2 = get_scheme(name).pair(secret)(key)
    assert 0 <= h1 < 2**64
    assert 0 <= h2 < 2**64


@pytest.mark.parametrize("name", SCHEMES)
def test_another_secret_gives_other_positions(name: str) -> None:
    scheme = get_scheme(name)
    secrets = [SECRET, bytes(32), b"\xff" * 32, SECRET[::-1]]
    pairs = [scheme.pair(secret)(KEY) for secret in secrets]
    assert 4 == len({h1 for h1, _ in pairs})
    assert 4 == len({h2 for _, h2 in pairs})
    digests = [scheme.digest(secret, 64)(KEY) for secret in secrets]
    # Every part of the digest depends on the secret.
    for at in range(0, 64, 8):
        assert 4 == len({digest[at : at + 8] for digest in digests})


@pytest.mark.parametrize("h2", [0, 101, 202, 101 * 2**57])
def test_a_step_of_zero_counts_as_one(h2: int) -> None:
    assert [99, 100, 0, 1] == double_hash(99, h2, 4, 101)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_digest_never_repeats_a_word(name: str) -> None:
    digest = get_scheme(name).digest(SECRET, 64)
    for number in range(2_000):
        found = digest(sha1(b"%d" % number).digest())
        assert 8 == len({found[at : at + 8] for at in range(0, 64, 8)})


@given(
    st.integers(1, 10**9),
    st.floats(1e-12, 0.9),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)
def test_all_positions_of_a_key_differ_in_a_classic_array(
    capacity: int, error_rate: float, h1: int, h2: int
) -> None:
    size = get_layout("classic").size_for(capacity, error_rate, 1.0)
    for step in (h2, size.num_bits, size.num_bits * 3, 0, 1, size.num_bits - 1):
        positions = double_hash(h1, step, size.num_hashes, size.num_bits)
        assert size.num_hashes == len(set(positions))
        assert 0 <= min(positions) <= max(positions) < size.num_bits


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as caught:
        get_scheme("md5")
    assert "scheme='md5' is not known; take one of blake2b, fnv1a, murmur3" == str(caught.value)


def test_a_sha1_fingerprint_is_its_own_key() -> None:
    assert KEY is as_key(KEY)


@given(st.binary().filter(lambda text: len(text) != 20))
def test_a_fingerprint_of_another_length_is_hashed_to_20_bytes(fingerprint: bytes) -> None:
    expected = blake2b(fingerprint, digest_size=20, person=b"bloomdupe key v1").digest()
    assert expected == as_key(fingerprint)


def test_the_key_of_a_short_fingerprint_is_frozen() -> None:
    assert "a1f5cab0057341c7f4da4bd687fa38253f99753d" == as_key(b"product:1").hex()


@pytest.mark.parametrize("wrong", ["text", None, 17, bytearray(20), memoryview(bytes(20))])
def test_a_fingerprint_that_is_not_bytes_is_refused_by_its_type(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"has to be bytes, .* returned {type(wrong).__name__} "):
        as_key(wrong)
