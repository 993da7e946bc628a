"""Is Scrapy's own queue trusted, moved aside or taken over as it should be, and nothing of it lost?"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import queues
from scrapy import Request
from scrapy.utils.request import fingerprint

import scrapy_bloomdupe.requestbytes as requestbytes
import scrapy_bloomdupe.requestqueue as requestqueue
import scrapy_bloomdupe.takeover as takeover
from scrapy_bloomdupe.errors import StoreError
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.records import Seal
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.takeover import QueueCheck, adopt, check_queue
from scrapy_bloomdupe.unit import META_UNIT

WITH = StateOptions(1000, 0.01, "classic", "murmur3", "lmdb", journal=True)
WITHOUT = StateOptions(1000, 0.01, "classic", "murmur3", "lmdb")

PAGES = [("a", 0), ("b", 3), ("c", 0), ("d", -1)]


@pytest.fixture
def jobdir(tmp_path: Path) -> Path:
    return tmp_path / "jobdir"


def leave_state(jobdir: Path, options: StateOptions = WITH, seal: Seal | None = None) -> None:
    state = open_or_create(jobdir / "bloomdupe", options)
    if state.journal is not None:
        state.journal.begin()
        if seal is not None:
            state.journal.close_in_order(seal)
    state.close()


def check(jobdir: Path) -> QueueCheck:
    return check_queue(jobdir, jobdir / "bloomdupe")


def names(jobdir: Path) -> list[str]:
    return sorted(path.name for path in jobdir.iterdir() if path.name != "bloomdupe")


def test_without_a_job_directory_there_is_no_queue(tmp_path: Path) -> None:
    assert QueueCheck() == check_queue(None, tmp_path / "state")
    assert [] == list(tmp_path.iterdir())


def test_a_queue_that_is_what_the_last_run_left_is_trusted(jobdir: Path) -> None:
    queue = queues.fill(jobdir, PAGES)
    leave_state(jobdir, seal=Seal(requestqueue.digest(queue)))
    for _ in range(2):
        assert QueueCheck(queue, trusted=True) == check(jobdir)
    assert ["requests.queue"] == names(jobdir)


def test_no_queue_is_trusted_if_the_last_run_left_none(jobdir: Path) -> None:
    leave_state(jobdir, seal=Seal(""))
    assert check(jobdir).trusted


def test_a_queue_that_is_gone_is_not_trusted(jobdir: Path) -> None:
    queue = queues.fill(jobdir, PAGES)
    leave_state(jobdir, seal=Seal(requestqueue.digest(queue)))
    shutil.rmtree(queue)
    found = check(jobdir)
    assert (False, False, []) == (found.trusted, found.recovered, found.notices)


def _flip(queue: Path) -> None:
    path = next(path for path in sorted(queue.rglob("*")) if path.is_file())
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("how", ["killed", "touched", "not in the queue"])
def test_a_queue_that_is_not_trusted_is_moved_aside_whole(jobdir: Path, how: str) -> None:
    queue = queues.fill(jobdir, PAGES)
    seal = {"killed": None, "touched": Seal(requestqueue.digest(queue)), "not in the queue": Seal(None)}
    leave_state(jobdir, seal=seal[how])
    if how == "touched":
        _flip(queue)
    before = requestqueue.digest(queue)
    found = check(jobdir)
    assert (False, True, []) == (found.trusted, found.recovered, found.notices)
    (name,) = names(jobdir)
    assert name.startswith("requests.queue.old-")
    assert before == requestqueue.digest(jobdir / name)
    assert [name in remark for remark in found.remarks] == [True]


def test_an_empty_queue_is_left_where_it_is_after_a_kill(jobdir: Path) -> None:
    queue = queues.fill(jobdir, [])
    leave_state(jobdir)
    found = check(jobdir)
    assert (queue, False, False) == (found.queue, found.trusted, found.recovered)
    assert ["requests.queue"] == names(jobdir)


@pytest.mark.parametrize("state", [None, WITHOUT], ids=["no state", "a state without a journal"])
def test_a_queue_that_no_journal_knows_is_put_for_adoption(jobdir: Path, state: StateOptions | None) -> None:
    queues.fill(jobdir, PAGES)
    if state is not None:
        leave_state(jobdir, state)
    found = check(jobdir)
    assert (False, False, []) == (found.trusted, found.recovered, found.notices)
    assert ["requests.queue.adopted"] == names(jobdir)


@pytest.mark.parametrize("index", [None, "", '{"'])
def test_a_queue_without_an_index_that_no_journal_knows_is_moved_aside_and_said(
    jobdir: Path, index: str | None
) -> None:
    queue = queues.fill(jobdir, PAGES)
    if index is None:
        (queue / "active.json").unlink()
    else:
        (queue / "active.json").write_text(index)
    found = check(jobdir)
    (name,) = names(jobdir)
    assert name.startswith("requests.queue.old-")
    assert ["its index is missing or torn" in notice and name in notice for notice in found.notices] == [True]


def test_a_state_in_use_is_left_to_the_one_who_opens_it(jobdir: Path) -> None:
    queue = queues.fill(jobdir, PAGES)
    state = open_or_create(jobdir / "bloomdupe", WITH)
    assert QueueCheck(queue) == check(jobdir)
    state.close()
    assert ["requests.queue"] == names(jobdir)


def test_a_state_that_cannot_be_read_leaves_the_queue(jobdir: Path) -> None:
    queue = queues.fill(jobdir, PAGES)
    leave_state(jobdir)
    (jobdir / "bloomdupe" / "seen.lmdb").write_bytes(b"")
    assert QueueCheck(queue) == check(jobdir)
    assert ["requests.queue"] == names(jobdir)


def key_of(request: Request) -> bytes:
    return fingerprint(request)


class Adoption:
    """A job without a journal goes on with one."""

    def __init__(self, jobdir: Path) -> None:
        self.jobdir = jobdir
        self.queue = jobdir / "requests.queue"
        self.crawler = queues.crawler()

    def __call__(self, key: Callable[[Request], bytes] = key_of) -> tuple[State, list[str]]:
        check(self.jobdir)
        state = open_or_create(self.jobdir / "bloomdupe", WITH)
        assert state.journal is not None
        try:
            return state, adopt(self.crawler, state.journal, key, self.queue)
        except BaseException:
            # As if it was killed: nothing more is written.
            state.close(write=False)
            raise

    def pending(self, state: State) -> dict[str, Request]:
        assert state.journal is not None
        assert self.crawler.spider is not None
        found = {}
        for record in state.journal.records():
            request = requestbytes.load(record.request, self.crawler.spider)
            assert f"{state.journal.token}:{record.number}" == request.meta[META_UNIT]
            assert (None if request.dont_filter else fingerprint(request)) == record.key
            assert "shop" == record.spider
            found[request.url.rpartition("/")[2]] = request
        assert len(found) == len(state.journal)
        return found


@pytest.fixture
def adoption(jobdir: Path) -> Adoption:
    return Adoption(jobdir)


def test_nothing_is_taken_over_where_nothing_waits(adoption: Adoption) -> None:
    state, notices = adoption()
    assert (0, []) == (len(adoption.pending(state)), notices)
    assert state.journal is not None
    assert [] == adopt(adoption.crawler, state.journal, key_of, None)
    state.close()


@pytest.mark.parametrize("options", [{}, {"dont_filter": True, "cb_kwargs": {"part": 2}}])
def test_the_requests_of_a_queue_become_pending_ones(adoption: Adoption, options: dict[str, Any]) -> None:
    queues.fill(adoption.jobdir, PAGES, **options)
    state, notices = adoption()
    found = adoption.pending(state)
    state.close()
    assert [] == notices
    assert {"a": 0, "b": 3, "c": 0, "d": -1} == {name: each.priority for name, each in found.items()}
    assert [options.get("cb_kwargs", {})] * 4 == [request.cb_kwargs for request in found.values()]
    assert ["b", "c", "a", "d"] == list(found), "in the order in which Scrapy would have sent them"
    (aside,) = names(adoption.jobdir)
    assert aside.startswith("requests.queue.adopted.old-")


class Killed(BaseException):
    """Nobody handles a ``kill -9``."""


@pytest.mark.parametrize("at", range(1, 6))
def test_a_takeover_that_was_cut_short_begins_anew(
    adoption: Adoption, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(takeover, "_CHUNK", 2)
    queues.fill(adoption.jobdir, PAGES)
    asked = 0

    def killed(request: Request) -> bytes:
        nonlocal asked
        asked += 1
        if asked == at:
            raise Killed
        return fingerprint(request)

    if at <= len(PAGES):
        with pytest.raises(Killed):
            adoption(killed)
    else:
        # After everything was written, and before the queue is moved.
        with monkeypatch.context() as patched:
            patched.setattr(requestqueue, "move_aside", lambda queue: killed(Request("http://shop.example/")))
            with pytest.raises(Killed):
                adoption(killed)
    assert ["requests.queue.adopted"] == names(adoption.jobdir)
    state, notices = adoption()
    assert (["b", "c", "a", "d"], []) == (list(adoption.pending(state)), notices)
    state.close()
    state, notices = adoption()
    assert ["b", "c", "a", "d"] == list(adoption.pending(state)), "not twice"
    state.close()


def test_what_is_readable_of_a_torn_queue_is_taken_over_and_the_rest_is_said(adoption: Adoption) -> None:
    queue = queues.fill(adoption.jobdir, PAGES)
    last = max(path for path in queue.iterdir() if path.name.startswith("1"))
    last.write_bytes(last.read_bytes()[:-3])
    state, notices = adoption()
    assert ["b", "c", "a"] == list(adoption.pending(state))
    state.close()
    (aside,) = names(adoption.jobdir)
    (notice,) = notices
    assert aside in notice


def test_a_queue_of_garbage_does_not_stop_the_crawl(adoption: Adoption) -> None:
    queue = queues.fill(adoption.jobdir, PAGES)
    for path in queue.iterdir():
        if path.name != "active.json":
            path.write_bytes(b"garbage")
    state, notices = adoption()
    assert ([], 1) == (list(adoption.pending(state)), len(notices))
    state.close()


def test_a_journal_that_cannot_be_written_leaves_the_queue_for_the_next_try(
    adoption: Adoption, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.fill(adoption.jobdir, PAGES)

    def fail(self: Environment, work: Any) -> None:
        if self.path.name == "seen.lmdb" and (adoption.jobdir / "bloomdupe" / "seen.bloom").exists():
            raise StoreError(28, "No space left on device")
        write(self, work)

    write = Environment.write
    with monkeypatch.context() as patched:
        patched.setattr(Environment, "write", fail)
        with pytest.raises(StoreError):
            adoption()
    assert ["requests.queue.adopted"] == names(adoption.jobdir)
    state, _ = adoption()
    assert 4 == len(adoption.pending(state))
    state.close()


def test_a_request_whose_key_cannot_be_made_is_taken_over_too(adoption: Adoption) -> None:
    queues.fill(adoption.jobdir, PAGES)

    def fail(request: Request) -> bytes:
        raise ValueError("the project's own")

    state, notices = adoption(fail)
    assert state.journal is not None
    assert ([None] * 4, []) == ([record.key for record in state.journal.records()], notices)
    state.close()
