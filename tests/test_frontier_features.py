"""Does the frontier get on with what else a crawl can do? Whole crawls, in two runs or three."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Python
from crawling import ASYNCIO, QUIET, SELECT, Crawl
from forking import Going, crawls, wait_until
from killing import BARE, EXACT, STOCK
from mocksite import Area, Site, mock_site
from scrapy.settings import default_settings

INT, KILL = signal.SIGINT, signal.SIGKILL

PAGES = 20
SLOW = {"DOWNLOAD_DELAY": 0.02, "CONCURRENT_REQUESTS": 4}

stores = pytest.mark.parametrize("store", [EXACT, BARE], ids=["exact", "bare"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="module")
def start_crawl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Going]]:
    with crawls(tmp_path_factory.mktemp("crawls")) as start:
        yield start


class Job:
    """Runs of one job directory on pages of one area."""

    def __init__(
        self, start: Callable[..., Going], area: Area, folder: Path, settings: dict[str, Any]
    ) -> None:
        self._start = start
        self.area, self.folder, self.settings = area, folder, settings
        self.jobdir = folder / "jobdir"

    def __call__(self, *paths: str, **options: Any) -> Crawl:
        """A run to its end."""
        return self.stopped(None, (), *paths, **options)

    def stopped(
        self,
        answers: int | None,
        signals: tuple[int, ...],
        *paths: str,
        spider: str = "crawling.FollowAll",
        prepare: str | None = None,
        arguments: dict[str, str] | None = None,
        **settings: Any,
    ) -> Crawl:
        """A run that gets *signals* after so many answers."""
        start = "[" + ", ".join(f'"{self.area.at(path)}"' for path in paths) + "]"
        job = {
            "spider": spider,
            "prepare": prepare,
            "settings": {**QUIET, "JOBDIR": str(self.jobdir), **self.settings, **settings},
            "arguments": {"start": start, **(arguments or {})},
        }
        going = self._start(self.folder, job)
        try:
            if answers is not None:
                goal = len(self.area.answers()) + answers
                wait_until(
                    lambda: going.ended() or len(self.area.answers()) >= goal,
                    f"{goal} answers: {going.log()}",
                )
            for signum in signals:
                going.kill() if signum == KILL else going.send(signum)
            return going.finish()
        finally:
            going.kill()

    def missing(self, count: int = PAGES) -> list[int]:
        """Which of the pages of ``many/count`` have not been answered."""
        fetched = self.area.fetched()
        return [number for number in range(count) if f"page/{number}" not in fetched]


@pytest.fixture
def job(start_crawl: Callable[..., Going], site: Site, tmp_path: Path) -> Job:
    return Job(start_crawl, site.area(), tmp_path, dict(EXACT))


def check(crawl: Crawl, reason: str = "finished", pending: int = 0, errors: int = 0) -> None:
    found = crawl.stats.get("finish_reason"), crawl.stats.get("bloomdupe/pending")
    assert (reason, pending) == found, crawl.log
    assert errors == len(crawl.lines("[scrapy_bloomdupe", " ERROR:")), crawl.log
    assert [] == crawl.lines("Traceback"), crawl.log


ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}
MENDED = {"DEFAULT_REQUEST_HEADERS": {"Cookie": "mended=1"}}
PATIENT = {**ADDON, "BLOOMDUPE_RETRY_FAILED": True, "RETRY_ENABLED": False, "COOKIES_ENABLED": False}


@stores
def test_a_page_that_fails_for_ever_is_asked_by_the_next_run_if_that_is_wanted(
    job: Job, store: dict[str, Any]
) -> None:
    job.settings = {**store, **PATIENT}
    start = job.area.links("broken/1", "page/1").removeprefix(job.area.at(""))
    first = job(start)
    check(first)
    assert 1 == first.stats["bloomdupe/failed"]
    # Nor does a run lose it that does not get there, or finds it as it was.
    for _ in range(2):
        again = job()
        check(again)
        assert (1, 1) == (again.stats["bloomdupe/resumed"], again.stats["bloomdupe/failed"])
    second = job(**MENDED)
    check(second)
    assert "bloomdupe/failed" not in second.stats
    assert ("GET", "broken/1", 200) == job.area.answers()[-1]
    before = len(job.area.answers())
    check(job())
    assert before == len(job.area.answers())


@stores
def test_a_failed_page_that_is_linked_again_is_crawled_once(job: Job, store: dict[str, Any]) -> None:
    job.settings = {**store, **PATIENT}
    start = job.area.links("broken/1", "page/1").removeprefix(job.area.at(""))
    job(start)
    # It is pending, and found by the link of another page.
    check(job(job.area.links("broken/1", "page/2").removeprefix(job.area.at("")), **MENDED))
    assert [500, 200] == [status for _, path, status in job.area.answers() if path == "broken/1"]


def test_a_dead_page_that_many_pages_link_to_is_asked_and_kept_once_per_run(job: Job) -> None:
    job.settings |= PATIENT
    pages = [f"links?to=broken/1&to=page/{number}" for number in range(8)]
    # They come one after the other, the next one when its page has failed.
    job.settings |= {"CONCURRENT_REQUESTS": 1, "DEPTH_PRIORITY": -1}
    start = job.area.links(*pages).removeprefix(job.area.at(""))
    for run in (1, 2):
        check(job(start))
        assert run == [path for _, path, _ in job.area.answers()].count("broken/1")
    check(job(start, **MENDED))
    assert [500, 500, 200] == [status for _, path, status in job.area.answers() if path == "broken/1"]


def test_another_url_of_a_page_that_failed_is_tried_in_the_same_run(job: Job) -> None:
    job.settings |= {**PATIENT, "BLOOMDUPE_PRESET": "usual"}
    one, other = (f"broken/1?utm_source={source}" for source in ("a", "b"))
    # They come one after the other, the next one when its page has failed.
    job.settings |= {"CONCURRENT_REQUESTS": 1, "DEPTH_PRIORITY": -1}
    pages = [f"links?to={one}", f"links?to={other}", f"links?to={one}&to=page/1"]
    first = job(job.area.links(*pages).removeprefix(job.area.at("")))
    check(first)
    assert [one, other] == sorted(path for _, path, status in job.area.answers() if status == 500)
    assert 2 == first.stats["bloomdupe/failed"]
    before = len(job.area.answers())
    check(job(**MENDED))
    assert [one, other] == sorted(path for _, path, status in job.area.answers()[before:] if status == 200)


def test_a_page_that_fails_for_ever_is_done_if_nothing_else_is_wanted(job: Job) -> None:
    job.settings |= {"RETRY_ENABLED": False, "COOKIES_ENABLED": False}
    start = job.area.links("broken/1", "page/1").removeprefix(job.area.at(""))
    check(job(start))
    check(job(**MENDED))
    assert [500] == [status for _, path, status in job.area.answers() if path == "broken/1"]


CHOOSY = "featurespiders.Choosy"
RECORD = {"BLOOMDUPE_RECORD_START": True}


@pytest.mark.parametrize("collector", ["Memory", "Dummy"])
@pytest.mark.parametrize("unasked", ["", "1"], ids=["asked", "unasked"])
def test_a_start_request_that_a_handler_drops_leaves_its_page_to_links(
    job: Job, unasked: str, collector: str
) -> None:
    job.settings |= {**RECORD, "STATS_CLASS": f"scrapy.statscollectors.{collector}StatsCollector"}
    start = job.area.links("page/1", "page/2").removeprefix(job.area.at(""))
    options: Any = {"spider": CHOOSY, "arguments": {"refuse": "page/1", "unasked": unasked}}
    first = job.stopped(3, (INT,), "page/1", f"many/{PAGES}", "page/3", **options, **SLOW)
    assert "[scrapy_bloomdupe" in first.log
    # Scrapy's queue has requests of the first run when the second one begins.
    job("page/1", start, "page/3", **options, CONCURRENT_REQUESTS=1)
    fetched = job.area.fetched()
    assert {"page/1": 1, "page/2": 1} == {page: fetched[page] for page in ("page/1", "page/2")}
    assert [] == job.missing()


def test_what_is_pending_does_not_pass_the_handlers_of_scheduling_again(job: Job) -> None:
    job.stopped(3, (KILL,), f"many/{PAGES}", spider=CHOOSY, **SLOW)
    page = job.missing()[0]
    check(job(spider=CHOOSY, arguments={"refuse": f"page/{page}", "of": "links"}))
    assert [] == job.missing()


def test_what_a_handler_drops_is_neither_pending_nor_seen(job: Job) -> None:
    check(job(f"many/{PAGES}", spider=CHOOSY, arguments={"refuse": "page/7", "of": "links"}))
    assert [7] == job.missing()
    check(job(job.area.links("page/7").removeprefix(job.area.at("")), spider=CHOOSY))
    assert [] == job.missing()


@pytest.mark.parametrize("unasked", ["", "1"], ids=["asked", "unasked"])
def test_a_start_request_that_was_dropped_is_asked_by_the_run_after_a_kill(job: Job, unasked: str) -> None:
    starts = ["page/x", f"many/{PAGES}"]
    arguments = {"refuse": "page/x", "unasked": unasked}
    job.stopped(3, (KILL,), *starts, spider=CHOOSY, arguments=arguments, **SLOW)
    check(job(*starts, spider=CHOOSY, arguments={"unasked": unasked}))
    assert 1 == job.area.fetched()["page/x"]
    assert [] == job.missing()


@pytest.mark.parametrize("end", [INT, KILL], ids=["stopped", "killed"])
def test_a_job_of_scrapys_own_queue_is_refused_until_it_is_imported(job: Job, end: int) -> None:
    job.stopped(7, (end,), f"many/{PAGES}", **STOCK, **SLOW)
    queue = job.jobdir / "requests.queue"
    before = {path: path.read_bytes() for path in queue.rglob("*") if path.is_file()}
    fetched = job.area.fetched()
    refused = job(f"many/{PAGES}")
    assert (1, "bloomdupe_refused") == (refused.code, refused.stats["finish_reason"])
    said = f"{queue} is a queue of Scrapy's own", f"`bloomdupe import {job.jobdir}`"
    assert [] != refused.lines("ERROR", *said)
    assert before == {path: path.read_bytes() for path in queue.rglob("*") if path.is_file()}
    assert fetched == job.area.fetched()


@stores
def test_a_job_that_had_no_frontier_is_finished_without_one_and_may_have_one_then(
    job: Job, store: dict[str, Any]
) -> None:
    job.settings = dict(store)
    stopped = job.stopped(7, (INT,), f"many/{PAGES}", BLOOMDUPE_FRONTIER=False, **SLOW)
    assert "shutdown" == stopped.stats["finish_reason"]
    assert len(job.missing()) > 5
    assert "bloomdupe_refused" == job().stats["finish_reason"]
    last = job(BLOOMDUPE_FRONTIER=False)
    assert "finished" == last.stats["finish_reason"]
    assert [] == job.missing()
    check(job("page/last"))
    assert 1 == job.area.fetched()["page/last"]


def test_start_requests_are_asked_again_after_a_stop(job: Job) -> None:
    spider = "featurespiders.Lambdas"
    stopped = job.stopped(7, (INT,), "page/first", f"many/{PAGES}", spider=spider, **SLOW)
    assert "shutdown" == stopped.stats["finish_reason"]
    assert [] != job.missing()
    job.settings["DUPEFILTER_DEBUG"] = True
    last = job("page/first", spider=spider)
    check(last)
    assert [] == job.missing()
    assert 1 == len(last.lines("Filtered duplicate request", "page/first"))


def test_requests_whose_key_cannot_be_made_survive_a_kill(job: Job) -> None:
    job.settings["REQUEST_FINGERPRINTER_CLASS"] = "featurespiders.KeylessFingerprinter"
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    assert [] != job.missing()
    last = job(f"many/{PAGES}")
    assert ("finished", 0) == (last.stats["finish_reason"], last.stats["bloomdupe/pending"])
    assert [] == job.missing()


@stores
def test_every_commit_is_brought_to_the_disk_if_that_is_wanted(job: Job, store: dict[str, Any]) -> None:
    job.settings = {**store, "BLOOMDUPE_SYNC": "full"}
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    last = job(f"many/{PAGES}", FEEDS={str(job.folder / "items.jl"): {"format": "jsonlines"}})
    check(last)
    assert [] == job.missing()


def test_a_page_whose_callback_closes_the_spider_is_asked_again(job: Job) -> None:
    spider = "featurespiders.Closing"
    closed = job(f"many/{PAGES}", spider=spider, arguments={"close": "1"})
    assert "enough" == closed.stats["finish_reason"], closed.log
    assert [] != job.missing()
    check(job(spider=spider))
    assert [] == job.missing()
    assert 2 == job.area.fetched()[f"many/{PAGES}"]


def test_what_leads_away_from_the_site_does_not_stay_pending(job: Job) -> None:
    away = job.area.at("away").replace("127.0.0.1", "localhost")
    start = job.area.links(f"{away}/link", f"out?next={away}/redirect", "page/1", "on?next=page/2")
    last = job(start.removeprefix(job.area.at("")), spider="featurespiders.AtHome")
    check(last)
    assert 2 == last.stats["offsite/filtered"]
    assert {"page/1", "page/2"} <= set(job.area.fetched())
    assert [] == [path for path in job.area.fetched() if path.startswith("away")]


def test_what_leads_away_from_the_site_does_not_stay_pending_after_a_kill(job: Job) -> None:
    away = job.area.at("away").replace("127.0.0.1", "localhost")
    paths = [f"out/{number}?next={away}/{number}" for number in range(20)]
    start = job.area.links(*paths).removeprefix(job.area.at(""))
    job.stopped(8, (KILL,), start, spider="featurespiders.AtHome", **SLOW)
    check(job(start, spider="featurespiders.AtHome"))
    assert set(paths) <= set(job.area.fetched())
    # The same if the spider's domains are others than when it found them.
    again = Job(job._start, job.area, job.folder, job.settings)
    again.jobdir = job.folder / "again"
    links = [f"{away}/{number}" for number in range(20)]
    again.stopped(5, (KILL,), job.area.links(*links).removeprefix(job.area.at("")), **SLOW)
    check(again(spider="featurespiders.AtHome"))


@pytest.mark.parametrize("end", [INT, KILL], ids=["stopped", "killed"])
def test_a_request_whose_callback_the_spider_lost_stays_pending_and_is_no_finish(job: Job, end: int) -> None:
    job.stopped(7, (end,), f"many/{PAGES}", spider="featurespiders.Rich", **SLOW)
    waiting = len(job.missing())
    assert waiting > 5
    for _ in range(2):
        poor = job(spider="featurespiders.Poor")
        assert (1, "bloomdupe_incomplete") == (poor.code, poor.stats["finish_reason"]), poor.log
        assert waiting <= poor.stats["bloomdupe/pending"] <= waiting + 7
        assert [] != poor.lines("[scrapy_bloomdupe", "ERROR", "cannot be restored", "parse_item"), poor.log
    last = job(spider="featurespiders.Rich")
    check(last)
    assert [] == job.missing()


def test_pending_requests_of_another_spider_stay_pending(job: Job) -> None:
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    waiting = set(job.missing())
    other = job("page/other", spider="featurespiders.Other")
    assert "finished" == other.stats["finish_reason"], other.log
    assert len(waiting) <= other.stats["bloomdupe/pending"]
    assert [] != other.lines("[scrapy_bloomdupe", "WARNING", "pending requests are of another spider")
    assert waiting == set(job.missing())
    assert 1 == job.area.fetched()["page/other"]
    # Scrapy without us has to refuse the job still.
    assert "1" == (job.jobdir / "requests.queue" / "active.json").read_text()
    check(job())
    assert [] == job.missing()


def test_requests_that_live_in_memory_only_are_named_at_a_stop(job: Job) -> None:
    stopped = job.stopped(7, (INT,), f"many/{PAGES}", spider="featurespiders.Lambdas", **SLOW)
    assert "shutdown" == stopped.stats["finish_reason"]
    waiting = len(job.missing())
    assert waiting > 5
    assert 5 == len(stopped.lines("WARNING", "Not written, since its callback is no method", "/page/"))
    assert 1 == len(stopped.lines("WARNING", f"{waiting} requests are in memory only"))
    assert PAGES == stopped.stats["bloomdupe/unserializable"]
    check(job(spider="featurespiders.Lambdas"))
    assert [] == job.missing()


def test_a_start_request_that_lives_in_memory_only_is_asked_again_after_a_kill(job: Job) -> None:
    # The second one waits for its turn.
    slow = {"DOWNLOAD_SLOTS": {"start": {"delay": 3, "concurrency": 1}}}
    paths = [f"many/{PAGES}", "many/3"]
    killed = job.stopped(5, (KILL,), *paths, spider="featurespiders.Unwritable", **slow)
    assert {} == killed.stats
    assert 1 == len([path for path in paths if path in job.area.fetched()])
    check(job(*paths, spider="featurespiders.Unwritable"))
    assert set(paths) <= set(job.area.fetched())
    assert [] == job.missing()


def test_a_queue_that_scrapy_could_not_close_loses_nothing(job: Job) -> None:
    stops = (None, "featurespiders.scrapy_cannot_write_its_queue")
    for number, prepare in enumerate(stops):
        stopped = job.stopped(4, (INT,), *[f"many/{PAGES}"][number:], prepare=prepare, **SLOW)
        assert "shutdown" == stopped.stats["finish_reason"], stopped.log
        assert [] != job.missing()
    check(job())
    assert [] == job.missing()


@stores
def test_a_frontier_with_pending_requests_is_not_left_behind(job: Job, store: dict[str, Any]) -> None:
    job.settings = dict(store)
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    before = job.area.fetched()
    refused = job(f"many/{PAGES}", BLOOMDUPE_FRONTIER=False)
    assert (1, "bloomdupe_refused") == (refused.code, refused.stats["finish_reason"])
    assert [] != refused.lines("ERROR", "the frontier is off", "Leave it on until the job is finished")
    assert before == job.area.fetched()
    check(job())
    assert [] == job.missing()
    # Now nothing is pending.
    off = job("page/last", BLOOMDUPE_FRONTIER=False)
    assert (0, "finished") == (off.code, off.stats["finish_reason"])


def test_a_frontier_with_failed_requests_is_not_left_behind(job: Job) -> None:
    job.settings |= PATIENT
    check(job(job.area.links("broken/1", "page/1").removeprefix(job.area.at(""))))
    off = {"BLOOMDUPE_FRONTIER": False, "BLOOMDUPE_RETRY_FAILED": False}
    # Their pages are marked as seen: no link would find them.
    refused = job(job.area.links("broken/1", "page/2").removeprefix(job.area.at("")), **off, **MENDED)
    assert (1, "bloomdupe_refused") == (refused.code, refused.stats["finish_reason"])
    check(job(**MENDED))
    assert [500, 200] == [status for _, path, status in job.area.answers() if path == "broken/1"]


def test_what_is_pending_comes_before_the_start_requests(job: Job) -> None:
    one = {"CONCURRENT_REQUESTS": 1, "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue"}
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    before = len(job.area.answers())
    # A start request that is new is sent when it is its turn.
    check(job("page/new", **one))
    answered = [path for _, path, _ in job.area.answers()[before:]]
    assert "page/new" == answered[-1]
    assert len(answered) > 5
    assert [] == job.missing()


def feeds(job: Job, **options: Any) -> dict[str, Any]:
    return {"FEEDS": {str(job.folder / "items.jl"): {"format": "jsonlines", **options}}}


def test_a_feed_that_a_resumed_job_overwrites_is_named(job: Job) -> None:
    overwritten = "these feeds are overwritten"
    first = job.stopped(7, (INT,), f"many/{PAGES}", **SLOW, **feeds(job, overwrite=True))
    assert [] == first.lines(overwritten)
    second = job(**feeds(job, overwrite=True))
    check(second)
    assert [] != second.lines("[scrapy_bloomdupe", "WARNING", overwritten, "items.jl")
    assert [] == job(**feeds(job)).lines(overwritten)


@pytest.mark.parametrize("feed", ["jsonlines", "csv"])
@pytest.mark.parametrize("torn", ['{"url": "ht', '{"url": "ht\n'], ids=["torn line", "line that is no item"])
def test_what_a_killed_run_left_in_a_feed_beyond_its_last_commit_is_cut_off(
    job: Job, feed: str, torn: str
) -> None:
    path = job.folder / "items"
    job.settings["FEEDS"] = {str(path): {"format": feed}}
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    with path.open("a") as file:
        file.write(torn)
    last = job()
    check(last)
    assert [] != last.lines("[scrapy_bloomdupe", "INFO", "were cut off", str(path))
    lines = path.read_text().splitlines()
    urls = [json.loads(line)["url"] for line in lines] if feed == "jsonlines" else lines[1:]
    pages = [job.area.at(name) for name in (f"many/{PAGES}", *(f"page/{number}" for number in range(PAGES)))]
    assert sorted(pages) == sorted(urls)


def test_a_feed_that_a_killed_process_takes_with_it_is_named(job: Job) -> None:
    compressed = {"postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"]}
    first = job("page/1", **feeds(job, **compressed))
    check(first)
    assert [] != first.lines("[scrapy_bloomdupe", "WARNING", "are lost if it is killed", "items.jl")
    assert [] == job(**feeds(job)).lines("are lost if it is killed")


def test_a_job_with_scrapys_http_cache_goes_on(job: Job) -> None:
    job.settings |= {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(job.folder / "cache")}
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    assert [] != job.missing()
    # Half an entry of the cache is Scrapy's own trouble: it fails on what it lacks.
    for entry in (job.folder / "cache").glob("*/*/*"):
        if len(list(entry.iterdir())) < 6 or not (entry / "request_body").exists():
            shutil.rmtree(entry)
    last = job(f"many/{PAGES}")
    check(last)
    assert [] == job.missing()
    # All of it from the cache, on a job directory of its own.
    job.jobdir = job.folder / "another"
    again = job(f"many/{PAGES}")
    check(again)
    assert PAGES + 1 == again.stats["httpcache/hit"] == again.stats["bloomdupe/done"]


def test_pages_that_a_callback_downloads_by_itself_are_no_pending_requests(job: Job) -> None:
    job.settings["RETRY_ENABLED"] = False
    job.stopped(30, (KILL,), f"many/{PAGES}", spider="featurespiders.Downloading", **SLOW)
    last = job(f"many/{PAGES}", spider="featurespiders.Downloading")
    check(last)
    assert [] == job.missing()
    fetched = job.area.fetched()
    assert {f"Sub/inside?of={number}" for number in range(PAGES)} <= set(fetched)


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT])
def test_a_job_goes_on_whatever_the_reactor(job: Job, reactor: str) -> None:
    job.settings["TWISTED_REACTOR"] = reactor
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    assert "shutdown" == job.stopped(5, (INT,), **SLOW).stats["finish_reason"]
    assert [] != job.missing()
    check(job())
    assert [] == job.missing()


# Scrapy 2.19
if hasattr(default_settings, "TWISTED_REACTOR_ENABLED"):
    _REACTORLESS = """
