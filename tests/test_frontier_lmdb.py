"""The frontier's records in the LMDB file: what a commit keeps, and what a reader finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.frontier.lmdb import Bucket, FrontierView, LmdbFrontier, record, split
from scrapy_bloomdupe.stores.environment import Environment

Open = Callable[..., LmdbFrontier]
KEY = bytes(range(20))


@pytest.fixture
def open_frontier(tmp_path: Path) -> Iterator[Open]:
    """Open the frontier, of a spider, as a new process would: what was not committed is gone."""
    path = tmp_path / "frontier.lmdb"
    with ExitStack() as stack:

        def open_frontier(spider: str = "shop") -> LmdbFrontier:
            stack.close()
            environment = Environment.open(path) if path.exists() else Environment.create(path)
            stack.callback(environment.close)
            return LmdbFrontier(environment, spider)

        yield open_frontier


def add(frontier: LmdbFrontier, count: int, slot: str = "a", priority: int = 0) -> list[int]:
    """Take requests as the queue does; return their numbers."""
    place = slot, priority, False
    bucket = frontier.buckets.get(place) or frontier.bucket(*place)
    numbers = []
    for _ in range(count):
        numbers.append(frontier.next)
        frontier.added[frontier.next] = bucket, record(KEY, b"request %d" % frontier.next)
        frontier.next += 1
        frontier.num_pending += 1
    return numbers


def found(frontier: LmdbFrontier) -> dict[tuple[str, int], list[int]]:
    """The numbers of all buckets that earlier runs have left, the oldest first."""
    buckets: list[Bucket] = []
    while not frontier.has_found_all:
        buckets += frontier.find()
    return {(one.slot, one.priority): frontier.after(one, 0, 1_000, ())[0] for one in buckets}


def test_a_record_is_a_key_and_a_request() -> None:
    assert (KEY, b"request") == split(record(KEY, b"request"))
    assert (None, b"request") == split(record(None, b"request"))


def test_what_was_committed_is_there_and_what_was_not_is_not(open_frontier: Open) -> None:
    frontier = open_frontier()
    add(frontier, 3)
    frontier.environment.commit()
    add(frontier, 2)
    again = open_frontier()
    assert 3 == again.num_pending
    assert {("a", 0): [1, 2, 3]} == found(again)
    # Numbers are never given twice, whatever became of them.
    assert 4 == again.first == again.next


def test_an_acknowledged_request_is_gone_with_the_commit(open_frontier: Open) -> None:
    frontier = open_frontier()
    add(frontier, 3)
    frontier.environment.commit()
    frontier.remove(frontier.buckets["a", 0, False], 2)
    assert [1, 3] == frontier.after(frontier.buckets["a", 0, False], 0, 9, ())[0]
    assert {("a", 0): [1, 2, 3]} == found(open_frontier())
    frontier = open_frontier()
    frontier.remove(frontier.find()[0], 2)
    frontier.environment.commit()
    again = open_frontier()
    assert (2, 1) == (again.num_pending, again.num_done)
    assert {("a", 0): [1, 3]} == found(again)


def test_a_bucket_goes_with_its_last_request(open_frontier: Open) -> None:
    frontier = open_frontier()
    add(frontier, 1, "a")
    add(frontier, 1, "b")
    frontier.environment.commit()
    frontier.remove(frontier.buckets["a", 0, False], 1)
    frontier.environment.commit()
    assert {("b", 0, False)} == set(frontier.buckets)
    add(frontier, 1, "a")
    frontier.environment.commit()
    assert {("a", 0): [3], ("b", 0): [2]} == found(open_frontier())


def test_numbers_are_read_from_both_ends_in_chunks(open_frontier: Open) -> None:
    frontier = open_frontier()
    add(frontier, 10)
    frontier.environment.commit()
    add(frontier, 2)
    bucket = frontier.buckets["a", 0, False]
    assert ([8, 6, 5], False) == frontier.before(bucket, 9, 3, {7})
    assert ([2, 1], True) == frontier.before(bucket, 3, 3, ())
    assert ([4, 5], False) == frontier.after(bucket, 4, 2, ())
    assert ([9, 11, 12], True) == frontier.after(bucket, 9, 9, {10})


def test_requests_of_another_spider_are_counted_and_left_alone(open_frontier: Open) -> None:
    add(frontier := open_frontier("shop"), 3)
    frontier.environment.commit()
    other = open_frontier("news")
    add(other, 2)
    assert {} == found(other)
    assert (2, 3) == (other.num_pending, other.num_foreign)
    other.environment.commit()
    again = open_frontier("shop")
    assert {("a", 0): [1, 2, 3]} == found(again)
    assert (3, 2) == (again.num_pending, again.num_foreign)


def test_failed_requests_are_what_the_next_run_begins_with(open_frontier: Open) -> None:
    frontier = open_frontier()
    add(frontier, 2)
    frontier.environment.commit()
    frontier.fail(frontier.buckets["a", 0, False], 1, record(KEY, b"again"))
    assert (1, 1) == (frontier.num_pending, frontier.num_failed)
    frontier.environment.commit()
    view = FrontierView(frontier.environment)
    assert (1, 1) == (view.num_pending, view.num_failed)
    assert [b"again"] == [one.request for one in view.records(failed=True)]
    again = open_frontier()
    assert (2, 0) == (again.num_pending, again.num_failed)
    (failed,) = (bucket for bucket in again.find() if bucket.failed)
    (number,), _ = again.after(failed, 0, 9, ())
    assert record(KEY, b"again") == again.read(failed, number)
    again.remove(failed, number)
    again.environment.commit()
    assert 1 == open_frontier().num_pending


def test_a_start_request_is_skipped_as_often_as_killed_runs_have_made_it(open_frontier: Open) -> None:
    def begun() -> LmdbFrontier:
        frontier = open_frontier()
        frontier.begin()
        return frontier

    frontier = begun()
    frontier.note_start(b"one")
    frontier.note_start(b"one")
    frontier.note_start(b"two")
    assert not frontier.skip_start(b"one")
    frontier.environment.commit()
    second = begun()
    assert second.has_starts
    assert [True, True, False] == [second.skip_start(b"one") for _ in range(3)]
    second.environment.commit()
    # The second run was killed, too: it has made both again.
    third = begun()
    assert [True, True, False] == [third.skip_start(b"one") for _ in range(3)]
    assert third.skip_start(b"two")


def test_an_end_in_order_forgets_the_start_requests(open_frontier: Open) -> None:
    frontier = open_frontier()
    frontier.begin()
    frontier.note_start(b"one")
    frontier.environment.commit()
    assert not open_frontier().was_in_order
    frontier = open_frontier()
    frontier.end_in_order()
    frontier.environment.commit()
    again = open_frontier()
    assert again.was_in_order
    assert not again.has_starts


def test_notes_belong_to_their_spider(open_frontier: Open) -> None:
    frontier = open_frontier("shop")
    frontier.set_note(b"state", b"shop's")
    assert b"shop's" == frontier.note(b"state")
    frontier.environment.commit()
    assert b"shop's" == open_frontier("shop").note(b"state")
    assert open_frontier("news").note(b"state") is None


def change(frontier: LmdbFrontier, database: bytes, name: bytes) -> None:
    """Flip a bit of a value (without a name of the first one), as no look at the pages finds."""
    environment = frontier.environment
    handle = environment.database(database, create=False)
    with environment.reading() as txn, txn.cursor(handle) as cursor:
        name, found = cursor.item() if not name and cursor.first() else (name, txn.get(name, db=handle))
    value = bytearray(found)
    value[-1] ^= 1
    environment.write(lambda txn: txn.put(name, bytes(value), db=handle))


def test_a_damaged_record_is_none_and_is_shown_as_damaged(open_frontier: Open) -> None:
    frontier = open_frontier()
    add(frontier, 2)
    frontier.environment.commit()
    change(frontier, b"pending", bytes([0, 0, 0, 1]) + (1).to_bytes(8, "big"))
    bucket = frontier.buckets["a", 0, False]
    assert frontier.read(bucket, 1) is None
    assert record(KEY, b"request 2") == frontier.read(bucket, 2)
    assert [True, False] == [one.damaged for one in FrontierView(frontier.environment).records()]


@pytest.mark.parametrize(("database", "name"), [(b"frontier", b"counters"), (b"buckets", b"")])
def test_damaged_counters_and_buckets_are_refused(open_frontier: Open, database: bytes, name: bytes) -> None:
    frontier = open_frontier()
    add(frontier, 2)
    frontier.environment.commit()
    change(frontier, database, name)
    with pytest.raises(StateCorrupt, match="does not match its checksum"):
        open_frontier().find()


def test_a_view_gives_all_that_is_pending_beside_a_crawl(open_frontier: Open) -> None:
    frontier = open_frontier()
    add(frontier, 700, "a")
    add(frontier, 1, "b", priority=-5)
    frontier.environment.commit()
    records = list(FrontierView(frontier.environment).records())
    assert list(range(1, 702)) == [one.number for one in records]
    assert ("shop", "b", 5, KEY, b"request 701") == (
        records[-1].spider, records[-1].slot, records[-1].priority, records[-1].key, records[-1].request
    )  # fmt: skip
