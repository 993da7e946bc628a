"""Do whole crawls fetch every page once, count right, say it, and leave behind what they should?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, Crawl, FollowAll, run, scrapy
from mocksite import Site, mock_site, tree_links
from scrapy import Request

import scrapy_bloomdupe.settings as settings
from scrapy_bloomdupe.filters.growth import first_layer
from scrapy_bloomdupe.filters.layouts import get_layout

SIZE = 40
TREE = f"tree/{SIZE}/0"
PAGES = Counter(f"tree/{SIZE}/{number}" for number in range(SIZE))
#: Requests that a crawl of the tree asks for again: every link, and the start, less the pages.
DUPLICATES = 1 + sum(len(tree_links(SIZE, number)) for number in range(SIZE)) - SIZE

HISTORY = ["history-top.json", "history.jsonl"]
STATE = [*HISTORY, "lock", "seen.bloom", "seen.lmdb", "seen.lmdb-lock"]


class Daily(FollowAll):
    """Begins as a spider with ``start_urls`` does: its start requests are never filtered."""

    name = "daily"

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, dont_filter=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def figures(keys: int, **counts: int) -> dict[str, Any]:
    """All stats of a crawl with default settings, but for the two that differ from run to run."""
    first = first_layer(get_layout("paged"), settings.DEFAULT_CAPACITY, settings.DEFAULT_ERROR_RATE)
    state = {"keys": keys, "layers": 1, "fill": 0.0, "filter_bytes": first.end}
    return {f"bloomdupe/{name}": value for name, value in {**state, **counts}.items()}


def stable(crawl: Crawl) -> dict[str, Any]:
    found = crawl.ours()
    found.pop("bloomdupe/cached", None)
    if "bloomdupe/commits" in found:
        assert 0 < found.pop("bloomdupe/commits")
        assert 0 <= found.pop("bloomdupe/commit_seconds") < 10
    assert 0 < found.pop("bloomdupe/open_seconds") < 10
    assert 0 <= found.pop("bloomdupe/error_rate_estimate") < 1e-9
    return found


def assert_quiet(crawl: Crawl) -> None:
    assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"])
    assert [] == [
        line for line in crawl.log.splitlines() if re.search(r"WARNING|ERROR|Deprecat|Traceback", line)
    ]


@pytest.mark.parametrize(
    "line",
    [FILTER, {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}],
    ids=["DUPEFILTER_CLASS", "ADDONS"],
)
def test_one_line_of_settings_is_enough_and_leaves_no_temporary_files(
    site: Site, tmp_path: Path, line: dict[str, Any]
) -> None:
    area = site.area()
    crawl = run(tmp_path, line, start=[area.at(TREE)])
    assert_quiet(crawl)
    assert PAGES == area.fetched()
    counts = {"new": SIZE, "duplicate": DUPLICATES}
    assert {**figures(SIZE, **counts), "dupefilter/filtered": DUPLICATES} == stable(crawl)
    assert [] == list((tmp_path / "tmp").iterdir())
    (summary,) = crawl.lines("INFO: Seen-set:", "on disk")
    assert f"{SIZE} new, {DUPLICATES} duplicates, 0 false positives caught; {SIZE} keys in 1 layer" in summary
    assert 1 == len(crawl.lines("Filtered duplicate request", "no more duplicates will be shown"))


def test_stock_scrapy_filters_the_same_number_of_requests(site: Site, tmp_path: Path) -> None:
    area = site.area()
    crawl = run(tmp_path, {}, start=[area.at(TREE)])
    assert {"dupefilter/filtered": DUPLICATES} == crawl.ours()
    assert PAGES == area.fetched()


def test_a_job_directory_keeps_the_state_and_a_finished_job_has_nothing_to_do(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    job = {**FILTER, "JOBDIR": str(tmp_path / "job")}
    assert_quiet(run(tmp_path, job, start=[area.at(TREE)]))
    assert STATE == sorted(path.name for path in (tmp_path / "job" / "bloomdupe").iterdir())
    assert not (tmp_path / "job" / "requests.seen").exists()
    again = run(tmp_path, job, start=[area.at(TREE)])
    assert_quiet(again)
    assert PAGES == area.fetched()
    counts = {"duplicate": 1, "pending": 0, "done": 0}
    assert {**figures(SIZE, **counts), "dupefilter/filtered": 1} == stable(again)
    assert 1 == len(again.lines(f"Seen-set: {SIZE} keys in {tmp_path / 'job' / 'bloomdupe'}, opened in"))


def test_a_seen_set_that_outlives_its_jobs_fetches_only_what_must_be_fetched(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    daily = {**FILTER, "BLOOMDUPE_DIR": str(tmp_path / "seen")}
    spider, start = f"{__name__}.Daily", [area.at(TREE)]
    first = run(tmp_path, daily, spider=spider, start=start)
    # Scrapy's filter does not get to know a start page that is not filtered, nor does ours.
    assert PAGES + Counter([TREE]) == area.fetched()
    assert figures(SIZE, new=SIZE)["bloomdupe/keys"] == first.stats["bloomdupe/keys"]
    second = run(tmp_path, {**daily, "JOBDIR": str(tmp_path / "job 2")}, spider=spider, start=start)
    assert PAGES + Counter([TREE, TREE]) == area.fetched()
    links = len(tree_links(SIZE, 0))
    counts = {"duplicate": links, "pending": 0, "done": 1}
    assert {**figures(SIZE, **counts), "dupefilter/filtered": links} == stable(second)
    assert STATE == sorted(path.name for path in (tmp_path / "seen").iterdir())


def test_a_stop_without_a_job_directory_is_gone_on_from_by_the_next_run(site: Site, tmp_path: Path) -> None:
    area = site.area()
    daily = {**FILTER, "BLOOMDUPE_DIR": str(tmp_path / "seen")}
    few = {"CLOSESPIDER_PAGECOUNT": 3, "CONCURRENT_REQUESTS": 1}
    crawl = run(tmp_path, {**daily, **few}, start=[area.at(TREE)])
    assert "closespider_pagecount" == crawl.stats["finish_reason"]
    assert [] == crawl.lines("[scrapy_bloomdupe", "WARNING")
    assert 0 < crawl.stats["bloomdupe/pending"]
    again = run(tmp_path, daily, start=[area.at(TREE)])
    assert PAGES == area.fetched()
    assert crawl.stats["bloomdupe/pending"] == again.stats["bloomdupe/resumed"]


def test_without_a_frontier_a_stop_is_told_that_what_waited_is_marked_as_seen(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    daily = {**FILTER, "BLOOMDUPE_DIR": str(tmp_path / "seen"), "BLOOMDUPE_FRONTIER": False}
    few = {"CLOSESPIDER_PAGECOUNT": 1, "CONCURRENT_REQUESTS": 1}
    crawl = run(tmp_path, {**daily, **few}, start=[area.at(TREE)])
    assert "closespider_pagecount" == crawl.stats["finish_reason"]
    (warning,) = crawl.lines("[scrapy_bloomdupe", "WARNING")
    assert "requests were scheduled and not sent" in warning
    assert "Set JOBDIR" in warning


def test_a_bare_filter_crawls_the_site_without_an_exact_store(site: Site, tmp_path: Path) -> None:
    area = site.area()
    bare = {**FILTER, "BLOOMDUPE_STORE": None, "JOBDIR": str(tmp_path / "job")}
    crawl = run(tmp_path, bare, start=[area.at(TREE)])
    assert_quiet(crawl)
    assert PAGES == area.fetched()
    found = stable(crawl)
    assert (SIZE, DUPLICATES) == (found["bloomdupe/new"], found["bloomdupe/unconfirmed"])
    assert "bloomdupe/duplicate" not in found
    names = ["frontier.lmdb", "frontier.lmdb-lock", *HISTORY, "lock", "seen.bloom"]
    assert names == sorted(path.name for path in (tmp_path / "job" / "bloomdupe").iterdir())


def test_a_filter_that_is_far_too_small_grows_and_costs_no_page(site: Site, tmp_path: Path) -> None:
    area = site.area()
    bad = {"BLOOMDUPE_CAPACITY": "5", "BLOOMDUPE_ERROR_RATE": "0.1", "BLOOMDUPE_LAYOUT": "classic"}
    command = ["runspider", crawling_file(), "-a", f'start=["{area.at(TREE)}"]']
    crawl = scrapy(tmp_path, command, {**FILTER, **bad, "LOG_LEVEL": "INFO"})
    assert 0 == crawl.code
    assert PAGES == area.fetched()
    assert "'finish_reason': 'finished'" in crawl.log
    assert 2 <= len(crawl.lines("The filter reached", "and grew to"))
    assert [] == crawl.lines("Traceback")


def crawling_file() -> str:
    return str(Path(__file__).with_name("crawling.py"))
