"""Is a state begun anew when it is old enough, nothing pending in it is left behind, and the old one kept?"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from frontiers import frontier_of, pend

from scrapy_bloomdupe.building import FilterValues
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create
from scrapy_bloomdupe.rebuilding import FilterPlan, rebuild
from scrapy_bloomdupe.state import State

DAY = 86_400
BEGIN = 1_700_000_000
OPTIONS = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", {"fingerprinter": "it", "canary": "c0ffee"})
KEY = sha1(b"1").digest()


def opened(directory: Path, days: float, *, reset: float | None = 30 * DAY, **changes: object) -> State:
    options = replace(OPTIONS, reset=reset, clock=lambda: BEGIN + days * DAY, **changes)  # type: ignore[arg-type]
    return open_or_create(directory, options)


def kept(directory: Path) -> list[Path]:
    return sorted(directory.glob("old-*"))


@pytest.mark.parametrize("store", ["lmdb", None])
@pytest.mark.parametrize("frontier", [True, False])
def test_a_state_that_is_old_enough_is_moved_aside_and_begun_anew(
    tmp_path: Path, store: str | None, frontier: bool
) -> None:
    for days, is_new in ((0, True), (29.9, False), (30.1, True), (59, False), (61, True)):
        state = opened(tmp_path, days, store=store, frontier=frontier)
        assert is_new is state.is_new
        assert is_new is not (KEY in state.seen)
        state.seen.check_and_add(KEY)
        state.close()
    aside = kept(tmp_path)
    assert 2 == len(aside)
    expected = (
        f"{tmp_path} was made 30.9d ago and BLOOMDUPE_RESET is 30d: it was moved to {aside[-1]}, and "
        "everything is new. What is there can be deleted"
    )
    assert [expected] == state.notices
    old = open_existing(aside[0])
    assert KEY in old.seen
    old.close()


def test_with_pending_requests_it_waits_and_says_so(tmp_path: Path) -> None:
    state = opened(tmp_path, 0, frontier=True)
    place = pend(state, KEY)
    state.close()
    state = opened(tmp_path, 31, frontier=True)
    assert not state.is_new
    expected = (
        f"{tmp_path} was made 31d ago and BLOOMDUPE_RESET is 30d, but 1 requests are pending in it: it is "
        "begun anew by the first run that finds none. Let this one come to its end"
    )
    assert [expected] == state.notices
    frontier_of(state).find()
    frontier_of(state).remove(*place)
    state.close()
    state = opened(tmp_path, 32, frontier=True)
    assert (True, 1) == (state.is_new, len(kept(tmp_path)))
    state.close()


def test_a_filter_that_is_made_anew_is_as_old_as_before(tmp_path: Path) -> None:
    opened(tmp_path, 0).close()
    rebuild(tmp_path, FilterPlan(), FilterValues(1, 0.1, "paged", "murmur3"), lambda keys, _: keys)
    state = opened(tmp_path, 31)
    assert state.is_new
    state.close()


def test_an_old_state_of_another_meaning_is_no_mismatch(tmp_path: Path) -> None:
    opened(tmp_path, 0).close()
    state = opened(tmp_path, 31, identity={"fingerprinter": "other", "canary": "decaf"})
    assert state.is_new
    state.close()


@pytest.mark.parametrize(("days", "reset"), [(-100, 30.0 * DAY), (-0.0001, 30.0 * DAY), (1000, None)])
def test_a_clock_that_was_set_back_and_no_reset_leave_it_alone(
    tmp_path: Path, days: float, reset: float | None
) -> None:
    opened(tmp_path, 0).close()
    state = opened(tmp_path, days, reset=reset)
    told = ["was made by a clock that was 100d ahead of this one" in notice for notice in state.notices]
    assert (False, [True] if days == -100 else []) == (state.is_new, told)
    state.close()
