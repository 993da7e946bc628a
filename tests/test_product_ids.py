"""Do the example project's rules for well-known sites find each product's id, and only there?"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent / "example_project"
sys.path.insert(0, str(PROJECT))

from scrapy_bloomdupe.rules.checking import check  # noqa: E402
from scrapy_bloomdupe.rules.ruleset import Decision, RuleSet  # noqa: E402

DATA = Path(__file__).parent / "data" / "product_ids.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
KEY = [row for row in ROWS if row["expect"] == "key"]
NONE = [row for row in ROWS if row["expect"] == "none"]
TRACKING = ("utm_source=x", "spm=a1.b2", "gclid=1", "mi_id=123456789012", "user_id=725000000", "x=%E6%89%8B")


@pytest.fixture(scope="module", params=[None, "tmall"], ids=["file", "file+tmall"])
def rules(request: pytest.FixtureRequest) -> RuleSet:
    return RuleSet.load(preset=request.param, files=[PROJECT / "rules" / "sites.toml"])


def product(row: dict[str, str]) -> tuple[str, str]:
    # Tmall and Taobao share one space of ids: their A is one product.
    return ("taobao" if row["site"] == "tmall" else row["site"]), row["group"]


def has_id(decision: Decision) -> bool:
    return decision.rule is not None and decision.action == "key"


def test_the_rule_file_passes_its_own_check() -> None:
    assert [] == list(check(RuleSet.load(files=[PROJECT / "rules" / "sites.toml"])))


def test_every_rule_has_two_examples_or_more() -> None:
    rules = RuleSet.load(files=[PROJECT / "rules" / "sites.toml"]).rules
    assert [] == [rule.name for rule in rules if len(rule.examples) < 2]


@pytest.mark.parametrize("row", KEY, ids=lambda row: row["url"])
def test_a_product_page_gives_its_id(rules: RuleSet, row: dict[str, str]) -> None:
    decision = rules.decide(row["url"])
    assert has_id(decision)
    assert decision.key.endswith(f"|{len(row['id'])}:{row['id']}")
    assert row["url"] == decision.url


@pytest.mark.parametrize("row", NONE, ids=lambda row: row["url"])
def test_another_page_gives_none(rules: RuleSet, row: dict[str, str]) -> None:
    assert not has_id(rules.decide(row["url"]))


def test_no_two_products_share_a_key_and_all_urls_of_one_do(rules: RuleSet) -> None:
    products, keys = defaultdict(set), defaultdict(set)
    for row in KEY:
        key = rules.decide(row["url"]).key
        products[key].add(product(row))
        keys[product(row)].add(key)
    assert {} == {key: found for key, found in products.items() if len(found) > 1}
    assert {} == {found: several for found, several in keys.items() if len(several) > 1}


def test_what_a_setting_decides_is_decided_as_the_file_says(rules: RuleSet) -> None:
    policy = [row for row in ROWS if row["expect"] == "policy"]
    decided = {(row["site"], row["tricky"]): rules.decide(row["url"]) for row in policy}
    found = {
        what: decision.key.split("|")[2].partition(":")[2]
        for what, decision in decided.items()
        if has_id(decision)
    }
    assert found == {
        ("amazon", "nested"): "B0TEST0001",
        ("ebay", "nested"): "123456789012",
        ("tmall", "nested-twice"): "612345678901",
        ("youtube", "nested-relative"): "AbCdEfGhIj0",
        ("shop", "gbk-id"): "手机",  # in its own encoding
        ("bilibili", "part"): "BV1AB411c7XY",  # and the part's number
    }
    assert decided["bilibili", "part"].key != rules.decide("https://www.bilibili.com/video/BV1AB411c7XY").key
    assert decided["tmall", "repeat-differ"].action == "key"  # by its URL
    assert decided["tmall", "param-case"].action == "drop"


def pieces(url: str) -> tuple[str, list[str], str]:
    """The URL before its query, its parameters, and its fragment with `#`."""
    rest, mark, fragment = url.partition("#")
    base, _, query = rest.partition("?")
    return base, [piece for piece in query.split("&") if piece], mark + fragment


def spellings(row: dict[str, str]) -> Iterator[str]:
    """Other addresses of the same product."""
    base, params, fragment = pieces(row["url"])
    for extra in TRACKING:
        yield f"{base}?{'&'.join([*params, extra])}{fragment}"
        yield f"{base}?{'&'.join([extra, *params])}{fragment}"
    yield f"{base}?{'&'.join([*TRACKING, *params])}{fragment}"
    if params and row.get("tricky") != "repeat-empty":
        yield f"{base}?{'&'.join(reversed(params))}{fragment}"
    scheme, _, rest = row["url"].partition("://")
    if row.get("tricky") != "port":
        yield f"{'http' if scheme == 'https' else 'https'}://{rest}"
    host, slash, path = rest.partition("/")
    yield f"{scheme.upper()}://{host.upper()}{slash}{path}"
    if not fragment:
        yield f"{row['url']}#reviews"


@pytest.mark.parametrize("row", KEY, ids=lambda row: row["url"])
def test_what_changes_only_the_address_keeps_the_key(rules: RuleSet, row: dict[str, str]) -> None:
    key = rules.decide(row["url"]).key
    assert {} == {url: rules.decide(url).key for url in spellings(row) if rules.decide(url).key != key}


def with_another_id(row: dict[str, str]) -> str | None:
    """Return the URL of *row* with another id, or None if the id is not in it as it is."""
    # The last part of the id, in whatever case and however often it stands in the URL.
    word = re.split(r"[/@#_]", row["id"])[-1]
    if word not in row["url"]:
        word = word[-4:]  # escapes in it
    last = "3" if word[-1] == "2" else "2"
    if not word[-1].isdigit():
        last = "r" if word[-1] == "q" else "q"
    url, count = re.subn(re.escape(word), word[:-1] + last, row["url"], flags=re.IGNORECASE)
    return url if count else None


@pytest.mark.parametrize("row", list(filter(with_another_id, KEY)), ids=lambda row: row["url"])
def test_another_id_is_another_key(rules: RuleSet, row: dict[str, str]) -> None:
    url = with_another_id(row)
    assert url is not None
    key, other = rules.decide(row["url"]).key, rules.decide(url)
    assert has_id(other), url
    assert key != other.key, url


def test_nearly_all_ids_can_be_changed() -> None:
    assert len(KEY) - 2 <= sum(with_another_id(row) is not None for row in KEY)
