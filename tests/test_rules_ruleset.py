"""Which key has a URL, what is fetched, and by which rule; and what changes the digest of the rules?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.rule import Key, Match, Rule
from scrapy_bloomdupe.rules.ruleset import RuleSet

BASE = "http://ex.com"
ID = {"sources": "query:id"}


def loaded(*rules: dict[str, Any], preset: str | None = None) -> RuleSet:
    return RuleSet.load(preset, [{"name": f"r{number}", **rule} for number, rule in enumerate(rules)])


def test_without_rules_the_canonical_url_is_the_key() -> None:
    decision = RuleSet.load().decide("HTTP://EX.com/%7ea?#top")
    assert ("key", "v1|url|16:http://ex.com/~a", None) == (decision.action, decision.key, decision.rule)
    assert "HTTP://EX.com/%7ea?#top" == decision.url
    assert (None, None, None) == (decision.missed, decision.source, decision.steps_by)
    assert "usual" == RuleSet.load("usual").decide(BASE).steps_by


def test_an_id_is_the_key_in_its_namespace() -> None:
    decision = loaded({"key": ID}).decide(f"{BASE}/a?id=7")
    assert ("v1|r0|1:7", "r0", "query:id") == (decision.key, decision.rule, decision.source)
    assert 20 == len(decision.digest())
    assert decision.digest() == loaded({"key": ID}).decide("http://other.org/?id=7").digest()


@pytest.mark.parametrize(
    ("missing", "action", "rule"),
    [("url", "key", None), ("drop", "drop", "r0"), ("keep", "keep", "r0"), ("next", "key", None)],
)
def test_what_a_page_without_an_id_is_depends_on_the_rule(
    missing: str, action: str, rule: str | None
) -> None:
    decision = loaded({"key": ID, "missing": missing}).decide(f"{BASE}/a")
    assert (action, rule, "r0", f"v1|url|15:{BASE}/a") == (
        decision.action,
        decision.rule,
        decision.missed,
        decision.key,
    )


def test_the_next_rule_is_asked_only_if_the_first_one_says_so() -> None:
    other = {"key": {"sources": "query:n"}}
    for missing, expected in (("url", None), ("drop", "r0"), ("keep", "r0"), ("next", "r1")):
        rules = loaded({"key": ID, "missing": missing}, other)
        assert expected == rules.decide(f"{BASE}/?n=1").rule
        assert "r0" == rules.decide(f"{BASE}/?n=1&id=2").rule


def test_the_spiders_rules_come_first_then_the_projects_then_those_of_files_then_the_presets(
    tmp_path: Any,
) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[[rules]]\nname = "file"\npriority = 9\nkey = { sources = "query:id" }\n')
    found = RuleSet.load(
        "tmall", [{"name": "project", "key": ID}], [path], first=[{"name": "own", "priority": -9, "key": ID}]
    )
    assert ["own", "project", "file", "tmall_item", "tmall_group_buy"] == [r.name for r in found.rules]


def test_inside_a_level_priority_then_specificity_then_place_decide() -> None:
    found = loaded(
        {"key": ID},
        {"key": ID, "match": {"domain": "ex.com"}},
        {"key": ID, "match": {"domain": "ex.com", "path": "/a"}},
        {"key": ID, "match": {"host": "ex.com"}},
        {"key": ID, "priority": 1},
        {"key": ID},
    )
    assert ["r4", "r3", "r2", "r1", "r0", "r5"] == [rule.name for rule in found.rules]


def test_the_method_and_the_body_are_part_of_the_key() -> None:
    rules = loaded({"key": ID})
    requests = [("GET", b""), ("POST", b""), ("HEAD", b""), ("POST", b"a"), ("POST", b"b"), ("GET", b"a")]
    keys = {rules.decide(f"{BASE}/?id=7", method, body).key for method, body in requests}
    assert len(requests) == len(keys)
    assert rules.decide(f"{BASE}/?id=7", "post").key == rules.decide(f"{BASE}/?id=7", "POST").key
    assert "v1|r0|1:7|POST|" in rules.decide(f"{BASE}/?id=7", "POST").key


def test_rules_share_ids_only_in_one_namespace() -> None:
    a = {"match": {"host": "a.com"}, "key": {**ID, "namespace": "item"}}
    b = {"match": {"host": "b.com"}, "key": {**ID, "namespace": "item"}}
    rules = loaded(a, b, {"key": ID})
    keys = [rules.decide(f"http://{host}/?id=7").key for host in ("a.com", "b.com", "c.com")]
    assert ["v1|item|1:7", "v1|item|1:7", "v1|r2|1:7"] == keys


def test_a_rule_for_a_spider_is_for_no_other() -> None:
    rules = loaded({"key": ID, "match": {"spider": "a"}})
    assert "r0" == rules.decide(f"{BASE}/?id=7", spider="a").rule
    assert rules.decide(f"{BASE}/?id=7", spider="b").rule is None
    assert rules.decide(f"{BASE}/?id=7").rule is None


def test_steps_of_a_rule_replace_those_of_the_preset_for_its_urls() -> None:
    rules = loaded({"match": {"host": "ex.com"}, "steps": ["usual", "strip_www"]}, {"steps": "safe"})
    assert f"v1|url|22:{BASE}/?a=1&b=2" == rules.decide(f"{BASE}/?b=2&a=1").key
    assert "r0" == rules.decide(BASE).steps_by
    assert "v1|url|22:http://ex.org/?b=2&a=1" == rules.decide("http://ex.org/?b=2&a=1").key


def test_a_request_is_rewritten_by_steps_that_are_safe_to_fetch_only_unless_forced() -> None:
    steps = ["safe", "drop_params:tracking", "sort_params", "strip_www"]
    url = "http://WWW.ex.com/?b=1&a=2&utm_source=x#top"
    plain = loaded({"steps": steps, "apply": "url"}).decide(url)
    forced = loaded({"steps": steps, "apply": "url", "force_url": True}).decide(url)
    assert "http://www.ex.com/?b=1&a=2" == plain.url
    assert "http://ex.com/?a=2&b=1" == forced.url
    assert plain.key == forced.key == "v1|url|22:http://ex.com/?a=2&b=1"
    assert f"{BASE}/" == loaded({"apply": "url"}).decide(f"{BASE}/#a").url
    assert f"{BASE}/?id=7" == loaded({"apply": "url", "key": ID}).decide(f"{BASE}/?id=7#a").url


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("http://ex.com/p?id=7", "7"),
        ("http%3A%2F%2Fex.com%2Fp%3Fid%3D7", "7"),
        ("http%253A%252F%252Fex.com%252Fp%253Fid%253D7", "7"),
        ("http%25253A%25252F%25252Fex.com%25252Fp%25253Fid%25253D7", "7"),
        ("HTTP%3A%2F%2FEX.com%2Fp%3Fid%3D7", "7"),
        ("%2Fp%3Fid%3D7", "7"),
        ("%2F%2Fex.com%2Fp%3Fid%3D7", "7"),
        ("http%3A%2F%2Fother.org%2Fp%3Fid%3D7", None),
        ("p%3Fid%3D7", None),
        ("%2F%2F%5B", None),
        ("", None),
        ("%FF", None),
    ],
)
def test_a_nested_url_gives_the_id_of_its_own_page(inner: str, expected: str | None) -> None:
    item = {"match": {"host": "ex.com", "path": "/p"}, "key": ID}
    rules = loaded({"unwrap": ["to", "url"], "match": {"domain": "ex.com", "path": "/go"}}, item)
    url = f"http://ex.com/go?x=1&url={inner}"
    decision = rules.decide(url)
    assert (expected and f"v1|r1|1:{expected}") == (decision.key if decision.rule else None)
    assert url == decision.url


def test_urls_are_unwrapped_three_deep_and_no_further() -> None:
    from urllib.parse import quote

    rules = loaded({"unwrap": "u", "key": ID})
    url = f"{BASE}/?id=7"
    for depth in range(1, 6):
        url = f"{BASE}/?u={quote(url, safe='')}"
        assert (depth <= 3) == (rules.decide(url).rule is not None), depth


def test_an_id_on_the_page_goes_before_the_one_inside_it() -> None:
    assert "v1|r0|1:1" == loaded({"unwrap": "u", "key": ID}).decide(f"{BASE}/?id=1&u=http://ex.com/?id=2").key


@given(st.text())
def test_no_text_makes_the_rules_raise(text: str) -> None:
    for url in (text, f"http://ex.com/?u={text}", f"http://ex.com/?u=//{text}"):
        for rules in RULES:
            assert 20 == len(rules.decide(url).digest())


RULES = [
    RuleSet.load("tmall_strict"),
    RuleSet.load(
        "aggressive",
        [{"name": "r", "unwrap": "u", "missing": "next", "key": {"sources": ["query:id", "fragment:(.+)"]}}],
    ),
]


RULE = Rule(
    "r", Match(host=("ex.com",)), Key(("query:id",)), examples=(("differ", ("http://a/", "http://b/")),)
)


@pytest.mark.parametrize(
    "changed",
    [
        replace(RULE, match=Match(host=("ex.org",))),
        replace(RULE, match=replace(RULE.match, ignore_case=True)),
        replace(RULE, key=Key(("query:id", "query:n"))),
        replace(RULE, key=Key(("query:id",), encoding="gbk")),
        replace(RULE, key=None, steps=("usual",)),
        replace(RULE, steps=("usual",)),
        replace(RULE, missing="drop"),
        replace(RULE, apply="url"),
        replace(RULE, force_url=True),
        replace(RULE, unwrap=("u",)),
        replace(RULE, priority=1),
    ],
)
def test_the_digest_changes_with_each_attribute(changed: Rule) -> None:
    before, after = RuleSet.load(rules=[RULE]).digest(), RuleSet.load(rules=[changed]).digest()
    assert {"*", "r"} == set(before)
    assert before["*"] != after["*"]
    assert before["r"] != after["r"]


def test_the_digest_does_not_change_with_examples_and_does_with_preset_name_and_order() -> None:
    digest = RuleSet.load(rules=[RULE]).digest()
    assert digest == RuleSet.load(rules=[replace(RULE, examples=())]).digest()
    assert digest["*"] != RuleSet.load("usual", [RULE]).digest()["*"]
    assert digest["r"] == RuleSet.load("usual", [RULE]).digest()["r"]
    two = [RULE, replace(RULE, name="s")]
    assert RuleSet.load(rules=two).digest()["*"] != RuleSet.load(rules=two[::-1]).digest()["*"]


def test_what_is_wrong_is_said_when_rules_are_loaded() -> None:
    with pytest.raises(
        ConfigurationError, match="preset='shiny' is not known; take one of safe, usual, five"
    ):
        RuleSet.load("shiny")
    with pytest.raises(ConfigurationError, match="two rules are called 'r'; give each a name of its own"):
        RuleSet.load(rules=[RULE], first=[RULE])
    with pytest.raises(ConfigurationError, match="rule 'r': step 'shiny' is not known"):
        RuleSet.load(rules=[{"name": "r", "steps": "shiny"}])
    with pytest.raises(ConfigurationError, match="the spider's rules: rule 'r': it says nothing"):
        RuleSet.load(first=[{"name": "r"}])


LISTS = {"name": "lists", "match": {"path": "/list/*"}, "expire": "1h"}


def test_when_a_page_expires_changes_no_key_and_no_digest() -> None:
    before, after = RuleSet.load(rules=[RULE]), RuleSet.load(rules=[LISTS, replace(RULE, expire=60.0)])
    assert before.digest() == after.digest()
    assert {} == RuleSet.load(rules=[LISTS]).digest()
    for url in ("http://a.example/list/1?id=5", "http://a.example/?id=5", "http://a.example/"):
        one, other = before.decide(url), after.decide(url)
        assert (one.key, one.rule, one.url, one.action) == (other.key, other.rule, other.url, other.action)


@pytest.mark.parametrize(
    ("expected", "url"),
    [
        ((None, None, None), "http://a.example/"),
        ((3600.0, "lists", "lists"), "http://a.example/list/1"),
        # The rule that decides goes before the one that comes first...
        ((60.0, "ids", "ids"), "http://a.example/list/1?id=5"),
        # ... unless it says nothing of it.
        ((3600.0, "lists", "names"), "http://a.example/list/1?name=5"),
        ((60.0, "ids", "ids"), "http://a.example/?u=http://a.example/x?id=5"),
        ((7.0, "wraps", "names"), "http://a.example/?u=http://a.example/x?name=5"),
    ],
)
def test_the_rule_that_decides_says_when_a_page_expires_else_the_first(
    expected: tuple[float | None, str | None, str | None], url: str
) -> None:
    rules = RuleSet.load(
        rules=[
            {**LISTS, "priority": 2},
            {"name": "wraps", "match": {"has": "u"}, "unwrap": "u", "expire": 7, "priority": 1},
            {"name": "names", "key": {"sources": "query:name"}, "missing": "next"},
            {"name": "ids", "key": {"sources": "query:id"}, "missing": "next", "expire": "1m"},
        ]
    )
    decision = rules.decide(url)
    assert expected == (decision.expire, decision.expire_by, decision.under)
