"""Does the LMDB store lose no key: of a group, of a full disk, of a growing map, of a killed process?"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest
from conftest import Python, StartPython

import scrapy_bloomdupe.stores.environment as environments
import scrapy_bloomdupe.stores.lmdb as lmdb_stores
from scrapy_bloomdupe.errors import StateCorrupt, StoreError
from scrapy_bloomdupe.stores.environment import Environment, verify
from scrapy_bloomdupe.stores.lmdb import LmdbStore


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.lmdb"


def keys_as_left_by_kill_9(path: Path) -> set[bytes]:
    """Return the keys that a copy of the file has, taken as it lies on the disk."""
    copy = path.with_name("copy.lmdb")
    shutil.copy(path, copy)
    environment = Environment.open(copy)
    try:
        return set(LmdbStore(environment).iter_keys())
    finally:
        environment.close()
        copy.unlink()


def test_what_was_closed_is_found_again(path: Path) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    for number in range(5_000):
        store.add(key(number))
    store.close()
    environment.close()
    environment = Environment.open(path)
    store = LmdbStore(environment)
    assert 5_000 == store.count()
    assert all(key(number) in store for number in range(5_000))
    assert key(5_000) not in store
    environment.close()
    assert [] == verify(path)


def test_keys_are_written_when_a_group_is_full_or_flush_is_called(path: Path) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True, group_size=10)
    for number in range(9):
        store.add(key(number))
    assert (9, set()) == (store.num_waiting, keys_as_left_by_kill_9(path))
    store.add(key(9))
    assert (0, {key(number) for number in range(10)}) == (store.num_waiting, keys_as_left_by_kill_9(path))
    for number in range(10, 15):
        store.put(key(number))
    assert (5, 10) == (store.num_waiting, len(keys_as_left_by_kill_9(path)))
    store.flush()
    assert (0, {key(number) for number in range(15)}) == (store.num_waiting, keys_as_left_by_kill_9(path))
    environment.close()


@pytest.mark.parametrize("size", [0, 512, 4096])
def test_a_key_that_lmdb_cannot_hold_is_refused_and_the_others_are_kept(path: Path, size: int) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    store.add(key(1))
    with pytest.raises(StoreError, match=f"a key has {size} bytes, the store takes 1 to 511"):
        store.put(b"x" * size)
    with pytest.raises(StoreError):
        store.add(b"x" * size)
    store.flush()
    assert [key(1)] == list(store.iter_keys())
    environment.close()


@pytest.mark.parametrize("num_keys", [9, 10, 11, 20, 35])
def test_no_key_is_lost_or_given_twice_at_the_border_of_a_chunk(
    path: Path, num_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_stores, "_CHUNK", 10)
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    for number in range(num_keys):
        store.add(key(number))
    assert sorted(key(number) for number in range(num_keys)) == list(store.iter_keys())
    environment.close()


@pytest.mark.parametrize("group_size", [1, 100, 2_000])
def test_a_tiny_map_grows_and_no_key_of_a_group_is_lost(
    path: Path, group_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without room ahead every growth comes in the middle of a group.
    monkeypatch.setattr(environments, "_HEADROOM", 0)
    environment = Environment.create(path, map_size=16_384)
    store = LmdbStore(environment, create=True, group_size=group_size)
    num_keys = 10_000 if group_size > 1 else 500
    for number in range(num_keys):
        assert store.add(key(number))
    store.flush()
    assert num_keys == store.count()
    assert {key(number) for number in range(num_keys)} == keys_as_left_by_kill_9(path)
    environment.close()
    assert path.stat().st_size > 16_384


def test_a_group_that_cannot_be_written_stays_visible_and_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True, group_size=10)
    attempts = []

    def failing(self: Environment, work: Callable[[object], None]) -> None:
        attempts.append(store.num_waiting)
        raise StoreError(errno.ENOSPC, "no space")

    failed = []
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "write", failing)
        for number in range(35):
            try:
                store.put(key(number))
            except StoreError:
                failed.append(number)
        assert [True] * 35 == [key(number) in store for number in range(35)]
        assert [False] * 35 == [store.add(key(number)) for number in range(35)]
        assert 35 == store.count()
        with pytest.raises(StoreError):
            store.flush()
    # Each try waits for as many keys again: a full disk does not cost a try per key.
    assert [9, 19] == failed
    assert [10, 20, 35] == attempts
    store.flush()
    assert (0, 35) == (store.num_waiting, store.count())
    assert {key(number) for number in range(35)} == keys_as_left_by_kill_9(path)
    # And groups have their size again.
    for number in range(35, 45):
        store.put(key(number))
    assert 0 == store.num_waiting
    environment.close()


_COMMIT_AND_SAY_SO = """
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

