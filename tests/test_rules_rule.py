"""Is a rule that is wrong refused, with its name, the attribute, and what would be right?"""

from __future__ import annotations

import re
from typing import Any

import pytest

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.rule import Key, Match, Rule, make_rule

URLS = ("http://ex.com/1", "http://ex.com/2")


def made(**attributes: Any) -> Rule:
    return make_rule({"name": "shop", "key": {"sources": ["query:id"]}, **attributes}, "rules")


def test_a_dict_becomes_the_same_rule_as_keywords() -> None:
    expected = Rule(
        name="shop",
        match=Match(domain=("ex.com",), path=("/a*", "/b*"), regex="x", ignore_case=True),
        key=Key(sources=("query:id", r"path:(\d+)"), also=("sku",), min_length=3),
        steps=("usual", "strip_www"),
        missing="drop",
        unwrap=("url",),
        priority=2,
        examples=(("same", URLS), ("differ", URLS)),
    )
    found = make_rule(
        {
            "name": "shop",
            "match": {"domain": "ex.com", "path": ["/a*", "/b*"], "regex": "x", "ignore_case": True},
            "key": {"sources": ("query:id", r"path:(\d+)"), "also": "sku", "min_length": 3},
            "steps": ["usual", "strip_www"],
            "missing": "drop",
            "unwrap": "url",
            "priority": 2,
            "examples": {"same": list(URLS), "differ": list(URLS)},
        },
        "rules",
    )
    assert expected == found
    assert expected == make_rule(expected, "rules")


def test_single_strings_stand_for_lists_of_one_in_rule_objects_too() -> None:
    rule = Rule(name="shop", match=Match(domain="ex.com"), key=Key(sources="query:id"))  # type: ignore[arg-type]
    assert ("ex.com",) == make_rule(rule, "rules").match.domain
    assert made(match={"domain": "ex.com"}) == make_rule(rule, "rules")


def test_parts_may_be_objects_in_a_dict() -> None:
    assert made() == made(key=Key(sources=("query:id",)), match=Match())
    assert made(key=None, missing="drop").key is None


@pytest.mark.parametrize(
    "examples",
    [
        {"same": URLS},
        [{"same": list(URLS)}],
        [("same", URLS)],
        (("same", URLS),),
    ],
)
def test_examples_are_written_in_any_of_some_forms(examples: Any) -> None:
    assert (("same", URLS),) == made(examples=examples).examples


