"""Is a filter that lacks keys of the store found after an unclean end, made anew, and said?

A process that dies tears nothing. What is played here is a machine that dies: the store's pages have
reached the disk, the filter's have not.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest

import scrapy_bloomdupe.assembling as assembling
from scrapy_bloomdupe.errors import StateCorrupt, StoreError
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.environment import verify
from scrapy_bloomdupe.stores.lmdb import LmdbStore
from scrapy_bloomdupe.takeover import check_queue

OPTIONS = StateOptions(8000, 0.001, "classic", "murmur3", "lmdb", journal=True)


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def filled(directory: Path, count: int, options: StateOptions = OPTIONS, start: int = 0) -> State:
    state = open_or_create(directory, options)
    for number in range(start, start + count):
        state.seen.check_and_add(key(number))
    state.flush()
    return state


def power_loss(tmp_path: Path, before: int, after: int, options: StateOptions = OPTIONS) -> Path:
    """The filter is that of the first keys, the store has all of them; nobody ended in order."""
    state = filled(tmp_path / "job", before, options)
    filled_filter = (tmp_path / "job" / "seen.bloom").read_bytes()
    for number in range(before, before + after):
        state.seen.check_and_add(key(number))
    state.flush()
    shutil.copytree(tmp_path / "job", tmp_path / "after")
    state.close()
    (tmp_path / "after" / "seen.bloom").write_bytes(filled_filter)
    return tmp_path / "after"


@pytest.mark.parametrize(("before", "after"), [(10, 40), (0, 300), (2000, 400), (2800, 200)])
def test_a_filter_that_lacks_keys_is_made_anew_and_it_is_said(
    tmp_path: Path, before: int, after: int
) -> None:
    directory = power_loss(tmp_path, before, after)
    total = before + after
    state = open_or_create(directory, OPTIONS)
    assert {"filter": total} == state.recovered
    (notice,) = state.notices
    assert (
        f"The filter in {directory} lacked keys that the exact store has: it was made anew from the "
        f"{total:,} keys of the store"
    ) == notice
    assert all(key(number) in state.filter for number in range(total))
    assert all(key(number) in state.seen for number in range(total))
    assert total == state.num_keys()
    assert state.journal is not None
    state.close()
    again = open_or_create(directory, OPTIONS)
    assert ({}, [], True) == (again.recovered, again.notices, again.was_clean)
    assert all(key(number) in again.seen for number in range(total))
    again.close()
    assert ["lock", "seen.bloom", "seen.lmdb"] == sorted(
        path.name for path in directory.iterdir() if not path.name.endswith(("-lock", ".json"))
    )


def test_after_the_death_of_a_process_nothing_is_made_anew(tmp_path: Path) -> None:
    state = filled(tmp_path / "job", 3000)
    shutil.copytree(tmp_path / "job", tmp_path / "after")
    state.close()
    before = state.filter.filter_id
    again = open_or_create(tmp_path / "after", OPTIONS)
    assert not again.was_clean
    assert ({}, [], before) == (again.recovered, again.notices, again.filter.filter_id)
    again.close()


def test_a_filter_with_more_keys_than_the_store_is_left(tmp_path: Path) -> None:
    # Bits survive the process at once, the group that was not committed does not.
    state = filled(tmp_path / "job", 100)
    for number in range(100, 3000):
        state.seen.check_and_add(key(number))
    shutil.copytree(tmp_path / "job", tmp_path / "after")
    state.close()
    again = open_or_create(tmp_path / "after", OPTIONS)
    assert ({}, 100) == (again.recovered, again.num_keys())
    again.close()


def test_the_new_filter_is_like_the_old_one_and_large_enough(tmp_path: Path) -> None:
    directory = power_loss(tmp_path, 10, 990, replace(OPTIONS, capacity=200, layout="paged", error_rate=0.01))
    state = open_or_create(directory, OPTIONS)
    assert ("paged", 0.01, 2000) == (state.filter.layout, state.filter.error_rate, state.filter.capacity)
    assert 1 == len(state.filter.info().layers)
    state.close()


def test_without_a_store_nothing_is_made_anew(tmp_path: Path) -> None:
    options = replace(OPTIONS, store=None)
    state = filled(tmp_path / "job", 3000, options)
    shutil.copytree(tmp_path / "job", tmp_path / "after")
    state.close()
    again = open_or_create(tmp_path / "after", options)
    assert {} == again.recovered
    again.close()


def test_a_new_filter_that_finds_no_room_leaves_the_old_one_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = power_loss(tmp_path, 10, 300)
    before = {path.name for path in directory.iterdir()}

    def fail(self: LmdbStore) -> None:
        raise StoreError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(LmdbStore, "iter_keys", fail)
        with pytest.raises(StoreError):
            open_or_create(directory, OPTIONS)
    assert before == {path.name for path in directory.iterdir() if path.name != "seen.lmdb-lock"} | (
        before & {"seen.lmdb-lock"}
    )
    state = open_or_create(directory, OPTIONS)
    assert {"filter": 310} == state.recovered
    state.close()


def test_a_store_that_cannot_be_read_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = power_loss(tmp_path, 10, 300)

    def fail(self: LmdbStore) -> int:
        raise StoreError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(LmdbStore, "count", fail)
        expected = f"{directory}: the exact store cannot be read: Input/output error. Restore it from a copy"
        with pytest.raises(StateCorrupt, match=re.escape(expected)):
            open_or_create(directory, OPTIONS)


def test_a_torn_store_is_refused_as_often_as_it_is_opened_after_the_machine_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it was too large to be walked after the death of a process.
    monkeypatch.setattr(assembling, "_WALKED_AFTER_KILL", 0)
    state = filled(tmp_path / "job", 3000)
    shutil.copytree(tmp_path / "job", tmp_path / "after")
    state.close()
    path = tmp_path / "after" / "seen.lmdb"
    data = bytearray(path.read_bytes())
    # Behind the pages that every opening reads.
    for at in range(10 * 4096, len(data) - 4096, 8 * 4096):
        data[at : at + 16] = bytes(16)
    path.write_bytes(data)
    assert [] != verify(path)
    note = tmp_path / "after" / "lock"
    note.write_text(json.dumps({**json.loads(note.read_text()), "boot": "another"}))
    messages = []
    for _ in range(3):
        # As a crawl does: before Scrapy opens its queue, and after that.
        check_queue(tmp_path / "after", tmp_path / "after")
        with pytest.raises(StateCorrupt) as caught:
            open_or_create(tmp_path / "after", OPTIONS)
        messages.append(str(caught.value))
    assert 1 == len(set(messages))
    assert messages[0].startswith(f"{path}: ")
    assert bytes(data) == path.read_bytes()
