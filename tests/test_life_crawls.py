"""Are pages crawled again when they should be, and once, in whole crawls in a process of their own?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, Cli, FollowAll, run
from mocksite import Area, Site, mock_site
from scrapy import Request, Spider, signals
from scrapy.exceptions import DontCloseSpider
from scrapy.http import Response

from scrapy_bloomdupe.dupefilter import BloomDupeFilter

NOW = [1_700_000_000.0]
HALF_AN_HOUR = 1800
SIZE = 9
TREE = [f"tree/{SIZE}/{number}" for number in range(SIZE)]


class Clocked(BloomDupeFilter):
    """Goes by a clock that the spider sets."""

    clock = staticmethod(lambda: NOW[0])


def a_day_later() -> None:
    """What is called in the process of a crawl before it."""
    NOW[0] += 86_400


class EveryHalfHour(Spider):
    """Asks for its pages at the start and every half an hour, follows all links, stops after two hours."""

    name = "every_half_hour"

    def __init__(self, start: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_at: list[str] = json.loads(start)
        self.rounds = 4

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> EveryHalfHour:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.go_on, signal=signals.spider_idle)
        return spider

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)

    def go_on(self) -> None:
        if self.rounds:
            self.rounds -= 1
            NOW[0] += HALF_AN_HOUR
            for url in self.start_at:
                self.crawler.engine.crawl(Request(url))  # type: ignore[union-attr]
            raise DontCloseSpider


class StartsWith(FollowAll):
    """Its start requests are not for the filter, as Scrapy's own are not."""

    name = "starts_with"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, dont_filter=True)


class Records(FollowAll):
    """Asks for the first page by a request that is not for the filter and is remembered."""

    name = "records"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, dont_filter=True, meta={"bloomdupe": "record"})


class CopiesMeta(Records):
    """Gives the meta of every response to all requests of it."""

    name = "copies_meta"

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, meta=response.meta)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def fetched(area: Area) -> Counter[str]:
    """How often each path was answered, a page of links by the first one."""
    paths = (path for _, path, _ in area.answers())
    return Counter(path.split("&")[0] for path in paths)


@pytest.mark.parametrize("jobdir", [False, True], ids=["without a job", "with a frontier"])
def test_list_pages_are_crawled_again_after_their_time_and_products_are_not(
    site: Site, tmp_path: Path, jobdir: bool
) -> None:
    area = site.area()
    lists = [area.links("p/1", "p/2", "about"), area.links("p/2", "p/3", "p/1")]
    settings = {
        "DUPEFILTER_CLASS": f"{__name__}.Clocked",
        "JOBDIR": str(tmp_path / "job") if jobdir else None,
        "BLOOMDUPE_RULES": [{"name": "lists", "match": {"path": "*/links"}, "expire": "1h"}],
        "BLOOMDUPE_EXPIRE": "7d",
    }
    crawl = run(tmp_path, settings, spider=f"{__name__}.EveryHalfHour", start=lists)
    # At the start, after one hour and after two.
    expected = {"links?to=p%2F1": 3, "links?to=p%2F2": 3, "p/1": 1, "p/2": 1, "p/3": 1, "about": 1}
    assert expected == fetched(area)
    assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"])
    assert (6, 4) == (crawl.stats["bloomdupe/new"], crawl.stats["bloomdupe/expired"])
    assert [] == [name for name in crawl.stats if name.startswith("bloomdupe/error/")]
    assert crawl.lines("6 new", "4 expired and crawled again")
    if jobdir:
        assert (10, 0) == (crawl.stats["bloomdupe/done"], crawl.stats["bloomdupe/pending"])


def test_what_redirects_to_itself_is_delivered_each_time(site: Site, tmp_path: Path) -> None:
    area = site.area()
    settings = {
        "DUPEFILTER_CLASS": f"{__name__}.Clocked",
        "REQUEST_FINGERPRINTER_CLASS": "test_dupefilter_redirects.IgnoresCase",
        "BLOOMDUPE_EXPIRE": HALF_AN_HOUR,
        "REDIRECT_MAX_TIMES": 2,
    }
    crawl = run(tmp_path, settings, spider=f"{__name__}.EveryHalfHour", start=[area.at("Page")])
    assert {"Page": 5, "page": 5} == fetched(area)
    assert [area.at("page")] * 5 == crawl.urls


def test_a_job_that_goes_on_the_next_day_crawls_what_has_expired(site: Site, tmp_path: Path) -> None:
    area = site.area()
    settings = {
        "DUPEFILTER_CLASS": f"{__name__}.Clocked",
        "JOBDIR": str(tmp_path / "job"),
        "BLOOMDUPE_RULES": [{"name": "even", "match": {"regex": "/[0-9]*[02468]$"}, "expire": "12h"}],
    }
    start = [area.at(path) for path in TREE]
    for prepare in (None, f"{__name__}.a_day_later", f"{__name__}.a_day_later"):
        run(tmp_path, settings, prepare=prepare, start=start)
    assert {path: 2 if int(path[-1]) % 2 == 0 else 1 for path in TREE} == area.fetched()


