"""Is a state whose filter forgets by the clock opened, refused, moved aside and looked at as others are?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from crawling import Cli
from frontiers import pend
from test_opening_mismatch import files

from scrapy_bloomdupe.errors import StateCorrupt, StateMismatch
from scrapy_bloomdupe.filters.generations import GenerationalFilter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create, open_temporary
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.state import State

HOUR = 3600.0
BEGIN = 1_700_000_000.0
IDENTITY = {"fingerprinter": "it", "canary": "c0ffee"}
PLAIN = StateOptions(1000, 1e-9, "paged", "murmur3", None, IDENTITY, frontier=True)
RING = replace(PLAIN, expire=3 * HOUR)
NEW, UNCONFIRMED = Verdict.NEW, Verdict.UNCONFIRMED


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def opened(directory: Path, hours: float = 0, options: StateOptions = RING, **changes: object) -> State:
    return open_or_create(
        directory,
        replace(options, clock=lambda: BEGIN + hours * HOUR, **changes),  # type: ignore[arg-type]
    )


def written(directory: Path, options: StateOptions = RING) -> dict[str, bytes]:
    state = opened(directory, 0, options)
    assert [NEW, NEW, UNCONFIRMED] == state.seen.check_and_add_many([key(1), key(2), key(1)])
    state.close()
    return files(directory)


@pytest.mark.parametrize("frontier", [True, False])
def test_what_was_seen_is_new_again_after_its_time(tmp_path: Path, frontier: bool) -> None:
    options = replace(RING, frontier=frontier)
    written(tmp_path, options)
    expected = [(2.9, [UNCONFIRMED, NEW]), (4.1, [NEW, UNCONFIRMED]), (6.8, [UNCONFIRMED] * 2)]
    for hours, verdicts in expected:
        state = opened(tmp_path, hours, options)
        assert isinstance(state.filter, GenerationalFilter)
        assert verdicts == [state.seen.check_and_add(key(number)) for number in (1, 3)]
        assert (pytest.approx(hours * HOUR), []) == (state.age, state.notices)
        state.close()


def test_a_temporary_one_leaves_nothing() -> None:
    state = open_temporary(RING)
    assert [NEW, UNCONFIRMED] == [state.seen.check_and_add(key(1)) for _ in range(2)]
    assert state.filter.path.is_dir()
    state.close()
    assert not state.directory.exists()


def test_keys_wait_for_the_commit_of_their_requests(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.seen.check_and_add(key(1))
    pend(state, key(1))
    state.flush()
    state.seen.check_and_add(key(2))
    assert [True, False] == [key(number) in state.filter for number in (1, 2)]
    assert 2 == state.num_keys()
    state.close(write=False)
    state = opened(tmp_path)
    assert [UNCONFIRMED, NEW] == [state.seen.check_and_add(key(number)) for number in (1, 2)]
    assert not state.was_clean
    state.close()


def test_a_key_that_waits_is_remembered_from_its_commit_on(tmp_path: Path) -> None:
    now = [BEGIN]
    state = open_or_create(tmp_path, replace(RING, clock=lambda: now[0]))
    state.seen.check_and_add(key(1))
    now[0] += 2 * HOUR
    state.flush()
    now[0] += 2.9 * HOUR
    assert UNCONFIRMED is state.seen.check_and_add(key(1))
    state.close()


@pytest.mark.parametrize("there", ["file", "directory"])
def test_what_was_left_of_one_that_was_being_made_is_no_hindrance(tmp_path: Path, there: str) -> None:
    left = tmp_path / "seen.bloom.new"
    for options in (RING, PLAIN):
        directory = tmp_path / ("ring" if options.expire else "plain")
        directory.mkdir()
        left = directory / "seen.bloom.new"
        if there == "file":
            left.write_bytes(b"torn")
        else:
            left.mkdir()
            (left / "1.bloom").write_bytes(b"torn")
        opened(directory, 0, options).close()
        assert not left.exists()
        left.mkdir()
        opened(directory, 0, options).close()
        assert not left.exists()


MADE = (
    "{0}/seen.bloom was made with BLOOMDUPE_EXPIRE = {1} (BLOOMDUPE_STORE = None): its keys are {2}; "
    "settings ask for BLOOMDUPE_EXPIRE = {3}, which is a filter of another kind. Set BLOOMDUPE_EXPIRE = {1}, "
    "or BLOOMDUPE_ON_MISMATCH = 'new' to move the old state aside and start anew, or use another directory"
)


@pytest.mark.parametrize(
    ("made", "asked", "values"),
    [
        (RING, PLAIN, ("'3h'", "forgotten after that time", "None")),
        (PLAIN, RING, ("None", "never forgotten", "'3h'")),
    ],
    ids=["not any more", "only now"],
)
def test_a_filter_that_forgets_is_not_one_that_does_not(
    tmp_path: Path, made: StateOptions, asked: StateOptions, values: tuple[str, str, str]
) -> None:
    before = written(tmp_path, made)
    with pytest.raises(StateMismatch) as caught:
        opened(tmp_path, 0, asked)
    assert MADE.format(tmp_path, *values) == str(caught.value)
    assert before == files(tmp_path)
    state = opened(tmp_path, 0, asked, on_mismatch="new")
    assert state.is_new
    assert NEW is state.seen.check_and_add(key(1))
    state.close()
    (aside,) = tmp_path.glob("old-*")
    assert before == files(aside)
    # The old one is whole.
    state = opened(aside, 0, made)
    assert UNCONFIRMED is state.seen.check_and_add(key(1))
    state.close()


def test_neither_is_one_with_a_store(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(StateMismatch, match="was made with BLOOMDUPE_STORE = None, settings ask for 'lmdb'"):
        opened(tmp_path, 0, replace(PLAIN, store="lmdb"))


@pytest.mark.parametrize(("expire", "new_at"), [(HOUR, 1), (30 * HOUR, 3)])
def test_another_time_is_taken_over_and_the_shorter_one_holds_for_what_is_there(
    tmp_path: Path, expire: float, new_at: float
) -> None:
    written(tmp_path)
    state = opened(tmp_path, 0, expire=expire)
    shown = f"{expire / HOUR:g}h"
    expected = (
        f"{tmp_path}/seen.bloom was made with BLOOMDUPE_EXPIRE = '3h', settings ask for {shown!r}: what "
        f"comes from now on is remembered for {shown}, what is there for the shorter time of both"
    )
    assert [expected] == state.notices
    assert [UNCONFIRMED, NEW] == [state.seen.check_and_add(key(number)) for number in (1, 3)]
    state.close()
    state = opened(tmp_path, 0.99 * new_at, expire=expire)
    assert [] == state.notices
    assert [UNCONFIRMED, UNCONFIRMED] == [state.seen.check_and_add(key(number)) for number in (1, 3)]
    state.close()
    state = opened(tmp_path, new_at, expire=expire)
    assert [NEW, UNCONFIRMED] == [state.seen.check_and_add(key(number)) for number in (1, 3)]
    state.close()


def test_a_capacity_that_was_asked_for_is_the_one_that_is_there(tmp_path: Path) -> None:
    explicit = frozenset({"capacity", "error_rate"})
    for capacity, notices in ((1000, 0), (1000, 0), (2000, 1)):
        state = opened(tmp_path, capacity=capacity, explicit=explicit)
        assert notices == len(state.notices)
        state.close()


def test_the_age_is_that_of_the_first_generation(tmp_path: Path) -> None:
    for hours, is_new in ((0, True), (20, False), (23, False), (25, True)):
        state = opened(tmp_path, hours, reset=24 * HOUR)
        assert is_new is state.is_new
        state.seen.check_and_add(key(1))
        state.close()


def test_without_a_generation_it_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "seen.bloom" / "1.bloom").unlink()
    with pytest.raises(StateCorrupt, match="holds 0 generations of 0 kinds"):
        opened(tmp_path)


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    return Cli(capsys)


def test_the_commands_know_it(tmp_path: Path, bloomdupe: Cli) -> None:
    before = written(tmp_path)
    code, out, _ = bloomdupe("info", tmp_path)
    assert 0 == code
    assert "forgotten            after 3h to 4h, by 4 generations\n" in out
    found = bloomdupe.json("info", tmp_path)
    assert {"expire": 3 * HOUR, "count": 4} == found["expire"]
    assert (2, int(BEGIN)) == (found["num_keys"], found["created"])
    whole = f"{tmp_path}: whole; there is no exact store to compare\n"
    assert (0, whole, "") == bloomdupe("check", tmp_path)
    for words in (("rebuild", tmp_path), ("forget", tmp_path, "--host", "shop.example")):
        code, _, err = bloomdupe(*words)
        assert 2 == code
        assert f"{tmp_path} has no exact store" in err
    assert 0 == bloomdupe("report", tmp_path, "-o", tmp_path.parent / "report.html")[0]
    assert before == files(tmp_path)
    (tmp_path / "seen.bloom" / "1.bloom").write_bytes(b"torn")
    code, out, _ = bloomdupe("check", tmp_path)
    assert 1 == code
    assert f"{tmp_path}/seen.bloom/1.bloom" in out
