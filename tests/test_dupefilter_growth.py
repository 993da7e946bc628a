"""What if a filter reaches its capacity and the disk has no room for another layer?"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest
from crawling import filtering
from scrapy import Request

from scrapy_bloomdupe import stats
from scrapy_bloomdupe.filters.mapped import MappedFile


def page(number: int) -> Request:
    return Request(f"http://shop.example/{number}")


def reserve_once() -> Callable[[MappedFile, int], None]:
    """The disk has room for the first layer and no more."""
    real = MappedFile.reserve

    def reserve(self: MappedFile, size: int) -> None:
        if self.size():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, size)

    return reserve


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_filter_that_cannot_grow_goes_on_over_full_and_loses_nothing_with_a_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MappedFile, "reserve", reserve_once())
    bad = {"BLOOMDUPE_CAPACITY": 24_000, "BLOOMDUPE_ERROR_RATE": 0.3}
    with filtering(tmp_path, **bad) as (ours, counted):
        assert ours._state is not None
        for number in range(40_000):  # others: it is full and over-full
            ours._state.seen.check_and_add(sha1(b"%d" % number).digest())
        assert [False] * 1000 == [ours.request_seen(page(number)) for number in range(1000)]
        assert [True] * 1000 == [ours.request_seen(page(number)) for number in range(1000)]
    assert 100 < counted.get_value("bloomdupe/false_positive")
    assert 1 == counted.get_value("bloomdupe/layers")
    assert 1 < counted.get_value(stats.ERROR_GROWTH)
    (error,) = problems(caplog)
    assert "could not grow" in error
    assert "no page is lost" in error


@pytest.mark.parametrize(
    ("layout", "capacity", "rate"),
    # One page of bits, the least that there is, is much for few keys: their rate has to be very low.
    [("paged", 1400, 1e-9), ("classic", 1000, 1e-3)],
)
def test_a_bare_filter_that_cannot_grow_takes_nothing_more_before_ten_times_its_rate(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, layout: str, capacity: int, rate: float
) -> None:
    monkeypatch.setattr(MappedFile, "reserve", reserve_once())
    small = {"BLOOMDUPE_CAPACITY": capacity, "BLOOMDUPE_LAYOUT": layout, "BLOOMDUPE_ERROR_RATE": rate}
    with filtering(None, BLOOMDUPE_STORE=None, **small) as (ours, counted):
        seen = [ours.request_seen(page(number)) for number in range(3000)]
        known = [ours.request_seen(page(number)) for number in range(1000)]
    assert all(known)
    assert 7.5 * rate < counted.get_value("bloomdupe/error_rate_estimate") < 10 * rate
    assert capacity < counted.get_value("bloomdupe/keys") < 2 * capacity
    # What comes after it took its last key passes, but for false positives: 1 in 100 of 3,000.
    assert sum(seen) < 100
    cannot_grow, full = problems(caplog)
    assert "the crawl will be stopped" in cannot_grow
    assert "The crawl is stopped" in full


def test_a_filter_that_could_not_grow_grows_as_soon_as_there_is_room(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    small = {"BLOOMDUPE_CAPACITY": 200, "BLOOMDUPE_LAYOUT": "classic", "BLOOMDUPE_ERROR_RATE": 1e-9}
    with filtering(None, BLOOMDUPE_STORE=None, **small) as (ours, counted):
        with monkeypatch.context() as patch:
            patch.setattr(MappedFile, "reserve", reserve_once())
            assert [False] * 203 == [ours.request_seen(page(number)) for number in range(203)]
        assert (1, 2) == (counted.get_value("bloomdupe/layers"), counted.get_value(stats.ERROR_GROWTH))
        assert not ours.request_seen(page(203))
        assert (2, 2) == (counted.get_value("bloomdupe/layers"), counted.get_value(stats.ERROR_GROWTH))
    assert "The filter reached 204 keys and grew to 2 layers" in caplog.text
    assert 1 == len(problems(caplog))
