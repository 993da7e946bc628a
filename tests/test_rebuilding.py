"""Is a filter made anew from its store without losing a key, whenever it ends?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from conftest import Python

from scrapy_bloomdupe.building import FilterValues
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.rebuilding import FilterPlan, check, rebuild
from scrapy_bloomdupe.seen import Verdict

OPTIONS = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", {"fingerprinter": "it", "canary": "c0ffee"})
DEFAULTS = FilterValues(7000, 0.003, "classic", "blake2b")
NUM_KEYS = 2_500


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def silently(keys: Iterable[bytes], total: int) -> Iterable[bytes]:
    return keys


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed state of 2,500 keys; its filter of 1,000 has grown."""
    state = open_or_create(tmp_path / "state", OPTIONS)
    for number in range(NUM_KEYS):
        state.seen.check_and_add(key(number))
    state.close()
    return state.directory


def files(directory: Path) -> dict[str, bytes]:
    """Return what counts as the state: everything but the two locks."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("lock")}


def assert_whole(directory: Path) -> None:
    assert [] == list(check(directory, silently))
    state = open_or_create(directory, OPTIONS)
    assert (False, True, []) == (state.is_new, state.was_clean, state.notices)
    assert NUM_KEYS == state.num_keys()
    assert {Verdict.DUPLICATE} == {state.seen.check_and_add(key(number)) for number in range(NUM_KEYS)}
    state.close()
    assert {"lock", "seen.bloom", "seen.lmdb", "seen.lmdb-lock"} == {
        path.name for path in directory.iterdir()
    }


@pytest.mark.parametrize("damage", ["none", "cut", "flipped", "empty", "missing", "other"])
def test_a_filter_is_made_anew_whatever_became_of_the_old_one(directory: Path, damage: str) -> None:
    path = directory / "seen.bloom"
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:8_000])
    elif damage == "flipped":
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "missing":
        path.unlink()
    elif damage == "other":
        path.unlink()
        BloomFilter.create(path, capacity=1000, error_rate=0.01).close()
    assert (damage == "none") is ([] == list(check(directory, silently)))
    new = rebuild(directory, FilterPlan(), DEFAULTS, silently)
    if damage in ("none", "other"):
        # As the old one, with room for as many keys again.
        assert (5000, 0.01, "paged", "murmur3") == (new.capacity, new.error_rate, new.layout, new.scheme)
    else:
        assert (7000, 0.003, "classic", "blake2b") == (new.capacity, new.error_rate, new.layout, new.scheme)
    assert path == new.path
    assert_whole(directory)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (FilterPlan(capacity=10_000), (10_000, 0.01, "paged", "murmur3")),
        (FilterPlan(capacity=100), (100, 0.01, "paged", "murmur3")),
        (FilterPlan(error_rate=1e-6), (5_000, 1e-6, "paged", "murmur3")),
        (FilterPlan(layout="classic"), (5_000, 0.01, "classic", "murmur3")),
        (FilterPlan(scheme="fnv1a"), (5_000, 0.01, "paged", "fnv1a")),
        (FilterPlan(9_000, 0.001, "classic", "blake2b"), (9_000, 0.001, "classic", "blake2b")),
    ],
)
def test_the_new_filter_is_as_the_plan_says(
    directory: Path, plan: FilterPlan, expected: tuple[int, float, str, str]
) -> None:
    new = rebuild(directory, plan, DEFAULTS, silently)
    assert expected == (new.capacity, new.error_rate, new.layout, new.scheme)
    assert {**OPTIONS.identity, "store": "lmdb", "version": "2"} == new.identity
    assert_whole(directory)


def test_every_rebuilt_filter_has_a_secret_of_its_own(directory: Path) -> None:
    secrets = set()
    for _ in range(3):
        rebuild(directory, FilterPlan(), DEFAULTS, silently)
        secrets.add((directory / "seen.bloom").read_bytes()[72:104])
    assert 3 == len(secrets)


def test_progress_is_told_of_every_key_and_how_many_there_are(directory: Path) -> None:
    totals, given = [], []

    def progress(keys: Iterable[bytes], total: int) -> Iterator[bytes]:
        totals.append(total)
        for one in keys:
            given.append(one)
            yield one

    rebuild(directory, FilterPlan(), DEFAULTS, progress)
    assert ([NUM_KEYS], NUM_KEYS) == (totals, len(given))
    list(check(directory, progress))
    assert ([NUM_KEYS, NUM_KEYS], 2 * NUM_KEYS) == (totals, len(given))


def test_a_rebuild_that_is_interrupted_leaves_the_old_filter_and_nothing_else(directory: Path) -> None:
    before = files(directory)

    def interrupted(keys: Iterable[bytes], total: int) -> Iterator[bytes]:
        for number, one in enumerate(keys):
            if number == 1000:
                raise KeyboardInterrupt
            yield one

    with pytest.raises(KeyboardInterrupt):
        rebuild(directory, FilterPlan(), DEFAULTS, interrupted)
    assert before == files(directory)
    assert_whole(directory)


_DIE_IN_THE_MIDDLE = """
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.building import FilterValues
from scrapy_bloomdupe.rebuilding import FilterPlan, rebuild

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def progress(keys, total):
    for number, one in enumerate(keys):
        if number == 1000 and sys.argv[1] == "adding":
            die()
        yield one

if sys.argv[1] == "switching":
    BloomFilter.rename = die
rebuild(Path("state"), FilterPlan(), FilterValues(1000, 0.01, "paged", "murmur3"), progress)
"""


@pytest.mark.parametrize("moment", ["adding", "switching"])
def test_a_rebuild_that_is_killed_leaves_the_old_filter_in_force(
    directory: Path, moment: str, python: Python
) -> None:
    before = files(directory)
    assert -9 == python(_DIE_IN_THE_MIDDLE, moment).returncode
    after = files(directory)
    assert after.pop("seen.bloom.new")
    assert before == after
    assert [] == list(check(directory, silently))
    state = open_or_create(directory, OPTIONS)
    assert (False, True, NUM_KEYS) == (state.is_new, state.was_clean, state.num_keys())
    state.close()
    rebuild(directory, FilterPlan(), DEFAULTS, silently)
    assert_whole(directory)


def test_a_filter_without_a_store_cannot_be_made_anew(tmp_path: Path) -> None:
    open_or_create(tmp_path, replace(OPTIONS, store=None)).close()
    before = files(tmp_path)
    with pytest.raises(ConfigurationError, match=f"{tmp_path} has no exact store seen.lmdb: a filter alone"):
        rebuild(tmp_path, FilterPlan(), DEFAULTS, silently)
    assert before == files(tmp_path)


def test_a_wrong_plan_leaves_everything_as_it_is(directory: Path) -> None:
    before = files(directory)
    for plan in (
        FilterPlan(error_rate=2),
        FilterPlan(layout="x"),
        FilterPlan(scheme="x"),
        FilterPlan(10**14),
    ):
        with pytest.raises(ConfigurationError):
            rebuild(directory, plan, DEFAULTS, silently)
    assert before == files(directory)
