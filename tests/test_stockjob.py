"""Stock jobs that ``bloomdupe import`` takes over and ``bloomdupe export`` gives back: files and order.

Scrapy's own queue classes write and read the jobs; nobody crawls. Whole crawls: ``test_stockjob_crawls``.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import sqlite3
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import scrapy
from crawling import Cli, filtering, make_state
from frontiers import frontier_of, pend
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request, Spider, squeues
from scrapy.dupefilters import RFPDupeFilter
from scrapy.settings import Settings
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import fingerprint

import scrapy_bloomdupe.cli_import as cli_import
from scrapy_bloomdupe.assembling import FRONTIER_MARK, attach_frontier
from scrapy_bloomdupe.cli import main
from scrapy_bloomdupe.frontier.lmdb import record
from scrapy_bloomdupe.frontier.queue import FrontierQueue
from scrapy_bloomdupe.frontier.serialize import RequestWriter, peek
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create
from scrapy_bloomdupe.scrapy_compat import Downloads, QueueMark, QueueOrder
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stockjob import StockQueue
from scrapy_bloomdupe.stores.environment import Environment

KINDS = [
    name
    for order in ("Lifo", "Fifo")
    for encoding in ("Pickle", "Marshal")
    for name in (f"{encoding}{order}DiskQueue", f"{encoding}{order}SQLiteQueue")
    if hasattr(squeues, name)
]
PLAIN, BY_SLOT = "scrapy.pqueues.ScrapyPriorityQueue", "scrapy.pqueues.DownloaderAwarePriorityQueue"
LIFO = "scrapy.squeues.PickleLifoDiskQueue"


# Scrapy 2.13 leaves the queues open that it finds empty.
pytestmark = (
    [pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")]
    if scrapy.version_info < (2, 19)
    else []
)


class Shop(Spider):
    name = "shop"

    def parse(self, response: Any, **kwargs: Any) -> None: ...


SPIDER = Shop()


class FakeDownloader:
    """Nothing is under way."""

    slots: dict[str, Any] = {}
    active: set[Request] = set()

    def get_slot_key(self, request: Request) -> str:
        return str(request.meta.get("download_slot", urlsplit(request.url).hostname))


def queue_settings(
    disk: str = LIFO, start: str | None = "scrapy.squeues.PickleFifoDiskQueue", priority: str = PLAIN
) -> Settings:
    return Settings(
        {
            "SCHEDULER_DISK_QUEUE": disk,
            "SCHEDULER_START_DISK_QUEUE": start,
            "SCHEDULER_PRIORITY_QUEUE": priority,
        }
    )


DEFAULTS = queue_settings(priority=Settings()["SCHEDULER_PRIORITY_QUEUE"])


class StockJob:
    """Scrapy's own queue and filter on a job directory."""

    def __init__(self, jobdir: Path, settings: Settings) -> None:
        self.index = jobdir / "requests.queue" / "active.json"
        self.index.parent.mkdir(parents=True, exist_ok=True)
        engine = SimpleNamespace(downloader=FakeDownloader())
        crawler: Any = SimpleNamespace(engine=engine, settings=settings, spider=SPIDER)
        start = settings["SCHEDULER_START_DISK_QUEUE"]
        state = json.loads(self.index.read_text()) if self.index.exists() else ()
        self.queue: Any = build_from_crawler(
            load_object(settings["SCHEDULER_PRIORITY_QUEUE"]),
            crawler,
            downstream_queue_cls=load_object(settings["SCHEDULER_DISK_QUEUE"]),
            key=str(self.index.parent),
            startprios=state,
            start_queue_cls=start and load_object(start),
        )
        self.seen = RFPDupeFilter(str(jobdir))

    def push(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if request.dont_filter or not self.seen.request_seen(request):
                self.queue.push(request)

    def close(self) -> None:
        self.index.write_text(json.dumps(self.queue.close()))
        self.seen.close("finished")


def requests(count: int = 60) -> Iterator[Request]:
    """Requests of several hosts, slots and priorities, some of them of the start."""
    for number in range(count):
        meta: dict[str, Any] = {"number": number}
        if number % 7 == 3:
            meta["is_start_request"] = True
        if number % 11 == 5:
            meta["download_slot"] = "slow slot?"
        yield Request(
            f"http://shop{number % 3}.example/{number}",
            callback=SPIDER.parse,
            priority=number % 4 - 2,
            dont_filter=number % 10 == 9,
            meta=meta,
            method="POST" if number % 5 == 0 else "GET",
            body=b"n=%d" % number,
            headers={"X-Number": str(number)},
        )


URLS = sorted(request.url for request in requests())


def make_job(jobdir: Path, settings: Settings | None = None, count: int = 60) -> Path:
    stock = StockJob(jobdir, settings or queue_settings())
    stock.push(requests(count))
    stock.close()
    return jobdir


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def ours(jobdir: Path, settings: Settings) -> tuple[list[str], list[Request]]:
    """URLs and requests in the order in which our queue gives them; all stay pending."""
    state = open_existing(jobdir / "bloomdupe")
    try:
        attach_frontier(state, "shop", wanted=True)
        engine = SimpleNamespace(downloader=FakeDownloader(), scraper=SimpleNamespace(slot=None))
        crawler: Any = SimpleNamespace(engine=engine, settings=settings)

        def failed(exc: Exception) -> None:
            raise exc

        queue = FrontierQueue(
            frontier_of(state),
            SimpleNamespace(hold=None, release=None, forget=None),  # type: ignore[arg-type]
            SPIDER,
            QueueOrder.from_settings(settings, disk=True),
            Downloads(crawler),
            key_of=lambda request: None,
            on_change=lambda: None,
            on_done=lambda: None,
            on_full=lambda: None,
            on_error=failed,
        )
        assert frontier_of(state).was_in_order
        found = list(iter(queue.pop, None))
        return [request.url for request in found], found
    finally:
        state.close()


def theirs(jobdir: Path, settings: Settings, where: Path) -> list[str]:
    """URLs in the order in which Scrapy's queue gives them, of a copy of the job."""
    shutil.copytree(jobdir, where)
    return popped(where, settings)


def popped(jobdir: Path, settings: Settings) -> list[str]:
    """URLs in the order in which Scrapy's queue gives them; all are gone then."""
    stock = StockJob(jobdir, settings)
    urls = [request.url for request in iter(stock.queue.pop, None)]
    stock.close()
    return urls


def num_seen(jobdir: Path) -> int:
    """How many of ``requests`` Scrapy's own filter calls seen."""
    seen = RFPDupeFilter(str(jobdir))
    count = sum(seen.request_seen(request) for request in requests())
    seen.close("finished")
    return count


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.mark.parametrize("priority", [PLAIN, BY_SLOT], ids=["plain", "by-slot"])
@pytest.mark.parametrize(
    ("kind", "start"), [*((kind, "PickleFifoDiskQueue") for kind in KINDS), ("PickleLifoDiskQueue", None)]
)
def test_a_job_goes_to_ours_and_back_in_scrapys_order_whatever_its_queues(
    bloomdupe: Cli, tmp_path: Path, kind: str, priority: str, start: str | None
) -> None:
    settings = queue_settings(
        f"scrapy.squeues.{kind}", start and f"scrapy.squeues.{start}", priority=priority
    )
    # SQLite waits for the disk with each of them.
    count = 20 if "SQLite" in kind else 60
    job = make_job(tmp_path / "job", settings, count)
    before = files(job / "requests.queue")
    expected = theirs(job, settings, tmp_path / "copy")
    assert sorted(request.url for request in requests(count)) == sorted(expected)
    code, out, err = bloomdupe("import", job, "--spider", "shop")
    assert (0, "") == (code, err)
    assert f"{job}/requests.queue: {count} requests of shop are pending in {job}/bloomdupe\n" in out
    (aside,) = job.glob("requests.queue.old-*")
    assert before == files(aside)
    assert QueueMark(job).is_set()
    urls, found = ours(job, settings)
    assert expected == urls
    by_number = {request.meta["number"]: request for request in found}
    for request in requests(count):
        made = by_number[request.meta["number"]].to_dict(spider=SPIDER)
        # Of ours, in what is popped: it is no start request any more.
        made["meta"].pop("bloomdupe_made", None)
        assert request.to_dict(spider=SPIDER) == made

    project = Settings({name: settings[name] for name in settings if name.startswith("SCHEDULER_")})
    assert 0 == main(["export", str(job)], project)
    assert set(before) == set(files(job / "requests.queue"))
    assert expected == theirs(job, settings, tmp_path / "copy 2")
    assert 9 * count // 10 == num_seen(job)


def test_the_classes_of_an_exported_queue_can_be_named(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job")
    assert 0 == bloomdupe("import", job, "--spider", "shop")[0]
    names = ["--disk-queue", "scrapy.squeues.MarshalFifoDiskQueue", "--priority-queue", BY_SLOT]
    code, out, err = bloomdupe("export", job, "--start-disk-queue", LIFO, "--to", tmp_path / "new", *names)
    assert (0, "") == (code, err)
    assert f"{tmp_path}/new/requests.queue: 60 requests of shop" in out
    settings = queue_settings("scrapy.squeues.MarshalFifoDiskQueue", LIFO, BY_SLOT)
    assert sorted(URLS) == sorted(popped(tmp_path / "new", settings))
    assert not (job / "bloomdupe" / "seen.bloom").exists()
    assert [] == list(tmp_path.glob("new/*.new"))


# Killed jobs


def refusal(bloomdupe: Cli, job: Path) -> str:
    before = files(job)
    code, out, err = bloomdupe("import", job, "--spider", "shop")
    assert (2, "", before) == (code, out, files(job))
    return err


def without_index(queue: Path) -> None:
    (queue / "active.json").unlink()


def touched(queue: Path) -> None:
    later = (queue / "active.json").stat().st_mtime_ns + 1_000_000
    os.utime(queue / "0", ns=(later, later))


def emptied(queue: Path) -> None:
    times = queue.stat()
    (queue / "2").unlink()
    shutil.rmtree(queue / "2s")
    os.utime(queue, ns=(times.st_atime_ns, times.st_mtime_ns))


def miscounted(queue: Path) -> None:
    times = (queue / "0").stat()
    with (queue / "0").open("r+b") as file:
        file.write(struct.pack(">L", 5))
    os.utime(queue / "0", ns=(times.st_atime_ns, times.st_mtime_ns))


def foreign(queue: Path) -> None:
    (queue / "mine.dat").touch()


@pytest.mark.parametrize(
    ("damage", "problem", "left"),
    [
        (without_index, "has no whole active.json", 60),
        (touched, "was changed after active.json was written", 60),
        (emptied, "active.json lists the priority 2, which has no file", 45),
        (miscounted, "0 says that it has 5 requests, and has 13", 60),
        (foreign, "mine.dat is no queue of Scrapy's own", 60),
    ],
)
def test_a_job_that_was_killed_is_refused_with_both_ways_out(
    bloomdupe: Cli, tmp_path: Path, damage: Callable[[Path], None], problem: str, left: int
) -> None:
    job = make_job(tmp_path / "job")
    damage(job / "requests.queue")
    err = refusal(bloomdupe, job)
    assert problem in err
    assert f"54 pages are marked as seen, {left} requests can be read" in err
    assert f"of the other {max(54 - left, 0)} pages" in err
    code, out, _ = bloomdupe("import", job, "--spider", "shop", "--trust-seen", "--to", tmp_path / "trusted")
    assert 0 == code
    assert "Those pages are lost" in out
    shutil.copytree(tmp_path / "trusted", tmp_path / "t" / "bloomdupe")
    assert left == len(ours(tmp_path / "t", queue_settings())[0])
    assert 54 == bloomdupe.json("info", tmp_path / "trusted")["store"]["keys"]
    (aside,) = job.glob("requests.queue.old-*")
    shutil.rmtree(job / "requests.queue")
    aside.rename(job / "requests.queue")
    code, out, _ = bloomdupe("import", job, "--spider", "shop", "--queue-only")
    assert 0 == code
    assert "fingerprints" not in out
    assert left == len(ours(job, queue_settings())[0])
    assert 0 == bloomdupe.json("info", job)["store"]["keys"]


def test_a_job_that_was_copied_with_its_times_is_not_taken_for_a_killed_one(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", queue_settings(priority=BY_SLOT))
    shutil.copytree(job, tmp_path / "copy")
    found = StockQueue.find(tmp_path / "copy")
    assert found is not None
    assert "" == found.problem


def test_a_job_that_was_killed_before_it_wrote_a_request_is_told(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job")
    shutil.rmtree(job / "requests.queue")
    (job / "requests.queue").mkdir()
    assert "54 pages are marked as seen, 0 requests can be read" in refusal(bloomdupe, job)
    # As Scrapy's buffer leaves a file that it has only just made.
    (job / "requests.queue" / "0").touch()
    assert "0 requests can be read" in refusal(bloomdupe, job)


def lifo_file(path: Path, *parts: list[bytes] | bytes) -> None:
    """Records, and whatever else, behind the count that Scrapy leaves in a file until it is closed."""
    body = b"".join(
        part if isinstance(part, bytes) else b"".join(data + struct.pack(">L", len(data)) for data in part)
        for part in parts
    )
    path.write_bytes(struct.pack(">L", 0) + body)


def found_in(path: Path) -> list[str]:
    queue = StockQueue(path, None)
    urls = [peek(data).url for bucket in queue.buckets for data in bucket.read()]
    assert len(urls) == queue.count
    return urls


@pytest.mark.parametrize("encoding", ["pickle", "marshal"])
def test_every_whole_request_of_a_torn_lifo_file_is_read(tmp_path: Path, encoding: str) -> None:
    dump = pickle.dumps if encoding == "pickle" else squeues.marshal.dumps
    some = list(requests(6))
    records = [dump(request.to_dict(spider=SPIDER)) for request in some]
    urls = [request.url for request in some]
    lifo_file(tmp_path / "0", records)
    whole = (tmp_path / "0").read_bytes()
    ends = [4 + sum(len(data) + 4 for data in records[: number + 1]) for number in range(6)]
    borders = {end + step for end in ends for step in (-5, -4, -1, 0, 1, 4)}
    for size in sorted({*range(0, len(whole), 41), *borders}):
        (tmp_path / "0").write_bytes(whole[:size])
        assert urls[: sum(end <= size for end in ends)] == found_in(tmp_path)
    # A later run goes on behind a torn end.
    for torn in (1, 50, len(records[2]) - 1, len(records[2]) + 3):
        lifo_file(tmp_path / "0", records[:2], records[2][:torn], records[3:])
        assert [*urls[:2], *urls[3:]] == found_in(tmp_path)


def test_every_whole_request_of_a_fifo_queue_that_was_not_closed_is_read(tmp_path: Path) -> None:
    settings = queue_settings("scrapy.squeues.PickleFifoDiskQueue", priority=PLAIN)
    some = [Request(f"http://shop.example/{number}") for number in range(30)]
    stock = StockJob(tmp_path, settings)
    stock.push(some[:20])
    assert 5 == sum(stock.queue.pop() is not None for _ in range(5))
    stock.close()
    again = StockJob(tmp_path, settings)
    again.push(some[20:])
    assert 2 == sum(again.queue.pop() is not None for _ in range(2))
    # Killed: what it has popped may not have been crawled.
    found = StockQueue.find(tmp_path)
    assert found is not None
    assert "was changed after" in found.problem or "says that it has 15" in found.problem
    assert [request.url for request in some[5:]] == found_in(tmp_path / "requests.queue")
    again.close()
    (chunk,) = (tmp_path / "requests.queue" / "0").glob("q*")
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-1])
    assert [request.url for request in some[7:-1]] == found_in(tmp_path / "requests.queue")
    (tmp_path / "requests.queue" / "0" / "info.json").write_text("{")
    assert [request.url for request in some[:-1]] == found_in(tmp_path / "requests.queue")


def test_a_transaction_that_a_killed_process_has_left_open_is_not_read_and_not_rolled_back(
    tmp_path: Path, start_python: Any
) -> None:
    path = tmp_path / "requests.queue" / "0"
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY AUTOINCREMENT, item BLOB)")
        data = pickle.dumps(Request("http://shop.example/").to_dict())
        database.executemany("INSERT INTO queue (item) VALUES (?)", [(data,)] * 3)
    database.close()
    script = """
import sqlite3
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA cache_size = 1")
database.execute("PRAGMA cache_spill = 1")
database.executemany("INSERT INTO queue (item) VALUES (?)", [(b"x" * 9000,)] * 50)
print("there", flush=True)
sys.stdin.read()
"""
    process = start_python(script, path)
    assert "there\n" == process.stdout.readline()
    process.kill()
    process.wait()
    assert path.with_name("0-journal").exists()
    before = files(path.parent)
    assert ["http://shop.example/"] * 3 == found_in(path.parent)
    assert before == files(path.parent)


@given(st.binary(max_size=300), st.sampled_from(["0", "-3s", "shop-0/0", "0/q00000", "0/info.json", "x"]))
def test_no_bytes_raise(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        queue = StockQueue(Path(directory), None)
        assert queue.count == sum(1 for bucket in queue.buckets for _ in bucket.read())
        assert queue.problem


def test_the_slot_of_a_killed_job_is_found_without_its_index(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", queue_settings(priority=BY_SLOT))
    named = StockQueue.find(job)
    (job / "requests.queue" / "active.json").unlink()
    guessed = StockQueue.find(job)
    assert named is not None
    assert guessed is not None
    hosts = {f"shop{number}.example" for number in range(3)}
    assert {"slow slot?", *hosts} == {bucket.slot for bucket in named.buckets}
    assert {"slow_slot_", *hosts} == {bucket.slot for bucket in guessed.buckets}


# Kills of the commands themselves


def killed_at(point: int, words: list[object], what: list[tuple[Any, str]]) -> bool:
    """Run a command in a process that is killed in front of a step; return whether it came so far.

    Args:
        point: the number of the step.
        what: the functions whose calls are steps.
    """
    with warnings.catch_warnings():
        # Python 3.12 and later: other threads are not in the child, which needs none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        left = point

        def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
            def step(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return function(*args, **kwargs)

            return step

        for owner, name in what:
            setattr(owner, name, stepping(getattr(owner, name)))
        os._exit(main([str(word) for word in words]))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert signal.SIGKILL == os.WTERMSIG(status)
        return True
    assert 0 == os.waitstatus_to_exitcode(status)
    return False


STEPS = [
    (Environment, "write"),
    (Path, "rename"),
    (os, "rename"),
    (QueueMark, "set"),
    (State, "set_identity"),
    (State, "close"),
]


@pytest.mark.parametrize("option", ["", "--queue-only"])
def test_an_import_that_is_killed_at_any_step_is_run_again_without_loss_or_doubling(
    bloomdupe: Cli, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_import, "_BATCH", 25)
    origin = make_job(tmp_path / "origin")
    words = ["import", tmp_path / "job", "--spider", "shop", *filter(None, [option])]
    point = 0
    while True:
        job = Path(shutil.copytree(origin, tmp_path / "job"))
        killed = killed_at(point, words, STEPS)
        if killed and (job / "bloomdupe" / "seen.bloom").exists() and not (job / "requests.queue").exists():
            assert bloomdupe.json("info", job)["identity"]["importing"], "a crawl could begin on half of it"
        if killed:
            code, _, err = bloomdupe(*words)
            assert (0, "") == (code, err), point
        assert URLS == sorted(ours(job, queue_settings())[0]), point
        found = bloomdupe.json("info", job)
        assert (0 if option else 54, 60) == (found["store"]["keys"], found["frontier"]["pending"]), point
        assert "importing" not in found["identity"]
        assert "shop" == found["identity"]["spider"]
        assert QueueMark(job).is_set()
        assert 1 == len(list(job.glob("requests.queue.old-*")))
        shutil.rmtree(job)
        if not killed:
            break
        point += 1
    assert point > 10


def test_an_export_that_is_killed_at_any_step_leaves_one_whole_job(bloomdupe: Cli, tmp_path: Path) -> None:
    origin = make_job(tmp_path / "origin")
    assert 0 == bloomdupe("import", origin, "--spider", "shop")[0]
    (origin / "requests.queue.old-1").mkdir()
    point = 0
    while True:
        job = Path(shutil.copytree(origin, tmp_path / "job"))
        killed = killed_at(point, ["export", job], [(Path, "rename"), (Path, "write_text")])
        if killed and not QueueMark(job).has_stock_queue():
            assert URLS == sorted(ours(job, queue_settings())[0])
            assert 0 == bloomdupe("export", job)[0]
        assert URLS == sorted(popped(job, DEFAULTS)), point
        assert 54 == num_seen(job)
        shutil.rmtree(job)
        if not killed:
            break
        point += 1
    assert point > 4


# What does not fit


def test_requests_without_the_name_of_their_spider_are_refused(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job")
    before = files(job)
    code, out, err = bloomdupe("import", job)
    assert (2, "", before) == (code, out, files(job))
    assert "holds 60 requests, whose callbacks belong to a spider: give its name by --spider NAME" in err


def test_a_finished_job_needs_no_spider(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", count=0)
    code, out, err = bloomdupe("import", job)
    assert (0, "") == (code, err)
    assert "0 fingerprints" in out
    assert "requests.queue" not in out


def test_requests_are_not_mixed_with_those_of_a_crawl_of_ours(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job")
    state = open_or_create(
        job / "bloomdupe",
        StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", {"spider": "shop"}, frontier=True),
    )
    pend(state)
    state.close()
    code, out, err = bloomdupe("import", job, "--spider", "shop")
    assert (2, "") == (code, out)
    assert (
        f"{job}/bloomdupe holds 1 pending requests of its own, and {job}/requests.queue those of another"
        in err
    )
    assert (job / "requests.queue" / "0").exists()


def test_the_queue_alone_is_not_imported_into_what_knows_pages(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(make_state(tmp_path / "job", 7))
    code, out, err = bloomdupe("import", job, "--spider", "shop", "--queue-only")
    assert (2, "") == (code, out)
    assert (
        f"{job}/bloomdupe knows 7 pages as seen, and --queue-only is to begin with none: move it aside" in err
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["job", "--queue-only", "--trust-seen"], "give one of them"),
        (["redis://127.0.0.1", "--to", "there", "--queue-only"], "--queue-only is for pending requests"),
        (["job", "--to", "redis://127.0.0.1", "--key", "x", "--queue-only"], "go into a directory"),
        (["job", "--queue-only"], "no requests are pending in a requests.queue of Scrapy's"),
        (["job"], "there is no requests.seen in job"),
    ],
)
def test_options_that_do_not_fit_are_refused(bloomdupe: Cli, words: list[str], says: str) -> None:
    code, out, err = bloomdupe("import", *words)
    assert (2, "") == (code, out)
    assert says in err


def test_a_bare_filter_takes_the_requests_too(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job")
    assert 0 == bloomdupe("import", job, "--spider", "shop", "--no-store")[0]
    assert URLS == sorted(ours(job, queue_settings())[0])
    code, out, err = bloomdupe("export", job)
    assert (2, "") == (code, out)
    assert "it has no exact store, and a filter cannot give back its keys. --queue-only writes" in err
    assert 0 == bloomdupe("export", job, "--queue-only")[0]
    assert not (job / "requests.seen").exists()
    assert URLS == sorted(popped(job, DEFAULTS))


def state_of(job: Path, **identity: str) -> Any:
    return open_or_create(
        job / "bloomdupe",
        StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", {"spider": "shop", **identity}, frontier=True),
    )


def test_keys_of_rules_are_no_fingerprints(bloomdupe: Cli, tmp_path: Path) -> None:
    state_of(tmp_path, rules="abc", canary="def").close()
    code, out, err = bloomdupe("export", tmp_path)
    assert (2, "") == (code, out)
    assert "its keys were made by rules, and stock Scrapy knows pages by fingerprints. --queue-only" in err
    assert (tmp_path / "bloomdupe" / "seen.bloom").exists()


def test_failed_requests_are_exported_and_come_as_ours_would(bloomdupe: Cli, tmp_path: Path) -> None:
    write = RequestWriter(SPIDER)
    state = state_of(tmp_path)
    frontier = frontier_of(state)
    for number in range(5):
        request = Request(f"http://shop.example/{number}", callback=SPIDER.parse)
        bucket, place = pend(state, fingerprint(request), write(request))
        if number == 2:
            state.flush()
            frontier.fail(bucket, place, record(fingerprint(request), write(request)))
    frontier.end_in_order()
    state.close()
    expected = ours(tmp_path, queue_settings())[0]
    assert "http://shop.example/2" == expected[0]
    code, out, _ = bloomdupe("export", tmp_path)
    assert 0 == code
    assert "5 requests of shop" in out
    assert expected == popped(tmp_path, DEFAULTS)


@pytest.mark.parametrize(
    ("file", "digest_of", "expected"),
    [
        (None, None, b"ours"),
        (b"before", b"before", b"ours"),
        # Scrapy has written another one since the last run began, when that ended in order.
        (b"after", b"before", b"after"),
        (b"after", None, b"after"),
    ],
)
def test_the_newer_state_of_the_spider_is_exported(
    bloomdupe: Cli, tmp_path: Path, file: bytes | None, digest_of: bytes | None, expected: bytes
) -> None:
    state = state_of(tmp_path)
    digest = blake2b(digest_of, digest_size=16).digest() if digest_of is not None else bytes(16)
    frontier_of(state).set_note(b"state", digest + b"ours")
    state.close()
    if file is not None:
        (tmp_path / "spider.state").write_bytes(file)
    assert 0 == bloomdupe("export", tmp_path, "--to", tmp_path / "new")[0]
    assert expected == (tmp_path / "new" / "spider.state").read_bytes()


def test_requests_of_two_spiders_are_no_stock_job(bloomdupe: Cli, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    pend(state, request=RequestWriter(SPIDER)(Request("http://shop.example/")))
    state.flush()
    attach_frontier(state, "other", wanted=True)
    pend(state, request=RequestWriter(SPIDER)(Request("http://shop.example/2")))
    state.close()
    code, _, err = bloomdupe("export", tmp_path)
    assert 2 == code
    assert "holds requests of other, shop, and a stock job is of one spider" in err
    assert not (tmp_path / "requests.queue" / "active.json").exists()


def test_what_the_named_queue_cannot_keep_is_refused(bloomdupe: Cli, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    pend(state, request=RequestWriter(SPIDER)(Request("http://shop.example/", meta={"path": Path("x")})))
    state.close()
    code, _, err = bloomdupe("export", tmp_path, "--disk-queue", "scrapy.squeues.MarshalLifoDiskQueue")
    assert 2 == code
    assert "request 1 cannot be written by scrapy.squeues.MarshalLifoDiskQueue: ValueError" in err
    assert 0 == bloomdupe("export", tmp_path)[0]


def test_a_damaged_request_is_not_lost_by_an_export(bloomdupe: Cli, tmp_path: Path) -> None:
    state = state_of(tmp_path)
    pend(state, request=RequestWriter(SPIDER)(Request("http://shop.example/damaged")))
    state.close()
    path = tmp_path / "bloomdupe" / "seen.lmdb"
    path.write_bytes(path.read_bytes().replace(b"example/damaged", b"example/damAged"))
    code, _, err = bloomdupe("export", tmp_path)
    assert 2 == code
    assert "the pending request 1 is damaged" in err
    assert (tmp_path / "bloomdupe" / "seen.bloom").exists()


def test_a_stock_queue_is_not_overwritten(bloomdupe: Cli, tmp_path: Path) -> None:
    state_of(tmp_path).close()
    make_job(tmp_path)
    before = files(tmp_path / "requests.queue")
    code, out, err = bloomdupe("export", tmp_path)
    assert (2, "") == (code, out)
    assert "holds requests of a stock job already: give another JOBDIR" in err
    assert before == files(tmp_path / "requests.queue")


def test_a_state_that_is_not_in_a_job_directory_needs_one(bloomdupe: Cli, tmp_path: Path) -> None:
    state_of(tmp_path).close()
    (tmp_path / "bloomdupe").rename(tmp_path / "state")
    code, _, err = bloomdupe("export", tmp_path / "state")
    assert 2 == code
    assert "is not in a JOBDIR: say where to write, --to JOBDIR" in err


def test_a_state_in_use_is_not_exported(bloomdupe: Cli, tmp_path: Path) -> None:
    with filtering(tmp_path):
        code, out, err = bloomdupe("export", tmp_path)
    assert (2, "") == (code, out)
    assert "is in use by process" in err


def test_fingerprints_of_another_fingerprinter_are_told(bloomdupe: Cli, tmp_path: Path) -> None:
    state_of(tmp_path, fingerprinter="shop.Mine", canary="abc").close()
    code, out, _ = bloomdupe("export", tmp_path)
    assert 0 == code
    assert "they were made by shop.Mine, which the job needs again" in out


def test_an_imported_state_has_the_mark_of_a_frontier(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job")
    assert 0 == bloomdupe("import", job, "--spider", "shop")[0]
    assert "seen.lmdb" == bloomdupe.json("info", job)["identity"][FRONTIER_MARK]
