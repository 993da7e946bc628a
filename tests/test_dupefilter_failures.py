"""Does a request pass whatever fails, is it counted, and is a person told once?"""

from __future__ import annotations

import errno
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import lmdb
import pytest
from crawling import filtering
from scrapy import Request
from scrapy.statscollectors import StatsCollector
from scrapy.utils.request import fingerprint

import scrapy_bloomdupe.frontier.group as group
from scrapy_bloomdupe import BloomDupeFilter, stats
from scrapy_bloomdupe.errors import FilterError, StateLocked, StateMismatch, StoreError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

Opened = tuple[BloomDupeFilter, StatsCollector]

FULL_DISK = StoreError(errno.ENOSPC, "cannot write to seen.lmdb: No space left on device")


class Moody:
    """A fingerprinter that has its own ideas about some paths."""

    def fingerprint(self, request: Request) -> bytes:
        if "raise" in request.url:
            raise ZeroDivisionError("not today")
        if "text" in request.url:
            return request.url  # type: ignore[return-value]
        return fingerprint(request)


def page(path: str | int = "a") -> Request:
    return Request(f"http://shop.example/{path}")


def raiser(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error

    return fail


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    with filtering(tmp_path, REQUEST_FINGERPRINTER_CLASS=Moody) as opened:
        yield opened


@pytest.mark.parametrize(("path", "said"), [("raise", "not today"), ("text", "bytes")])
def test_a_fingerprinter_that_fails_lets_every_request_pass_and_warns_once(
    opened: Opened, caplog: pytest.LogCaptureFixture, path: str, said: str
) -> None:
    ours, counted = opened
    assert [False] * 3 == [ours.request_seen(page(path)) for _ in range(3)]
    assert 3 == counted.get_value(stats.ERROR_KEY)
    assert counted.get_value("bloomdupe/new") is None
    (warning,) = warnings_in(caplog)
    assert said in warning
    assert f"http://shop.example/{path}" in warning
    assert stats.ERROR_KEY in warning
    assert [False, True] == [ours.request_seen(page()) for _ in range(2)]


@pytest.mark.parametrize(
    ("owner", "method", "error"),
    [
        (LmdbStore, "__contains__", FULL_DISK),
        (LmdbStore, "__contains__", lmdb.ReadersFullError("MDB_READERS_FULL")),
        (BloomFilter, "add", FilterError(errno.EIO, "cannot read seen.bloom: Input/output error")),
        (BloomFilter, "add", MemoryError()),
        (BloomFilter, "add", RuntimeError("broken")),
    ],
)
def test_a_seen_set_that_fails_lets_every_request_pass_and_goes_on_when_it_can(
    opened: Opened,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    error: Exception,
) -> None:
    ours, counted = opened
    assert not ours.request_seen(page())
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, raiser(error))
        assert [False] * 3 == [ours.request_seen(page()) for _ in range(3)]
    assert 3 == counted.get_value(stats.ERROR_CHECK)
    (warning,) = warnings_in(caplog)
    assert str(error) or repr(error) in warning
    assert ours.request_seen(page())


