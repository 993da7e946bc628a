"""Which requests get a key by the rules, which keep their fingerprint, and what counts as the same?"""

from __future__ import annotations

import random
from typing import Any

import pytest
from crawling import FollowAll, filtering, idle_crawler
from scrapy import FormRequest, Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.request import RequestFingerprinter, fingerprint

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.keys import RequestKeys, of_crawler, rules_of
from scrapy_bloomdupe.rules.ruleset import RuleSet

SHOP = "http://shop.example"
ITEM: dict[str, Any] = {"name": "item", "match": {"path": "/item"}, "key": {"sources": ["query:id"]}}
KEY = "bloomdupe_key"


def keys_by(*rules: dict[str, Any], preset: str | None = None, spider: str | None = None) -> RequestKeys:
    return RequestKeys(RequestFingerprinter(), RuleSet.load(preset, rules), spider)


def hop(before: Request, url: str, **changes: Any) -> Request:
    """As Scrapy's redirect middleware makes one."""
    meta = before.meta
    hops = [*meta.get("redirect_urls", []), before.url]
    more = {"redirect_urls": hops, "redirect_times": len(hops), "redirect_ttl": 20 - len(hops)}
    return before.replace(url=url, meta={**meta, **more}, **changes)


def test_without_rules_or_where_none_speaks_the_key_is_the_fingerprint_byte_for_byte() -> None:
    rng = random.Random(5)
    keys = keys_by({**ITEM, "match": {"host": "other.example"}})
    bare = RequestKeys(RequestFingerprinter())
    for number in range(3_000):
        value = rng.choice(["", "%7E", "x+y"])
        url = f"{SHOP}/{rng.choice('abcABC')}?b={rng.randrange(9)}&a={value}#{number % 3}"
        request = Request(url, method=rng.choice(["GET", "POST", "HEAD"]), body=rng.choice(["", "a=1"]))
        assert fingerprint(request) == keys.key(request) == bare.key(request)


def test_without_rules_every_verdict_is_that_of_scrapys_filter() -> None:
    rng = random.Random(6)
    theirs = RFPDupeFilter()
    with filtering(None) as (ours, stats):
        for _ in range(3_000):
            request = Request(f"{SHOP}/{rng.randrange(500)}?id={rng.randrange(3)}#{rng.randrange(9)}")
            assert theirs.request_seen(request) == ours.request_seen(request)
        assert not [name for name in stats.get_stats() if "/rule/" in name]


def test_a_page_without_id_keeps_its_fingerprint_and_is_counted() -> None:
    with filtering(None, BLOOMDUPE_RULES=[ITEM]) as (ours, stats):
        for url, seen in ((f"{SHOP}/item?b=1&a=2", False), (f"{SHOP}/item?a=2&b=1", True), (SHOP, False)):
            assert fingerprint(Request(url)) == of_crawler(ours._crawler).key(Request(url))  # type: ignore[arg-type]
            assert seen == ours.request_seen(Request(url))
        assert 2 == stats.get_value("bloomdupe/rule/item/missing")


def test_method_and_body_tell_pages_apart() -> None:
    keys = keys_by(ITEM)
    url = f"{SHOP}/item?id=1"
    requests = [
        Request(url),
        Request(url, method="HEAD"),
        Request(url, method="POST"),
        Request(url, method="POST", body="a=1"),
        FormRequest(url, formdata={"a": "2"}),
    ]
    assert 5 == len({keys.key(request) for request in requests})
    assert keys.key(Request(url)) == keys.key(Request(f"{url}&b=1", headers={"A": "b"}, cookies={"c": "d"}))


def test_rules_of_the_spider_come_first_and_a_rule_is_for_the_spiders_it_names() -> None:
    crawler = idle_crawler(BLOOMDUPE_RULES=[{**ITEM, "priority": 99}], BLOOMDUPE_PRESET="tmall")
    crawler.spider = FollowAll(start="[]")
    crawler.spider.bloomdupe_rules = [{**ITEM, "name": "own"}]  # type: ignore[attr-defined]
    rules, spider = rules_of(crawler)
    assert rules is not None
    assert ["own", "item", "tmall_item", "tmall_group_buy"] == [rule.name for rule in rules.rules]
    assert FollowAll.name == spider
    assert of_crawler(crawler) is of_crawler(crawler)
    request = Request(f"{SHOP}/item?id=1")
    rule = {**ITEM, "match": {"spider": "mine"}}
    assert fingerprint(request) == keys_by(rule, spider="other").key(request)
    assert keys_by(ITEM).key(request) == keys_by(rule, spider="mine").key(request)


