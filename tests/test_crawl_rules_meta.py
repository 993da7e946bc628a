"""Does a key in the meta of a request hold for that request, and never for what its meta is copied to?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, FollowAll, run
from mocksite import Area, Site, mock_site
from scrapy import Request
from scrapy.http import Response

KEY = "bloomdupe_key"
ITEM = {"name": "item", "match": {"path": "*/item"}, "key": {"sources": ["query:id"]}}


class GivesKeys(FollowAll):
    """Starts with pairs of a URL and a key."""

    name = "gives_keys"

    async def start(self) -> AsyncIterator[Request]:
        for url, key in self.start_at:
            yield Request(url, meta={KEY: key}, errback=self.failed)

    def failed(self, failure: Any) -> Iterator[Any]:
        """For those that are not asked for more."""
        return iter(())


class CopiesMeta(GivesKeys):
    """Asks for three other pages with the meta of each first one, and for itself."""

    name = "copies_meta"

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url}
        if "other" in response.url:
            return
        for number in range(3):
            yield Request(response.urljoin(f"other{number}"), meta=response.meta)
        yield Request(response.url, meta=response.meta)
        yield response.request.replace(url=response.urljoin("other3"))  # type: ignore[union-attr]


class TriesOthers(GivesKeys):
    """Asks for a mirror of what failed, with the meta of the request that failed."""

    name = "tries_others"

    def failed(self, failure: Any) -> Iterator[Request]:
        for number in range(2):
            yield Request(self.mirror + str(number), meta=failure.request.meta)

    mirror: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def urls(area: Area, *paths: str) -> list[str]:
    return sorted(area.at(path) for path in paths)


@pytest.mark.parametrize("rules", [[], [ITEM]], ids=["no rules", "rules"])
def test_a_string_is_the_key_and_false_leaves_a_request_alone(
    site: Site, tmp_path: Path, rules: list[Any]
) -> None:
    area = site.area()
    start = [
        (area.at("item?id=1"), "p1"),
        (area.at("item?id=2"), "p1"),
        (area.at("item?id=3"), "p3"),
        (area.at("item?id=4&a=1"), False),
        (area.at("item?id=4&a=2"), False),
        (area.at("item?id=4&a=2"), False),
    ]
    settings = {**FILTER, "BLOOMDUPE_RULES": rules}
    crawl = run(tmp_path, settings, spider=f"{__name__}.GivesKeys", start=start)
    assert urls(area, "item?id=1", "item?id=3", "item?id=4&a=1", "item?id=4&a=2") == crawl.urls
    assert 2 == crawl.stats["dupefilter/filtered"]
    assert 3 == crawl.stats["bloomdupe/rule/bloomdupe_key/key"]


@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "disk queue"])
@pytest.mark.parametrize("rules", [[], [ITEM]], ids=["no rules", "rules"])
def test_a_copied_key_loses_no_other_page(site: Site, tmp_path: Path, rules: list[Any], jobdir: bool) -> None:
    area = site.area()
    settings = {**FILTER, "BLOOMDUPE_RULES": rules, "JOBDIR": str(tmp_path / "job") if jobdir else None}
    crawl = run(tmp_path, settings, spider=f"{__name__}.CopiesMeta", start=[(area.at("page"), "p1")])
    expected = urls(area, "page", *(f"other{number}" for number in range(4)))
    # The page itself once more: its key was given for the first request only.
    assert expected == sorted(set(crawl.urls))
    assert len(crawl.urls) <= len(expected) + 1
    assert jobdir == ("scheduler/enqueued/disk" in crawl.stats)


@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "disk queue"])
def test_a_redirect_of_a_request_with_a_key_reaches_its_callback_and_its_copies_too(
    site: Site, tmp_path: Path, jobdir: bool
) -> None:
    area = site.area()
    there = f"{area.prefix}there"
    settings = {**FILTER, "JOBDIR": str(tmp_path / "job") if jobdir else None}
    start = [(area.at(f"page?next={there}?next={area.prefix}end"), "p1"), (area.at("visa"), "p2")]
    crawl = run(tmp_path, settings, spider=f"{__name__}.CopiesMeta", start=start)
    others = [f"other{number}" for number in range(4)]
    assert set(urls(area, "end", "visa", *others)) == set(crawl.urls)
    assert 4 == crawl.stats["bloomdupe/redirect_pass"]


@pytest.mark.parametrize("settings", [{}, {"RETRY_TIMES": 1}], ids=["default", "retry"])
@pytest.mark.parametrize("failing", ["missing/a", "closed"])
def test_an_errback_that_copies_the_meta_loses_no_other_page(
    site: Site, tmp_path: Path, settings: dict[str, Any], failing: str
) -> None:
    area = site.area()
    failed = area.at(failing) if failing != "closed" else "http://127.0.0.1:1/closed"
    crawl = run(
        tmp_path,
        {**FILTER, **settings},
        spider=f"{__name__}.TriesOthers",
        start=[(failed, "p1")],
        mirror=area.at("mirror"),
    )
    assert urls(area, "mirror0", "mirror1") == crawl.urls


def test_a_new_key_over_a_copied_one_holds(site: Site, tmp_path: Path) -> None:
    area = site.area()
    crawl = run(tmp_path, spider=f"{__name__}.Renames", start=[(area.at("page"), "p1")])
    assert urls(area, "page", "a0") == crawl.urls


class Renames(GivesKeys):
    """Copies the meta and gives it another key."""

    name = "renames"

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url}
        for number in range(3 if response.url.endswith("page") else 0):
            yield response.follow(f"a{number}", meta={**response.meta, KEY: "p2"})