def test_the_namespace_is_the_name_unless_it_is_given() -> None:
    assert "shop" == made().namespace
    assert "item" == made(key={"sources": "query:id", "namespace": "item"}).namespace
    assert "shop" == made(key=None, missing="keep").namespace


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"colour": 1}, "rules: rule 'shop': 'colour' is not known; there are name, match, key, steps"),
        ({"expire": "soon"}, "rules: rule 'shop', 'expire': 'soon' is not a length of time such as '30m'"),
        ({"expire": True}, "rules: rule 'shop', 'expire': True is not a length of time"),
        ({"name": 7}, "rules: rule 7, 'name': 7 should be str"),
        ({"name": "a b"}, "name='a b' may have letters, digits and _ . - only"),
        ({"name": ""}, "name='' may have letters"),
        ({"priority": "high"}, "rules: rule 'shop', 'priority': 'high' should be int"),
        ({"force_url": "yes"}, "rule 'shop', 'force_url': 'yes' should be bool"),
        ({"missing": "forget"}, "missing='forget' is not one of url, drop, keep, next"),
        ({"apply": "both"}, "apply='both' is not one of key, url"),
        ({"steps": 5}, "rule 'shop', 'steps': 5 is not a string or a list of strings"),
        ({"steps": ["a", 5]}, "'steps': ['a', 5] is not a string or a list of strings"),
        ({"unwrap": b"u"}, "'unwrap': b'u' is not a string or a list of strings"),
        ({"match": "ex.com"}, "rule 'shop', 'match': 'ex.com' is not a dict"),
        ({"match": None}, "rule 'shop', 'match': None is not a dict"),
        ({"match": {"domains": "x"}}, "rule 'shop', 'match': 'domains' is not known; there are domain, host"),
        ({"match": {"regex": 5}}, "rule 'shop', 'match', 'regex': 5 should be str | None"),
        ({"match": {"regex": "("}}, "rule 'shop', match.regex: '(' is no regular expression"),
        ({"key": 5}, "rule 'shop', 'key': 5 is not a dict"),
        ({"key": {}}, "rule 'shop', 'key': 'sources' is missing"),
        ({"key": {"sources": []}}, "rule 'shop': key.sources is empty; write for example 'query:id'"),
        ({"key": {"sources": "id"}}, "rule 'shop': source 'id' is not one of query:NAME, path:REGEX"),
        ({"key": {"sources": "query:"}}, "source 'query:' is not one of query:NAME"),
        ({"key": {"sources": "cookie:id"}}, "source 'cookie:id' is not one of query:NAME"),
        ({"key": {"sources": "path:["}}, "rule 'shop', source 'path:[': '[' is no regular expression"),
        ({"key": {"sources": "query:id", "pattern": "*"}}, "rule 'shop', key.pattern: '*' is no regular"),
        (
            {"key": {"sources": "query:id", "encoding": "klingon"}},
            "encoding='klingon' is not known to Python",
        ),
        ({"key": {"sources": "query:id", "repeated": "all"}}, "repeated='all' is not one of reject, first"),
        ({"key": {"sources": "query:id", "namespace": "a|b"}}, "namespace='a|b' may have letters"),
        ({"key": {"sources": "query:id", "min_length": "8"}}, "'key', 'min_length': '8' should be int"),
        ({"key": None}, "rule 'shop': it says nothing; give it a key, steps, unwrap, missing, apply,"),
        ({"key": None, "missing": "next"}, "rule 'shop': it says nothing"),
        ({"examples": 5}, "rule 'shop', 'examples': 5 is no example"),
        ({"examples": [5]}, "'examples': 5 is no example"),
        ({"examples": {"same": URLS[0]}}, 'is no example; write {"same": [url, url]}'),
        ({"examples": {"same": [URLS[0]]}}, "is no example"),
        ({"examples": {"same": None}}, "is no example"),
        ({"examples": {"same": [1, 2]}}, "is no example"),
        ({"examples": {"alike": URLS}}, "is no example"),
        ({"examples": [("same",)]}, "is no example"),
    ],
)
def test_what_is_wrong_is_named_with_its_rule(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        made(**attributes)


def test_a_rule_without_a_name_says_so() -> None:
    with pytest.raises(ConfigurationError, match="BLOOMDUPE_RULES: rule 'without a name': 'name' is missing"):
        make_rule({"missing": "drop"}, "BLOOMDUPE_RULES")


@pytest.mark.parametrize("given", [5, None, "shop", ["name", "shop"]])
def test_what_is_neither_a_dict_nor_a_rule_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="rules: a rule is a dict or a Rule, not"):
        make_rule(given, "rules")


@pytest.mark.parametrize(
    "attributes", [{"steps": "usual"}, {"unwrap": "u"}, {"missing": "keep"}, {"apply": "url"}]
)
def test_a_rule_without_a_key_may_say_something_else(attributes: dict[str, Any]) -> None:
    assert made(key=None, **attributes).key is None


@pytest.mark.parametrize(
    ("expected", "attributes"),
    [
        (True, {}),
        (False, {"missing": "next"}),
        (False, {"missing": "next", "apply": "url"}),
        (True, {"key": None, "missing": "drop"}),
        (True, {"key": None, "missing": "keep"}),
        (False, {"key": None, "steps": "usual"}),
        (True, {"key": None, "apply": "url"}),
    ],
)
def test_a_rule_knows_whether_others_are_asked_after_it(expected: bool, attributes: dict[str, Any]) -> None:
    assert expected is made(**attributes).is_last


@pytest.mark.parametrize("expire", ["1h", 3600, 3600.0])
def test_a_rule_can_say_when_its_pages_expire_and_nothing_else(expire: Any) -> None:
    assert 3600 == made(expire=expire).expire
    alone = make_rule({"name": "lists", "expire": expire}, "rules")
    assert (3600, False) == (alone.expire, alone.makes_keys)
    assert (None, True) == (made().expire, made().makes_keys)
    assert alone == make_rule(alone, "rules")
