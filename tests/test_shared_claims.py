"""Does the log of claims know, after any end, every key that was noted? Torn, flipped, full, compacted."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Python
from kinds import key

import scrapy_bloomdupe.shared.claims as claims_module
from scrapy_bloomdupe.errors import BloomdupeError, StateCorrupt, StateUnusable, StoreError
from scrapy_bloomdupe.shared.claims import Claims


def keys(*numbers: int) -> set[bytes]:
    return {key(number) for number in numbers}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "claims.log"


def reopened(path: Path) -> set[bytes]:
    claims = Claims.open(path)
    claims.close()
    return claims.keys


def test_what_was_begun_and_not_ended_is_there_when_it_is_opened_again(path: Path) -> None:
    claims = Claims.open(path)
    assert set() == claims.keys
    claims.begin([key(1), key(2), key(3)])
    claims.end([key(2), key(9)])
    assert keys(1, 3) == claims.keys
    # As after kill -9: nobody closed it.
    assert keys(1, 3) == reopened(path)
    claims.begin([key(2)])
    claims.end([key(1), key(2), key(3)])
    assert set() == reopened(path)
    claims.close()
    claims.close()


def test_what_is_noted_already_is_not_written_twice(path: Path) -> None:
    claims = Claims.open(path)
    claims.begin([key(1)])
    size = path.stat().st_size
    claims.begin([key(1)])
    claims.begin([])
    claims.end([key(2)])
    assert size == path.stat().st_size
    claims.close()


def filled(path: Path) -> list[tuple[int, set[bytes]]]:
    """Fill a log; return its size and its keys after every record."""
    claims = Claims.open(path)
    states = [(path.stat().st_size, set(claims.keys))]
    for number in range(4):
        claims.begin([key(3 * number), key(3 * number + 1), key(3 * number + 2)])
        states.append((path.stat().st_size, set(claims.keys)))
        claims.end([key(3 * number + 1)])
        states.append((path.stat().st_size, set(claims.keys)))
    claims.close()
    return states


def test_a_log_that_is_cut_anywhere_has_what_its_whole_records_say(path: Path) -> None:
    states = filled(path)
    data = path.read_bytes()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        # A record that is torn was never acted upon: nobody was asked.
        expected = [known for end, known in states if end <= size]
        assert (expected[-1] if expected else set()) == reopened(path), size
        # And it goes on from there.
        claims = Claims.open(path)
        claims.begin([key(100)])
        claims.close()
        assert (expected[-1] if expected else set()) | keys(100) == reopened(path), size


def test_a_flipped_bit_costs_what_follows_it_and_never_makes_up_a_key(path: Path) -> None:
    states = filled(path)
    ever = set().union(*(known for _, known in states))
    data = path.read_bytes()
    head = states[0][0]
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        if place < head:
            with pytest.raises(StateCorrupt, match=r"is no log of claims.*Restore it from a copy"):
                Claims.open(path)
            continue
        before = [known for end, known in states if end <= place][-1]
        assert before == reopened(path), place
        assert before <= ever


@pytest.mark.parametrize("data", [b"#!/bin/sh\n", b"\0" * 100, b"bloomdupe claims 2\n"])
def test_what_is_no_log_is_left_as_it_is(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(StateCorrupt, match=r"claims\.log"):
        Claims.open(path)
    assert data == path.read_bytes()


def test_a_log_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable, match="cannot open"):
        Claims.open(tmp_path)
    with pytest.raises(StateUnusable, match="cannot open"):
        Claims.open(tmp_path / "none" / "claims.log")


FULL = """
from scrapy_bloomdupe.errors import BloomdupeError, StoreError
from scrapy_bloomdupe.shared.claims import Claims

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path("claims.log")
limit_files(int(sys.argv[1]))
try:
    claims = Claims.open(path)
except BloomdupeError as exc:
    print("cannot be opened:", exc)
    sys.exit()
noted = set()
for number in range(40):
    try:
        claims.begin([key(number)])
    except StoreError as exc:
        assert "cannot write to" in str(exc), exc
    else:
        noted.add(key(number))
    assert noted == claims.keys