def test_a_state_that_is_too_old_is_begun_anew(site: Site, tmp_path: Path) -> None:
    area = site.area()
    settings = {
        "DUPEFILTER_CLASS": f"{__name__}.Clocked",
        "JOBDIR": str(tmp_path / "job"),
        "BLOOMDUPE_RESET": "12h",
    }
    for prepare in (None, None, f"{__name__}.a_day_later"):
        crawl = run(tmp_path, settings, prepare=prepare, start=[area.at(TREE[0])])
        assert 0 == crawl.code
    assert dict.fromkeys(TREE, 2) == area.fetched()
    assert crawl.lines("WARNING", "was made 1d ago and BLOOMDUPE_RESET is 12h: it was moved to")


@pytest.mark.parametrize("how", ["urls", "host", "rule", "keys"])
def test_what_is_forgotten_is_what_the_next_run_crawls(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    area, bloomdupe = site.area(), Cli(capsys)
    rule = {"name": "page", "key": {"sources": ["path:/(page/[0-9]+)"]}, "missing": "next"}
    settings = {**FILTER, "JOBDIR": str(tmp_path / "job"), "BLOOMDUPE_RULES": [rule] if how == "rule" else []}
    here = [area.at(path) for path in (*TREE, "page/1", "page/2")]
    there = [url.replace("127.0.0.1", "localhost") for url in (area.at("a"), area.at("b"))]
    for _ in range(2):
        run(tmp_path, settings, start=[*here, *there])
    assert dict.fromkeys((*TREE, "page/1", "page/2", "a", "b"), 1) == area.fetched()
    (tmp_path / "keys").write_text(f"{here[3]}\n{there[1]}\n")
    words, again = {
        "urls": ((here[2], here[5]), [TREE[2], TREE[5]]),
        "host": (("--host", "localhost"), ["a", "b"]),
        "rule": (("--rule", "page"), ["page/1", "page/2"]),
        "keys": (("--keys", tmp_path / "keys"), [TREE[3], "b"]),
    }[how]
    assert 0 == bloomdupe("forget", tmp_path / "job", *words)[0]
    for _ in range(2):
        run(tmp_path, settings, start=[*here, *there])
    expected = Counter((*TREE, "page/1", "page/2", "a", "b", *again))
    assert expected == area.fetched()


ITSELF, REDIRECT = "tree/1/0", "page?next={prefix}tree/1/0"


@pytest.mark.parametrize(
    ("spider", "record_start", "start", "jobdir", "count"),
    [
        ("StartsWith", False, ITSELF, True, 2),
        ("StartsWith", True, ITSELF, True, 1),
        ("StartsWith", True, ITSELF, False, 1),
        ("StartsWith", True, REDIRECT, True, 1),
        ("StartsWith", True, REDIRECT, False, 1),
        ("Records", False, REDIRECT, True, 1),
        ("Records", False, ITSELF, False, 1),
    ],
)
def test_a_start_page_that_links_to_itself_is_fetched_once_if_it_is_recorded(
    site: Site, tmp_path: Path, spider: str, record_start: bool, start: str, jobdir: bool, count: int
) -> None:
    area = site.area()
    settings = {
        **FILTER,
        "JOBDIR": str(tmp_path / "job") if jobdir else None,
        "BLOOMDUPE_RECORD_START": record_start,
    }
    at = area.at(start.format(prefix=area.prefix))
    crawl = run(tmp_path, settings, spider=f"{__name__}.{spider}", start=[at])
    assert count == area.fetched()[ITSELF]
    recorded = 2 if start == REDIRECT else 1
    assert (recorded if count == 1 else None) == crawl.stats.get("bloomdupe/recorded")
    if jobdir:
        # The next run knows it too; its start request passes as ever.
        run(tmp_path, settings, spider=f"{__name__}.{spider}", start=[at])
        assert count + 1 == area.fetched()[ITSELF]


def test_a_start_page_from_the_cache_is_recorded_too(site: Site, tmp_path: Path) -> None:
    area = site.area()
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        settings = {**FILTER, **cache, "BLOOMDUPE_RECORD_START": True}
        crawl = run(tmp_path, settings, spider=f"{__name__}.StartsWith", start=[area.at(ITSELF)])
        assert 1 == crawl.stats["bloomdupe/recorded"]
    assert {ITSELF: 1} == area.fetched()
    assert (1, 1) == (crawl.stats["httpcache/hit"], len(crawl.urls))


@pytest.mark.parametrize("jobdir", [False, True], ids=["without a job", "with a frontier"])
def test_a_copied_wish_to_be_recorded_makes_no_crawl_without_end(
    site: Site, tmp_path: Path, jobdir: bool
) -> None:
    area = site.area()
    settings = {
        **FILTER,
        "JOBDIR": str(tmp_path / "job") if jobdir else None,
        "BLOOMDUPE_RECORD_START": True,
    }
    crawl = run(tmp_path, settings, spider=f"{__name__}.CopiesMeta", start=[area.at(TREE[0])])
    assert dict.fromkeys(TREE, 1) == area.fetched()
    assert 1 == crawl.stats["bloomdupe/recorded"]
