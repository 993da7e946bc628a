"""What becomes of what a crawl was granted if it ends too early? The next run has it, or another crawl."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, Crawl, filtering, run, running
from kinds import name
from mocksite import Area, Site, mock_site
from scrapy import Request
from scrapy.utils.request import fingerprint
from servers import Valkey

PAGES = 60
SLOW = {"CONCURRENT_REQUESTS": 1, "DOWNLOAD_DELAY": 0.02}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def area(site: Site) -> Area:
    return site.area()


@pytest.fixture
def exact(valkey: Valkey) -> dict[str, Any]:
    return {**FILTER, "BLOOMDUPE_STORE": f"{valkey.url}?timeout=5", "BLOOMDUPE_KEY": name()}


@pytest.fixture
def bare(valkey: Valkey) -> dict[str, Any]:
    url = f"{valkey.url}?timeout=5"
    return {**FILTER, "BLOOMDUPE_FILTER": url, "BLOOMDUPE_STORE": None, "BLOOMDUPE_KEY": name()}


def stopped(area: Area, folder: Path, settings: dict[str, Any], signum: int = signal.SIGINT) -> Crawl:
    """A crawl that is ended when it has a few of its pages."""
    with running(folder, {**settings, **SLOW}, start=[area.at(f"many/{PAGES}?unseen")]) as crawl:
        crawl.wait_until(lambda: len(area.answers()) > PAGES // 6, "pages")
        crawl.process.send_signal(signum)
        return crawl.finish()


def lost(area: Area) -> list[int]:
    fetched = area.fetched()
    return [number for number in range(PAGES) if not fetched[f"page/{number}"]]


def start_of(area: Area, number: int) -> list[str]:
    # Another first page each time: the first one is seen.
    return [area.at(f"many/{PAGES}?run={number}")]


def test_a_crawl_without_a_frontier_that_is_stopped_gives_back_what_waits(
    area: Area, exact: dict[str, Any], tmp_path: Path
) -> None:
    first = stopped(area, tmp_path, exact)
    waiting = len(lost(area))
    assert ("shutdown", True) == (first.stats["finish_reason"], waiting > 0), first.log
    (line,) = first.lines("WARNING", "were scheduled and not sent")
    assert f"{waiting:,} requests were scheduled and not sent. Their keys were given back" in line
    second = run(tmp_path, exact, start=start_of(area, 2))
    assert [] == lost(area), second.log
    assert dict.fromkeys((f"page/{number}" for number in range(PAGES)), 1) == {
        path: count for path, count in area.fetched().items() if path.startswith("page/")
    }


def test_what_a_filter_cannot_give_back_is_said(area: Area, bare: dict[str, Any], tmp_path: Path) -> None:
    first = stopped(area, tmp_path, bare)
    waiting = len(lost(area))
    (line,) = first.lines("WARNING", "were scheduled and not sent")
    assert f"{waiting:,} requests were scheduled and not sent. They are marked as seen on the server" in line
    assert "Set JOBDIR" in line


@pytest.mark.parametrize("kind", ["exact", "bare"])
def test_what_is_pending_is_not_asked_of_the_server(
    area: Area, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    settings = {**request.getfixturevalue(kind), "JOBDIR": str(tmp_path / "job")}
    assert -9 == stopped(area, tmp_path, settings, signal.SIGKILL).code
    second = run(tmp_path, settings, start=[area.at(f"many/{PAGES}?unseen")])
    assert [] == lost(area), second.log
    assert second.stats["bloomdupe/resumed"] > PAGES // 2
    assert second.stats.get("bloomdupe/server/keys", 0) < PAGES // 2


def test_pending_requests_that_a_server_calls_seen_are_not_moved_aside(
    area: Area, exact: dict[str, Any], tmp_path: Path
) -> None:
    job = {"JOBDIR": str(tmp_path / "job")}
    stopped(area, tmp_path, {**exact, **job}, signal.SIGKILL)
    other = {"BLOOMDUPE_ON_MISMATCH": "new", "BLOOMDUPE_PRESET": "usual"}
    refused = run(tmp_path, {**exact, **job, **other}, start=start_of(area, 2))
    assert (1, "bloomdupe_refused") == (refused.code, refused.stats["finish_reason"]), refused.log
    (line,) = refused.lines("pending requests whose pages a server calls seen")
    assert "Finish the job with its former settings" in line
    assert [] == list((tmp_path / "job" / "bloomdupe").glob("old-*"))
    run(tmp_path, {**exact, **job}, start=start_of(area, 3))
    assert [] == lost(area)


def test_a_request_that_came_before_the_answer_does_not_hide_what_was_granted(exact: dict[str, Any]) -> None:
    request = Request("http://shop.example/page")
    with filtering(None, **{one: exact[one] for one in exact if one.startswith("BLOOMDUPE")}) as (
        ours,
        _,
    ):
        state = ours._state
        assert state is not None
        assert state.shared is not None
        key = fingerprint(request)
        state.shared.begin([key])
        assert ours.request_seen(request.copy())
        state.shared.leave([key], state.shared.parts.judge([key]))
        assert [False, True] == [ours.request_seen(request.copy()) for _ in range(2)]