limit_files(resource.RLIM_INFINITY)
claims.begin([key(1000)])
noted.add(key(1000))
claims.close()
assert noted == Claims.open(path).keys
print(len(noted))
"""


@pytest.mark.parametrize("limit", [0, 10, 19, 20, 60, 61, 500])
def test_a_full_disk_takes_no_claim_and_the_log_goes_on_when_there_is_room(
    python: Python, limit: int
) -> None:
    done = python(FULL, limit)
    assert (0, "") == (done.returncode, done.stderr)
    assert ("cannot be opened" in done.stdout) is (limit < 19)


def test_after_a_torn_end_that_cannot_be_cut_off_nothing_is_noted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = Claims.open(path)
    claims.begin([key(1)])
    write = os.write

    def refuse(*args: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:-1]))
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(StoreError, match="No space left"):
            claims.begin([key(2)])
    # What would follow the torn record would not be read: it must not be asked for.
    with pytest.raises(StoreError, match="a write that failed is left at its end"):
        claims.begin([key(3)])
    claims.close()
    assert keys(1) == reopened(path)


def test_a_long_log_is_written_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "_COMPACT_AT", 2000)
    rng = random.Random(1)
    claims = Claims.open(path)
    sizes = []
    known: set[bytes] = set()
    for number in range(2000):
        claims.begin([key(number)])
        known.add(key(number))
        if len(known) > 20:
            done = rng.sample(sorted(known), 15)
            claims.end(done)
            known.difference_update(done)
        sizes.append(path.stat().st_size)
        assert known == claims.keys
        if number % 37 == 0:
            assert known == reopened(path)
    assert max(sizes) < 6000
    assert any(after < before for before, after in itertools.pairwise(sizes))
    assert [path.name] == [one.name for one in path.parent.iterdir()]
    claims.sync()
    claims.close()
    assert known == reopened(path)


@pytest.mark.parametrize("step", ["open", "replace", "fsync"])
def test_a_log_that_cannot_be_written_anew_stays_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(claims_module, "_COMPACT_AT", 200)
    claims = Claims.open(path)
    claims.begin([key(number) for number in range(20)])

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, step) if step == "fsync" else (Path, step)), refuse)
        with pytest.raises(StoreError, match="cannot write to"):
            claims.end([key(number) for number in range(19)])
    # Ended, and not noted: their pages can be crawled once more. What is begun now is noted.
    claims.begin([key(100)])
    assert keys(19, 100) == claims.keys
    assert keys(19, 100) <= reopened(path)
    claims.end([key(100)])
    assert keys(19) == claims.keys
    claims.close()


def test_a_log_of_one_that_was_killed_while_it_wrote_it_anew(path: Path) -> None:
    claims = Claims.open(path)
    claims.begin([key(1)])
    claims.close()
    path.with_name("claims.log.new").write_bytes(b"half of it")
    assert keys(1) == reopened(path)


def test_keys_of_any_length(path: Path) -> None:
    claims = Claims.open(path)
    long = [b"", b"a", b"b" * 511, b"c" * 65535]
    claims.begin(long)
    with pytest.raises(StoreError, match="too long"):
        claims.begin([b"d" * 65536])
    assert set(long) == claims.keys
    claims.begin([b"e" * 1000 + b"%d" % number for number in range(2000)])
    assert 2004 == len(reopened(path))
    claims.close()


def test_two_that_write_to_one_log_do_not_tear_it(path: Path) -> None:
    # The lock of the directory keeps it from happening; should it, every record is whole.
    one, other = Claims.open(path), Claims.open(path)
    for number in range(50):
        (one if number % 2 else other).begin([key(number)])
    one.close()
    other.close()
    assert keys(*range(50)) == reopened(path)


def test_every_record_is_brought_to_the_disk_where_that_is_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    claims = Claims.open(path, sync=True)
    claims.begin([key(1)])
    claims.end([key(1)])
    assert 2 == len(synced)
    claims.close()


def test_a_disk_that_fails_is_an_error_of_ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = Claims.open(path, sync=True)
    calls: list[Callable[[], None]] = [lambda: claims.begin([key(1)]), claims.sync]
    with monkeypatch.context() as patch:

        def fail(descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr(os, "fsync", fail)
        for call in calls:
            with pytest.raises(BloomdupeError, match=r"cannot write to .*Input/output error"):
                call()
    assert set() == claims.keys == reopened(path)
    claims.close()
