"""What do people get to see of their rules: in a dry run, at close, and without the middleware?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, Crawl, filtering, run
from mocksite import Site, mock_site
from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter

ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}
RULES: list[dict[str, Any]] = [
    {"name": "item", "match": {"path": "*/item"}, "key": {"sources": ["query:id"]}, "missing": "drop"},
    {"name": "kept", "match": {"path": "*/kept"}, "missing": "keep"},
    {"name": "clean", "match": {"path": "*/page"}, "steps": ["drop_params:utm_*"], "apply": "url"},
]
PATHS = ["item?id=1&n=1", "item?id=1&n=2", "item?id=2", "item", "kept", "kept?a=1", "kept?a=1#x"]
PATHS += ["page?utm_a=1", "page?utm_a=2", "page", "item?id=1&n=3", "item?id=1&n=4", "item?id=1&n=5"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def by_rule(crawl: Crawl) -> dict[str, Any]:
    names = ("bloomdupe/rule/", "bloomdupe/dry_run/", "bloomdupe/kept", "bloomdupe/error/")
    return {k: v for k, v in crawl.stats.items() if k.startswith(names)}


def pairs(crawl: Crawl) -> list[str]:
    return [line.partition("INFO: ")[2] for line in crawl.lines("INFO: Rule ")]


@pytest.mark.parametrize("fingerprinter", [False, True], ids=["", "as fingerprinter"])
@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "disk queue"])
def test_a_dry_run_filters_as_without_rules_and_counts_what_they_would_have_merged(
    site: Site, tmp_path: Path, jobdir: bool, fingerprinter: bool
) -> None:
    area = site.area()
    start = [area.at(path) for path in PATHS]
    settings = {**ADDON, "BLOOMDUPE_RULES": RULES, "BLOOMDUPE_DRY_RUN": True}
    settings |= {
        "BLOOMDUPE_FINGERPRINTER": fingerprinter,
        "JOBDIR": str(tmp_path / "job") if jobdir else None,
    }
    crawl = run(tmp_path, settings, start=start)
    stock = run(tmp_path, {}, start=start)
    assert stock.urls == crawl.urls
    assert stock.stats["dupefilter/filtered"] == crawl.stats["dupefilter/filtered"] == 1
    assert {
        "bloomdupe/dry_run/merged": 6,
        "bloomdupe/rule/item/key": 6,
        "bloomdupe/rule/item/missing": 1,
        "bloomdupe/rule/item/dropped": 1,
        "bloomdupe/rule/kept/missing": 3,
        "bloomdupe/rule/clean/rewritten": 2,
    } == {k: v for k, v in by_rule(crawl).items() if k != "bloomdupe/rule/clean/missing"}
    assert f"Rule item: {start[1]} was taken for {start[0]}" in pairs(crawl)
    assert [] == crawl.lines(" WARNING: ")


def test_a_dry_run_does_not_count_the_target_of_its_own_redirect(site: Site, tmp_path: Path) -> None:
    area = site.area()
    start = [area.at(f"item?id=1&next={area.prefix}item?id=1"), area.at("cookie/2")]
    settings = {**ADDON, "BLOOMDUPE_DRY_RUN": True}
    settings["BLOOMDUPE_RULES"] = [RULES[0], {"name": "all", "steps": ["lower_path"]}]
    crawl = run(tmp_path, settings, start=start)
    assert [area.at("cookie/2"), area.at("item?id=1")] == crawl.urls
    assert "bloomdupe/dry_run/merged" not in crawl.stats
    # Without rules the filter lets a page pass that redirects to itself; so does it in a dry run.
    assert 2 == crawl.stats["bloomdupe/redirect_pass"]


def test_a_dry_run_says_what_scrapys_filter_says_of_every_request(tmp_path: Path) -> None:
    rules = [{"name": "id", "key": {"sources": ["query:id"]}}]
    theirs = RFPDupeFilter()
    requests = [
        Request(
            f"http://shop.example/{n % 7}?id={n % 5}&p={n % 40}",
            meta={"bloomdupe_key": "same"} if n % 3 else {},
        )
        for n in range(400)
    ]
    with filtering(tmp_path, BLOOMDUPE_RULES=rules, BLOOMDUPE_DRY_RUN=True) as (ours, stats):
        for request in requests:
            assert theirs.request_seen(request) == ours.request_seen(request)
    assert 0 < stats.get_value("bloomdupe/dry_run/merged")


def test_a_few_pairs_of_each_rule_are_shown_at_the_end(site: Site, tmp_path: Path) -> None:
    area = site.area()
    start = [area.at(path) for path in PATHS]
    crawl = run(tmp_path, {**ADDON, "BLOOMDUPE_RULES": RULES}, start=start)
    items = [f"Rule item: {start[n]} was taken for {start[0]}" for n in (1, 10, 11)]
    assert items == pairs(crawl)
    assert {
        "bloomdupe/kept": 3,
        "bloomdupe/rule/item/key": 6,
        "bloomdupe/rule/item/dropped": 1,
        "bloomdupe/rule/kept/missing": 3,
        "bloomdupe/rule/clean/rewritten": 2,
    } == by_rule(crawl)
    # A page that is kept from being a duplicate is fetched as often as it is asked for.
    expected = {"item?id=1&n=1": 1, "item?id=2": 1, "kept": 1, "kept?a=1": 2, "page": 1}
    assert expected == area.fetched()


def test_without_the_middleware_keys_work_nothing_is_dropped_and_a_warning_says_so(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    start = [area.at(path) for path in PATHS]
    crawl = run(tmp_path, {**FILTER, "BLOOMDUPE_RULES": RULES}, start=start)
    assert {"item?id=1&n=1", "item?id=2", "item", "kept", "kept?a=1", "page?utm_a=1"} == set(area.fetched())
    assert {
        "bloomdupe/kept": 3,
        "bloomdupe/rule/item/key": 6,
        "bloomdupe/rule/item/missing": 1,
        "bloomdupe/rule/kept/missing": 3,
    } == by_rule(crawl)
    (warning,) = crawl.lines(" WARNING: ")
    assert (
        "Rules that drop or rewrite requests only make keys in this crawl ('item', 'clean'): their "
        "middleware is not switched on. Set ADDONS = {'scrapy_bloomdupe.Addon': 500}, or SPIDER_MIDDLEWARES "
        "= {'scrapy_bloomdupe.UrlRulesMiddleware': 10}"
    ) in warning


@pytest.mark.parametrize(
    "settings",
    [
        {"SPIDER_MIDDLEWARES": {"scrapy_bloomdupe.UrlRulesMiddleware": 10}},
        {"BLOOMDUPE_RULES": [RULES[1]]},
        {"BLOOMDUPE_RULES": json.dumps([{**RULES[0], "match": {"spider": "other"}}])},
        {"BLOOMDUPE_RULES": [], "BLOOMDUPE_PRESET": "usual"},
        {"BLOOMDUPE_DRY_RUN": True},
    ],
    ids=["middleware", "rule that keeps", "another spider's rule", "preset", "dry run"],
)
def test_who_does_not_need_the_middleware_is_not_warned(
    site: Site, tmp_path: Path, settings: dict[str, Any]
) -> None:
    crawl = run(tmp_path, {**FILTER, "BLOOMDUPE_RULES": RULES, **settings}, start=[site.area().at("a")])
    assert [] == crawl.lines(" WARNING: ")
    assert "finished" == crawl.stats["finish_reason"]
