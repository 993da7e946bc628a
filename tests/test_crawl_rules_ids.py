"""Is each product of a site with many URLs per product fetched once, and none of them lost?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from crawling import FILTER, Crawl, FollowAll, run
from mocksite import Area, Site, mock_site

ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}
ITEM: dict[str, Any] = {
    "name": "item",
    "match": {"path": ["*/item*", "*/Item*"]},
    "key": {"sources": ["query:id", r"path:/item/(\d+)"]},
    "missing": "drop",
}
RULES = {**ADDON, "BLOOMDUPE_RULES": [ITEM]}


class Own(FollowAll):
    """A spider with rules of its own."""

    name = "own"
    bloomdupe_rules = [
        {
            "name": "skus",
            "match": {"path": "*/item", "has": "sku"},
            "key": {"sources": ["query:id"], "also": "sku", "namespace": "sku"},
        }
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def rule_stats(crawl: Crawl) -> dict[str, Any]:
    return {k: v for k, v in crawl.stats.items() if k.startswith(("bloomdupe/rule/", "bloomdupe/error/"))}


def products(crawl: Crawl, area: Area) -> list[str]:
    """What reached the callback, the pages of links left out."""
    return [url.removeprefix(area.at("")) for url in crawl.urls if "links?" not in url]


def hops(*paths: str) -> str:
    """The first of a chain of paths, each of which redirects to the next."""
    path = paths[-1]
    for before in reversed(paths[:-1]):
        path = f"{before}{'&' if '?' in before else '?'}{urlencode({'next': path})}"
    return path


def test_a_product_with_many_urls_is_fetched_once_and_list_pages_are_crawled(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    spellings = [f"item?{q}" for q in ("id=1", "a=2&id=1", "id=1&id=", "%69d=1", "id=1#x", "mi_id=7&id=1")]
    first = area.links(*spellings, "item/1", "item?id=2", "item", "item?mi_id=9", "item?user_id=9")
    second = area.links("item?id=2&from=list", "item?id=3", "page?id=1", "page?id=2")
    crawl = run(tmp_path, RULES, start=[first, second])
    # Which of two pages is answered first, and so which URL of product 2 is asked for, is nobody's promise.
    pages = Counter(path.removesuffix("&from=list") for path in area.fetched().elements())
    assert {"item?id=1": 1, "item?id=2": 1, "item?id=3": 1, "page?id=1": 1, "page?id=2": 1} == pages
    assert sorted(area.fetched()) == products(crawl, area)
    assert {"bloomdupe/rule/item/key": 10, "bloomdupe/rule/item/dropped": 3} == rule_stats(crawl)
    assert 7 == crawl.stats["dupefilter/filtered"]


def test_two_sources_of_one_id_space_are_one_product_and_other_pages_are_not(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    rules = [
        {"name": "a", "match": {"path": "*/item"}, "key": {"sources": ["query:id"], "namespace": "shop"}},
        {
            "name": "b",
            "match": {"path": "*/p/*"},
            "key": {"sources": [r"path:/p/(\d+)"], "namespace": "shop"},
        },
        {"name": "c", "match": {"path": "*/group"}, "key": {"sources": ["query:id"]}},
    ]
    start = [area.at(path) for path in ("item?id=5", "p/5", "group?id=5", "item", "item?x=1")]
    crawl = run(tmp_path, {**ADDON, "BLOOMDUPE_RULES": rules}, start=start)
    assert 4 == len(products(crawl, area))
    assert 1 == len({"item?id=5", "p/5"} & set(area.fetched()))
    assert {
        "bloomdupe/rule/a/key": 1,
        "bloomdupe/rule/a/missing": 2,
        "bloomdupe/rule/b/key": 1,
        "bloomdupe/rule/c/key": 1,
    } == rule_stats(crawl)


@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "disk queue"])
def test_products_whose_urls_redirect_to_their_own_id_are_not_lost(
    site: Site, tmp_path: Path, jobdir: bool
) -> None:
    area = site.area()
    other_host = area.at("item?id=4").replace("127.0.0.1", "localhost")
    start = [
        hops("item?id=1&a=1", "item?id=1"),
        hops("item?id=2&a=1", "item?id=2&a=2", "item?id=2&a=3", "item?id=2"),
        hops("item?id=3&a=1", "elsewhere", "item?id=3"),
        hops("item?id=4&a=1", other_host),
        hops("item?id=5&a=1", "item"),
        "Item?id=6",
        "item?id=7",
    ]
    crawl = run(
        tmp_path,
        {**RULES, "JOBDIR": str(tmp_path / "job") if jobdir else None},
        start=[area.at(path) for path in start],
    )
    expected = ["item", *(f"item?id={number}" for number in (1, 2, 3, 6, 7)), other_host]
    assert sorted(expected) == sorted(products(crawl, area))
    assert 7 == crawl.stats["bloomdupe/redirect_pass"]
    assert "dupefilter/filtered" not in crawl.stats
    # The redirect to a page without id is not dropped: only what a spider asks for is.
    assert {"bloomdupe/rule/item/key": 14, "bloomdupe/rule/item/missing": 1} == rule_stats(crawl)


@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "disk queue"])
@pytest.mark.parametrize(
    ("steps", "chain"),
    [
        (["lower_path"], ["Page", "page"]),
        (["trailing_slash"], ["page", "page/"]),
        (["trailing_slash"], ["page/", "page"]),
        (["collapse_slashes"], ["a//b", "a/b"]),
        (["drop_params:utm_*,next"], ["page?utm_a=1", "page?utm_b=1", "page"]),
        (["drop_index", "lower_path", "drop_params:next"], ["Page/index.html", "page/index.html", "page/"]),
        (["aggressive", "drop_params:next"], ["Page/index.php?utm_source=a", "page/?gclid=1", "page"]),
    ],
)
def test_a_redirect_between_urls_that_steps_merge_reaches_its_callback(
    site: Site, tmp_path: Path, steps: list[str], chain: list[str], jobdir: bool
) -> None:
    area = site.area()
    rule = {"name": "site", "steps": [*dict.fromkeys([*steps, "safe", "drop_params:next"])]}
    settings = {**ADDON, "BLOOMDUPE_RULES": [rule], "JOBDIR": str(tmp_path / "job") if jobdir else None}
    full = [area.prefix + path for path in chain]
    start = area.at(hops(*full).removeprefix(area.prefix))
    crawl = run(tmp_path, settings, start=[start, start, area.at("other")])
    assert sorted([chain[-1], "other"]) == products(crawl, area)
    assert len(chain) - 1 == crawl.stats["bloomdupe/redirect_pass"]
    assert 1 == crawl.stats["dupefilter/filtered"]


def test_a_host_that_redirects_to_its_other_name_is_crawled_under_a_rule_that_merges_them(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    rule = {
        "name": "hosts",
        "match": {"host": ["127.0.0.1", "localhost"]},
        "key": {"sources": [r"url:://[^/]+(/[^?]*)"]},
    }
    local = area.at("page").replace("127.0.0.1", "localhost")
    for settings in ({**ADDON, "BLOOMDUPE_RULES": [rule]}, {**FILTER, "BLOOMDUPE_RULES": [rule]}):
        crawl = run(tmp_path, settings, start=[area.at(hops("page", local)), area.at("page"), local])
        assert [local] == crawl.urls
        assert 2 == crawl.stats["dupefilter/filtered"]


def test_spider_rules_are_asked_before_settings_and_match_spider_holds(site: Site, tmp_path: Path) -> None:
    area = site.area()
    rules = [
        {
            "name": "not_mine",
            "match": {"path": "*/item", "spider": "other"},
            "missing": "drop",
            "priority": 9,
        },
        {"name": "mine", "match": {"path": "*/item", "spider": ["own"]}, "key": {"sources": ["query:id"]}},
    ]
    start = [area.at(path) for path in ("item?id=1&sku=1", "item?id=1&sku=2", "item?id=1&x=1", "item?id=2")]
    settings = {**ADDON, "BLOOMDUPE_RULES": rules}
    crawl = run(tmp_path, settings, spider=f"{__name__}.Own", start=start)
    assert {"bloomdupe/rule/skus/key": 2, "bloomdupe/rule/mine/key": 2} == rule_stats(crawl)
    assert sorted(start) == crawl.urls
    crawl = run(tmp_path, settings, start=start)
    assert {} == rule_stats(crawl)
