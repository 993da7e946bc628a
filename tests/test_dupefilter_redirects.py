"""Does a page that redirects to itself reach its callback, in whole crawls and beside stock Scrapy?"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, FollowAll, run
from mocksite import Area, Site, mock_site
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.request import fingerprint

STOCK: dict[str, Any] = {}


class IgnoresCase:
    """A fingerprinter for a site that writes its paths in any case."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request.replace(url=request.url.lower()))


class CopiesMeta(FollowAll):
    """Links every page to itself, and ``cookie/2`` to ``cookie/1``, with the meta of its response."""

    name = "copies"

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield from super().parse(response)
        url, meta = response.url, response.meta
        yield Request(url, meta=meta)
        yield Request(url, meta=copy.deepcopy(meta))
        yield response.follow(f"{url}#again", meta={**meta, "more": 1})
        if url.endswith("/2"):
            yield Request(response.urljoin("1"), meta=meta)


class NeverGivesUp(FollowAll):
    """Asks again for whatever failed, with the meta of the request that failed."""

    name = "never_gives_up"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, errback=self.failed)

    def failed(self, failure: Any) -> Iterator[Request]:
        request = failure.request
        yield Request(request.url, meta=request.meta, errback=self.failed)
        yield Request(request.url, meta=copy.deepcopy(request.meta), errback=self.failed)


class SendsForms(FollowAll):
    """Sends three forms to every page that is a form."""

    name = "sends_forms"

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield from super().parse(response)
        if response.url.endswith("/form") and not response.meta.get("redirect_urls"):
            for number in range(3):
                yield Request(response.url, method="POST", body=f"n={number}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def urls(area: Area, *paths: str) -> list[str]:
    return sorted(area.at(path) for path in paths)


COOKIES = ("cookie/1", "cookie/2", "plain", "cookie/1", "plain", "cookie/1#again")


def test_stock_scrapy_loses_a_page_that_redirects_to_itself(site: Site, tmp_path: Path) -> None:
    area = site.area()
    crawl = run(tmp_path, STOCK, start=[area.links(*COOKIES)])
    assert urls(area, "plain") == [url for url in crawl.urls if "links" not in url]
    assert {"cookie/1": 1, "cookie/2": 1, "plain": 1} == area.fetched()


def test_a_page_that_redirects_to_itself_is_crawled_once(site: Site, tmp_path: Path) -> None:
    area = site.area()
    crawl = run(tmp_path, start=[area.links(*COOKIES)])
    assert urls(area, "cookie/1", "cookie/2", "plain") == [url for url in crawl.urls if "links" not in url]
    assert {"cookie/1": 2, "cookie/2": 3, "plain": 1} == area.fetched()
    ours = crawl.ours()
    assert 3 == ours["bloomdupe/redirect_pass"]
    assert 4 == ours["bloomdupe/new"]
    # Three links and three hops; the hops are not filtered.
    assert 6 == ours["bloomdupe/duplicate"]
    assert 3 == ours["dupefilter/filtered"]


def test_a_page_that_asks_for_a_visa_elsewhere_is_crawled(site: Site, tmp_path: Path) -> None:
    area = site.area()
    crawl = run(tmp_path, start=[area.links("visa", "visa")])
    assert urls(area, "visa") == [url for url in crawl.urls if "links" not in url]
    assert {"visa": 2, "office": 1} == area.fetched()


def test_a_redirect_that_only_changes_the_case_reaches_its_callback_where_case_does_not_count(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    settings = {**FILTER, "REQUEST_FINGERPRINTER_CLASS": f"{__name__}.IgnoresCase"}
    crawl = run(tmp_path, settings, start=[area.links("Page/A", "page/a", "PAGE/A", "page/b", "Page/B")])
    assert urls(area, "page/a", "page/b") == [url for url in crawl.urls if "links" not in url]
    assert {"Page/A": 1, "page/a": 1, "page/b": 1} == area.fetched()
    assert 1 == crawl.ours()["bloomdupe/redirect_pass"]


@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "disk queue"])
def test_meta_that_a_callback_copies_gives_no_pass_and_takes_none_away(
    site: Site, tmp_path: Path, jobdir: bool
) -> None:
    area = site.area()
    settings = {**FILTER, "JOBDIR": str(tmp_path / "job") if jobdir else None}
    crawl = run(tmp_path, settings, spider=f"{__name__}.CopiesMeta", start=[area.at("cookie/2")])
    assert urls(area, "cookie/1", "cookie/2") == crawl.urls
    assert {"cookie/2": 3, "cookie/1": 2} == area.fetched()
    assert 3 == crawl.ours()["bloomdupe/redirect_pass"]
    assert jobdir == ("scheduler/enqueued/disk" in crawl.stats)
    assert "scheduler/enqueued/memory" not in crawl.stats or not jobdir


def test_what_redirects_for_ever_ends_whatever_an_errback_asks_for(site: Site, tmp_path: Path) -> None:
    area = site.area()
    settings = {**FILTER, "REDIRECT_MAX_TIMES": 5, "REQUEST_FINGERPRINTER_CLASS": f"{__name__}.IgnoresCase"}
    start = [area.at(path) for path in ("loop/a", "refresh/a", "Missing/A", "plain")]
    crawl = run(tmp_path, settings, spider=f"{__name__}.NeverGivesUp", start=start)
    assert "finished" == crawl.stats["finish_reason"]
    assert urls(area, "plain") == crawl.urls
    assert {"loop/a": 6, "refresh/a": 2, "Missing/A": 1, "missing/a": 1, "plain": 1} == area.fetched()
    assert 7 == crawl.ours()["bloomdupe/redirect_pass"]


def test_a_cached_redirect_to_itself_ends_and_an_uncached_one_is_crawled(site: Site, tmp_path: Path) -> None:
    area = site.area()
    cache = {**FILTER, "HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    # Scrapy's cache knows no cookies: it answers the second request with the redirect of the first.
    crawl = run(tmp_path, {**cache, "REDIRECT_MAX_TIMES": 5}, start=[area.at("cookie/1"), area.at("plain")])
    assert urls(area, "plain") == crawl.urls
    assert {"cookie/1": 1, "plain": 1} == area.fetched()
    assert 5 == crawl.ours()["bloomdupe/redirect_pass"]
    crawl = run(tmp_path, {**cache, "HTTPCACHE_IGNORE_HTTP_CODES": [302]}, start=[area.at("cookie/2")])
    assert [area.at("cookie/2")] == crawl.urls
    assert 3 == area.fetched()["cookie/2"]


@pytest.mark.parametrize("settings", [STOCK, FILTER], ids=["stock", "ours"])
def test_forms_that_lead_back_to_their_page_do_not_fetch_it_again(
    site: Site, tmp_path: Path, settings: dict[str, Any]
) -> None:
    area = site.area()
    crawl = run(tmp_path, settings, spider=f"{__name__}.SendsForms", start=[area.at("form")])
    assert [area.at("form")] == crawl.urls
    assert [("GET", "form", 200)] + [("POST", "form", 302)] * 3 == area.answers()
