"""``bloomdupe import`` of ``requests.seen``; of whole stock jobs: ``test_stockjob_crawls``."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from crawling import FILTER, Cli, filtering, run, running
from mocksite import mock_site
from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.request import fingerprint

import scrapy_bloomdupe.progress as progress

SIZE = 60
PAGES = Counter(f"tree/{SIZE}/{number}" for number in range(SIZE))
REQUESTS = [Request(f"http://shop.example/{number}") for number in range(5_000)]
FINGERPRINTS = [fingerprint(request) for request in REQUESTS]


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job directory of Scrapy's own filter, which has seen ``REQUESTS``."""
    (tmp_path / "job").mkdir()
    theirs = RFPDupeFilter(str(tmp_path / "job"))
    assert [False] * len(REQUESTS) == [theirs.request_seen(request) for request in REQUESTS]
    theirs.close("finished")
    return tmp_path / "job"


def seen_by(jobdir: Path, **settings: object) -> int:
    """How many of ``REQUESTS`` a crawl on this job directory calls seen."""
    with filtering(jobdir, **settings) as (ours, _):
        return sum(ours.request_seen(request) for request in REQUESTS)


def test_a_crawl_that_stock_scrapy_began_is_finished_by_ours_without_a_page_fetched_twice(
    bloomdupe: Cli, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    jobdir = tmp_path / "job"
    stock = {"JOBDIR": str(jobdir)}
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        area = site.area()
        start = [area.at(f"tree/{SIZE}/0")]
        with running(tmp_path, {**stock, "DOWNLOAD_DELAY": 0.1}, start=start) as crawl:
            crawl.wait_until(lambda: len(area.answers()) >= SIZE // 4, "a quarter of the pages")
            crawl.process.send_signal(signal.SIGINT)
            assert "shutdown" == crawl.finish().stats["finish_reason"]
        assert area.fetched().total() < SIZE
        code, out, err = bloomdupe("import", jobdir, "--spider", "follow")
        assert (0, "") == (code, err)
        assert f"{jobdir}/requests.seen: " in out
        resumed = run(tmp_path, {**FILTER, **stock}, start=start)
    assert (0, "finished") == (resumed.code, resumed.stats["finish_reason"])
    assert PAGES == area.fetched()
    assert SIZE == resumed.stats["bloomdupe/keys"]
    (notice,) = resumed.lines("[scrapy_bloomdupe", "WARNING")
    assert "was imported: its keys count from now on as made by scrapy.utils.request" in notice
    assert 0 == bloomdupe("check", jobdir)[0]
    found = bloomdupe.json("info", jobdir)
    assert "scrapy.utils.request.RequestFingerprinter" == found["identity"]["fingerprinter"]


def test_an_import_takes_every_fingerprint_over_and_a_second_one_adds_nothing(
    bloomdupe: Cli, job: Path
) -> None:
    before = (job / "requests.seen").read_bytes()
    code, out, err = bloomdupe("import", job)
    assert (0, "") == (code, err)
    assert f"{job}/requests.seen: 5,000 fingerprints, 5,000 of them new in {job}/bloomdupe\n" == out
    _, out, _ = bloomdupe("import", job)
    assert f"{job}/requests.seen: 5,000 fingerprints, 0 of them new in {job}/bloomdupe\n" == out
    assert 5_000 == bloomdupe.json("info", job)["store"]["keys"]
    assert before == (job / "requests.seen").read_bytes()
    assert 5_000 == seen_by(job)
    # The state is the project's own now; what is imported into it is still only added.
    _, out, _ = bloomdupe("import", job)
    assert "0 of them new" in out


def test_what_is_imported_into_a_state_is_added_to_what_it_knows(
    bloomdupe: Cli, job: Path, tmp_path: Path
) -> None:
    with filtering(tmp_path / "ours") as (ours, _):
        ours.request_seen(REQUESTS[7])
        ours.request_seen(Request("http://other.example/"))
    code, out, _ = bloomdupe("import", job, "--to", tmp_path / "ours" / "bloomdupe")
    assert 0 == code
    assert "5,000 fingerprints, 4,999 of them new" in out
    assert not (job / "bloomdupe").exists()
    with filtering(tmp_path / "ours") as (ours, _):
        assert ours.request_seen(Request("http://other.example/"))
        assert ours.request_seen(REQUESTS[-1])


def test_the_hex_lines_of_older_releases_and_a_torn_end_are_understood(bloomdupe: Cli, job: Path) -> None:
    old, new = FINGERPRINTS[:2_000], FINGERPRINTS[2_000:]
    lines = b"".join(key.hex().encode() + b"\n" for key in old)
    records = b"".join(len(key).to_bytes(2, "big") + key for key in new)
    (job / "requests.seen").write_bytes(lines + records[:-3])
    code, out, err = bloomdupe("import", job)
    assert (0, "") == (code, err)
    assert "4,999 fingerprints, 4,999 of them new" in out
    assert "19 bytes were no whole entry" in out
    assert 4_999 == seen_by(job)


def test_an_empty_file_imports_nothing(bloomdupe: Cli, job: Path) -> None:
    (job / "requests.seen").write_bytes(b"")
    code, out, _ = bloomdupe("import", job)
    assert 0 == code
    assert "0 fingerprints, 0 of them new" in out
    assert 0 == seen_by(job)


def test_an_import_for_a_bare_filter_makes_one_that_is_as_good_as_a_crawl_would_make(
    bloomdupe: Cli, job: Path
) -> None:
    code, _, _ = bloomdupe("import", job, "--no-store")
    assert 0 == code
    found = bloomdupe.json("info", job)
    assert (None, 1e-6, 1_000_000) == (found["store"], found["error_rate"], found["capacity"])
    assert 5_000 == seen_by(job, BLOOMDUPE_STORE=None)


def test_an_import_makes_the_filter_that_is_asked_for(bloomdupe: Cli, job: Path) -> None:
    options = ("--capacity", "1e4", "--error-rate", "0.02", "--layout", "classic", "--scheme", "blake2b")
    assert 0 == bloomdupe("import", job, *options)[0]
    found = bloomdupe.json("info", job)
    assert (10_000, 0.02, "classic", "blake2b") == tuple(
        found[name] for name in ("capacity", "error_rate", "layout", "scheme")
    )


def test_an_import_into_a_state_of_another_kind_is_refused(bloomdupe: Cli, job: Path) -> None:
    with filtering(job, BLOOMDUPE_STORE=None):
        pass
    code, out, err = bloomdupe("import", job)
    assert (2, "") == (code, out)
    assert "was made with BLOOMDUPE_STORE = None" in err


def test_an_import_beside_a_running_crawl_is_refused(bloomdupe: Cli, job: Path) -> None:
    with filtering(job):
        code, out, err = bloomdupe("import", job)
    assert (2, "") == (code, out)
    assert "is in use by process" in err


def test_without_tqdm_a_line_now_and_then_tells_how_far_it_is(
    bloomdupe: Cli, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(0, 1_000_000, 1))
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(seconds) / 100))
    code, out, err = bloomdupe("import", job)
    assert 0 == code
    assert "5,000 of them new" in out
    lines = err.splitlines()
    assert 5 < len(lines) < 20
    size = f"{(job / 'requests.seen').stat().st_size:,}"
    assert f"importing: {size} of {size}" == lines[-1]


def test_with_tqdm_a_terminal_sees_a_bar(job: Path) -> None:
    pytest.importorskip("tqdm")
    terminal, end = pty.openpty()
    os.set_blocking(terminal, False)
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    command = [sys.executable, "-m", "scrapy_bloomdupe", "import", str(job)]
    try:
        done = subprocess.run(command, stderr=end, stdout=subprocess.PIPE, timeout=60, check=True)
        seen = os.read(terminal, 100_000).decode()
    finally:
        os.close(end)
        os.close(terminal)
    assert b"5,000 of them new" in done.stdout
    assert "importing: 100%" in seen
