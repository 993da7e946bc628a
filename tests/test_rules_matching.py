"""Is a rule asked about the URLs that it is for, and only about them?"""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_bloomdupe.rules.matching import HostIndex
from scrapy_bloomdupe.rules.rule import Match
from scrapy_bloomdupe.rules.ruleset import RuleSet


def refusal(url: str, asking: str | None = None, /, **match: Any) -> str | None:
    """Return why the only rule is not for *url*; "host": it is no candidate at all."""
    rules = RuleSet.load(rules=[{"name": "r", "match": match, "missing": "drop"}])
    page = rules.page(url)
    for rule in rules.candidates(page):
        return rules.refusal(rule, page, asking)
    return "host"


@pytest.mark.parametrize(
    ("expected", "match", "url"),
    [
        (True, {}, "http://ex.com/"),
        (True, {}, "mailto:a@ex.com"),
        (True, {"domain": "ex.com"}, "http://ex.com/"),
        (True, {"domain": "ex.com"}, "http://a.b.EX.com./"),
        (True, {"domain": "EX.com."}, "http://u:p@ex.com:8080/"),
        (False, {"domain": "ex.com"}, "http://badex.com/"),
        (False, {"domain": "ex.com"}, "http://ex.com.evil.org/"),
        (False, {"domain": "ex.com"}, "http://evil.org/ex.com"),
        (False, {"domain": "ex.com"}, "http://ex.com@evil.org/"),
        (False, {"domain": "ex.com"}, "mailto:a@ex.com"),
        (True, {"domain": "com"}, "http://ex.com/"),
        (True, {"host": "ex.com"}, "https://ex.com/"),
        (False, {"host": "ex.com"}, "http://www.ex.com/"),
        (True, {"host": ["a.com", "b.com"]}, "http://b.com/"),
        (True, {"host": "a.com", "domain": "b.com"}, "http://x.b.com/"),
        (True, {"host": "[::1]"}, "http://[0:0::1]:80/"),
    ],
)
def test_a_host_or_one_of_a_domain_makes_a_rule_a_candidate(
    expected: bool, match: dict[str, Any], url: str
) -> None:
    assert (None if expected else "host") == refusal(url, **match)


@pytest.mark.parametrize(
    ("expected", "match", "url"),
    [
        (None, {"path": "/item/*"}, "http://ex.com/item/a/b"),
        (None, {"path": ["/a", "/b"]}, "http://ex.com/b"),
        (None, {"path": "/a~*"}, "http://ex.com/%61%7E1"),
        ("the path /ab is not one of its", {"path": "/a"}, "http://ex.com/ab"),
        ("the path /A is not one of its", {"path": "/a"}, "http://ex.com/A"),
        ("the path / is not one of its", {"path": "/item/*"}, "http://ex.com/?/item/7"),
        (None, {"path": "/a", "ignore_case": True}, "http://ex.com/A"),
        ("the path /A is excluded", {"exclude_path": "/a", "ignore_case": True}, "http://ex.com/A"),
        ("the path /a/list is excluded", {"path": "/a/*", "exclude_path": "*/list"}, "http://ex.com/a/list"),
        (None, {"regex": r"//ex\.com/~"}, "HTTP://EX.com/%7Ea"),
        ("'x=1' is not in the URL", {"regex": "x=1"}, "http://ex.com/?x=2"),
        (None, {"has": "id"}, "http://ex.com/?%69d=1"),
        (None, {"has": "id"}, "http://ex.com/?id"),
        (None, {"has": ["a b", "c"]}, "http://ex.com/?a+b=1&amp;c=1"),
        ("the parameter 'c' is not there", {"has": ["a", "c"]}, "http://ex.com/?a=c"),
        ("the parameter 'id' is not there", {"has": "id"}, "http://ex.com/?mi_id=1"),
        ("the parameter 'q' is there", {"lacks": "q"}, "http://ex.com/?q="),
        (None, {"lacks": "q"}, "http://ex.com/?qq=q"),
        ("it is for the spiders a, b", {"spider": ["a", "b"]}, "http://ex.com/"),
    ],
)
def test_all_that_a_match_says_must_hold(expected: str | None, match: dict[str, Any], url: str) -> None:
    assert expected == refusal(url, **match)


def test_a_rule_may_be_for_some_spiders() -> None:
    assert refusal("http://ex.com/", "a", spider=["a", "b"]) is None
    assert "it is for the spiders a" == refusal("http://ex.com/", "b", spider="a")


def test_a_hundred_sites_are_not_asked_about_the_url_of_one() -> None:
    matches = [Match(domain=(f"s{number}.com",)) for number in range(100)]
    matches += [Match(host=("www.s7.com",)), Match(), Match(domain=("com",))]
    index = HostIndex(matches)
    assert (7, 100, 101, 102) == index.candidates("www.s7.com")
    assert (8, 101, 102) == index.candidates("s8.com")
    assert (101,) == index.candidates("s8.org")
    assert (101,) == index.candidates("")


def test_hosts_of_a_hostile_site_do_not_fill_the_memory() -> None:
    index = HostIndex([Match(domain=("ex.com",))])
    for number in range(5_000):
        assert (0,) == index.candidates(f"{number}.ex.com")
    assert 4096 == index.candidates.cache_info().currsize


@pytest.mark.parametrize(
    ("action", "url"),
    [
        ("drop", "https://detail.tmall.com/item.htm"),
        ("drop", "https://item.taobao.com/item.htm?mi_id=612345678901"),
        ("key", "https://world.taobao.com/index.htm"),
        ("key", "https://h5.m.taobao.com/item/list.htm"),
        ("key", "https://shop1.tmall.com/category.htm?id=5"),
        ("key", "https://s.taobao.com/search?q=a"),
        ("key", "https://detail.tmall.com/item.htm?id=612345678901&id=612345678902"),
    ],
)
def test_tmall_drops_product_pages_without_an_id_and_no_others(action: str, url: str) -> None:
    decision = RuleSet.load("tmall").decide(url)
    assert (action, None) == (decision.action, decision.source)
    strict = RuleSet.load("tmall_strict").decide(url)
    assert ("key" if url.count("id=6") > 1 else "drop") == strict.action
    assert "key" == RuleSet.load("tmall_strict").decide("http://ex.com/").action


@pytest.mark.parametrize(
    "url",
    [
        "https://detail.tmall.com/item.htm?id=612345678901%20",
        "https://detail.tmall.com/ITEM.htm?spm=a&amp;id=612345678901",
        "https://world.tmall.com/Item/612345678901.HTM",
        "https://h5.m.taobao.com/app/item/612345678901.htm",
        "http://a.m.taobao.com/i612345678901.htm?sid=1",
        "https://detail.ju.taobao.com/home.htm?id=10000059000001&item_id=612345678901",
    ],
)
@pytest.mark.parametrize("preset", ["tmall", "tmall_strict"])
def test_tmall_finds_the_item_in_every_form(preset: str, url: str) -> None:
    assert "v1|taobao_item|12:612345678901" == RuleSet.load(preset).decide(url).key
