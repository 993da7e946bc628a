"""Do the lines about a URL say what was done to it, who decided, and where two URLs part?"""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_bloomdupe.rules.explaining import compare, explain
from scrapy_bloomdupe.rules.ruleset import RuleSet

BASE = "http://ex.com"
ID = {"sources": "query:id"}
TMALL = RuleSet.load("tmall")


def loaded(*rules: dict[str, Any]) -> RuleSet:
    return RuleSet.load(rules=[{"name": f"r{i}", **rule} for i, rule in enumerate(rules)])


def about(rules: RuleSet, url: str, spider: str | None = None) -> list[str]:
    """Return the lines about rules only."""
    start = "  rule:    "
    return [line.removeprefix(start) for line in explain(rules, url, spider) if line.startswith(start)]


def test_each_step_is_told_with_what_it_made_of_the_url() -> None:
    url = "HTTP://EX.com./?b=2&a=1#top"
    assert [
        "HTTP://EX.com./?b=2&a=1#top",
        "  parse                http://ex.com./?b=2&a=1#top",
        "  percent              =",
        "  host_dot             http://ex.com/?b=2&a=1#top",
        "  empty_pairs          =",
        "  plus_space           =",
        "  form_escapes         =",
        "  sort_params          http://ex.com/?a=1&b=2#top",
        "  lone_query           =",
        "  drop_plain_fragment  http://ex.com/?a=1&b=2",
        "  rule:    none is for this host; the canonical URL is the key",
        "  key:     v1|url|22:http://ex.com/?a=1&b=2",
        "  fetched: HTTP://EX.com./?b=2&a=1#top",
    ] == list(explain(RuleSet.load("usual"), url))


def test_the_rule_that_decided_is_told_with_its_source() -> None:
    url = "https://detail.tmall.com/item.htm?id=612345678901&spm=a"
    assert [
        "  rule:    tmall_item: found the id by query:id",
        "  key:     v1|taobao_item|12:612345678901",
        f"  fetched: {url}",
    ] == list(explain(TMALL, url))[-3:]


def test_a_dropped_url_and_one_that_is_never_a_duplicate_are_told() -> None:
    assert [
        "  rule:    tmall_item: found no id, missing = 'drop'",
        "  key:     v1|url|33:https://detail.tmall.com/item.htm",
        "  fetched: nothing, it is dropped",
    ] == list(explain(TMALL, "https://detail.tmall.com/item.htm"))[-3:]
    assert [
        "  rule:    r0: found no id, missing = 'keep'",
        f"  key:     v1|url|15:{BASE}/a",
        f"  fetched: {BASE}/a",
        "  never a duplicate: missing = 'keep'",
    ] == list(explain(loaded({"missing": "keep"}), f"{BASE}/a"))[-4:]


def test_what_is_no_url_is_told_as_it_is() -> None:
    assert [
        "no url",
        "  parse  =",
        "  rule:    none is for this host; the canonical URL is the key",
        "  key:     v1|url|6:no url",
        "  fetched: no url",
    ] == list(explain(RuleSet.load(), "no url"))


def test_every_rule_that_was_asked_is_told_and_no_other() -> None:
    rules = loaded(
        {"match": {"path": "/list"}, "missing": "keep"},
        {"key": {"sources": "query:n"}, "missing": "next"},
        {"steps": "usual"},
        {"key": ID},
        {"key": ID, "priority": -1},
    )
    asked = [
        "r0: not for this URL, the path / is not one of its",
        "r1: found no id it can trust, missing = 'next'",
        "r2: has no key of its own",
    ]
    assert [*asked, "r3: found the id by query:id"] == about(rules, f"{BASE}/?id=1")
    no_id = [
        "r3: found no id it can trust, missing = 'url'",
        "none found an id; the canonical URL is the key",
    ]
    assert asked + no_id == about(rules, f"{BASE}/")
    assert asked + no_id == about(rules, f"{BASE}/?id=1&id=2")


def test_a_rule_of_another_spider_is_told() -> None:
    rules = loaded({"match": {"spider": "a"}, "key": ID})
    assert ["r0: found the id by query:id"] == about(rules, f"{BASE}/?id=1", "a")
    assert "r0: not for this URL, it is for the spiders a" == about(rules, f"{BASE}/?id=1", "b")[0]


def test_an_id_of_a_nested_url_is_told() -> None:
    rules = loaded({"match": {"host": "go.com"}, "unwrap": "u"}, {"match": {"host": "ex.com"}, "key": ID})
    assert [
        "r0: has no key of its own",
        "r1: by the URL inside it, query:id",
    ] == about(rules, f"http://go.com/?u={BASE}/?id=7")


def test_the_steps_that_are_shown_are_those_that_made_the_key() -> None:
    # The second rule is never reached: the first one falls back to the URL.
    rules = loaded({"match": {"host": "ex.com"}, "key": ID}, {"steps": "usual"})
    lines = list(explain(rules, f"{BASE}/?b=1&a=1"))
    assert not [line for line in lines if line.startswith("  sort_params")]
    assert f"  key:     v1|url|22:{BASE}/?b=1&a=1" in lines


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (f"{BASE}/#a", f"{BASE}/", ["one page, by their canonical URL"]),
        (
            "https://detail.tmall.com/item.htm?id=612345678901",
            "https://world.tmall.com/item/612345678901.htm",
            ["one page, by tmall_item"],
        ),
        (
            "https://detail.tmall.com/item.htm?id=612345678901",
            "https://detail.tmall.com/item.htm?id=612345678902",
            ["two pages: tmall_item finds different ids"],
        ),
        (
            "https://detail.tmall.com/item.htm?id=612345678901",
            f"{BASE}/",
            ["two pages: the first is decided by tmall_item, the second by no rule"],
        ),
        (
            f"{BASE}/?a=1&b=2",
            f"{BASE}/?b=3&a=1",
            [
                "two pages: their canonical URLs part at character 22:",
                f"  {BASE}/?a=1&b=[2]",
                f"  {BASE}/?a=1&b=[3]",
            ],
        ),
        (
            "https://detail.tmall.com/item.htm",
            "https://detail.tmall.com/item.htm?x",
            [
                "two pages: their canonical URLs part at character 34:",
                "  https://detail.tmall.com/item.htm[]",
                "  https://detail.tmall.com/item.htm[?x]",
            ],
        ),
    ],
)
def test_two_urls_are_compared(first: str, second: str, expected: list[str]) -> None:
    assert expected == list(compare(TMALL, first, second))


def test_urls_that_are_never_duplicates_are_two_pages() -> None:
    expected = "two pages: one of them at least is never a duplicate, missing = 'keep'"
    assert [expected] == list(compare(loaded({"missing": "keep"}), f"{BASE}/a", f"{BASE}/a#b"))
