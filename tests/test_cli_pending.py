"""Does `pending` list what is in a frontier, beside a crawl too, and do `info` and `check` see it?"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Python
from crawling import Cli, FollowAll, make_state, running
from frontiers import frontier_of, pend
from killing import BARE, EXACT
from mocksite import Site, mock_site
from scrapy import Request

from scrapy_bloomdupe.frontier.lmdb import Bucket, record
from scrapy_bloomdupe.frontier.serialize import RequestWriter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.environment import Environment

IDENTITY = {"fingerprinter": "it", "spider": "follow"}
OPTIONS = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", IDENTITY, frontier=True)
SPIDER = FollowAll(start="[]")
write = RequestWriter(SPIDER)
STORES = pytest.mark.parametrize("store", ["lmdb", None], ids=["exact", "bare"])


def run_code() -> None:
    raise AssertionError("code of a request ran")


class Untold:
    """Must not be made by who only looks."""

    def __reduce__(self) -> Any:
        return run_code, ()


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def add(state: State, request: Request) -> tuple[Bucket, int]:
    return pend(state, b"key", write(request), priority=request.priority)


def make_job(tmp_path: Path, count: int, store: str | None = "lmdb", *, in_order: bool = False) -> Path:
    """A job with so many pending requests; one more is done, and one has failed and is kept."""
    state = open_or_create(tmp_path / "job" / "bloomdupe", replace(OPTIONS, store=store))
    frontier = frontier_of(state)
    frontier.begin()
    for number in range(count):
        method = "POST" if number % 2 else "GET"
        add(state, Request(f"http://site/{number}", method=method, priority=-1 if number else 0))
    frontier.remove(*add(state, Request("http://site/done")))
    failed = Request("http://site/failed", callback=SPIDER.parse)
    frontier.fail(*add(state, failed), record(b"key", write(failed)))
    if in_order:
        frontier.end_in_order()
    state.close()
    return tmp_path / "job"


def file_of(job: Path, store: str | None) -> Path:
    return job / "bloomdupe" / ("seen.lmdb" if store == "lmdb" else "frontier.lmdb")


def damage(job: Path, store: str | None, *numbers: int, database: bytes = b"pending") -> None:
    """Flip a bit of records, as no page walk finds."""
    environment = Environment.open(file_of(job, store))
    place = environment.database(database, create=False)
    with environment.reading() as txn, txn.cursor(place) as cursor:
        names = {int.from_bytes(name[-8:], "big"): name for name in cursor.iternext(values=False)}
    for number in numbers:
        name = names[number]
        data = bytearray(environment.read(place, name) or b"")
        data[-3] ^= 1
        environment.write(lambda txn, name=name, data=data: txn.put(name, bytes(data), db=place))
    environment.close()


@STORES
def test_pending_shows_each_request_with_number_method_url_callback_priority_and_spider(
    bloomdupe: Cli, tmp_path: Path, store: str | None
) -> None:
    job = make_job(tmp_path, 2, store)
    rows = [
        {"number": 1, "method": "GET", "url": "http://site/0", "priority": 0},
        {"number": 2, "method": "POST", "url": "http://site/1", "priority": -1},
    ]
    assert [{**row, "callback": None, "spider": "follow"} for row in rows] == bloomdupe.json("pending", job)
    code, out, err = bloomdupe("pending", job / "bloomdupe")
    assert (0, "") == (code, err)
    title, head, *lines = out.splitlines()
    assert f"2 pending requests in {job}/bloomdupe; the last run: under way, or did not end in order" == title
    assert ["number", "priority", "method", "callback", "spider", "url"] == head.split()
    assert [
        ["1", "0", "GET", "-", "follow", "http://site/0"],
        ["2", "-1", "POST", "-", "follow", "http://site/1"],
    ] == [line.split() for line in lines]


def test_pending_shows_those_that_failed_and_are_kept(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path, 2, in_order=True)
    (row,) = bloomdupe.json("pending", job, "--failed")
    assert ("http://site/failed", "parse", 5) == (row["url"], row["callback"], row["number"])
    assert (
        f"1 failed request in {job}/bloomdupe; the last run: ended in order\n"
        in bloomdupe("pending", job, "--failed")[1]
    )


def test_pending_shows_twenty_or_so_many_as_asked_or_all(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path, 1200)
    for options, shown in (((), 20), (("--limit", "3"), 3), (("--limit", "0"), 1200)):
        assert list(range(1, shown + 1)) == [
            row["number"] for row in bloomdupe.json("pending", job, *options)
        ]
        _, out, _ = bloomdupe("pending", job, *options)
        assert shown == sum("http://site/" in line for line in out.splitlines())
        assert (f"and {1200 - shown:,} more" in out) == (shown < 1200)
    for wrong in ("-1", "many", "1.5"):
        code, _, err = bloomdupe("pending", job, "--limit", wrong)
        assert 2 == code
        assert wrong in err


def test_pending_of_nothing_is_an_empty_list(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path, 0)
    assert [] == bloomdupe.json("pending", job)
    assert (0, "") == bloomdupe("pending", job)[::2]


@STORES
def test_pending_and_check_name_the_damaged_and_the_exit_code_is_1(
    bloomdupe: Cli, tmp_path: Path, store: str | None
) -> None:
    job = make_job(tmp_path, 5, store)
    damage(job, store, 2, 4)
    code, out, err = bloomdupe("pending", job)
    assert (1, "") == (code, err)
    assert [2, 4] == [int(line.split()[0]) for line in out.splitlines() if "damaged: its checksum" in line]
    assert "2 of these are damaged: their pages stay pending" in out
    code, out, err = bloomdupe("pending", job, "--json")
    assert (1, "") == (code, err)
    assert [2, 4] == [row["number"] for row in json.loads(out) if "damaged" in row]
    assert 0 == bloomdupe("pending", job, "--limit", "1")[0]
    code, out, err = bloomdupe("check", job)
    assert (1, "") == (code, err)
    assert f"{file_of(job, store)}: 2 of the 5 pending requests are damaged, and their pages would" in out
    assert f"bloomdupe pending --limit 0 {job}/bloomdupe" in out


def test_check_looks_at_those_that_failed_too(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path, 2)
    damage(job, "lmdb", 5, database=b"failed")
    code, out, _ = bloomdupe("check", job)
    assert 1 == code
    assert "1 of the 1 failed requests are damaged" in out
    assert 1 == bloomdupe("pending", job, "--failed")[0]


def test_what_is_no_request_is_shown_as_damaged(bloomdupe: Cli, tmp_path: Path) -> None:
    job = make_job(tmp_path, 1)
    state = open_or_create(job / "bloomdupe", OPTIONS)
    pend(state, None, pickle.dumps(["no request"]))
    state.close()
    code, out, _ = bloomdupe("pending", job)
    assert 1 == code
    assert "damaged: the request cannot be read: " in out


def test_no_code_of_a_request_is_run_and_no_escape_reaches_the_terminal(
    bloomdupe: Cli, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    options = replace(OPTIONS, identity={"fingerprinter": "it", "spider": "red\x1b[31m\n"})
    state = open_or_create(job / "bloomdupe", options)
    add(state, Request("http://site/x", meta={"untold": Untold()}))
    state.close()
    (row,) = bloomdupe.json("pending", job)
    assert ("http://site/x", "red\x1b[31m\n") == (row["url"], row["spider"])
    code, out, _ = bloomdupe("pending", job)
    assert 0 == code
    assert r"red\x1b[31m\n" in out
    assert "\x1b" not in out


def test_a_state_without_a_frontier_says_so(bloomdupe: Cli, tmp_path: Path) -> None:
    for store in ("lmdb", None):
        job = make_state(tmp_path / f"job-{store}", 10, store)
        code, out, err = bloomdupe("pending", job)
        assert (2, "") == (code, out)
        assert f"{job}/bloomdupe has no frontier" in err
        assert None is bloomdupe.json("info", job)["frontier"]
        assert "frontier             none" in bloomdupe("info", job)[1]
    assert 2 == bloomdupe("pending", tmp_path)[0]


@STORES
@pytest.mark.parametrize("in_order", [True, False])
def test_info_tells_what_is_pending_done_and_failed_and_how_the_last_run_ended(
    bloomdupe: Cli, tmp_path: Path, store: str | None, in_order: bool
) -> None:
    job = make_job(tmp_path, 3, store, in_order=in_order)
    found = {"pending": 3, "done": 1, "failed": 1, "in_order": in_order}
    assert found == bloomdupe.json("info", job)["frontier"]
    _, out, _ = bloomdupe("info", job)
    ending = "ended in order" if in_order else "under way, or did not end in order"
    for line in (
        "pending requests     3\n",
        "requests done        1\n",
        "failed and kept      1\n",
        f"last run             {ending}\n",
    ):
        assert line in out


@STORES
def test_check_looks_at_a_frontier_and_changes_nothing(
    bloomdupe: Cli, tmp_path: Path, store: str | None
) -> None:
    job = make_job(tmp_path, 700, store)
    path = file_of(job, store)
    assert 0 == bloomdupe("check", job)[0]
    whole = path.read_bytes()
    torn = whole[: 6 * 4096] + b"\xff" * (len(whole) - 6 * 4096)
    path.write_bytes(torn)
    code, out, err = bloomdupe("check", job)
    assert (1, "") == (code, err)
    assert f"{path}: " in out
    assert torn == path.read_bytes()


def test_check_finds_a_frontier_that_is_gone_or_of_another_filter(bloomdupe: Cli, tmp_path: Path) -> None:
    job, other = make_job(tmp_path / "1", 3, None), make_job(tmp_path / "2", 3, None)
    file_of(job, None).unlink()
    code, out, _ = bloomdupe("check", job)
    assert 1 == code
    assert "belongs to a frontier frontier.lmdb, which is not there" in out
    file_of(other, None).rename(file_of(job, None))
    code, out, _ = bloomdupe("check", job)
    assert 1 == code
    assert ", the frontier " in out


@STORES
@pytest.mark.parametrize("command", ["pending", "info", "check"])
def test_a_file_that_was_cut_kills_no_command_and_is_not_changed(
    tmp_path: Path, python: Python, store: str | None, command: str
) -> None:
    job = make_job(tmp_path, 3000, store)
    path = file_of(job, store)
    cut = path.read_bytes()[: path.stat().st_size * 2 // 3]
    path.write_bytes(cut)
    script = "from scrapy_bloomdupe.cli import main; sys.exit(main(sys.argv[1:]))"
    done = python(script, command, job)
    # A page that is read behind the end of the file would be signal 7.
    assert done.returncode in (1, 2), done.stderr
    assert str(path) in done.stdout + done.stderr
    assert cut == path.read_bytes()


def test_a_frontier_whose_filter_is_gone_can_still_be_listed_and_checked(
    bloomdupe: Cli, tmp_path: Path
) -> None:
    job = make_job(tmp_path, 3, None)
    damage(job, None, 2)
    (job / "bloomdupe" / "seen.bloom").unlink()
    assert ["http://site/0", "http://site/2"] == [
        row["url"] for row in json.loads(bloomdupe("pending", job, "--json")[1]) if "url" in row
    ]
    code, out, _ = bloomdupe("check", job)
    assert 1 == code
    assert "there is no filter at" in out
    assert "1 of the 3 pending requests are damaged" in out


@pytest.mark.parametrize("settings", [EXACT, BARE], ids=["exact", "bare"])
def test_pending_works_beside_a_running_crawl_and_after_it_was_killed(
    bloomdupe: Cli, site: Site, tmp_path: Path, settings: dict[str, Any]
) -> None:
    jobdir = tmp_path / "job"
    area = site.area()
    options = {**settings, "JOBDIR": str(jobdir), "DOWNLOAD_DELAY": 0.3, "CONCURRENT_REQUESTS": 1}
    with running(tmp_path, options, start=[area.at("tree/100/0")]) as crawl:
        crawl.wait_until(lambda: len(area.answers()) > 1, "the second page")
        crawl.wait_until(lambda: len(bloomdupe.json("pending", jobdir)) > 1, "the links of the first")
        rows = bloomdupe.json("pending", jobdir, "--limit", 0)
        assert {"follow"} == {row["spider"] for row in rows}
        assert all(row["url"].startswith(area.at("tree/100/")) for row in rows)
        info = bloomdupe.json("info", jobdir)["frontier"]
        assert not info["in_order"]
        assert 0 < info["pending"]
        assert crawl.process.poll() is None, crawl.log.read_text()
        crawl.process.kill()
        crawl.process.wait()
    before = bloomdupe("pending", jobdir, "--limit", 0)
    assert 0 == before[0]
    assert "the last run: under way, or did not end in order" in before[1]
    assert before == bloomdupe("pending", jobdir, "--limit", 0)


def test_pending_does_without_scrapy_and_without_the_rest_of_a_pipe(tmp_path: Path) -> None:
    job = make_job(tmp_path, 3000)
    code = (
        "import sys; from scrapy_bloomdupe.cli import main; code = main(); "
        "assert not {'scrapy', 'twisted'} & set(sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "pending", str(job), "--limit", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert '[{"number": 1,' in process.stdout.readline()
        process.stdout.close()
        assert "" == process.stderr.read()
    assert 141 == process.returncode


def test_a_long_list_is_not_held_in_memory(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # Not ``Cli``: it keeps what is printed.
    from scrapy_bloomdupe.cli import main

    def peak(name: str, count: int) -> int:
        job = make_job(tmp_path / name, count)
        tracemalloc.start()
        assert 0 == main(["pending", str(job), "--limit", "0", "--json"])
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == len(json.loads(capfd.readouterr().out))
        return used

    peak("warm", 10)
    assert peak("long", 20_000) < 1.5 * peak("short", 2_000)
