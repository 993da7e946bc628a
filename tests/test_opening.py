"""Is a state made and found again, does it belong to one crawl at a time, and what does closing promise?"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest

from scrapy_bloomdupe.errors import (
    ConfigurationError,
    StateLocked,
    StateNotFound,
    StoreError,
)
from scrapy_bloomdupe.frontier.group import Syncer
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create, open_temporary
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.statefiles import locate
from scrapy_bloomdupe.stores.environment import Environment

IDENTITY = {"fingerprinter": "scrapy.Old", "canary": "1" * 40}
OPTIONS = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", IDENTITY)
BARE = replace(OPTIONS, store=None)


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def write_state(
    directory: Path, options: StateOptions = OPTIONS, num_keys: int = 100, start: int = 0
) -> None:
    state = open_or_create(directory, options)
    for number in range(start, start + num_keys):
        state.seen.check_and_add(key(number))
    state.close()


def files(directory: Path) -> dict[str, bytes]:
    """Return what counts as the state: everything but the two locks."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith("lock")
    }


def knows(directory: Path, num_keys: int) -> bool:
    state = open_existing(directory)
    try:
        return all(key(number) in state.seen for number in range(num_keys))
    finally:
        state.close()


@pytest.mark.parametrize("options", [OPTIONS, BARE], ids=["lmdb", "bare"])
def test_a_state_is_made_and_found_again(tmp_path: Path, options: StateOptions) -> None:
    state = open_or_create(tmp_path / "job" / "bloomdupe", options)
    assert (True, True, False, []) == (state.is_new, state.was_clean, state.temporary, state.notices)
    assert {"lock", "seen.bloom"} <= {path.name for path in state.directory.iterdir()}
    assert (options.store == "lmdb") is (state.directory / "seen.lmdb").exists()
    assert not (state.directory / "seen.bloom.new").exists()
    assert Verdict.NEW is state.seen.check_and_add(key(1))
    state.close()
    again = open_or_create(tmp_path / "job" / "bloomdupe", options)
    assert (False, True, []) == (again.is_new, again.was_clean, again.notices)
    assert again.seen.check_and_add(key(1)).seen
    assert 1 == again.num_keys()
    assert {**IDENTITY, "store": options.store or "none"} == again.filter.identity
    assert again.num_bytes() == sum(map(len, files(again.directory).values()))
    again.close()
    assert locate(tmp_path / "job") == locate(tmp_path / "job" / "bloomdupe") == state.directory


def test_a_state_may_be_closed_twice_and_is_free_then(tmp_path: Path) -> None:
    state = open_or_create(tmp_path, OPTIONS)
    with pytest.raises(StateLocked, match=f"{tmp_path} is in use by process {os.getpid()}; wait"):
        open_or_create(tmp_path, OPTIONS)
    with pytest.raises(StateLocked):
        open_existing(tmp_path)
    state.close()
    state.close()
    open_or_create(tmp_path, OPTIONS).close()


@pytest.mark.parametrize("store", ["lmdb", "memory", None])
def test_a_temporary_state_is_gone_when_it_is_closed(store: str | None) -> None:
    state = open_temporary(replace(OPTIONS, store=store))
    assert (True, True) == (state.temporary, state.is_new)
    assert Verdict.NEW is state.seen.check_and_add(key(1))
    assert state.seen.check_and_add(key(1)).seen
    assert state.directory.is_dir()
    state.close()
    assert not state.directory.exists()
    state.close()


def test_a_store_in_memory_is_refused_where_a_run_would_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=f"'memory' cannot be kept in {tmp_path}: .*take 'lmdb', or None"
    ):
        open_or_create(tmp_path, replace(OPTIONS, store="memory"))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("values", [{"capacity": 0}, {"error_rate": 1.0}, {"layout": "x"}, {"scheme": "x"}])
def test_a_wrong_option_makes_no_state(tmp_path: Path, values: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        open_or_create(tmp_path, replace(OPTIONS, **values))  # type: ignore[arg-type]
    assert not (tmp_path / "seen.bloom").exists()
    # And nothing of the attempt is in the way of the next one.
    state = open_or_create(tmp_path, OPTIONS)
    assert state.is_new
    state.close()


def test_opening_what_exists_never_creates(tmp_path: Path) -> None:
    with pytest.raises(StateNotFound):
        open_existing(tmp_path / "nowhere")
    with pytest.raises(StateNotFound):
        open_existing(tmp_path)
    with pytest.raises(StateNotFound, match=f"there is no state in {tmp_path} or {tmp_path}/bloomdupe "):
        locate(tmp_path)
    assert {} == files(tmp_path)


def test_a_store_that_fails_at_close_leaves_the_state_unclean_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_or_create(tmp_path, OPTIONS)
    state.seen.check_and_add(key(1))

    def failing(self: Environment) -> None:
        raise StoreError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Environment, "commit", failing)
        with pytest.raises(StoreError, match="No space left on device"):
            state.close()
    state.close()
    again = open_or_create(tmp_path, OPTIONS)
    assert not again.was_clean
    # What the store did not take is no duplicate: its page is crawled again, not lost.
    assert Verdict.FALSE_POSITIVE is again.seen.check_and_add(key(1))
    again.close()
    last = open_or_create(tmp_path, OPTIONS)
    assert last.was_clean
    last.close()


def open_or_create_clean(directory: Path) -> bool:
    state = open_or_create(directory, OPTIONS)
    state.close()
    return state.was_clean


def test_a_thread_syncs_while_keys_are_added(tmp_path: Path) -> None:
    state = open_or_create(tmp_path, OPTIONS)
    synced = threading.Event()

    def sync() -> None:
        state.sync()
        synced.set()

    syncer = Syncer(sync, 0.001)
    assert [False] * 20_000 == [state.seen.check_and_add(key(number)).seen for number in range(20_000)]
    assert synced.wait(60)
    syncer.stop()
    assert syncer.take_error() is None
    state.close()
    assert knows(tmp_path, 20_000)


def test_an_error_of_the_syncing_thread_is_given_once() -> None:
    failed = threading.Event()

    def sync() -> None:
        failed.set()
        raise StoreError(5, "Input/output error")

    syncer = Syncer(sync, 0.001)
    assert failed.wait(60)
    syncer.stop()
    error = syncer.take_error()
    assert isinstance(error, StoreError)
    assert syncer.take_error() is None
