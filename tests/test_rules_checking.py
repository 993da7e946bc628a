"""Does a check find what is wrong with rules, and nothing where nothing is?"""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_bloomdupe.rules.checking import check
from scrapy_bloomdupe.rules.ruleset import RuleSet

BASE = "http://ex.com"
ID = {"sources": "query:id"}


def growing(url: str) -> str:
    return f"{url}x"


def problems(*rules: dict[str, Any], preset: str | None = None) -> list[str]:
    return list(check(RuleSet.load(preset, [{"name": f"r{i}", **rule} for i, rule in enumerate(rules)])))


@pytest.mark.parametrize("preset", [None, "safe", "usual", "aggressive", "tmall", "tmall_strict"])
def test_what_the_package_brings_holds(preset: str | None) -> None:
    assert [] == list(check(RuleSet.load(preset)))


def test_rules_that_hold_give_nothing() -> None:
    assert [] == problems(
        {
            "match": {"host": "ex.com"},
            "key": ID,
            "examples": {"same": [f"{BASE}/?id=1", f"{BASE}/a?id=1"], "differ": [f"{BASE}/?id=1", BASE]},
        },
        {"match": {"host": "ex.org"}, "steps": "aggressive", "apply": "url"},
        {
            "match": {"spider": "a"},
            "key": ID,
            "priority": 1,
            "examples": {"differ": [f"{BASE}/?id=1", f"{BASE}/?id=2"]},
        },
    )


def test_an_example_that_does_not_hold_is_told_with_both_keys() -> None:
    same = {"key": ID, "examples": {"same": [f"{BASE}/?id=1", f"{BASE}/a"]}}
    assert [
        (
            "rule 'r0': its example says that http://ex.com/?id=1 and http://ex.com/a are the same, but they "
            "are two pages: 'v1|r0|1:1' (by r0) and 'v1|url|15:http://ex.com/a' (by no rule)"
        )
    ] == problems(same)
    differ = {"key": ID, "examples": {"differ": [f"{BASE}/?id=1", f"{BASE}/a?id=1"]}}
    assert [
        (
            "rule 'r0': its example says that http://ex.com/?id=1 and http://ex.com/a?id=1 are different, "
            "but they are one page: 'v1|r0|1:1' (by r0) and 'v1|r0|1:1' (by r0)"
        )
    ] == problems(differ)


def test_an_example_of_a_spiders_rule_is_asked_for_that_spider() -> None:
    example = {"same": [f"{BASE}/?id=1", f"{BASE}/a?id=1"]}
    assert [] == problems({"key": ID, "match": {"spider": "a"}, "examples": example})


def test_a_step_that_changes_its_own_output_is_found() -> None:
    found = problems(
        {"steps": f"call:{__name__}:growing", "examples": {"differ": [f"{BASE}/a", f"{BASE}/b"]}}
    )
    assert 2 == len(found)
    assert found[0].startswith(
        "rule 'r0': its steps make http://ex.com/ax of http://ex.com/a, and of that http://ex.com/axx: a URL"
    )


def test_a_fetched_url_with_another_key_is_found() -> None:
    # keep_params drops the id; forced, what is fetched is another page.
    rule = {"key": ID, "steps": ["safe", "keep_params:n"], "apply": "url", "force_url": True}
    found = problems({**rule, "examples": {"differ": [f"{BASE}/?id=1&n=1", f"{BASE}/?id=2&n=2"]}})
    assert (
        "rule 'r0': http://ex.com/?id=1&n=1 is fetched as http://ex.com/?n=1, which has another key: "
        "'v1|r0|1:1' and 'v1|url|18:http://ex.com/?n=1'"
    ) in found


@pytest.mark.parametrize(
    ("hidden", "first", "second"),
    [
        (True, {}, {}),
        (True, {}, {"match": {"domain": "ex.com"}, "priority": -1}),
        (True, {"match": {"domain": "ex.com"}}, {"match": {"domain": "a.ex.com"}}),
        (True, {"match": {"domain": "ex.com"}, "priority": 1}, {"match": {"host": "a.ex.com"}}),
        (True, {"match": {"host": "ex.com"}}, {"match": {"host": "ex.com"}, "priority": -1}),
        (True, {"key": None, "apply": "url", "priority": 1}, {}),
        (True, {"key": None, "missing": "drop", "priority": 1}, {}),
        (False, {"missing": "next"}, {}),
        (False, {"key": None, "steps": "usual"}, {}),
        (False, {"match": {"host": "ex.com"}}, {"match": {"domain": "ex.com"}}),
        (False, {"match": {"domain": "ex.com"}}, {"match": {"domain": "badex.com"}}),
        (False, {"match": {"path": "/a"}}, {"match": {"path": "/b"}}),
        (False, {"match": {"has": "a"}}, {}),
        (False, {"match": {"spider": "a"}}, {"match": {"spider": ["a", "b"]}}),
        (False, {"match": {"spider": "a"}}, {}),
        (False, {"match": {"host": "ex.com"}}, {}),
    ],
)
def test_a_rule_that_no_url_can_reach_is_found(
    hidden: bool, first: dict[str, Any], second: dict[str, Any]
) -> None:
    # The order in which they are asked is that of priority, whatever the match says.
    found = problems({"key": ID, "priority": 2, **first}, {"key": ID, **second})
    expected = "rule 'r1' is never asked: 'r0' comes first, is for all of its URLs and hands none on"
    assert hidden == any(problem.startswith(expected) for problem in found)
    assert hidden == bool(found)


def test_an_example_that_another_rule_decides_is_found() -> None:
    assert [
        (
            "rule 'r1': its example http://ex.com/?id=1 is decided by 'r0', which comes first; give one a "
            "priority if that is not meant"
        )
    ] == problems(
        {"match": {"host": "ex.com", "has": "id"}, "key": ID},
        {"match": {"domain": "ex.com"}, "key": ID, "examples": {"differ": [f"{BASE}/?id=1", BASE]}},
    )
