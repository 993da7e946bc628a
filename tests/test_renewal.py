"""Is the filter of a state in use made anew without losing a key, whenever it ends?"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterable
from hashlib import sha1
from pathlib import Path

import pytest

from scrapy_bloomdupe import renewal
from scrapy_bloomdupe.building import roomy, version_of
from scrapy_bloomdupe.errors import FilterError, StoreError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.mapped import MappedFile
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create
from scrapy_bloomdupe.rebuilding import check
from scrapy_bloomdupe.renewal import Phase, Renewal
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores import environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

OPTIONS = StateOptions(300, 1e-6, "classic", "murmur3", "lmdb", {"fingerprinter": "it", "canary": "c0ffee"})
NUM_KEYS = 1_500


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def silently(keys: Iterable[bytes], total: int) -> Iterable[bytes]:
    return keys


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "_CHUNK", 100)


def add(state: State, numbers: Iterable[int]) -> None:
    for number in numbers:
        assert state.seen.check_and_add(key(number)) is Verdict.NEW


def verdicts(state: State, numbers: Iterable[int]) -> set[Verdict]:
    return {state.seen.check_and_add(key(number)) for number in numbers}


@pytest.fixture
def state(tmp_path: Path) -> State:
    """A state of 1,500 keys whose filter has grown to three layers."""
    state = open_or_create(tmp_path / "state", OPTIONS)
    add(state, range(NUM_KEYS))
    state.flush()
    assert 3 == state.filter.num_layers
    return state


def begin(state: State) -> Renewal:
    return Renewal(state, roomy(state.filter, state.num_keys()), 1_700_000_000)


def finish(found: Renewal, between: Callable[[], object] = lambda: None) -> int:
    """Go on in the least of slices until it is ready; return how many there were."""
    count = 1
    while not found.step(0):
        count += 1
        between()
    return count


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not path.name.endswith("lock")}


def test_the_new_filter_has_every_key_in_one_layer_and_is_one_version_further(state: State) -> None:
    old = state.filter
    found = begin(state)
    assert {"seen.bloom", "seen.bloom.new", "seen.lmdb"} == names(state.directory)
    # 15 chunks of keys and the end, twice; and the file is brought to the disk.
    assert finish(found) >= 33
    assert old is state.filter
    found.switch()
    assert {"seen.bloom", "seen.bloom.old", "seen.lmdb"} == names(state.directory)
    new = state.filter
    assert new is not old
    assert new is state.seen.filter
    assert (2, 2) == (found.version, version_of(new.identity))
    assert (1, 3_000) == (new.num_layers, new.capacity)
    assert (old.filter_id, old.error_rate, old.layout) == (new.filter_id, new.error_rate, new.layout)
    assert {Verdict.DUPLICATE} == verdicts(state, range(NUM_KEYS))
    add(state, range(NUM_KEYS, NUM_KEYS + 100))
    state.close()
    assert {"seen.bloom", "seen.lmdb"} == names(state.directory)
    assert [] == list(check(state.directory, silently))
    again = open_or_create(state.directory, OPTIONS)
    assert (True, [], {}) == (again.was_clean, again.notices, again.recovered)
    assert {Verdict.DUPLICATE} == verdicts(again, range(NUM_KEYS + 100))
    again.close()


def test_the_one_before_the_last_one_goes_with_the_next(state: State) -> None:
    for version in (2, 3, 4):
        found = begin(state)
        finish(found)
        found.switch()
        assert version == version_of(state.filter.identity)
        old = BloomFilter.open(state.directory / "seen.bloom.old", readonly=True)
        assert version - 1 == version_of(old.identity)
        old.abandon()
    state.close()
    assert {"seen.bloom", "seen.lmdb"} == names(state.directory)


@pytest.mark.parametrize("flush_every", [1, 3, 1_000])
def test_keys_that_come_meanwhile_are_in_both_filters(state: State, flush_every: int) -> None:
    fresh = iter(range(NUM_KEYS, 10**9))
    count = 0

    def crawl() -> None:
        nonlocal count
        count += 1
        add(state, [next(fresh) for _ in range(20)])
        if count % flush_every == 0:
            state.flush()

    found = begin(state)
    finish(found, crawl)
    crawl()
    found.switch()
    total = next(fresh)
    assert total >= NUM_KEYS + 33 * 20
    assert {Verdict.DUPLICATE} == verdicts(state, range(total))
    state.close()
    assert [] == list(check(state.directory, silently))


def test_keys_that_are_held_are_known_to_the_new_filter_when_they_are_released(state: State) -> None:
    add(state, [9_000, 9_001])
    state.seen.hold(key(9_000))
    state.seen.hold(key(9_001))
    found = begin(state)
    finish(found, lambda: state.seen.release(key(9_001)))
    found.switch()
    state.seen.release(key(9_000))
    state.flush()
    assert {Verdict.DUPLICATE} == verdicts(state, [9_000, 9_001])
    state.close()
    assert [] == list(check(state.directory, silently))


def test_forgotten_keys_are_new_again_before_and_after(state: State) -> None:
    found = begin(state)
    found.step(0)
    state.seen.forget(key(3))
    state.flush()
    finish(found, lambda: state.seen.forget(key(4)))
    found.switch()
    assert {Verdict.NEW} == verdicts(state, [3]) or {Verdict.FALSE_POSITIVE} == verdicts(state, [3])
    assert state.seen.check_and_add(key(4)) in (Verdict.NEW, Verdict.FALSE_POSITIVE)
    assert {Verdict.DUPLICATE} == verdicts(state, range(NUM_KEYS))
    state.close()


def test_the_store_can_grow_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_HEADROOM", 1 << 14)
    state = open_or_create(tmp_path / "state", OPTIONS)
    add(state, range(NUM_KEYS))
    state.flush()
    assert state.environment is not None
    before = 1 << 18
    state.environment._env.set_mapsize(before)
    fresh = iter(range(NUM_KEYS, 10**9))

    def crawl() -> None:
        add(state, [next(fresh) for _ in range(50)])
        state.flush()

    found = begin(state)
    finish(found, crawl)
    found.switch()
    assert state.environment._env.info()["map_size"] > before
    assert {Verdict.DUPLICATE} == verdicts(state, range(next(fresh)))
    state.close()


def crash(state: State, place: Path) -> set[int]:
    """Leave in *place* what a killed process would; return the keys that its store has."""
    shutil.copytree(state.directory, place)
    store = state.store
    assert isinstance(store, LmdbStore)
    written: set[bytes] = set()
    while chunk := store.chunk_after(max(written) if written else None):
        written.update(key for key, _ in chunk)
    return {number for number in range(20_000) if key(number) in written}


def assert_one_valid_version(place: Path, expected: set[int], versions: set[int]) -> None:
    again = open_existing(place)
    assert version_of(again.filter.identity) in versions
    assert {"seen.bloom", "seen.lmdb"} == names(place) - {"seen.bloom.old"}
    assert all(key(number) in again.filter for number in expected)
    assert {Verdict.DUPLICATE} == verdicts(again, expected)
    again.close()
    assert [] == list(check(place, silently))
    assert {"seen.bloom", "seen.lmdb"} == names(place)


def test_an_end_after_any_slice_leaves_one_valid_version(state: State, tmp_path: Path) -> None:
    fresh = iter(range(NUM_KEYS, 10**9))
    left = []

    def crawl() -> None:
        add(state, [next(fresh) for _ in range(7)])
        if len(left) % 2:
            state.flush()
        left.append(crash(state, tmp_path / str(len(left))))

    found = begin(state)
    finish(found, crawl)
    found.switch()
    for number, expected in enumerate(left):
        assert len(expected) >= NUM_KEYS
        assert_one_valid_version(tmp_path / str(number), expected, {1})
    crawl()
    assert_one_valid_version(tmp_path / str(len(left) - 1), left[-1], {2})
    state.close()


def test_an_end_at_any_moment_of_the_switch_leaves_one_valid_version(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = begin(state)
    finish(found)
    found.switch()  # so that there is an old one already
    found = begin(state)
    finish(found)
    left: list[set[int]] = []
    moments: list[str] = []

    def around(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def played(*args: object, **options: object) -> object:
            for moment in ("before", "after"):
                moments.append(f"{moment} {name}")
                left.append(crash(state, tmp_path / str(len(left))))
                if moment == "before":
                    result = real(*args, **options)
            return result

        monkeypatch.setattr(owner, name, played)

    with monkeypatch.context():
        for owner, name in ((os, "link"), (Path, "rename"), (Path, "unlink"), (MappedFile, "write")):
            around(owner, name)
        found.switch()
        monkeypatch.undo()
    assert ["before unlink", "after unlink", "before link", "after link"] == moments[:4]
    assert ["before rename", "after rename"] == moments[4:]
    for number, expected in enumerate(left):
        version = 3 if moments[number] == "after rename" else 2
        assert_one_valid_version(tmp_path / str(number), expected, {version})
    state.close()


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_in_between_no_key_of_the_store_is_missing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "_CHUNK", 60)
    rng = random.Random(seed)
    place = tmp_path / "state"
    state = open_or_create(place, OPTIONS)
    known: set[int] = set()  # seen, and not forgotten, by what is written
    waiting: set[int] = set()
    found: Renewal | None = None
    for step in range(1_000):
        match rng.choice("aaaaaafrssssssssckx" if step > 100 else "aaf"):
            case "a":
                numbers = [rng.randrange(3_000) for _ in range(5)]
                for number in numbers:
                    seen = state.seen.check_and_add(key(number)).seen
                    assert seen == (number in known or number in waiting), (seed, step, number)
                    waiting.add(number)
            case "f":
                state.flush()
                known |= waiting
                waiting.clear()
            case "r" if known:
                number = rng.choice(sorted(known))
                state.seen.forget(key(number))
                state.flush()
                known = (known | waiting) - {number}
                waiting.clear()
            case "s" if found is not None:
                if found.step(0):
                    found.switch()
                    found = None
            case "s":
                found = begin(state)
            case "k" if found is not None and rng.random() < 0.01:
                found.abandon()
                found = None
            case "c" if rng.random() < 0.05:
                if found is not None:
                    found.abandon()
                    found = None
                state.close()
                known |= waiting
                waiting.clear()
                state = open_or_create(place, OPTIONS)
            case "x" if rng.random() < 0.05:
                copy = tmp_path / f"after-{step}"
                shutil.copytree(place, copy)
                if found is not None:
                    found.abandon()
                    found = None
                state.close()
                place, waiting = copy, set()
                state = open_or_create(place, OPTIONS)
                assert {} == state.recovered
    assert 1 < version_of(state.filter.identity)
    state.close()
    assert [] == list(check(place, silently))


@pytest.mark.parametrize("phase", [Phase.FILLING, Phase.CHECKING, Phase.SYNCING, Phase.READY])
def test_what_is_given_up_leaves_the_old_filter_and_no_trace(state: State, phase: Phase) -> None:
    old = state.filter
    found = begin(state)
    while found.phase is not phase:
        found.step(0)
    found.abandon()
    assert old is state.filter
    assert {"seen.bloom", "seen.lmdb"} == names(state.directory)
    add(state, range(NUM_KEYS, NUM_KEYS + 100))
    state.flush()
    assert {Verdict.DUPLICATE} == verdicts(state, range(NUM_KEYS + 100))
    state.close()


def test_a_filter_that_lacks_a_key_is_not_put_in_force(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    found = begin(state)
    real = found._put
    monkeypatch.setattr(found, "_put", lambda keys: real([one for one in keys if one != key(7)]))
    with pytest.raises(FilterError, match="lacks 1 keys of the store that were put into it"):
        finish(found)
    found.abandon()
    state.close()


def test_a_filter_whose_count_is_wrong_is_not_put_in_force(state: State) -> None:
    found = begin(state)
    while found.phase is Phase.FILLING:
        found.step(0)
    found._filter._newest_keys -= 200
    with pytest.raises(FilterError, match="counts 1,300 keys, the store had 1,500 to put into it"):
        finish(found)
    found.abandon()
    state.close()


def test_a_file_that_another_process_could_not_use_is_not_put_in_force(state: State) -> None:
    found = begin(state)
    while found.phase is not Phase.SYNCING:
        found.step(0)
    path = state.directory / "seen.bloom.new"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    with pytest.raises((FilterError, ValueError), match=r"seen\.bloom\.new"):
        finish(found)
    found.abandon()
    assert {Verdict.DUPLICATE} == verdicts(state, range(NUM_KEYS))
    state.close()


def test_a_disk_that_is_full_costs_the_new_filter_only(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    found = begin(state)
    found.step(0)

    def fail(self: MappedFile, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(MappedFile, "reserve", fail)
        patched.setattr(found._filter, "_limit", found._filter.num_keys + 10)
        with pytest.raises(FilterError, match=r"the new filter for .* could not grow: .*No space left"):
            finish(found)
        # Nor may a commit of the crawl fail for it.
        patched.setattr(found._filter, "_limit", 1)
        add(state, range(NUM_KEYS, NUM_KEYS + 10))
        state.flush()
    with pytest.raises(FilterError):
        found.step(0)
    found.abandon()
    assert {Verdict.DUPLICATE} == verdicts(state, range(NUM_KEYS + 10))
    state.close()


def test_a_sync_that_fails_and_a_store_that_cannot_be_read_are_told(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    found = begin(state)
    with monkeypatch.context() as patched:
        patched.setattr(MappedFile, "sync", fail)
        with pytest.raises(FilterError, match="cannot sync"):
            finish(found)
    found.abandon()

    def unreadable(*_: object) -> None:
        raise StoreError(errno.EIO, "Input/output error")

    found = begin(state)
    with monkeypatch.context() as patched:
        patched.setattr(LmdbStore, "chunk_after", unreadable)
        with pytest.raises(StoreError):
            found.step(0)
    found.abandon()
    state.close()


def test_a_file_system_without_links_keeps_no_old_filter(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    found = begin(state)
    finish(found)
    monkeypatch.setattr(os, "link", fail)
    found.switch()
    assert {"seen.bloom", "seen.lmdb"} == names(state.directory)
    assert {Verdict.DUPLICATE} == verdicts(state, range(NUM_KEYS))
    state.close()


def test_a_switch_that_the_system_refuses_leaves_the_old_filter(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    old = state.filter
    found = begin(state)
    finish(found)
    with monkeypatch.context() as patched:
        patched.setattr(MappedFile, "rename", fail)
        with pytest.raises(FilterError, match="cannot rename"):
            found.switch()
    found.abandon()
    assert old is state.filter
    assert {Verdict.DUPLICATE} == verdicts(state, range(NUM_KEYS))
    state.close()
    assert {"seen.bloom", "seen.lmdb"} == names(state.directory)
    assert [] == list(check(state.directory, silently))
