"""Is a loss that is not ours said aloud? Requests nobody keeps, another spider's state, a cut import."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
from crawling import idle_crawler
from scrapy import Request

from scrapy_bloomdupe import BloomDupeFilter
from scrapy_bloomdupe.errors import ConfigurationError, StateMismatch
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create


def filter_of(
    directory: Path, kind: type[BloomDupeFilter] = BloomDupeFilter, **settings: Any
) -> BloomDupeFilter:
    return kind.from_crawler(idle_crawler(BLOOMDUPE_DIR=str(directory), **settings))


class TellsByHeader(BloomDupeFilter):
    def request_fingerprint(self, request: Request) -> str:
        return f"{request.headers.get('X', b'').hex()}00"


def test_an_overridden_request_fingerprint_is_refused_and_not_ignored(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of newer releases of Scrapy
        dupefilter = filter_of(tmp_path, TellsByHeader)
    with pytest.raises(ConfigurationError, match="TellsByHeader overrides request_fingerprint"):
        dupefilter.open()


@pytest.mark.parametrize(("jobdir", "text"), [(True, "could not write them"), (False, "There is no JOBDIR")])
def test_requests_that_nobody_keeps_are_counted_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, jobdir: bool, text: str
) -> None:
    settings = {"JOBDIR": str(tmp_path / "job")} if jobdir else {}
    dupefilter = filter_of(tmp_path / "seen", **settings)
    dupefilter.open()
    stats = dupefilter._crawler.stats  # type: ignore[union-attr]
    stats.set_value("scheduler/enqueued/memory", 12)
    stats.set_value("scheduler/dequeued/memory", 5)
    dupefilter.close("shutdown")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("7 requests were scheduled and not sent")
    assert text in warning


def options(**identity: str) -> StateOptions:
    return StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", identity)


def test_the_state_of_another_spider_is_noticed(tmp_path: Path) -> None:
    open_or_create(tmp_path, options(canary="1", spider="one")).close()
    other = open_or_create(tmp_path, options(canary="1", spider="two"))
    (notice,) = other.notices
    assert "made by the spider 'one', this one is 'two'" in notice
    other.close()
    same = open_or_create(tmp_path, options(canary="1", spider="one"))
    assert [] == same.notices
    same.close()


def test_an_import_that_was_cut_short_is_refused_until_it_is_whole(tmp_path: Path) -> None:
    open_or_create(tmp_path, options(importing="1")).close()
    with pytest.raises(StateMismatch, match="cut short"):
        open_or_create(tmp_path, options(canary="1"))
    again = open_or_create(tmp_path, options(importing="1"))
    again.set_identity({k: v for k, v in again.filter.identity.items() if k != "importing"})
    again.close()
    whole = open_or_create(tmp_path, options(canary="1"))
    assert "importing" not in whole.filter.identity
    whole.close()


def test_a_path_that_is_no_utf_8_is_a_path(tmp_path: Path) -> None:
    directory = tmp_path / "job\udcff"
    state = open_or_create(directory, options())
    assert not state.seen.check_and_add(bytes(20)).seen
    state.close()
    again = open_or_create(directory, options())
    assert again.seen.check_and_add(bytes(20)).seen
    again.close()


def test_a_crawl_may_change_its_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = open_or_create(Path("job"), options())
    monkeypatch.chdir("/")
    state.seen.check_and_add(bytes(20))
    state.close()
    assert tmp_path / "job" == state.directory
