"""Do crawls leave a history of themselves, over stops and kills, and is none ever disturbed by it?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import ASYNCIO, FILTER, SELECT, Crawl, run, running
from mocksite import Area, Site, mock_site

from scrapy_bloomdupe.history import HISTORY_NAME, TOP_NAME, Sample, read_history

SIZE = 60
RULES = [{"name": "item", "match": {"path": "/*/page/*"}, "key": {"sources": ["query:id"]}}]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def area(site: Site) -> Area:
    return site.area()


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {**FILTER, "JOBDIR": str(folder / "job"), **more}


def crawl(folder: Path, area: Area, **more: Any) -> Crawl:
    return run(folder, settings(folder, **more), start=[area.at(f"tree/{SIZE}/0")])


def state(folder: Path) -> Path:
    return folder / "job" / "bloomdupe"


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT])
def test_a_crawl_leaves_a_first_and_a_last_sample_that_agree_with_its_stats(
    tmp_path: Path, area: Area, reactor: str
) -> None:
    done = crawl(tmp_path, area, TWISTED_REACTOR=reactor)
    stats = done.stats
    assert "finished" == stats["finish_reason"]
    found = read_history(state(tmp_path))
    first, last = found.samples
    assert (1, 0, 0) == (first.run, first.keys, first.pages)
    assert (SIZE, stats["response_received_count"]) == (last.keys, last.pages)
    assert (stats["bloomdupe/new"], stats["bloomdupe/duplicate"]) == (last.new, last.duplicate)
    assert (stats["bloomdupe/done"], 0) == (last.done, last.pending)
    assert (1, 1_000_000) == (last.layers, last.capacity)
    assert 0 < last.seconds < 60
    assert {} == last.errors
    assert last.num_bytes > 1_000_000
    assert last.anonymous_bytes is None or last.anonymous_bytes > 10_000_000
    host = area.at("").split("/")[2]
    assert [(host, stats["dupefilter/filtered"])] == list(found.top.hosts)
    assert {} == found.top.rules


def test_after_a_kill_the_next_run_goes_on_and_counts_on(tmp_path: Path, area: Area) -> None:
    slow = settings(tmp_path, DOWNLOAD_DELAY=0.02, BLOOMDUPE_HISTORY=0.1)
    with running(tmp_path, slow, start=[area.at(f"tree/{SIZE}/0")]) as going:
        path = state(tmp_path) / HISTORY_NAME
        going.wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 4, "four samples")
        going.process.kill()
        going.finish()
    killed = read_history(state(tmp_path))
    path.write_bytes(path.read_bytes() + Sample().to_line()[:50])
    done = crawl(tmp_path, area, BLOOMDUPE_HISTORY=0.1)
    assert [] == done.lines("WARNING", "figures")
    found = read_history(state(tmp_path))
    assert (killed.samples, 0) == (found.samples[: len(killed.samples)], found.damaged)
    assert {1, 2} == {sample.run for sample in found.samples}
    for before, after in zip(found.samples, found.samples[1:], strict=False):
        assert before.pages <= after.pages
        assert before.duplicate <= after.duplicate
        assert before.seconds <= after.seconds
    last = found.samples[-1]
    assert (SIZE, 0) == (last.keys, last.pending)
    assert killed.samples[-1].pages + done.stats["response_received_count"] == last.pages
    assert sum(count for _, count in killed.top.hosts) < sum(count for _, count in found.top.hosts)


@pytest.mark.parametrize("more", [{"JOBDIR": None}, {"BLOOMDUPE_HISTORY": 0}])
def test_no_history_is_kept_where_there_is_no_directory_or_none_is_wanted(
    tmp_path: Path, area: Area, more: dict[str, Any]
) -> None:
    done = crawl(tmp_path, area, **more)
    assert (SIZE, "finished") == (len(done.items), done.stats["finish_reason"])
    assert [] == [path for path in tmp_path.rglob("*") if "history" in path.name]
    assert not any(name.startswith("bloomdupe/error/") for name in done.stats)


@pytest.mark.parametrize("name", [HISTORY_NAME, TOP_NAME])
def test_a_history_that_cannot_be_written_is_said_once_counted_and_costs_no_page(
    tmp_path: Path, area: Area, name: str
) -> None:
    (state(tmp_path) / name / "in the way").mkdir(parents=True)
    done = crawl(tmp_path, area, DOWNLOAD_DELAY=0.02, BLOOMDUPE_HISTORY=0.1)
    assert (SIZE, "finished") == (len(done.items), done.stats["finish_reason"])
    (line,) = done.lines("WARNING", "figures for `bloomdupe report`")
    assert name in done.log
    assert "bloomdupe/error/history" in line
    assert done.stats["bloomdupe/error/history"] > 2
    assert (state(tmp_path) / name / "in the way").is_dir()
    assert not list(state(tmp_path).glob("*.new"))


def test_rules_are_told_with_what_they_merged(tmp_path: Path, area: Area) -> None:
    pages = [f"page/a?id=1&from={i}" for i in range(6)] + ["page/b?id=2", "page/b?id=2", "page/none"]
    links = area.links(*pages)
    for number in (1, 2):
        done = run(
            tmp_path,
            settings(
                tmp_path,
                ADDONS={"scrapy_bloomdupe.Addon": 500},
                BLOOMDUPE_RULES=RULES,
                BLOOMDUPE_CACHE_SIZE=0,
            ),
            start=[links if number == 1 else area.at("page/c?id=1")],
        )
        assert "finished" == done.stats["finish_reason"]
        rule = read_history(state(tmp_path)).top.rules["item"]
        if number == 1:
            assert {"key": 8, "missing": 1, "duplicates": 6, "merged": 5} == rule.counts
            assert 3 == len(rule.pairs)
            first, second = rule.pairs[0]
            assert (area.at("page/a?id=1&from=0"), area.at("page/a?id=1&from=1")) == (first, second)
    # The second run knows the key, not the URL that had it.
    assert {"key": 9, "missing": 1, "duplicates": 7, "merged": 5} == rule.counts
    assert 3 == len(rule.pairs)


def test_a_state_that_is_moved_aside_takes_its_history_along(tmp_path: Path, area: Area) -> None:
    crawl(tmp_path, area)
    before = (state(tmp_path) / HISTORY_NAME).read_bytes()
    crawl(tmp_path, area, BLOOMDUPE_PRESET="usual", BLOOMDUPE_ON_MISMATCH="new", BLOOMDUPE_FRONTIER=False)
    (aside,) = state(tmp_path).glob("old-*")
    assert before == (aside / HISTORY_NAME).read_bytes()
    assert (aside / TOP_NAME).exists()
    assert {1} == {sample.run for sample in read_history(state(tmp_path)).samples}
