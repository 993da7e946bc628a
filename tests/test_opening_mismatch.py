"""Is a state of another meaning refused, naming both, or moved aside without losing anything?"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest

from scrapy_bloomdupe.errors import StateMismatch
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.statefiles import read_meta

OLD = {"fingerprinter": "project.Old", "canary": "aaaaaaaaaaaa1111"}
NEW = {"fingerprinter": "project.New", "canary": "bbbbbbbbbbbb2222"}
OPTIONS = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", OLD)
BARE = replace(OPTIONS, store=None)


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def write_state(directory: Path, options: StateOptions = OPTIONS) -> dict[str, bytes]:
    state = open_or_create(directory, options)
    for number in range(100):
        state.seen.check_and_add(key(number))
    state.close()
    return files(directory)


def files(directory: Path) -> dict[str, bytes]:
    """Return what counts as the state: everything but the two locks."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith("lock")
    }


OTHER_FINGERPRINTER = (
    "{0}: its keys were made by project.Old (canary aaaaaaaaaaaa), the project now uses project.New (canary "
    "bbbbbbbbbbbb): the same request gets another key, and every page would be crawled again. Go back to "
    "the former fingerprinter and versions, set BLOOMDUPE_ON_MISMATCH = 'new' to move the old state aside "
    "and start anew, or use another directory"
)
OTHER_STORE = (
    "{0} was made with BLOOMDUPE_STORE = %s, settings ask for %s: keys that only one of the two knows "
    "would be judged wrong. Set BLOOMDUPE_STORE = %s, or BLOOMDUPE_ON_MISMATCH = 'new' to move the old state "
    "aside and start anew"
)
OTHER_SCHEME = (
    "{0}/seen.bloom was made with BLOOMDUPE_SCHEME = 'murmur3', settings ask for 'blake2b'; set "
    "'murmur3', run `bloomdupe rebuild {0} --scheme blake2b`, or set BLOOMDUPE_ON_MISMATCH = 'new'"
)
BLAKE2B = replace(OPTIONS, scheme="blake2b", explicit=frozenset({"scheme"}))
OTHER_MEANINGS = {
    "fingerprinter": (OPTIONS, replace(OPTIONS, identity=NEW), OTHER_FINGERPRINTER),
    "bare to store": (BARE, OPTIONS, OTHER_STORE % ("None", "'lmdb'", "None")),
    "store to bare": (OPTIONS, BARE, OTHER_STORE % ("'lmdb'", "None", "'lmdb'")),
    "scheme": (OPTIONS, BLAKE2B, OTHER_SCHEME),
}
meanings = pytest.mark.parametrize(("made", "asked", "message"), OTHER_MEANINGS.values(), ids=OTHER_MEANINGS)


@meanings
def test_another_meaning_is_refused_with_both_named_and_the_files_left_as_they_are(
    tmp_path: Path, made: StateOptions, asked: StateOptions, message: str
) -> None:
    before = write_state(tmp_path, made)
    for _ in range(2):
        with pytest.raises(StateMismatch) as caught:
            open_or_create(tmp_path, asked)
        assert message.format(tmp_path) == str(caught.value)
        assert before == files(tmp_path)
    # Nor is it locked, or unclean.
    state = open_or_create(tmp_path, made)
    assert state.was_clean
    state.close()


@meanings
def test_a_new_state_takes_the_place_of_the_old_one_which_is_moved_aside_whole(
    tmp_path: Path, made: StateOptions, asked: StateOptions, message: str
) -> None:
    before = write_state(tmp_path, made)
    state = open_or_create(tmp_path, replace(asked, on_mismatch="new"))
    assert state.is_new
    assert Verdict.NEW is state.seen.check_and_add(key(1))
    (aside,) = tmp_path.glob("old-????????-??????")
    (notice,) = state.notices
    assert f"{message.format(tmp_path)} - BLOOMDUPE_ON_MISMATCH is 'new': it was moved to {aside}" == notice
    assert before == files(aside)
    state.close()
    old = open_existing(aside)
    assert old.was_clean
    assert [True] * 100 == [key(number) in old.seen for number in range(100)]
    old.close()
    again = open_or_create(tmp_path, asked)
    assert (False, []) == (again.is_new, again.notices)
    again.close()


def test_states_that_are_moved_aside_in_one_second_do_not_meet(tmp_path: Path) -> None:
    before = write_state(tmp_path)
    asked = [replace(OPTIONS, identity=one, on_mismatch="new") for one in (NEW, OLD, NEW, OLD)]
    for options in asked:
        open_or_create(tmp_path, options).close()
    aside = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert 4 == len(aside)
    assert 1 == sum(before == files(path) for path in aside)
    assert [{"seen.bloom", "seen.lmdb"}] * 4 == [set(files(path)) for path in aside]