def test_an_expected_failure_is_logged_without_a_traceback_and_a_surprise_with_one(
    opened: Opened, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = opened
    ours.request_seen(page())
    monkeypatch.setattr(LmdbStore, "__contains__", raiser(FULL_DISK))
    ours.request_seen(page())
    ours.request_seen(page("raise"))
    full_disk, surprise = (r for r in caplog.records if r.levelno == logging.WARNING)
    assert full_disk.exc_info is None
    assert surprise.exc_info is not None
    assert surprise.exc_info[0] is ZeroDivisionError


def test_a_new_key_that_the_store_does_not_take_passes_now_and_is_never_lost_later(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, counted = opened
    with monkeypatch.context() as patch:
        patch.setattr(LmdbStore, "put", raiser(FULL_DISK))
        assert not ours.request_seen(page())
    # The filter knows it, the store does not: it is asked once more, then it is known.
    assert [False, True] == [ours.request_seen(page()) for _ in range(2)]
    assert 1 == counted.get_value("bloomdupe/false_positive")


def test_a_full_disk_keeps_the_waiting_keys_visible_and_tries_again_with_growing_pauses(
    opened: Opened, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, counted = opened
    pauses: list[float] = []

    def call_later(seconds: float, function: object) -> Any:
        pauses.append(seconds)
        return SimpleNamespace(cancel=lambda: None)

    monkeypatch.setattr(group, "call_later", call_later)
    assert ours._group is not None
    ours._group._running = True
    ours.request_seen(page())
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "write", raiser(FULL_DISK))
        for _ in range(9):
            ours._group._tick()
        assert ours.request_seen(page())
        assert not ours.request_seen(page("b"))
    assert pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 12.8, 12.8]) == pauses
    assert 9 == counted.get_value(stats.ERROR_COMMIT)
    (warning,) = warnings_in(caplog)
    assert "No space left on device" in warning
    assert "Make room" in warning
    ours._group._tick()
    assert ours._state is not None
    assert isinstance(ours._state.store, LmdbStore)
    assert 0 == ours._state.store.num_waiting


def test_a_whole_group_that_cannot_be_written_lets_requests_pass(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, counted = opened
    assert ours._state is not None
    monkeypatch.setattr(ours._state.store, "_next_commit", 10)
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "write", raiser(FULL_DISK))
        assert [False] * 50 == [ours.request_seen(page(number)) for number in range(50)]
        assert [True] * 50 == [ours.request_seen(page(number)) for number in range(50)]
    assert 3 == counted.get_value(stats.ERROR_CHECK)  # with 10, 20 and 40 keys waiting
    assert [True] * 50 == [ours.request_seen(page(number)) for number in range(50)]


def test_a_failed_sync_is_counted_and_told_once(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        def take_error(self) -> StoreError:
            return FULL_DISK

        def stop(self) -> None:
            pass

    ours, counted = opened
    assert ours._group is not None
    ours._group._running = True
    ours._group._syncer = Failing()  # type: ignore[assignment]
    for _ in range(3):
        ours._group._tick()
    assert 3 == counted.get_value(stats.ERROR_SYNC)
    (warning,) = warnings_in(caplog)
    assert "power loss" in warning


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (LmdbStore, "close"),
        (LmdbStore, "flush"),
        (Environment, "write"),
        (Environment, "sync"),
        (BloomFilter, "close"),
        (BloomFilter, "sync"),
        (BloomFilter, "info"),
        (LmdbStore, "count"),
    ],
)
def test_a_close_that_fails_does_not_raise_lets_go_of_the_directory_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    with filtering(tmp_path) as (ours, counted):
        assert not ours.request_seen(page())
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, raiser(FULL_DISK))
            ours.close("finished")
    assert 1 <= counted.get_value(stats.ERROR_CLOSE)
    with filtering(tmp_path) as (again, _):
        again.request_seen(page())
        assert again.request_seen(page())


def test_requests_that_come_after_the_end_pass_and_make_no_new_state(tmp_path: Path) -> None:
    with filtering(tmp_path) as (ours, counted):
        ours.request_seen(page())
        ours.close("finished")
        before = dict(counted.get_stats())
        assert [False] * 3 == [ours.request_seen(page()) for _ in range(3)]
        assert before == counted.get_stats()
        with filtering(tmp_path):  # nobody has it
            pass


def test_temporary_files_are_gone_as_soon_as_the_filter_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with filtering(None) as (ours, _):
        assert 1 == len(list(tmp_path.iterdir()))
        ours.close("finished")
        assert [] == list(tmp_path.iterdir())


def test_a_state_that_cannot_be_opened_without_a_crawl_to_end_is_an_error(tmp_path: Path) -> None:
    with filtering(tmp_path), pytest.raises(StateLocked, match="in use by process"), filtering(tmp_path):
        pass
    with (
        pytest.raises(StateMismatch, match=f"{__name__}.Moody"),
        filtering(tmp_path, REQUEST_FINGERPRINTER_CLASS=Moody),
    ):
        pass
