"""Does every filter keep the contract of ``filters.base.Filter``? One suite, run for layouts and schemes."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.base import Filter
from scrapy_bloomdupe.filters.bloom import BloomFilter

LAYOUTS = ["classic", "counting", "paged"]
SCHEMES = ["blake2b", "fnv1a", "murmur3"]
KINDS = list(itertools.product(LAYOUTS, SCHEMES))

digests = st.binary(min_size=20, max_size=20)


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def create(path: Path, kind: tuple[str, str], capacity: int = 1000, error_rate: float = 0.001) -> BloomFilter:
    return BloomFilter.create(path, capacity=capacity, error_rate=error_rate, layout=kind[0], scheme=kind[1])


@pytest.fixture(params=KINDS, ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.bloom"


def test_it_is_a_filter(path: Path, kind: tuple[str, str]) -> None:
    found = create(path, kind)
    assert isinstance(found, Filter)
    found.close()


def in_batches(found: BloomFilter, keys: list[bytes], size: int) -> list[bool]:
    answers: list[bool] = []
    while len(answers) < len(keys):
        answers += found.add_many(keys[len(answers) : len(answers) + size])
    return answers


@pytest.mark.parametrize(
    ("error_rate", "capacity"), [(0.2, 50), (0.001, 50), (0.001, 5000), (1e-6, 5000), (1e-9, 500)]
)
@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_many_at_once_have_the_answers_and_bits_of_one_by_one(
    tmp_path: Path,
    kind: tuple[str, str],
    error_rate: float,
    capacity: int,
    size: int,
    fixed_secret: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.time", lambda: 0)
    # One after the other, twice in a row, and again much later.
    keys = [key(number * 7919 % 600) for number in range(1000) for _ in range(1 + number % 2)]
    one, many, long = (
        create(tmp_path / name, kind, capacity, error_rate) for name in ("one", "many", "long")
    )
    for each in (one, many, long):
        each._header = replace(each._header, filter_id=bytes(16))
    answers = []
    for each in keys:
        long._add_one = long._add_some = None  # by probes, as a filter of several layers
        answers.append(long.add(each))
    assert answers == [one.add(each) for each in keys]
    assert answers == in_batches(many, keys, size)
    for found in (one, many, long):
        found.close()
    assert (tmp_path / "long").read_bytes() == (tmp_path / "one").read_bytes()
    assert (tmp_path / "long").read_bytes() == (tmp_path / "many").read_bytes()


def test_a_batch_ends_with_the_key_that_made_the_filter_grow(path: Path, kind: tuple[str, str]) -> None:
    found = create(path, kind, capacity=10, error_rate=1e-9)
    growths = []
    found.on_growth = growths.append
    keys = [key(number) for number in range(100)]
    assert [False] * 10 == found.add_many(keys)
    assert 1 == len(growths)
    assert 2 == found.num_layers
    assert [True] * 10 == found.add_many(keys[:10])
    assert [] == found.add_many([])
    found.close()


def test_a_filter_without_keys_is_true_and_has_no_length(path: Path, kind: tuple[str, str]) -> None:
    # scrapy-redis asks `if not self.df`: an empty filter that is falsy would be made again and again.
    found = create(path, kind)
    assert found
    assert not hasattr(found, "__len__")
    found.close()


def test_add_says_false_once_and_true_from_then_on(
    path: Path, kind: tuple[str, str], fixed_secret: None
) -> None:
    found = create(path, kind, error_rate=1e-9)
    assert [False] * 100 == [found.add(key(number)) for number in range(100)]
    assert [True] * 100 == [found.add(key(number)) for number in range(100)]
    assert 100 == found.num_keys
    found.close()


def test_it_contains_what_was_added_and_nothing_else(
    path: Path, kind: tuple[str, str], fixed_secret: None
) -> None:
    found = create(path, kind, error_rate=1e-9)
    assert key(1) not in found
    found.add(key(1))
    assert key(1) in found
    assert key(2) not in found
    assert 1 == found.num_keys  # asking adds nothing
    found.close()


@given(
    st.sampled_from(KINDS),
    st.sets(digests, max_size=60),
    st.integers(1, 40),
    st.sampled_from([0.5, 0.01, 1e-6, 1e-12]),
)
def test_a_key_that_was_added_is_never_denied(
    kind: tuple[str, str], keys: set[bytes], capacity: int, error_rate: float
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "seen.bloom")
        found = create(path, kind, capacity, error_rate)
        for one in keys:
            found.add(one)
            assert one in found
        assert [True] * len(keys) == [one in found for one in keys]
        found.close()
        again = BloomFilter.open(path)
        assert [True] * len(keys) == [one in again for one in keys]
        assert [True] * len(keys) == [again.add(one) for one in keys]
        again.close()


def test_what_was_closed_is_found_again(path: Path, kind: tuple[str, str], fixed_secret: None) -> None:
    found = create(path, kind, error_rate=1e-9)
    for number in range(500):
        found.add(key(number))
    found.close()
    again = BloomFilter.open(path)
    assert again.was_clean
    assert 500 == again.num_keys
    assert [True] * 500 == [key(number) in again for number in range(500)]
    assert [False] * 500 == [key(number) in again for number in range(500, 1000)]
    again.close()


def test_it_says_what_it_is(path: Path, kind: tuple[str, str], fixed_secret: None) -> None:
    layout, scheme = kind
    found = BloomFilter.create(
        path,
        capacity=1000,
        error_rate=0.001,
        layout=layout,
        scheme=scheme,
        filter_id=b"sixteen bytes id",
        identity={"fingerprinter": "scrapy", "store": "none"},
    )
    for number in range(400):
        found.add(key(number))
    found.close()
    again = BloomFilter.open(path)
    info = again.info()
    assert str(path) == info.path
    assert (layout, scheme, 1000, 0.001) == (info.layout, info.scheme, info.capacity, info.error_rate)
    assert (400, True) == (info.num_keys, info.clean)
    assert path.stat().st_size == info.num_bytes
    assert {"fingerprinter": "scrapy", "store": "none"} == info.identity
    assert b"sixteen bytes id" == again.filter_id
    (layer,) = info.layers
    assert (400, 1000, 0.001) == (layer.num_keys, layer.capacity, layer.error_rate)
    assert layer.num_bits >= 14_378
    assert layer.num_hashes >= 10
    assert 0 < layer.rate < 0.001
    assert layer.rate == pytest.approx(info.error_rate_estimate)
    # Every key set up to k bits; a few of them were set already.
    assert 400 * layer.num_hashes >= round(info.fill * layer.num_bits) > 300 * layer.num_hashes
    again.close()


def test_an_empty_filter_is_empty_and_never_wrong(path: Path, kind: tuple[str, str]) -> None:
    found = create(path, kind)
    info = found.info()
    assert (0, 0.0, "0") == (info.num_keys, info.fill, f"{info.error_rate_estimate:g}")
    found.close()


def test_it_may_be_closed_twice(path: Path, kind: tuple[str, str]) -> None:
    found = create(path, kind)
    found.add(key(1))
    found.close()
    before = path.read_bytes()
    found.close()
    found.flush()
    assert before == path.read_bytes()


def test_flush_writes_the_count(path: Path, kind: tuple[str, str], fixed_secret: None) -> None:
    found = create(path, kind, error_rate=1e-9)
    for number in range(3):
        found.add(key(number))
    found.flush()
    beside = BloomFilter.open(path, readonly=True)
    assert (3, False) == (beside.info().num_keys, beside.was_clean)
    assert key(2) in beside
    beside.close()
    found.close()


def test_looking_at_a_filter_leaves_its_file_as_it_is(path: Path, kind: tuple[str, str]) -> None:
    found = create(path, kind)
    found.add(key(1))
    found.close()
    before = path.read_bytes()
    beside = BloomFilter.open(path, readonly=True)
    assert key(1) in beside
    assert key(2) not in beside
    beside.flush()
    beside.close()
    assert before == path.read_bytes()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"capacity": 0}, "capacity=0 is not a whole number"),
        ({"error_rate": 1.0}, "error_rate=1.0 is not a share"),
        ({"layout": "spiral"}, "layout='spiral' is not known; take one of classic, paged"),
        ({"scheme": "md5"}, "scheme='md5' is not known; take one of blake2b, fnv1a, murmur3"),
        ({"identity": {"fingerprinter": "x" * 2000}}, "the identity of the keys takes 2021 bytes, a header"),
    ],
)
def test_a_wrong_value_makes_no_file(path: Path, values: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"capacity": 100, "error_rate": 0.01, **values}
    with pytest.raises(ConfigurationError, match=message):
        BloomFilter.create(path, **arguments)  # type: ignore[arg-type]
    assert not path.exists()


def test_two_filters_have_different_secrets_and_ids(tmp_path: Path) -> None:
    one, two = (create(tmp_path / name, ("classic", "murmur3")) for name in ("one", "two"))
    assert one.filter_id != two.filter_id
    for number in range(100):
        one.add(key(number))
        two.add(key(number))
    one.close()
    two.close()
    # The same keys under another secret set other bits.
    assert (tmp_path / "one").read_bytes()[4096:] != (tmp_path / "two").read_bytes()[4096:]
