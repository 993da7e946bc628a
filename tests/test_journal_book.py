"""Does the journal know what is pending, and does a crash leave what was committed and nothing else?

A crash is what ``kill -9`` leaves, see ``test_seen_model``: the file as it lies there, copied.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from conftest import Python
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import scrapy_bloomdupe.records as records
from scrapy_bloomdupe.errors import StateCorrupt, StoreError
from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.records import Record, Seal, read_seal
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def add(journal: Journal, spider: str = "s") -> int:
    number = journal.next_number()
    journal.add(Record(number, key(number), spider, b"request %d" % number))
    return number


def numbers(journal: Journal, **options: Any) -> list[int]:
    return [record.number for record in journal.records(**options)]


class Place:
    """A file with a store and a journal, that can crash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = 0
        self.environment = Environment.create(self.path)
        self._join(create=True)

    @property
    def path(self) -> Path:
        return self._folder / f"{self._place}.lmdb"

    def _join(self, *, create: bool = False) -> None:
        self.store = LmdbStore(self.environment, create=create, group_size=None)
        self.journal = Journal(self.environment)

    def crash(self) -> None:
        before = self.path
        self._place += 1
        shutil.copy(before, self.path)
        self.environment.close()
        self.environment = Environment.open(self.path)
        self._join()

    def reopen(self) -> None:
        """Without a commit: who ends in order says so."""
        self.environment.close()
        self.environment = Environment.open(self.path)
        self._join()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.environment.close()


def test_a_new_journal_says_so_and_is_one_that_did_not_end_in_order(place: Place) -> None:
    journal = place.journal
    assert (True, None, 0, 1, 0, 0) == (
        journal.is_new,
        journal.seal,
        len(journal),
        journal.first,
        journal.num_done,
        journal.num_failed,
    )
    assert journal, "an empty journal is a journal"
    place.environment.commit()
    place.crash()
    assert (False, None, journal.token) == (place.journal.is_new, place.journal.seal, place.journal.token)


def test_what_waits_is_pending_and_gone_after_a_crash(place: Place) -> None:
    first = add(place.journal)
    place.environment.commit()
    second = add(place.journal)
    assert first in place.journal
    assert second in place.journal
    assert (2, 1) == (len(place.journal), place.journal.num_waiting)
    place.crash()
    assert (1, [first]) == (len(place.journal), numbers(place.journal))
    assert second not in place.journal
    assert None is place.journal.get(second)


def test_mark_and_request_are_written_together_or_not_at_all(place: Place) -> None:
    place.environment.commit()
    number = add(place.journal)
    place.store.put(key(number))

    def fail(txn: Any) -> None:
        raise OSError(28, "No space left on device")

    class Failing:
        def work(self) -> Any:
            return fail

        def written(self) -> None:
            raise AssertionError("it was not")

    place.environment.join(Failing())
    with pytest.raises(StoreError):
        place.environment.commit()
    # All of it keeps waiting.
    assert (1, 1) == (place.journal.num_waiting, place.store.num_waiting)
    assert number in place.journal
    assert key(number) in place.store
    place.crash()
    assert [] == numbers(place.journal)
    assert key(number) not in place.store

    number = add(place.journal)
    place.store.put(key(number))
    place.environment.commit()
    place.crash()
    assert [number] == numbers(place.journal)
    assert key(number) in place.store


def test_a_flush_of_the_store_takes_the_journal_with_it(place: Place) -> None:
    number = add(place.journal)
    place.store.put(key(number))
    place.store.flush()
    place.crash()
    assert [number] == numbers(place.journal)


