"""Do the ways in which a rule once merged two pages stay closed?"""

from __future__ import annotations

import pytest

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.presets import PRESETS, pipeline
from scrapy_bloomdupe.rules.ruleset import RuleSet


def rules(**rule: object) -> RuleSet:
    return RuleSet.load(rules=[{"name": "r", "match": {"domain": "s.ex"}, **rule}])


def test_an_optional_group_that_takes_no_part_is_no_id_and_the_next_source_is_asked() -> None:
    found = rules(key={"sources": [r"path:^/item(?:/(\d+))?$", "query:id"]})
    keys = [found.decide(f"https://s.ex/item{end}").key for end in ("?id=1", "?id=2", "/1")]
    assert ["v1|r|1:1", "v1|r|1:2", "v1|r|1:1"] == keys


def test_a_group_that_takes_no_part_keeps_its_place() -> None:
    found = rules(key={"sources": [r"path:^/p/(\d+)(?:/c(\d+))?(?:/v(\d+))?$"]})
    assert 3 == len({found.decide(f"https://s.ex/p/1{end}").key for end in ("", "/c2", "/v2")})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "url", ["file:///%41|", "file:////C|", "file://localhost.%2e", "file:///a//b/", "FILE:///C|/../x"]
)
def test_a_preset_is_idempotent_on_files_too(preset: str, url: str) -> None:
    canonical = pipeline(preset)
    once = canonical(url)
    assert once == canonical(once)


@pytest.mark.parametrize(
    "url",
    [
        "https://h5.m.taobao.com/order/detail.htm?orderId=123456789",
        "https://h5.m.taobao.com/news/detail.htm?id=12345678",
        "https://world.taobao.com/shop/detail.htm?shop_id=12345678",
        "https://item.taobao.com/rate/item.htm?id=612345678901",
        "https://ju.taobao.com/search.htm?item_id=612345678901",
    ],
)
def test_tmall_speaks_of_product_pages_only(url: str) -> None:
    decision = RuleSet.load("tmall").decide(url)
    assert ("key", None) == (decision.action, decision.rule)


def test_two_different_urls_inside_are_none() -> None:
    found = RuleSet.load(
        rules=[
            {"name": "out", "match": {"host": "go.ex"}, "unwrap": "u"},
            {"name": "r", "match": {"domain": "s.ex"}, "key": {"sources": "query:id"}},
        ]
    )
    inside = [f"u=https://s.ex/?id={number}" for number in (5, 6)]
    assert "r" == found.decide(f"https://go.ex/?{inside[0]}").rule
    assert "r" == found.decide(f"https://go.ex/?{inside[0]}&{inside[0]}").rule
    assert found.decide(f"https://go.ex/?{'&'.join(inside)}").rule is None


@pytest.mark.parametrize("host", ["b\xfccher.ex", "s.ex:8080", "https://s.ex", "*.s.ex", " s.ex", ""])
def test_what_is_no_host_name_is_refused_and_does_not_just_never_match(host: str) -> None:
    with pytest.raises(ConfigurationError, match="is no host name"):
        rules(match={"domain": host}, missing="keep")


@pytest.mark.parametrize("host", ["s.ex", "S.EX.", "localhost", "127.0.0.1", "xn--bcher-kva.ex", "[::1]"])
def test_a_host_name_is_taken(host: str) -> None:
    assert "keep" == rules(match={"host": host}, missing="keep").decide(f"http://{host}/").action


def of_no_use(url: str) -> bytes:
    return b"7"


def test_a_callable_that_gives_no_string_is_named() -> None:
    with pytest.raises(TypeError, match="rule 'r': source 'call:test_rules_merges:of_no_use' gave b'7'"):
        rules(key={"sources": "call:test_rules_merges:of_no_use"}).decide("https://s.ex/")