store = LmdbStore(Environment.create(Path("seen.lmdb")), create=True, group_size=100)
for number in range(10**9):
    store.add(key(number))
    if not store.num_waiting:
        print(number, flush=True)
"""


def test_every_committed_key_survives_kill_9(path: Path, start_python: StartPython) -> None:
    process = start_python(_COMMIT_AND_SAY_SO)
    assert process.stdout is not None
    committed = 0
    for line in process.stdout:
        committed = int(line) + 1
        if committed == 5_000:
            break
    process.kill()
    rest = process.stdout.read()
    assert -9 == process.wait()
    # The last line may be torn: what it would have said was not acknowledged.
    committed += 100 * rest.count("\n")
    environment = Environment.open(path)
    store = LmdbStore(environment)
    assert all(key(number) in store for number in range(committed))
    # One more group may have been committed and not been said.
    assert store.count() in (committed, committed + 100)
    environment.close()
    assert [] == verify(path)


_FILL_THE_DISK = """
from scrapy_bloomdupe.errors import StoreError
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

environment = Environment.create(Path("seen.lmdb"))
store = LmdbStore(environment, create=True, group_size=100)
limit_files(200_000)
refused = []
for number in range(10_000):
    try:
        assert store.add(key(number)), number
    except StoreError as exc:
        refused.append(str(exc))
assert store.num_waiting > 5_000, store.num_waiting
assert all(key(number) in store for number in range(10_000))
assert not any(store.add(key(number)) for number in range(10_000))
assert store.count() == 10_000
try:
    store.flush()
except StoreError as exc:
    refused.append(str(exc))
print(len(refused))
for message in sorted(set(refused)):
    print(message)
limit_files(resource.RLIM_INFINITY)
store.close()
print(store.num_waiting, store.count(), os.path.getsize("seen.lmdb") > 200_000)
environment.close()
"""


def test_on_a_full_disk_keys_stay_visible_and_are_written_when_there_is_room(
    path: Path, python: Python
) -> None:
    done = python(_FILL_THE_DISK)
    assert (0, "") == (done.returncode, done.stderr)
    count, *messages, end = done.stdout.splitlines()
    assert 2 <= int(count) <= 20
    assert [] == [one for one in messages if " cannot write to seen.lmdb: " not in one]
    assert "0 10000 True" == end
    environment = Environment.open(path)
    assert {key(number) for number in range(10_000)} == set(LmdbStore(environment).iter_keys())
    environment.close()
    assert [] == verify(path)


def test_a_file_without_seen_keys_is_no_store(path: Path) -> None:
    environment = Environment.create(path)
    environment.database(b"other", create=True)
    environment.close()
    before = path.read_bytes()
    environment = Environment.open(path)
    with pytest.raises(StateCorrupt, match=f"{path}: it has no database b'seen'; the file was left as it is"):
        LmdbStore(environment)
    environment.close()
    assert before == path.read_bytes()


def test_a_removal_waits_as_a_key_does(path: Path) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    for number in range(10):
        store.add(key(number))
    store.flush()
    store.remove(key(3))
    assert key(3) not in store
    assert 9 == store.count()
    assert key(3) in keys_as_left_by_kill_9(path)
    store.flush()
    assert {key(number) for number in range(10) if number != 3} == keys_as_left_by_kill_9(path)
    environment.close()


def test_a_key_that_was_removed_and_added_between_two_commits_is_in(path: Path) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    store.add(key(1))
    store.flush()
    store.remove(key(1))
    assert store.add(key(1))
    assert (1, True) == (store.count(), key(1) in store)
    store.flush()
    assert (1, {key(1)}) == (store.count(), keys_as_left_by_kill_9(path))
    environment.close()


def test_without_a_group_size_nothing_is_written_before_it_is_told_to(path: Path) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True, group_size=None)
    for number in range(lmdb_stores.GROUP_SIZE + 1):
        store.put(key(number))
    assert lmdb_stores.GROUP_SIZE + 1 == store.num_waiting
    assert set() == keys_as_left_by_kill_9(path)
    environment.close()


def test_a_sample_comes_from_all_over_and_has_written_keys_only(path: Path) -> None:
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    assert [] == list(store.sample(10, random.Random(1)))
    written = {key(number) for number in range(1000)}
    for one in written:
        store.add(one)
    assert [] == list(store.sample(10, random.Random(1)))
    store.flush()
    store.add(key(5000))
    sample = [one for one, _ in store.sample(500, random.Random(1))]
    assert 500 == len(sample)
    assert set(sample) <= written
    assert len(set(sample)) > 250
    assert 16 == len({one[0] >> 4 for one in sample})
    environment.close()