import scrapy
from scrapy.crawler import AsyncCrawlerProcess

folder, limit = Path(sys.argv[1]), int(sys.argv[2])

class Files(scrapy.Spider):
    name = "files"
    start_urls = [(folder / "pages" / "index.html").as_uri()]
    count = 0

    def parse(self, response):
        with (folder / "fetched").open("a") as log:
            print(response.url.rpartition("/")[2], file=log)
        self.count += 1
        if self.count == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)

process = AsyncCrawlerProcess({
    "TWISTED_REACTOR_ENABLED": False,
    "DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter",
    "JOBDIR": str(folder / "job"),
    "CONCURRENT_REQUESTS": 2,
    "DOWNLOAD_DELAY": 0.02,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
})
crawler = process.create_crawler(Files)
process.crawl(crawler)
process.start()
print(crawler.stats.get_value("finish_reason"), crawler.stats.get_value("bloomdupe/pending"))
"""

    def test_a_job_goes_on_without_a_reactor(tmp_path: Path, python: Python) -> None:
        pages = tmp_path / "pages"
        pages.mkdir()
        for number in range(PAGES):
            (pages / f"{number}.html").write_text(f"<title>{number}</title>")
        links = "".join(f'<a href="{number}.html">there</a>' for number in range(PAGES))
        (pages / "index.html").write_text(links)
        killed = python(_REACTORLESS, tmp_path, 7)
        assert -9 == killed.returncode, killed.stderr
        done = python(_REACTORLESS, tmp_path, 1000)
        assert 0 == done.returncode, done.stderr
        assert "finished 0\n" == done.stdout, done.stderr
        fetched = (tmp_path / "fetched").read_text().split()
        assert {f"{number}.html" for number in range(PAGES)} <= set(fetched)
        assert len(fetched) < PAGES + 20