@pytest.mark.parametrize("wrong", [{"name": "own"}, "item", [1]])
def test_wrong_rules_of_a_spider_are_refused(wrong: Any) -> None:
    crawler = idle_crawler()
    crawler.spider = FollowAll(start="[]")
    crawler.spider.bloomdupe_rules = wrong  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="the spider's rules"):
        rules_of(crawler)


def test_what_is_kept_is_never_a_duplicate_and_counted() -> None:
    rule = {**ITEM, "missing": "keep"}
    with filtering(None, BLOOMDUPE_RULES=[rule]) as (ours, stats):
        assert [False] * 3 == [ours.request_seen(Request(f"{SHOP}/item?a=1")) for _ in range(3)]
        assert [False, True] == [ours.request_seen(Request(f"{SHOP}/item?id=1")) for _ in range(2)]
        assert 3 == stats.get_value("bloomdupe/kept")
        assert 3 == stats.get_value("bloomdupe/rule/item/missing")
        assert 2 == stats.get_value("bloomdupe/rule/item/key")


@pytest.mark.parametrize(
    ("steps", "urls"),
    [
        (["https_to_http"], ["http://shop.example/a", "https://shop.example/a"]),
        (["https_to_http"], ["https://shop.example/a", "http://shop.example/a"]),
        (["strip_www"], ["http://shop.example/a", "http://www.shop.example/a"]),
        (["lower_path"], ["http://shop.example/Page", "http://shop.example/page"]),
        (
            ["aggressive"],
            [
                "http://shop.example/A",
                "https://shop.example/A",
                "https://www.shop.example/A",
                "https://www.shop.example/a/",
            ],
        ),
    ],
)
@pytest.mark.parametrize(("method", "body"), [("GET", ""), ("HEAD", ""), ("POST", "a=1")])
def test_every_hop_between_urls_that_steps_merge_passes_and_a_later_link_does_not(
    steps: list[str], urls: list[str], method: str, body: str
) -> None:
    with filtering(None, BLOOMDUPE_RULES=[{"name": "all", "steps": steps}]) as (ours, stats):
        request = Request(urls[0], method=method, body=body)
        assert not ours.request_seen(request)
        for url in urls[1:]:
            request = hop(request, url)
            assert not ours.request_seen(request)
        assert len(urls) - 1 == stats.get_value("bloomdupe/redirect_pass")
        assert all(ours.request_seen(Request(url, method=method, body=body)) for url in urls)


def test_a_key_in_the_meta_is_that_of_redirects_too_and_not_of_a_copy_for_another_url() -> None:
    keys = RequestKeys(RequestFingerprinter())
    first = Request(f"{SHOP}/a", meta={KEY: "p1"})
    key = keys.key(first)
    second = hop(first, f"{SHOP}/b")
    assert key == keys.key(second) == keys.key(hop(second, f"{SHOP}/c"))
    # What a downloader middleware or an errback makes of it, before there was a response.
    copy = Request(f"{SHOP}/d", meta=first.meta)
    assert fingerprint(copy) == keys.key(copy)
    # Who gives several requests one key means it.
    assert key == keys.key(Request(f"{SHOP}/e", meta={KEY: "p1"}))
    assert key != keys.key(Request(f"{SHOP}/e", meta={**first.meta, KEY: "p2"})) != fingerprint(copy)


@pytest.mark.parametrize("given", [None, 7, True, b"p1", ["p1"]])
def test_what_is_neither_a_string_nor_false_is_no_key(given: Any) -> None:
    request = Request(f"{SHOP}/item?id=1", meta={KEY: given})
    assert keys_by(ITEM).key(Request(request.url)) == keys_by(ITEM).key(request)


def failing(url: str) -> str:
    raise RuntimeError(url)


def test_where_a_call_fails_scrapys_own_idea_of_a_duplicate_holds() -> None:
    rule = {"name": "call", "key": {"sources": [f"call:{__name__}:failing"]}}
    with filtering(None, BLOOMDUPE_RULES=[rule]) as (ours, stats):
        verdicts = [ours.request_seen(Request(f"{SHOP}/{path}")) for path in ("a", "b", "a#x")]
        assert [False, False, True] == verdicts
        assert 3 == stats.get_value("bloomdupe/error/rules")
