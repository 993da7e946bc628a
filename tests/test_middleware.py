"""Does the middleware drop and rewrite what rules say, once, wherever a request comes from?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawl, FollowAll, idle_crawler, run
from mocksite import Site, mock_site
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.misc import load_object

from scrapy_bloomdupe import AcknowledgeMiddleware, UrlRulesMiddleware
from scrapy_bloomdupe.keys import of_crawler
from scrapy_bloomdupe.sharedmiddleware import SharedMiddleware

ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}
ITEM = {"name": "item", "match": {"path": "*/item"}, "key": {"sources": ["query:id"]}, "missing": "drop"}
CLEAN = {
    "name": "clean",
    "match": {"path": "*/page"},
    "steps": ["usual", "drop_params:utm_*", "lower_path"],
    "apply": "url",
}


class Mixed(FollowAll):
    """Items and requests in turn: from the start, and from callbacks."""

    name = "mixed"

    async def start(self) -> AsyncIterator[Any]:
        for number, url in enumerate(self.start_at):
            yield {"before": number}
            yield Request(url, cb_kwargs={"first": True})

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url}
        if kwargs.get("first"):
            for number, query in enumerate(("utm_a=1&n=1", "n=1", "utm_b=2&n=2")):
                yield {"number": number}
                yield response.follow(f"page?{query}", cb_kwargs={"tag": query})
                yield response.follow(f"item?{query}")
        elif tag := kwargs.get("tag"):
            yield {"tag": tag}


class MixedAsync(Mixed):
    """The same, from an asynchronous callback."""

    name = "mixed_async"

    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        for thing in super().parse(response, **kwargs):
            yield thing


class Verbatim(FollowAll):
    """Asks for every URL as it is."""

    name = "verbatim"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, meta={"verbatim_url": True})


class Unfiltered(FollowAll):
    """Asks for every URL, whatever was seen, and once more by way of the engine alone."""

    name = "unfiltered"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, dont_filter=True)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield from super().parse(response)
        if "more" not in response.url:
            assert self.crawler.engine is not None
            self.crawler.engine.crawl(Request(response.url + "?more=1", callback=self.parse))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def crawled(crawl: Crawl) -> dict[str, Any]:
    return {k: v for k, v in crawl.stats.items() if k.startswith(("bloomdupe/rule/", "bloomdupe/error/"))}


@pytest.mark.parametrize("kind", ["Mixed", "MixedAsync"])
def test_requests_of_the_start_and_of_callbacks_are_rewritten_and_items_keep_their_order(
    site: Site, tmp_path: Path, kind: str
) -> None:
    area = site.area()
    settings = {**ADDON, "BLOOMDUPE_RULES": [ITEM, CLEAN], "CONCURRENT_REQUESTS": 1}
    start = [area.at("page?utm_x=1&n=0"), area.at("item"), area.at("item?id=1&n=9")]
    crawl = run(tmp_path, settings, spider=f"{__name__}.{kind}", start=start)
    assert {"page?n=0": 1, "item?id=1&n=9": 1, "page?n=1": 1, "page?n=2": 1} == area.fetched()
    assert [0, 1, 2] == [item["before"] for item in crawl.items if "before" in item]
    assert [0, 1, 2] * 2 == [item["number"] for item in crawl.items if "number" in item]
    assert {"utm_a=1&n=1", "utm_b=2&n=2"} == {item["tag"] for item in crawl.items if "tag" in item}
    assert {
        "bloomdupe/rule/item/dropped": 7,
        "bloomdupe/rule/item/key": 1,
        "bloomdupe/rule/clean/rewritten": 5,
    } == crawled(crawl)
    assert 1 == len(crawl.lines("DEBUG", "rule 'item' finds no id in it - no more of this rule are shown"))


def test_a_rewritten_page_is_that_of_the_clean_url_and_lossy_steps_are_not_sent(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    rule = {**CLEAN, "match": {"path": "*/P/*"}}
    paths = ["P/a?utm_a=1&y=1&x=2", "P/a?y=1&x=2", "P/A?x=2&y=1"]
    crawl = run(tmp_path, {**ADDON, "BLOOMDUPE_RULES": [rule]}, start=[area.at(p) for p in paths])
    assert 2 == crawl.stats["dupefilter/filtered"]
    # Case and order are of the key only: the server may tell them apart.
    assert "P/a?y=1&x=2" in area.fetched() or "P/A?x=2&y=1" in area.fetched()
    assert 1 == crawl.stats["bloomdupe/rule/clean/rewritten"]


def test_an_id_rule_that_rewrites_takes_the_clean_url_for_the_same_page(site: Site, tmp_path: Path) -> None:
    area = site.area()
    rule = {"name": "r", "match": {"path": "*/x"}, "key": {"sources": ["query:id"]}, "apply": "url"}
    start = [area.at("x?"), area.at("x"), area.at("x?id=1&"), area.at("x?id=1")]
    crawl = run(tmp_path, {**ADDON, "BLOOMDUPE_RULES": [rule]}, start=start)
    assert 2 == sum(area.fetched().values())
    assert 2 == crawl.stats["dupefilter/filtered"]


def test_a_verbatim_url_is_sent_as_it_is_and_told_from_others(site: Site, tmp_path: Path) -> None:
    area = site.area()
    start = [area.at("page?utm_a=1"), area.at("page?utm_a=2"), area.at("item")]
    settings = {**ADDON, "BLOOMDUPE_RULES": [ITEM, CLEAN]}
    crawl = run(tmp_path, settings, spider=f"{__name__}.Verbatim", start=start)
    assert {"page?utm_a=1": 1, "page?utm_a=2": 1, "item": 1} == area.fetched()
    assert {} == crawled(crawl)


def test_what_is_not_to_be_filtered_and_what_the_engine_is_given_is_not_dropped(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    settings = {**ADDON, "BLOOMDUPE_RULES": [ITEM]}
    start = [area.at("item"), area.at("item")]
    crawl = run(tmp_path, settings, spider=f"{__name__}.Unfiltered", start=start)
    assert {"item": 2, "item?more=1": 1} == area.fetched()
    assert {"bloomdupe/rule/item/missing": 2} == crawled(crawl)


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, False),
        ({"method": "HEAD"}, False),
        ({"dont_filter": True}, True),
        ({"method": "POST", "body": "id=1"}, True),
        ({"method": "POST"}, True),
        ({"body": '{"id": 1}'}, True),
        ({"meta": {"bloomdupe_key": "p1"}}, True),
        ({"meta": {"bloomdupe_key": False}}, True),
        ({"meta": {"verbatim_url": True}}, True),
    ],
)
def test_only_what_can_have_its_id_nowhere_else_is_dropped(changes: dict[str, Any], passes: bool) -> None:
    middleware = UrlRulesMiddleware(idle_crawler(**ADDON, BLOOMDUPE_RULES=[ITEM]))
    request = Request("http://shop.example/item?a=1", **changes)
    assert (request if passes else None) is middleware.get_processed_request(request, None)


@pytest.mark.parametrize(
    "own",
    [
        UrlRulesMiddleware,
        "scrapy_bloomdupe.UrlRulesMiddleware",
        "scrapy_bloomdupe.middleware.UrlRulesMiddleware",
    ],
)
@pytest.mark.parametrize("order", [42, None])
def test_the_addon_leaves_a_middleware_alone_that_the_project_lists(own: Any, order: int | None) -> None:
    settings = idle_crawler(**ADDON, SPIDER_MIDDLEWARES={own: order}).settings
    first = {AcknowledgeMiddleware: -1_000_000, SharedMiddleware: -999_999}  # next to the engine
    assert {own: order, **first} == settings.getdict("SPIDER_MIDDLEWARES")


@pytest.mark.parametrize("listed", [{}, {"project.Other": 543}, '{"project.Other": 543}'])
def test_the_addon_puts_the_middleware_once_and_near_the_engine(listed: Any) -> None:
    settings = idle_crawler(**ADDON, SPIDER_MIDDLEWARES=listed).settings
    found = settings.getdict("SPIDER_MIDDLEWARES")
    others = {"project.Other": 543} if listed else {}
    assert others == {k: v for k, v in found.items() if v not in (10, -1_000_000, -999_999)}
    assert [UrlRulesMiddleware] == [load_object(k) for k, v in found.items() if v == 10]
    assert [AcknowledgeMiddleware] == [load_object(k) for k, v in found.items() if v == -1_000_000]
    assert [SharedMiddleware] == [load_object(k) for k, v in found.items() if v == -999_999]


def test_the_decision_is_made_once_and_shared_by_object() -> None:
    calls.clear()
    rule = {"name": "counted", "key": {"sources": [f"call:{__name__}:counted"]}}
    crawler = idle_crawler(**ADDON, BLOOMDUPE_RULES=[rule])
    request = Request("http://shop.example/a")
    assert request is UrlRulesMiddleware(crawler).get_processed_request(request, None)
    keys = of_crawler(crawler)
    assert keys.key(request) == keys.key(request)
    assert ["http://shop.example/a"] == calls
    # A copy is another request, whatever its meta says.
    assert keys.key(request) != keys.key(request.replace(url="http://shop.example/b"))
    assert 2 == len(calls)


calls: list[str] = []


def counted(url: str) -> str:
    calls.append(url)
    return url
