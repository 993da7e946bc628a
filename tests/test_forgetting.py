"""Does a closed state forget exactly what was selected, and is nothing changed where it cannot?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from frontiers import frontier_of, pend
from test_opening_mismatch import files

import scrapy_bloomdupe.forgetting as forgetting
from scrapy_bloomdupe.assembling import assemble
from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt, StateLocked
from scrapy_bloomdupe.forgetting import Forgotten, Selection, forget
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.seen import Verdict

OPTIONS = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", {"fingerprinter": "of the test"})
HOSTS = ("a.example", "b.example", "c.example")
RULES = (None, "lists")


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def write(directory: Path, count: int = 60, **changes: Any) -> Path:
    """Make a state of keys 0 to *count* - 1: host and rule go by the remainder by 3 and by 2."""
    state = open_or_create(directory, replace(OPTIONS, **changes))
    for number in range(count):
        state.seen.check_and_add(key(number), f"https://{HOSTS[number % 3]}/x", RULES[number % 2])
    state.close()
    return directory


def left(directory: Path, count: int = 60) -> set[int]:
    """The numbers whose keys a run would call seen; it remembers none of them."""
    state = open_or_create(directory, replace(OPTIONS))
    try:
        assert state.was_clean
        return {number for number in range(count) if key(number) in state.seen}
    finally:
        state.close()


def silent(items: Iterable[Any], total: int) -> Iterable[Any]:
    return items


@pytest.mark.parametrize(
    ("selection", "forgotten"),
    [
        (Selection(hosts=("a.example",)), lambda number: number % 3 == 0),
        (Selection(hosts=("https://B.example:443/y", "c.example")), lambda number: number % 3 != 0),
        (Selection(rules=("lists",)), lambda number: number % 2 == 1),
        (Selection(hosts=("a.example",), rules=("lists",)), lambda number: number % 6 == 3),
        (Selection(keys=frozenset({key(7), key(8)})), lambda number: number in (7, 8)),
        (Selection(hosts=("d.example",)), lambda number: False),
        (Selection(rules=("other",)), lambda number: False),
        (Selection(), lambda number: False),
    ],
)
def test_exactly_what_was_selected_is_forgotten(
    tmp_path: Path,
    selection: Selection,
    forgotten: Callable[[int], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgetting, "_GROUP", 7)
    directory = write(tmp_path / "state")
    expected = {number for number in range(60) if forgotten(number)}
    before = files(directory)
    assert Forgotten(len(expected)) == forget(directory, selection, silent, dry_run=True)
    assert before == files(directory)
    assert Forgotten(len(expected)) == forget(directory, selection, silent)
    assert set(range(60)) - expected == left(directory)
    assert Forgotten(unknown=len(selection.keys)) == forget(directory, selection, silent)


def test_what_was_forgotten_is_new_once_and_seen_again(tmp_path: Path) -> None:
    directory = write(tmp_path / "state")
    forget(directory, Selection(frozenset({key(1)})), silent)
    state = open_or_create(directory, OPTIONS)
    verdicts = [state.seen.check_and_add(key(number)) for number in (1, 1, 2)]
    state.close()
    assert [Verdict.FALSE_POSITIVE, Verdict.DUPLICATE, Verdict.DUPLICATE] == verdicts


def test_keys_of_an_older_release_are_told_apart_and_forgotten_by_name(tmp_path: Path) -> None:
    directory = write(tmp_path / "state", 6)
    state = open_or_create(directory, OPTIONS)
    assert state.store is not None
    for number in (6, 7):
        state.filter.add(key(number))
        state.store.put(key(number))
    state.close()
    assert Forgotten(2, untold=2) == forget(directory, Selection(hosts=("a.example",)), silent)
    assert Forgotten(2) == forget(directory, Selection(rules=("lists",)), silent)
    assert Forgotten(1, unknown=1) == forget(directory, Selection(frozenset({key(6), key(99)})), silent)
    assert (False, True) == (6 in left(directory), 7 in left(directory))


def test_what_is_pending_is_not_forgotten_since_it_is_crawled_anyway(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    state = open_or_create(directory, replace(OPTIONS, frontier=True))
    for number in range(6):
        state.seen.check_and_add(key(number), "https://a.example/x")
    places = [pend(state, key(number)) for number in range(3)]
    frontier_of(state).remove(*places[1])
    frontier_of(state).end_in_order()
    state.close()
    assert Forgotten(4, pending=2) == forget(directory, Selection(hosts=("a.example",)), silent)
    assert Forgotten(0, pending=1) == forget(directory, Selection(frozenset({key(2)})), silent)
    assert {0, 2} == left(directory, 6)


@pytest.mark.parametrize("in_order", [True, False])
def test_after_a_kill_start_requests_are_asked_again(tmp_path: Path, in_order: bool) -> None:
    directory = tmp_path / "state"
    state = open_or_create(directory, replace(OPTIONS, frontier=True))
    frontier_of(state).begin()
    state.seen.check_and_add(key(1))
    frontier_of(state).note_start(b"s" * 16)
    pend(state, key(3))
    if in_order:
        frontier_of(state).end_in_order()
    state.close()
    for selection, skips in ((frozenset({key(2)}), not in_order), (frozenset({key(1)}), False)):
        forget(directory, Selection(selection), silent)
        state = open_or_create(directory, replace(OPTIONS, frontier=True))
        frontier_of(state).begin()
        assert skips is frontier_of(state).skip_start(b"s" * 16)
        state.close(write=False)


def test_a_filter_alone_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    directory = write(tmp_path / "state", store=None)
    before = files(directory)
    with pytest.raises(ConfigurationError) as caught:
        forget(directory, Selection(hosts=("a.example",)), silent)
    assert str(caught.value) == (
        f"{directory} has no exact store (BLOOMDUPE_STORE = None): a Bloom filter cannot forget a key "
        "without losing others. Start anew with the default BLOOMDUPE_STORE = 'lmdb' (or with "
        "BLOOMDUPE_FILTER = 'counting') in an empty directory, or move this one aside to crawl everything "
        "again. Nothing was changed"
    )
    assert before == files(directory)


COUNTING = {"store": None, "layout": "counting", "error_rate": 1e-6}


@pytest.mark.parametrize("more", [{}, {"frontier": True}])
@pytest.mark.parametrize("killed", [False, True])
def test_counters_forget_by_key_and_the_state_is_as_clean_as_it_was(
    tmp_path: Path, more: dict[str, Any], killed: bool
) -> None:
    options = replace(OPTIONS, **COUNTING, **more)
    directory = write(tmp_path / "state", **COUNTING, **more)
    if killed:
        state = open_or_create(directory, options)
        shutil.copytree(directory, tmp_path / "copy")
        state.close()
        directory = tmp_path / "copy"
    chosen = Selection(frozenset(key(number) for number in (*range(20), 1000, 1001)))
    before = files(directory)
    assert Forgotten(keys=20, unknown=2) == forget(directory, chosen, silent, dry_run=True)
    assert before == files(directory)
    assert Forgotten(keys=20, unknown=2) == forget(directory, chosen, silent)
    state = open_or_create(directory, options)
    assert (not killed, 40) == (state.was_clean, state.num_keys())
    assert set(range(20, 60)) == {number for number in range(60) if key(number) in state.seen}
    assert {Verdict.NEW} == {state.seen.check_and_add(key(number)) for number in range(20)}
    state.close()


def test_counters_do_not_know_hosts_and_rules(tmp_path: Path) -> None:
    directory = write(tmp_path / "state", **COUNTING)
    before = files(directory)
    with pytest.raises(ConfigurationError, match=r"give URLs or --keys\. Nothing was changed"):
        forget(directory, Selection(hosts=("a.example",)), silent)
    assert before == files(directory)


def test_counters_keep_what_is_pending(tmp_path: Path) -> None:
    options = replace(OPTIONS, **COUNTING, frontier=True)
    state = open_or_create(tmp_path, options)
    state.seen.check_and_add(key(1))
    pend(state, key(1))
    state.seen.check_and_add(key(2))
    state.close()
    done = forget(tmp_path, Selection(frozenset([key(1), key(2)])), silent)
    assert Forgotten(keys=1, pending=1) == done


def test_a_state_in_use_is_refused(tmp_path: Path) -> None:
    state = open_or_create(tmp_path, OPTIONS)
    try:
        with pytest.raises(StateLocked):
            forget(tmp_path, Selection(hosts=("a.example",)), silent)
    finally:
        state.close()


def test_a_torn_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    directory = write(tmp_path / "state")
    path = directory / "seen.lmdb"
    path.write_bytes(path.read_bytes()[:-5000])
    before = files(directory)
    with pytest.raises(StateCorrupt):
        forget(directory, Selection(hosts=("a.example",)), silent)
    assert before == files(directory)


@pytest.mark.parametrize("killed", [False, True])
def test_the_state_is_as_clean_as_it_was(tmp_path: Path, killed: bool) -> None:
    directory = write(tmp_path / "state")
    if killed:
        state = open_or_create(directory, OPTIONS)
        shutil.copytree(directory, tmp_path / "copy")
        state.close()
        directory = tmp_path / "copy"
    forget(directory, Selection(hosts=("a.example",)), silent)
    lock = DirectoryLock(directory)
    try:
        # A file that nobody else has changed is not walked when it is opened.
        assert killed is not lock.is_as_left(directory / "seen.lmdb")
        found = assemble(directory, lock)
        assert killed is not found.filter.was_clean
        found.release_files(clean=False)
    finally:
        lock.release()
