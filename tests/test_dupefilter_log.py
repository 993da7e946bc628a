"""Does the log read as it does with Scrapy's own filter, and are what is ours sentences with figures?"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from crawling import FollowAll, filtering, idle_crawler
from scrapy import Request
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter

URLS = [f"http://shop.example/{path}" for path in ("a", "b", "a", "a#x", "b", "c")]
OURS = "scrapy_bloomdupe.telling"

Line = tuple[str, int, str, object]


def schedule(dupefilter: BaseDupeFilter) -> FollowAll:
    """Ask and tell as Scrapy's scheduler does."""
    crawler = idle_crawler()
    spider = FollowAll(start="[]")
    spider.crawler = crawler
    for url in URLS:
        request = Request(url, headers={"Referer": "http://shop.example/"})
        if dupefilter.request_seen(request):
            dupefilter.log(request, spider)
    return spider


def lines(caplog: pytest.LogCaptureFixture, spider: FollowAll) -> list[Line]:
    return [
        (r.name, r.levelno, r.getMessage(), getattr(r, "spider", None) is spider)
        for r in caplog.records
        if r.name == "scrapy.dupefilters"
    ]


@pytest.mark.parametrize("debug", [False, True])
def test_the_lines_about_duplicates_are_those_of_scrapys_filter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, debug: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    spider = schedule(RFPDupeFilter(debug=debug))
    theirs = lines(caplog, spider)
    counted = spider.crawler.stats.get_stats()
    assert {"dupefilter/filtered": 3} == counted
    caplog.clear()
    with filtering(tmp_path, DUPEFILTER_DEBUG=debug) as (ours, _):
        spider = schedule(ours)
    assert theirs == lines(caplog, spider)
    assert counted == spider.crawler.stats.get_stats()
    assert [3 if debug else 1] == [len(theirs)]
    assert [True] * len(theirs) == [with_spider for *_, with_spider in theirs]
    assert ("Filtered duplicate request", debug) == (theirs[0][2][:26], "(referer:" in theirs[0][2])


def test_the_lines_of_a_new_state_say_where_how_large_and_what_became_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with filtering(tmp_path) as (ours, _):
        schedule(ours)
    records = [r for r in caplog.records if r.name == OURS]
    assert [logging.INFO] * 2 == [r.levelno for r in records]
    assert all(isinstance(r.spider, FollowAll) for r in records)  # type: ignore[attr-defined]
    opened, summary = (r.getMessage() for r in records)
    assert opened.startswith(f"Seen-set: new in {tmp_path / 'bloomdupe'} for 1,000,000 keys at an error rate")
    assert opened.endswith("paged, murmur3, exact confirmation)")
    assert summary.startswith(
        "Seen-set: 3 new, 3 duplicates, 0 false positives caught; 3 keys in 1 layer, 0% full, error rate "
    )
    assert re.search(r"\(asked: 0\.001\), [0-9.]+ MB on disk$", summary)


def test_the_line_of_a_state_that_was_there_says_what_is_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with filtering(tmp_path) as (ours, _):
        schedule(ours)
    caplog.set_level(logging.INFO)
    with filtering(tmp_path):
        pass
    opened, summary = (r.getMessage() for r in caplog.records if r.name == OURS)
    assert re.match(
        rf"Seen-set: 3 keys in {re.escape(str(tmp_path))}/bloomdupe, opened in [0-9.]+ ms \(.*\)$", opened
    )
    assert summary.startswith("Seen-set: 0 new, 0 duplicates, 0 false positives caught; 3 keys in 1 layer")


def test_the_lines_of_a_bare_filter_promise_no_confirmation(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with filtering(None, BLOOMDUPE_STORE=None) as (ours, _):
        schedule(ours)
    opened, summary = (r.getMessage() for r in caplog.records if r.name == OURS)
    assert opened.startswith(
        "Seen-set: new in temporary files for 1,000,000 keys at an error rate of 1e-06 ("
    )
    assert opened.endswith("no exact store)")
    assert summary.startswith("Seen-set: 3 new, 3 unconfirmed duplicates; 3 keys in 1 layer")


def test_a_filter_that_grows_says_so_once_per_layer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with filtering(None, BLOOMDUPE_CAPACITY=2, BLOOMDUPE_STORE="memory") as (ours, stats):
        assert 1 == stats.get_value("bloomdupe/layers")
        schedule(ours)
        assert 2 == stats.get_value("bloomdupe/layers")
    grown = [r for r in caplog.records if "grew" in r.getMessage()]
    assert ["The filter reached 2 keys and grew to 2 layers for 6 keys"] == [
        r.getMessage().partition(";")[0] for r in grown
    ]
    assert [logging.INFO] == [r.levelno for r in grown]


def test_settings_that_only_tune_give_way_to_the_file_with_a_notice_that_names_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with filtering(tmp_path, BLOOMDUPE_CAPACITY=1000) as (ours, _):
        schedule(ours)
    with filtering(tmp_path, BLOOMDUPE_CAPACITY=5000, BLOOMDUPE_ERROR_RATE=0.01) as (ours, _):
        assert ours.request_seen(Request(URLS[0]))
    capacity, rate = (r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    assert "capacity=1000, which stays in force; settings ask for 5000" in capacity
    assert "error_rate=0.001, which stays in force; settings ask for 0.01" in rate
    assert "bloomdupe rebuild" in capacity


def test_a_job_that_was_begun_with_scrapys_filter_is_told_of_the_import(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = RFPDupeFilter(str(tmp_path))
    schedule(theirs)
    theirs.close("finished")
    with filtering(tmp_path):
        pass
    (warning,) = (r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    assert f"bloomdupe import {tmp_path}" in warning
    caplog.clear()
    with filtering(tmp_path):
        pass
    assert [] == [r for r in caplog.records if r.levelno == logging.WARNING]