def test_what_only_tunes_keeps_the_files_own_values_with_a_notice(tmp_path: Path) -> None:
    write_state(tmp_path)
    every = frozenset({"capacity", "error_rate", "layout"})
    asked = replace(OPTIONS, capacity=5000, error_rate=0.001, layout="classic", explicit=every)
    state = open_or_create(tmp_path, asked)
    assert (1000, 0.01, "paged") == (state.filter.capacity, state.filter.error_rate, state.filter.layout)
    assert [
        f"{tmp_path}/seen.bloom was made with {name}={made}, which stays in force; settings ask for "
        f"{wanted}. `bloomdupe rebuild` makes a filter with other values"
        for name, made, wanted in (
            ("capacity", 1000, 5000),
            ("error_rate", 0.01, 0.001),
            ("layout", "paged", "classic"),
        )
    ] == state.notices
    assert Verdict.DUPLICATE is state.seen.check_and_add(key(1))
    state.close()


def test_defaults_that_nobody_asked_for_give_way_without_a_word(tmp_path: Path) -> None:
    write_state(tmp_path)
    asked = replace(OPTIONS, capacity=5000, error_rate=0.001, layout="classic", scheme="blake2b")
    state = open_or_create(tmp_path, asked)
    assert ([], "murmur3") == (state.notices, state.filter.scheme)
    state.close()


def test_another_name_of_the_same_fingerprints_is_no_other_meaning(tmp_path: Path) -> None:
    write_state(tmp_path)
    state = open_or_create(tmp_path, replace(OPTIONS, identity={**OLD, "fingerprinter": "project.Renamed"}))
    assert [] == state.notices
    state.close()


@pytest.mark.parametrize("options", [OPTIONS, BARE], ids=["lmdb", "bare"])
def test_an_imported_state_takes_the_meaning_of_who_opens_it_first(
    tmp_path: Path, options: StateOptions
) -> None:
    write_state(tmp_path, replace(options, identity={}))
    first = open_or_create(tmp_path, options)
    assert [f"{tmp_path} was imported: its keys count from now on as made by project.Old"] == first.notices
    assert first.seen.check_and_add(key(1)).seen
    if first.environment is not None:
        assert (first.filter.filter_id, first.filter.identity) == read_meta(first.environment)
    first.close()
    second = open_or_create(tmp_path, options)
    assert [] == second.notices
    second.close()
    with pytest.raises(StateMismatch, match=r"its keys were made by project.Old"):
        open_or_create(tmp_path, replace(options, identity=NEW))


def test_an_imported_state_that_is_opened_without_a_meaning_stays_open_to_any(tmp_path: Path) -> None:
    nobody = replace(OPTIONS, identity={})
    write_state(tmp_path, nobody)
    state = open_or_create(tmp_path, nobody)
    assert ([], {"store": "lmdb"}) == (state.notices, state.filter.identity)
    state.close()
    open_or_create(tmp_path, OPTIONS).close()


@pytest.mark.parametrize(
    ("made", "asked", "says"),
    [
        ("paged", "counting", "'mapped', which stays in force; settings ask for 'counting'. Nothing can be"),
        ("counting", "paged", "'counting', which stays in force; settings ask for 'mapped'. It can forget"),
    ],
)
def test_a_filter_of_another_kind_stays_in_force_and_it_is_said(
    tmp_path: Path, made: str, asked: str, says: str
) -> None:
    bare = replace(OPTIONS, store=None, layout=made)
    open_or_create(tmp_path, bare).close()
    for explicit in (frozenset[str](), frozenset({"filter"})):
        state = open_or_create(tmp_path, replace(bare, layout=asked, explicit=explicit))
        assert made == state.filter.layout
        assert (made == "counting") is state.seen.can_forget
        assert len(explicit) == len(state.notices)
        assert all(says in notice for notice in state.notices)
        state.close()


def test_a_state_that_counts_forgets_across_runs(tmp_path: Path) -> None:
    options = replace(OPTIONS, store=None, layout="counting", error_rate=1e-6)
    keys = [bytes([number]) * 20 for number in range(100)]
    state = open_or_create(tmp_path, options)
    assert {Verdict.NEW} == {state.seen.check_and_add(key) for key in keys}
    assert all(state.seen.forget(key) for key in keys[:50])
    state.close()
    state = open_or_create(tmp_path, options)
    assert (True, [], 50) == (state.was_clean, state.notices, state.num_keys())
    assert [False] * 50 + [True] * 50 == [key in state.seen for key in keys]
    assert all(state.seen.forget(key) for key in keys[50:])
    assert 0 == state.num_keys()
    state.close()