_WRITE_UNTIL_KILLED = """
from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.records import Record
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

environment = Environment.create(Path("killed.lmdb"))
store, journal = LmdbStore(environment, create=True, group_size=None), Journal(environment)
journal.begin()
for group in range(20):
    for _ in range(10):
        number = journal.next_number()
        store.put(key(number))
        journal.add(Record(number, key(number), "s", b"r"))
    # Each request gives the ten of the next group, and is done when they are written.
    if group:
        journal.end(group)
    environment.commit()
for _ in range(5):
    number = journal.next_number()
    store.put(key(number))
    journal.add(Record(number, key(number), "s", b"r"))
journal.end(100)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_what_it_had_committed(tmp_path: Path, python: Python) -> None:
    assert -9 == python(_WRITE_UNTIL_KILLED).returncode
    environment = Environment.open(tmp_path / "killed.lmdb")
    store, journal = LmdbStore(environment), Journal(environment)
    assert (None, 201, 19) == (journal.seal, journal.first, journal.num_done)
    assert list(range(20, 201)) == numbers(journal)
    assert {key(number) for number in range(1, 201)} == set(store.iter_keys())
    environment.close()


def test_done_is_gone_and_counted(place: Place) -> None:
    first, second = add(place.journal), add(place.journal)
    place.environment.commit()
    place.journal.end(first)
    assert first not in place.journal
    assert (1, 1, True) == (len(place.journal), place.journal.num_done, place.journal.has_ended)
    assert None is place.journal.get(first)
    assert [second] == numbers(place.journal)
    place.environment.commit()
    assert not place.journal.has_ended
    place.crash()
    assert (1, 1, [second]) == (len(place.journal), place.journal.num_done, numbers(place.journal))


def test_what_is_added_and_done_between_two_commits_is_never_written(place: Place) -> None:
    number = add(place.journal)
    place.journal.own(number, key(99))
    place.journal.end(number)
    place.environment.commit()
    place.crash()
    assert (0, 1, []) == (len(place.journal), place.journal.num_done, numbers(place.journal))
    assert not place.journal.owns(number, key(99))
    assert [] == place.journal.keys_of(number)


@pytest.mark.parametrize("committed", [False, True])
def test_what_failed_is_kept_apart_until_it_is_asked_again(place: Place, committed: bool) -> None:
    number = add(place.journal)
    if committed:
        place.environment.commit()
    place.journal.end(number, failed=True)
    assert number not in place.journal
    place.environment.commit()
    place.crash()
    assert (0, 0, 1) == (len(place.journal), place.journal.num_done, place.journal.num_failed)
    assert ([], [number]) == (numbers(place.journal), numbers(place.journal, failed=True))
    place.journal.retire_failed(number)
    assert (0, 1) == (place.journal.num_failed, place.journal.num_waiting)
    place.crash()
    assert [number] == numbers(place.journal, failed=True)
    place.journal.retire_failed(number)
    place.environment.commit()
    place.crash()
    assert (0, []) == (place.journal.num_failed, numbers(place.journal, failed=True))


def test_a_request_owns_its_own_key_and_those_it_was_redirected_to(place: Place) -> None:
    first, second = add(place.journal), add(place.journal)
    place.journal.own(first, key(50))
    for _ in range(3):
        assert sorted([key(first), key(50)]) == place.journal.keys_of(first)
        assert [key(second)] == place.journal.keys_of(second)
        assert place.journal.owns(first, key(first))
        assert place.journal.owns(first, key(50))
        assert not place.journal.owns(second, key(50))
        assert not place.journal.owns(77, key(50))
        place.environment.commit()
        place.crash()
    place.journal.end(first)
    assert not place.journal.owns(first, key(first))
    place.environment.commit()
    place.crash()
    assert [] == place.journal.keys_of(first)
    assert not place.journal.owns(first, key(50))


def test_the_keys_of_a_request_that_another_run_took_go_with_it(place: Place) -> None:
    number = add(place.journal)
    place.journal.own(number, key(50))
    place.environment.commit()
    place.journal.end(number)
    place.environment.commit()
    with place.environment.reading() as txn:
        assert 0 == txn.stat(place.journal._owned)["entries"]


def test_start_requests_of_a_killed_run_are_known_to_the_next_ones(place: Place) -> None:
    first, second, third = b"a" * 16, b"b" * 16, b"c" * 16
    place.journal.begin()
    add(place.journal)
    place.journal.note_start(first)
    assert not place.journal.has_started(first), "this run may ask it twice"
    place.environment.commit()
    assert not place.journal.has_started(first)
    place.journal.note_start(third)
    for _ in range(2):
        place.crash()
        place.journal.begin()
        place.environment.commit()
        assert [True, False, False] == [place.journal.has_started(one) for one in (first, second, third)]
    add(place.journal)
    place.journal.note_start(second)
    place.environment.commit()
    place.crash()
    assert [True, True] == [place.journal.has_started(one) for one in (first, second)]


def test_start_requests_are_forgotten_after_a_run_that_ended_in_order(place: Place) -> None:
    first, second = b"a" * 16, b"b" * 16
    place.journal.begin()
    add(place.journal)
    place.journal.note_start(first)
    place.journal.close_in_order(Seal(None))
    place.environment.commit()
    place.reopen()
    place.journal.begin()
    place.environment.commit()
    assert not place.journal.has_started(first)
    add(place.journal)
    place.journal.note_start(second)
    place.environment.commit()
    place.crash()
    assert [False, True] == [place.journal.has_started(one) for one in (first, second)]


def test_a_seal_is_there_until_the_next_run_begins(place: Place) -> None:
    add(place.journal)
    place.journal.close_in_order(Seal("digest", (1,)))
    assert None is read_seal(place.environment)
    place.environment.commit()
    for _ in range(2):
        assert Seal("digest", (1,)) == read_seal(place.environment)
        # Who dies before it has begun has changed nothing.
        place.crash()
        assert Seal("digest", (1,)) == place.journal.seal
    place.journal.begin()
    assert Seal("digest", (1,)) == place.journal.seal, "what it goes on from"
    place.environment.commit()
    assert None is read_seal(place.environment)
    place.crash()
    assert None is place.journal.seal


def test_numbers_are_in_order_and_never_given_twice(place: Place) -> None:
    given = [add(place.journal) for _ in range(3)]
    assert [1, 2, 3] == given
    place.environment.commit()
    for number in given:
        place.journal.end(number)
    place.environment.commit()
    place.crash()
    assert 4 == place.journal.first
    assert 4 == add(place.journal)
    place.journal.begin()
    assert 5 == place.journal.first


def test_a_number_that_is_pending_is_not_given_again_whatever_the_counter_says(place: Place) -> None:
    place.journal.add(Record(41, key(41), "s", b"r"))
    place.environment.commit()
    place.crash()
    assert (42, 42) == (place.journal.first, place.journal.next_number())


def test_a_start_request_that_was_asked_three_times_is_skipped_three_times(place: Place) -> None:
    digest = b"s" * 16
    for _ in range(3):
        add(place.journal)
        place.journal.note_start(digest)
    place.environment.commit()
    place.crash()
    place.journal.begin()
    assert place.journal.skip_start(digest)
    add(place.journal)
    place.environment.commit()
    place.crash()
    # Two that the run before did not come to, and the one it skipped.
    place.journal.begin()
    assert [True, True, True, False] == [place.journal.skip_start(digest) for _ in range(4)]


def test_a_run_is_given_what_was_pending_before_it_and_not_what_it_adds(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_CHUNK", 3)
    old = [add(place.journal) for _ in range(10)]
    place.environment.commit()
    place.crash()
    place.journal.begin()
    given = []
    for record in place.journal.records(below=place.journal.first):
        given.append(record.number)
        add(place.journal)
        if record.number == 2:
            place.journal.end(5)
            place.journal.end(6)
        place.environment.commit()
    assert [number for number in old if number not in (5, 6)] == given


def test_to_clear_drops_what_is_pending_at_once(place: Place) -> None:
    for _ in range(3):
        add(place.journal)
    place.environment.commit()
    place.journal.clear()
    assert (0, []) == (len(place.journal), numbers(place.journal))
    place.crash()
    assert (0, []) == (len(place.journal), numbers(place.journal))
    assert 4 == add(place.journal)


def test_a_damaged_record_stays_and_is_given_as_such(place: Place) -> None:
    first, second = add(place.journal), add(place.journal)
    place.environment.commit()

    def damage(txn: Any) -> None:
        name = first.to_bytes(8, "big")
        data = bytearray(txn.get(name, db=place.journal._pending))
        data[-1] ^= 1
        txn.put(name, bytes(data), db=place.journal._pending)

    place.environment.write(damage)
    assert [(first, True), (second, False)] == [(r.number, r.damaged) for r in place.journal.records()]
    assert 2 == len(place.journal)
    assert not place.journal.owns(first, key(first))


def test_no_journal_is_not_made_by_looking(place: Place) -> None:
    other = Environment.create(place.path.with_name("other.lmdb"))
    with pytest.raises(StateCorrupt, match="it has no database b'journal'"):
        read_seal(other)
    other.close()


@dataclass
class Book:
    """What a journal should say."""

    pending: dict[int, set[bytes]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    # By start request: the first number of the run that had it.
    starts: dict[int, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    done: int = 0


class Model(RuleBasedStateMachine):
    """The journal and the store's keys, against dictionaries; what is not committed goes with a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.TemporaryDirectory()
        self.place = Place(Path(self.root.name))
        self.now, self.written = Book(), Book()
        self.begin()

    def begin(self) -> None:
        if self.place.journal.seal is not None:
            self.now.starts.clear()
        self.place.journal.begin()
        self.commit()

    @rule()
    def commit(self) -> None:
        self.place.environment.commit()
        self.written = copy.deepcopy(self.now)

    @rule(count=st.integers(1, 5))
    def add(self, count: int) -> None:
        for _ in range(count):
            number = add(self.place.journal)
            assert number not in self.now.pending
            assert number not in self.now.failed
            self.place.store.put(key(number))
            self.now.pending[number] = {key(number)}
            self.now.seen.add(number)

    @precondition(lambda self: self.now.pending)
    @rule(data=st.data(), failed=st.booleans())
    def end(self, data: Any, failed: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.now.pending)))
        self.place.journal.end(number, failed=failed)
        del self.now.pending[number]
        if failed:
            self.now.failed.add(number)
            self.place.store.remove(key(number))
            self.now.seen.remove(number)
        else:
            self.now.done += 1

    @precondition(lambda self: self.now.pending)
    @rule(data=st.data(), other=st.integers(1000, 1002))
    def own(self, data: Any, other: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.now.pending)))
        self.place.journal.own(number, key(other))
        self.now.pending[number].add(key(other))

    # What failed is asked again by the next run.
    @precondition(lambda self: self.now.failed & self.written.failed)
    @rule(data=st.data())
    def retire(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.now.failed & self.written.failed)))
        self.place.journal.retire_failed(number)
        self.now.failed.remove(number)

    @rule(start=st.integers(0, 5))
    def note_start(self, start: int) -> None:
        self.place.journal.note_start(b"%016d" % start)
        self.now.starts[start] = self.place.journal.first

    @rule()
    def crash_and_open(self) -> None:
        self.place.crash()
        assert None is self.place.journal.seal
        self.now = copy.deepcopy(self.written)
        self.begin()

    @rule(again=st.sets(st.integers(1, 20), max_size=3))
    def end_in_order_and_open(self, again: set[int]) -> None:
        seal = Seal("digest", tuple(sorted(again)))
        self.place.journal.close_in_order(seal)
        self.commit()
        self.place.reopen()
        assert seal == self.place.journal.seal
        self.begin()

    @invariant()
    def it_says_what_is_pending(self) -> None:
        journal, now = self.place.journal, self.now
        assert (len(now.pending), len(now.failed), now.done) == (
            len(journal),
            journal.num_failed,
            journal.num_done,
        )
        for number in range(1, max(now.pending, default=0) + 2):
            assert (number in now.pending) is (number in journal)
            record = journal.get(number)
            assert (number in now.pending) is (record is not None)
            if record is not None:
                assert Record(number, key(number), "s", b"request %d" % number) == record
                assert sorted(now.pending[number]) == journal.keys_of(number)
                for other in (key(number), key(1000), key(1001)):
                    assert (other in now.pending[number]) is journal.owns(number, other)
        starts, first = self.written.starts, journal.first
        assert [s in starts and starts[s] != first for s in range(6)] == [
            journal.has_started(b"%016d" % s) for s in range(6)
        ]

    @invariant()
    def it_gives_what_was_written(self) -> None:
        given = set(numbers(self.place.journal))
        assert sorted(self.written.pending.keys() & self.now.pending.keys()) == sorted(given)
        assert sorted(self.written.failed) == numbers(self.place.journal, failed=True)

    @invariant()
    def the_store_has_the_keys_of_what_is_not_forgotten(self) -> None:
        assert len(self.now.seen) == self.place.store.count()
        assert all((n in self.now.seen) is (key(n) in self.place.store) for n in range(1, 30))

    def teardown(self) -> None:
        self.place.environment.close()
        self.root.cleanup()


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=20)
