"""Does the journal get on with what else a crawl can do? Whole crawls, in two runs or three."""

from __future__ import annotations

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

from scrapy_bloomdupe.committing import Committer
from scrapy_bloomdupe.records import Seal, read_seal
from scrapy_bloomdupe.stores.environment import Environment

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

    def seal(self) -> Seal:
        """What the last run, which ended in order, left."""
        environment = Environment.open(self.jobdir / "bloomdupe" / "seen.lmdb", readonly=True)
        try:
            found = read_seal(environment)
            assert found is not None
            return found
        finally:
            environment.close()

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


MENDED = {"DEFAULT_REQUEST_HEADERS": {"Cookie": "mended=1"}}
PATIENT = {"BLOOMDUPE_RETRY_FAILED": True, "RETRY_ENABLED": False, "COOKIES_ENABLED": False}


@stores
def test_a_page_that_fails_for_ever_is_asked_by_the_next_run_if_that_is_wanted(
    job: Job, store: dict[str, Any]
) -> None:
    job.settings = {**store, **PATIENT}
    start = job.area.links("broken/1", "page/1").removeprefix(job.area.at(""))
    exact = store is EXACT
    first = job(start)
    check(first, pending=0 if exact else 1)
    assert (1 if exact else None) == first.stats.get("bloomdupe/failed")
    # Nor does a run lose it that does not get there, or finds it as it was.
    for _ in range(2):
        again = job()
        check(again, pending=0 if exact else 1)
        assert 1 == again.stats["bloomdupe/replayed"]
    second = job(**MENDED)
    check(second)
    # None, or 0 if a commit came in between.
    assert not second.stats.get("bloomdupe/failed")
    assert ("GET", "broken/1", 200) == job.area.answers()[-1]
    before = len(job.area.answers())
    check(job())
    assert before == len(job.area.answers())


@stores
def test_a_failed_page_that_is_linked_again_is_crawled_once(job: Job, store: dict[str, Any]) -> None:
    job.settings = {**store, **PATIENT}
    start = job.area.links("broken/1", "page/1").removeprefix(job.area.at(""))
    job(start)
    # It is replayed, and found by its link.
    check(job(start, **MENDED))
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


@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("times", ["1", "1000"], ids=["once", "always"])
def test_what_is_given_again_and_dropped_by_a_handler_is_not_seen(job: Job, times: str, place: int) -> None:
    job.stopped(3, (KILL,), f"many/{PAGES}", spider=CHOOSY, **SLOW)
    page = job.missing()[place]
    check(job(spider=CHOOSY, arguments={"refuse": f"page/{page}", "of": "replay", "times": times}))
    assert ([] if times == "1" else [page]) == job.missing()
    check(job(job.area.links(f"page/{page}").removeprefix(job.area.at("")), spider=CHOOSY))
    assert [] == job.missing()


@pytest.mark.parametrize("unasked", ["", "1"], ids=["asked", "unasked"])
def test_a_start_request_that_was_dropped_is_asked_by_the_run_after_a_kill(job: Job, unasked: str) -> None:
    starts = ["page/x", f"many/{PAGES}"]
    arguments = {"refuse": "page/x", "unasked": unasked}
    job.stopped(3, (KILL,), *starts, spider=CHOOSY, arguments=arguments, **SLOW)
    check(job(*starts, spider=CHOOSY, arguments={"unasked": unasked}))
    # What the filter was not asked about is given by the journal, too.
    assert job.area.fetched()["page/x"] in (1, 1 + len(unasked))
    assert [] == job.missing()


def test_a_stock_job_that_was_stopped_goes_on_with_a_journal(job: Job) -> None:
    stopped = job.stopped(7, (INT,), f"many/{PAGES}", **STOCK, **SLOW)
    assert "shutdown" == stopped.stats["finish_reason"]
    waiting = job.missing()
    assert len(waiting) > 5
    # No start request finds them: they are those of the queue.
    killed = job.stopped(3, (KILL,), **SLOW)
    assert [] != killed.lines("[scrapy_bloomdupe", f"took over {len(waiting)} requests"), killed.log
    last = job()
    check(last)
    assert [] == job.missing()
    # What was under way, and what one commit had not reached.
    assert job.area.fetched().total() <= PAGES + 1 + SLOW["CONCURRENT_REQUESTS"] + 3
    assert 1 == len(list(job.jobdir.glob("requests.queue.adopted.old-*")))


@stores
def test_a_job_that_had_no_journal_and_was_stopped_goes_on_with_one(job: Job, store: dict[str, Any]) -> None:
    job.settings = dict(store)
    stopped = job.stopped(7, (INT,), f"many/{PAGES}", BLOOMDUPE_FRONTIER=False, **SLOW)
    assert "shutdown" == stopped.stats["finish_reason"]
    waiting = len(job.missing())
    assert waiting > 5
    # They are marked as seen: only who owns the mark passes it.
    job.stopped(3, (KILL,), **SLOW)
    last = job()
    check(last)
    assert [] == job.missing()


def test_start_requests_are_asked_again_after_a_stop_whatever_the_queue(job: Job) -> None:
    spider = "featurespiders.Lambdas"
    # Not trusted, since it does not hold what is pending.
    stopped = job.stopped(7, (INT,), "page/first", f"many/{PAGES}", spider=spider, **SLOW)
    assert "shutdown" == stopped.stats["finish_reason"]
    assert [] != job.missing()
    job.settings["DUPEFILTER_DEBUG"] = True
    last = job("page/first", spider=spider)
    check(last)
    assert [] == job.missing()
    assert 1 == len(last.lines("Filtered duplicate request", "page/first"))


