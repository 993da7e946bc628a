"""Is a state whose keys were made by other rules refused by name, untouched, or moved aside?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from scrapy_bloomdupe.errors import StateMismatch
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.rules.ruleset import RuleSet
from scrapy_bloomdupe.seen import Verdict

MEANING = {"fingerprinter": "project.Fingerprinter", "canary": "a" * 64}
PLAIN = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", MEANING)
IMPORTED = replace(PLAIN, identity={})
KEY = b"k" * 20


def by_rules(*names: str, preset: str | None = None, missing: str = "url") -> StateOptions:
    rules = [{"name": name, "key": {"sources": ["query:id"]}, "missing": missing} for name in names]
    digest = RuleSet.load(preset, rules).digest()
    return PLAIN.with_identity({**MEANING, "rules": digest["*"]}, digest)


def write(directory: Path, options: StateOptions) -> None:
    state = open_or_create(directory, options)
    state.seen.check_and_add(KEY)
    state.close()


def contents(directory: Path) -> dict[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file() and not path.name.endswith("lock"))
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


ORDER = "the preset, the order of the rules, or the version of the engine changed"
CHANGES = [
    (by_rules("a", "b"), by_rules("a"), "'b' is gone"),
    (by_rules("a"), by_rules("a", "b"), "'b' is new"),
    (by_rules("a"), by_rules("a", missing="drop"), "'a' changed"),
    (by_rules("a", "b"), by_rules("b", "a"), ORDER),
    (by_rules(preset="usual"), by_rules(preset="five"), ORDER),
    (by_rules("a"), PLAIN, "it has none now"),
    (PLAIN, by_rules("a"), "'a' is new"),
    (PLAIN, by_rules(preset="usual"), ORDER),
]


@pytest.mark.parametrize(("before", "after", "said"), CHANGES)
@pytest.mark.parametrize("store", ["lmdb", None])
def test_other_rules_are_refused_by_name_and_nothing_is_changed(
    tmp_path: Path, before: StateOptions, after: StateOptions, said: str, store: str | None
) -> None:
    write(tmp_path, replace(before, store=store))
    was = contents(tmp_path)
    with pytest.raises(StateMismatch) as caught:
        open_or_create(tmp_path, replace(after, store=store))
    assert (
        f"{tmp_path}: its keys were made by other rules than the project now has: {said}. The same request "
        "can get another key: pages would be crawled again, and pages that the old rules told apart could "
        "be taken for one. Go back to the former rules, set BLOOMDUPE_ON_MISMATCH = 'new' to move the old "
        "state aside and start anew, or use another directory"
    ) == str(caught.value)
    assert was == contents(tmp_path)


def test_where_rules_and_canary_differ_the_rules_are_named(tmp_path: Path) -> None:
    write(tmp_path, by_rules("a"))
    other = by_rules("b")
    with pytest.raises(StateMismatch, match="'a' is gone, 'b' is new"):
        open_or_create(tmp_path, replace(other, identity={**other.identity, "canary": "b" * 64}))


def test_without_the_file_of_rules_a_change_is_still_refused(tmp_path: Path) -> None:
    write(tmp_path, by_rules("a"))
    for damage in (b"", b"[1]", b"\xff"):
        (tmp_path / "seen.rules.json").write_bytes(damage)
        with pytest.raises(StateMismatch, match="'b' is new"):
            open_or_create(tmp_path, by_rules("b"))
    (tmp_path / "seen.rules.json").unlink()
    state = open_or_create(tmp_path, by_rules("a"))
    assert Verdict.DUPLICATE is state.seen.check_and_add(KEY)
    state.close()


@pytest.mark.parametrize(("before", "after", "said"), CHANGES)
def test_asked_to_start_anew_the_old_state_lies_aside_whole(
    tmp_path: Path, before: StateOptions, after: StateOptions, said: str
) -> None:
    write(tmp_path, before)
    rules = contents(tmp_path).get("seen.rules.json")
    state = open_or_create(tmp_path, replace(after, on_mismatch="new"))
    assert Verdict.NEW is state.seen.check_and_add(KEY)
    assert [True] == [said in notice for notice in state.notices]
    state.close()
    (aside,) = tmp_path.glob("old-*")
    assert rules == contents(aside).get("seen.rules.json")
    old = open_or_create(aside, before)
    assert Verdict.DUPLICATE is old.seen.check_and_add(KEY)
    old.close()


def test_what_was_imported_is_refused_with_rules_and_not_even_opened(tmp_path: Path) -> None:
    write(tmp_path, IMPORTED)
    was: Mapping[str, bytes] = contents(tmp_path)
    with pytest.raises(StateMismatch, match=r"was imported .* Crawl without rules, or set BLOOMDUPE_ON_M"):
        open_or_create(tmp_path, by_rules("a"))
    assert was == contents(tmp_path)
    state = open_or_create(tmp_path, PLAIN)
    assert state.was_clean
    assert Verdict.DUPLICATE is state.seen.check_and_add(KEY)
    state.close()
