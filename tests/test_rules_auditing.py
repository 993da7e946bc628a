"""Does an audit count what the rules merge, and find the URLs in lists, JSON lines and logs?"""

from __future__ import annotations

import pytest

from scrapy_bloomdupe.rules.auditing import audit, read_urls
from scrapy_bloomdupe.rules.ruleset import RuleSet

BASE = "http://ex.com"
RULES = RuleSet.load(
    "usual",
    [
        {
            "name": "item",
            "match": {"path": "/item*"},
            "key": {"sources": ["query:id", r"path:/item/(\d+)"]},
            "missing": "drop",
        },
        {"name": "live", "match": {"path": "/live"}, "missing": "keep"},
    ],
)
URLS = [
    f"{BASE}/item?id=7",
    f"{BASE}/item/7",
    f"{BASE}/item?id=7&x=1",
    f"{BASE}/item?id=7",
    f"{BASE}/item?id=8",
    f"{BASE}/item",
    f"{BASE}/?a=1&b=2",
    f"{BASE}/?b=2&a=1",
    f"{BASE}/live",
    f"{BASE}/live#2",
]


def test_urls_are_counted_by_what_the_rules_make_of_them() -> None:
    found = audit(RULES, URLS)
    assert (10, 9, 5, 1) == (found.urls, found.distinct, found.pages, found.dropped)
    assert {"item": 5, "live": 2, "-": 2} == found.by_rule
    assert {"item": 1, "live": 2} == found.missed


def test_the_largest_groups_come_first_with_some_of_their_urls() -> None:
    found = audit(RULES, URLS)
    assert [("v1|item|1:7", "item", 3), (f"v1|url|22:{BASE}/?a=1&b=2", None, 2)] == [
        (group.key, group.rule, group.count) for group in found.groups
    ]
    assert URLS[:3] == found.groups[0].samples
    many = audit(RULES, (f"{BASE}/item?id=7&n={number}" for number in range(100)))
    assert (100, 5) == (many.groups[0].count, len(many.groups[0].samples))


def test_the_order_of_the_urls_does_not_change_the_counts() -> None:
    there, back = audit(RULES, URLS), audit(RULES, URLS[::-1])
    assert (there.by_rule, there.missed, there.pages) == (back.by_rule, back.missed, back.pages)
    assert [(g.key, g.count) for g in there.groups] == [(g.key, g.count) for g in back.groups]


def test_nothing_gives_nothing() -> None:
    found = audit(RULES, [])
    assert (0, 0, 0, 0, []) == (found.urls, found.distinct, found.pages, found.dropped, found.groups)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("http://ex.com/a?b#c\n", "http://ex.com/a?b#c"),
        ("  HTTPS://EX.com/ \r\n", "HTTPS://EX.com/"),
        ("mailto:a@ex.com", "mailto:a@ex.com"),
        ('{"url": "http://ex.com/a b", "id": 7}', "http://ex.com/a b"),
        ('{"url": 7, "see": "http://ex.com/"}', "http://ex.com/"),
        ('{"url": "http://ex.com/', "http://ex.com/"),
        ('["http://ex.com/"]', "http://ex.com/"),
        (
            "2026-01-02 03:04:05 [x] DEBUG: Crawled (200) <GET http://ex.com/a?b=1> (referer: None)",
            "http://ex.com/a?b=1",
        ),
        ('1.2.3.4 - - "GET /" 200 "http://ex.com/a"', "http://ex.com/a"),
        ("\ufeffhttp://ex.com/", "http://ex.com/"),
        ("", None),
        ("# a comment", None),
        ("{}", None),
        ("just words", None),
    ],
)
def test_a_line_gives_its_url(line: str, expected: str | None) -> None:
    assert ([] if expected is None else [expected]) == list(read_urls([line]))
