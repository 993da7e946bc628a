"""Does the HTTP cache serve each URL its own page, whatever the rules merge? Unless somebody asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FollowAll, run
from mocksite import Site, mock_site
from scrapy import Request
from scrapy.http import Response

CACHED: dict[str, Any] = {
    "ADDONS": {"scrapy_bloomdupe.Addon": 500},
    "HTTPCACHE_ENABLED": True,
    "BLOOMDUPE_RULES": [{"name": "item", "match": {"path": "*/item"}, "key": {"sources": ["query:id"]}}],
    # One after the other: the second one finds what the first one left.
    "CONCURRENT_REQUESTS": 1,
}


class Titles(FollowAll):
    """Asks for every URL, seen or not, and yields what each one was served."""

    name = "titles"
    dont_filter = "1"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, dont_filter=self.dont_filter == "1", cb_kwargs={"asked": url})

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"asked": kwargs["asked"], "served": response.css("title::text").get()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def test_each_url_of_a_product_is_served_its_own_page_from_the_cache(site: Site, tmp_path: Path) -> None:
    area = site.area()
    start = [area.at("item?id=1&page=a"), area.at("item?id=1&page=b")]
    settings = {**CACHED, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    for hits in (None, 2):
        crawl = run(tmp_path, settings, spider=f"{__name__}.Titles", start=start)
        assert start == sorted(item["asked"] for item in crawl.items)
        assert all(item["asked"].endswith(item["served"]) for item in crawl.items)
        assert hits == crawl.stats.get("httpcache/hit")
    assert {"item?id=1&page=a": 1, "item?id=1&page=b": 1} == area.fetched()


def test_with_the_rules_as_fingerprinter_one_url_is_served_the_page_of_another(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    start = [area.at("item?id=1&page=a"), area.at("item?id=1&page=b")]
    settings = {**CACHED, "HTTPCACHE_DIR": str(tmp_path / "cache"), "BLOOMDUPE_FINGERPRINTER": True}
    crawl = run(tmp_path, settings, spider=f"{__name__}.Titles", start=start)
    assert 1 == len({item["served"] for item in crawl.items})
    assert 1 == crawl.stats["httpcache/hit"]
    assert 1 == sum(area.fetched().values())


@pytest.mark.parametrize("fingerprinter", [False, True])
def test_a_call_that_fails_fails_no_download(site: Site, tmp_path: Path, fingerprinter: bool) -> None:
    area = site.area()
    rules = [{"name": "broken", "key": {"sources": [f"call:{__name__}:broken"]}}]
    settings = {
        **CACHED,
        "HTTPCACHE_DIR": str(tmp_path / "cache"),
        "BLOOMDUPE_RULES": rules,
        "BLOOMDUPE_FINGERPRINTER": fingerprinter,
    }
    start = [area.at("a"), area.at("b"), area.at("a")]
    crawl = run(tmp_path, settings, spider=f"{__name__}.Titles", start=start, dont_filter="0")
    assert start[:2] == sorted(item["asked"] for item in crawl.items)
    assert 3 == crawl.stats["bloomdupe/error/rules"]
    assert "bloomdupe/error/key" not in crawl.stats
    assert 1 == len(crawl.lines(" WARNING: "))
    assert "ZeroDivisionError" in crawl.log


def broken(url: str) -> str:
    return str(1 / 0)
