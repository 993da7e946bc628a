"""Whole crawls that stock Scrapy begins and ours takes over, there and back again."""

from __future__ import annotations

import json
import pickle
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scrapy
from crawling import FILTER, Cli, Crawl, FollowAll, run, running
from mocksite import Area, Site, mock_site
from scrapy.http import Response

SIZE = 60
PAGES = Counter(f"tree/{SIZE}/{number}" for number in range(SIZE))
STOCK: dict[str, Any] = {}
IMPORT = ("--spider", "follow")


class Counting(FollowAll):
    """Counts its pages in ``spider.state``, which a job keeps."""

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        state: dict[str, int] = self.state  # type: ignore[attr-defined]
        state["pages"] = state.get("pages", 0) + 1
        yield {"url": response.url, "pages": state["pages"]}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, priority=len(response.url) % 3)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def area(site: Site) -> Area:
    return site.area()


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


class Job:
    """One crawl of a tree in several runs."""

    def __init__(self, folder: Path, area: Area, **settings: Any) -> None:
        self.folder, self.area, self.settings = folder, area, settings
        self.directory = folder / "job"

    def _options(self, settings: dict[str, Any]) -> dict[str, Any]:
        more = {"JOBDIR": str(self.directory), "CONCURRENT_REQUESTS": 4, **self.settings, **settings}
        return {
            "settings": more,
            "spider": "test_stockjob_crawls.Counting",
            "start": [self.area.at(f"tree/{SIZE}/0")],
        }

    def run(self, settings: dict[str, Any], *, pages: int = 0) -> Crawl:
        """A run to its end, or to an end in order after so many pages."""
        ended = run(self.folder, **self._options({**settings, "CLOSESPIDER_PAGECOUNT": pages}))
        reason = ended.stats["finish_reason"]
        assert (0, "closespider_pagecount" if pages else "finished") == (ended.code, reason), ended.log
        return ended

    def kill(self, settings: dict[str, Any], pages: int) -> None:
        with running(self.folder, **self._options({**settings, "DOWNLOAD_DELAY": 0.05})) as crawl:
            goal = len(self.area.answers()) + pages
            crawl.wait_until(lambda: len(self.area.answers()) >= goal, "some pages")
            crawl.process.send_signal(signal.SIGKILL)
            crawl.finish()


@pytest.mark.parametrize("priority", ["ScrapyPriorityQueue", "DownloaderAwarePriorityQueue"])
def test_a_job_goes_from_stock_to_ours_and_back_and_no_page_is_fetched_twice(
    bloomdupe: Cli, area: Area, tmp_path: Path, priority: str
) -> None:
    job = Job(tmp_path, area, SCHEDULER_PRIORITY_QUEUE=f"scrapy.pqueues.{priority}")
    job.run(STOCK, pages=12)
    pending = json.loads((job.directory / "requests.queue" / "active.json").read_text())
    assert pending, "nothing is left to do"
    code, out, err = bloomdupe("import", job.directory, *IMPORT)
    assert (0, "") == (code, err)
    assert " requests of follow are pending in " in out
    ours = job.run(FILTER, pages=12)
    assert ours.stats["bloomdupe/resumed"] > 0
    assert "follow" == bloomdupe.json("info", job.directory)["identity"]["spider"]
    (notice,) = ours.lines("[scrapy_bloomdupe", "WARNING")
    assert "was imported: its keys count from now on as made by scrapy.utils.request" in notice
    words = ["export", job.directory, "--priority-queue", job.settings["SCHEDULER_PRIORITY_QUEUE"]]
    code, out, err = bloomdupe(*words)
    assert (0, "") == (code, err)
    assert SIZE > sum(area.fetched().values()) >= 24
    back = job.run(STOCK, pages=12)
    assert back.lines("Resuming crawl")
    assert 0 == bloomdupe("import", job.directory, *IMPORT)[0]
    last = job.run(FILTER)
    assert PAGES == area.fetched()
    assert SIZE == max(item["pages"] for item in last.items)
    assert SIZE == last.stats["bloomdupe/keys"]
    assert 0 == last.stats["bloomdupe/pending"]
    assert 0 == bloomdupe("check", job.directory)[0]


def test_a_job_of_ours_that_was_killed_is_finished_by_stock_scrapy(
    bloomdupe: Cli, area: Area, tmp_path: Path
) -> None:
    job = Job(tmp_path, area)
    job.kill(FILTER, 20)
    assert not (job.directory / "spider.state").exists()
    assert 0 == bloomdupe("export", job.directory)[0]
    assert 0 < pickle.loads((job.directory / "spider.state").read_bytes())["pages"] <= 20 + 4
    refused = run(tmp_path, **job._options(FILTER))
    assert (True, "bloomdupe_refused") == (refused.code != 0, refused.stats["finish_reason"])
    assert refused.lines("is a queue of Scrapy's own", f"bloomdupe import {job.directory}")
    job.run(STOCK)
    fetched = area.fetched()
    assert set(PAGES) == set(fetched)
    # What was under way, and what was done since the last commit, is fetched again.
    assert fetched.total() <= SIZE + 20


def test_a_stock_job_that_was_killed_loses_nothing_if_only_its_queue_is_taken(
    bloomdupe: Cli, area: Area, tmp_path: Path
) -> None:
    job = Job(tmp_path, area)
    job.run(STOCK, pages=8)
    job.kill(STOCK, 12)
    code, out, err = bloomdupe("import", job.directory, *IMPORT)
    assert (2, "") == (code, out)
    assert "the crawl was killed, or still runs" in err
    assert f"{job.directory}/requests.queue" in err
    code, out, err = bloomdupe("import", job.directory, *IMPORT, "--queue-only")
    assert (0, "") == (code, err)
    job.run(FILTER)
    assert set(PAGES) == set(area.fetched())


def test_our_filter_with_scrapys_queue_gets_a_frontier_in_mid_crawl(
    bloomdupe: Cli, area: Area, tmp_path: Path
) -> None:
    job = Job(tmp_path, area)
    job.run({**FILTER, "BLOOMDUPE_FRONTIER": False}, pages=15)
    keys = bloomdupe.json("info", job.directory)["store"]["keys"]
    assert 15 < keys < SIZE
    refused = run(tmp_path, **job._options(FILTER))
    assert refused.lines(f"run `bloomdupe import {job.directory}` to take the job over")
    code, out, err = bloomdupe("import", job.directory, *IMPORT)
    assert (0, "") == (code, err)
    assert "fingerprints" not in out
    last = job.run(FILTER)
    assert PAGES == area.fetched()
    assert SIZE == last.stats["bloomdupe/keys"]


def test_stock_scrapy_refuses_to_start_empty_on_a_job_that_was_imported(
    bloomdupe: Cli, area: Area, tmp_path: Path
) -> None:
    job = Job(tmp_path, area)
    job.run(STOCK, pages=15)
    assert 0 == bloomdupe("import", job.directory, *IMPORT)[0]
    before = area.fetched()
    refused = run(tmp_path, **job._options(STOCK))
    assert refused.lines("ValueError" if scrapy.version_info >= (2, 19) else "TypeError")
    assert "finished" != refused.stats.get("finish_reason")
    assert before == area.fetched()
    job.run(FILTER)
    assert PAGES == area.fetched()