def test_requests_of_a_stock_job_whose_key_cannot_be_made_are_taken_over(job: Job) -> None:
    job.stopped(7, (INT,), f"many/{PAGES}", **STOCK, **SLOW)
    assert [] != job.missing()
    job(REQUEST_FINGERPRINTER_CLASS="featurespiders.KeylessFingerprinter")
    assert [] == job.missing()


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
    # By its number, beside the queue; not when nothing else is left to do.
    assert (1,) == job.seal().again
    assert None is not job.seal().queue
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


def test_a_request_whose_callback_the_spider_lost_stays_pending_and_is_no_finish(job: Job) -> None:
    job.stopped(7, (KILL,), f"many/{PAGES}", spider="featurespiders.Rich", **SLOW)
    waiting = len(job.missing())
    assert waiting > 5
    for _ in range(2):
        poor = job(spider="featurespiders.Poor")
        assert "bloomdupe_incomplete" == poor.stats["finish_reason"], poor.log
        assert waiting <= poor.stats["bloomdupe/pending"] <= waiting + 7
        assert [] != poor.lines("[scrapy_bloomdupe", "ERROR", "cannot be restored", "parse_item"), poor.log
    last = job(spider="featurespiders.Rich")
    check(last)
    assert [] == job.missing()


def test_a_callback_that_is_lost_after_a_stop_in_order_costs_no_page(job: Job) -> None:
    assert "shutdown" == job.stopped(
        7, (INT,), f"many/{PAGES}", spider="featurespiders.Rich", **SLOW
    ).stats.get("finish_reason")
    assert [] != job.missing()
    # Scrapy takes a request out of its queue and then finds that it cannot make it, one in five seconds.
    poor = job(spider="featurespiders.Poor", CLOSESPIDER_TIMEOUT=1)
    assert "closespider_timeout" == poor.stats["finish_reason"]
    check(job(spider="featurespiders.Rich"))
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


def test_a_queue_that_scrapy_could_not_close_is_not_trusted(job: Job) -> None:
    stops = (None, "featurespiders.scrapy_cannot_write_its_queue")
    for number, prepare in enumerate(stops):
        stopped = job.stopped(4, (INT,), *[f"many/{PAGES}"][number:], prepare=prepare, **SLOW)
        assert "shutdown" == stopped.stats["finish_reason"], stopped.log
        assert [] != job.missing()
        # Its index is still there, that of the run before.
        assert (job.jobdir / "requests.queue" / "active.json").exists()
        assert (prepare is not None) is (job.seal().queue is None)
    check(job())
    assert [] == job.missing()


def test_a_request_that_is_dropped_between_journal_and_scheduler_is_put_back(job: Job) -> None:
    last = job(f"many/{PAGES}", spider="featurespiders.Dropping", arguments={"times": "3"})
    check(last)
    assert 3 == last.stats["bloomdupe/replayed"]
    assert [] == job.missing()


def test_a_queue_that_does_not_hold_what_is_pending_is_not_trusted(job: Job) -> None:
    dropping: dict[str, Any] = {"spider": "featurespiders.Dropping", "arguments": {"times": "3"}}
    stopped = job.stopped(7, (INT,), f"many/{PAGES}", **dropping, **SLOW)
    assert "shutdown" == stopped.stats["finish_reason"], stopped.log
    assert None is job.seal().queue
    check(job(spider="featurespiders.Dropping", arguments={"times": "0"}))
    assert [] == job.missing()


def slowly() -> None:
    """The clock has written nothing yet when the crawl is idle."""
    Committer._tick = lambda self: None  # type: ignore[method-assign]
    Committer._woken_up = lambda self: None  # type: ignore[method-assign]


@pytest.mark.parametrize("prepare", [None, "test_journal_features.slowly"])
def test_a_request_that_a_handler_drops_again_is_dropped_on_purpose(job: Job, prepare: str | None) -> None:
    spider = "featurespiders.Dropping"
    last = job("many/3", spider=spider, arguments={"times": "1000"}, prepare=prepare)
    check(last)
    assert 3 == last.stats["bloomdupe/replayed"]


@stores
def test_a_journal_with_pending_requests_is_not_left_behind(job: Job, store: dict[str, Any]) -> None:
    job.settings = dict(store)
    job.stopped(7, (KILL,), f"many/{PAGES}", **SLOW)
    before = job.area.fetched()
    refused = job(f"many/{PAGES}", BLOOMDUPE_FRONTIER=False)
    assert (1, "bloomdupe_refused") == (refused.code, refused.stats["finish_reason"])
    assert [] != refused.lines("ERROR", "BLOOMDUPE_FRONTIER is off", "Leave it on until the job is finished")
    assert before == job.area.fetched()
    check(job())
    assert [] == job.missing()
    # Now nothing is pending.
    off = job("page/last", BLOOMDUPE_FRONTIER=False)
    assert (0, "finished") == (off.code, off.stats["finish_reason"])


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


@pytest.mark.parametrize(
    ("feed", "torn", "whole"), [("jsonlines", '{"url": "ht', '{"url": "'), ("csv", "ht", "")]
)
def test_a_torn_line_of_a_feed_takes_no_item_with_it(job: Job, feed: str, torn: str, whole: str) -> None:
    path = job.folder / "items.jl"
    for left, mended in ((torn, True), (f"{torn}\n", False)):
        path.write_text(left)
        last = job("page/1", FEEDS={str(path): {"format": feed}}, JOBDIR=str(job.folder / f"{feed}-{mended}"))
        check(last)
        assert mended is bool(last.lines("[scrapy_bloomdupe", "WARNING", "items.jl")), last.log
        lines = path.read_text().splitlines()
        assert torn == lines[0]
        assert [f"{whole}{job.area.at('page/1')}"] == [line.removesuffix('"}') for line in lines[-1:]]


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
