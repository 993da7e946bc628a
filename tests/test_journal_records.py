"""Do the bytes of a pending request mean today what they meant, and is every damaged one found?"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.records import JournalView, Record, Seal, pack, read_seal, unpack
from scrapy_bloomdupe.stores.environment import Environment, verify
from scrapy_bloomdupe.stores.lmdb import LmdbStore

# 64 KiB, nearly all of it zeros.
STORED = gzip.decompress((Path(__file__).parent / "data" / "journal-v1.lmdb.gz").read_bytes())

KEY = bytes(range(20))
RECORD = Record(258, KEY, "shop", b"what the request says")

# CRC-32 of number, version and all that follows; version; lengths; key; spider; request.
GOLDEN = (
    "f11c8910" + "01" + "14" + "04" + "000102030405060708090a0b0c0d0e0f10111213" + b"shop".hex()
) + b"what the request says".hex()

records = st.builds(
    Record,
    number=st.integers(0, 2**64 - 1),
    key=st.none() | st.binary(min_size=1, max_size=255),
    spider=st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    request=st.binary(min_size=1, max_size=200),
)


@given(records)
def test_what_was_packed_is_unpacked(record: Record) -> None:
    found = unpack(record.number, pack(record))
    assert record == found
    assert not found.damaged


def test_the_bytes_of_a_record_are_frozen() -> None:
    assert GOLDEN == pack(RECORD).hex()
    assert RECORD == unpack(258, bytes.fromhex(GOLDEN))


def test_a_request_that_was_not_judged_has_no_key() -> None:
    assert None is unpack(258, pack(replace(RECORD, key=None))).key


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_a_record_is_found(bit: int) -> None:
    data = pack(RECORD)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << bit
        assert unpack(258, bytes(flipped)).damaged, at


def test_every_record_that_was_cut_or_has_something_behind_it_is_found() -> None:
    data = pack(RECORD)
    assert all(unpack(258, data[:length]).damaged for length in range(len(data)))
    assert unpack(258, data + b"\0").damaged
    assert unpack(258, bytes(len(data))).damaged


def test_a_record_in_the_place_of_another_one_is_found() -> None:
    assert unpack(257, pack(RECORD)).damaged


@given(st.integers(0, 2**64 - 1), st.binary(max_size=100))
def test_any_bytes_are_taken_without_an_exception(number: int, data: bytes) -> None:
    assert number == unpack(number, data).number


def test_a_damaged_record_says_its_number_and_nothing_else() -> None:
    assert Record(5, None, "", b"") == unpack(5, pack(RECORD))


def test_a_name_that_is_too_long_is_cut_and_does_no_harm() -> None:
    found = unpack(1, pack(Record(1, KEY, "ü" * 200, b"r")))
    assert ("ü" * 127, b"r", KEY) == (found.spider[:127], found.request, found.key)


def key(number: int) -> bytes:
    return hashlib.sha1(b"%d" % number).digest()


def write_as_the_stored_file(path: Path) -> None:
    """How tests/data/journal-v1.lmdb.gz was made, by the release of this format."""
    environment = Environment.create(path)
    store = LmdbStore(environment, create=True)
    journal = Journal(environment)
    journal.token = "00c0ffee"
    journal.begin()
    for number in range(1, 6):
        store.add(key(number))
        assert number == journal.next_number()
        journal.add(Record(number, key(number) if number != 4 else None, "shop", b"request %d" % number))
    journal.own(2, key(20), b"redirect of 2")
    journal.note_start(b"s" * 16)
    environment.commit()
    journal.end(1)
    journal.end(3, failed=True)
    journal.close_in_order(Seal("d1ge57", (5,)))
    environment.commit()
    environment.close()


def check_stored(path: Path) -> None:
    environment = Environment.open(path)
    try:
        assert Seal("d1ge57", (5,)) == read_seal(environment)
        view = JournalView(environment)
        assert (3, 1, 1, True) == (view.num_pending, view.num_failed, view.num_done, view.in_order)
        store, journal = LmdbStore(environment), Journal(environment)
        assert not journal.is_new
        assert ("00c0ffee", 6, 1, 1, 3) == (
            journal.token,
            journal.first,
            journal.num_done,
            journal.num_failed,
            len(journal),
        )
        assert [(2, key(2)), (4, None), (5, key(5))] == [(r.number, r.key) for r in journal.records()]
        assert [("shop", b"request 2")] == [(r.spider, r.request) for r in journal.records(below=4)]
        assert [b"request 3"] == [r.request for r in journal.records(failed=True)]
        assert sorted([key(2), key(20)]) == journal.keys_of(2)
        assert journal.owns(2, key(20))
        assert {key(20): b"redirect of 2"} == journal.targets_of(2)
        assert not journal.owns(5, key(20))
        assert journal.has_started(b"s" * 16)
        assert 5 == store.count()
        assert all(key(number) in store for number in range(1, 6))
    finally:
        environment.close()


def test_a_stored_journal_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "stored.lmdb"
    path.write_bytes(STORED)
    assert [] == verify(path)
    check_stored(path)


def test_the_stored_journal_is_what_is_written_today(tmp_path: Path) -> None:
    write_as_the_stored_file(tmp_path / "new.lmdb")
    check_stored(tmp_path / "new.lmdb")


def test_every_flipped_byte_of_the_journals_own_record_is_refused(tmp_path: Path) -> None:
    whole = STORED
    start = whole.rindex(b'{"token"') - 4
    end = whole.index(b"}}", start) + 2
    for at in range(start, end):
        path = tmp_path / f"{at}.lmdb"
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        environment = Environment.open(path)
        with pytest.raises(Exception, match="the journal of pending requests cannot be read"):
            Journal(environment)
        with pytest.raises(Exception, match="the journal of pending requests cannot be read"):
            JournalView(environment)
        environment.close()
        path.unlink()
