"""``requests.seen`` of Scrapy's own filter: every form, and what an unclean end leaves."""

from __future__ import annotations

import tempfile
from hashlib import sha1
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.dupefilters import RFPDupeFilter
from scrapy.http import Request

import scrapy_bloomdupe.stockjob as stockjob
from scrapy_bloomdupe.errors import StateNotFound, StateUnusable
from scrapy_bloomdupe.hashing import as_key
from scrapy_bloomdupe.stockjob import ImportCounts, open_seen, read_seen


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def line(number: int) -> bytes:
    """As Scrapy 2.18 and before wrote it."""
    return key(number).hex().encode() + b"\n"


def record(fingerprint: bytes) -> bytes:
    """As Scrapy 2.19 writes it."""
    return len(fingerprint).to_bytes(2, "big") + fingerprint


def lines(*numbers: int) -> bytes:
    return b"".join(map(line, numbers))


def records(*numbers: int) -> bytes:
    return b"".join(record(key(number)) for number in numbers)


def read(path: Path, content: bytes) -> tuple[list[bytes], ImportCounts]:
    path.write_bytes(content)
    counts = ImportCounts()
    found = list(read_seen(path, counts))
    assert len(found) == counts.keys
    assert len(content) == counts.bytes_read
    return found, counts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.seen"


@pytest.mark.parametrize(
    ("content", "numbers", "skipped"),
    [
        (b"", [], 0),
        (lines(1, 2, 3), [1, 2, 3], 0),
        (records(1, 2, 3), [1, 2, 3], 0),
        # Scrapy was upgraded in mid-crawl, and downgraded again.
        (lines(1, 2) + records(3, 4) + lines(5), [1, 2, 3, 4, 5], 0),
        (lines(1, 2).upper(), [1, 2], 0),
        (lines(1, 2).replace(b"\n", b"\r\n"), [1, 2], 0),
        (lines(1, 1) + records(1), [1, 1, 1], 0),
        # Cut off by an unclean end.
        (lines(1, 2) + line(3)[:17], [1, 2], 17),
        (lines(1, 2) + line(3)[:-1], [1, 2], 40),
        (records(1, 2) + records(3)[:17], [1, 2], 17),
        (records(1, 2) + b"\0", [1, 2], 1),
        (records(1, 2) + b"\0\x14", [1, 2], 2),
        # The end was unclean, and the next run went on behind it.
        (lines(1) + line(2)[:17] + records(3, 4), [1, 3, 4], 17),
        (lines(1) + line(2)[:17] + b"\n" + lines(3), [1, 3], 18),
        # Nobody's.
        (b"abc\n", [], 4),
        (lines(1) + b"abc\n" + lines(2), [1, 2], 4),
        (b"not hex\n" + lines(1) + b"zz\n" + records(2), [1, 2], 11),
        (b"no line at all", [], 14),
    ],
)
def test_whole_entries_are_found_and_the_rest_is_counted(
    path: Path, content: bytes, numbers: list[int], skipped: int
) -> None:
    found, counts = read(path, content)
    assert [key(number) for number in numbers] == found
    assert ImportCounts(len(numbers), len(content), skipped) == counts


@pytest.mark.parametrize("block", [1, 2, 3, 7, 22, 41, 64, 1000])
def test_the_border_of_a_block_changes_nothing(
    path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (
        lines(1, 2) + b"abc\n" + records(3, 4) + b"junk\n" + lines(5).replace(b"\n", b"\r\n") + records(6)
    )
    content += record(b"x" * 300) + records(7) + records(8)[:9]
    whole = read(path, content)
    assert ([*map(key, [1, 2, 3, 4, 5, 6]), as_key(b"x" * 300), key(7)], 18) == (
        whole[0],
        whole[1].bytes_skipped,
    )
    monkeypatch.setattr(stockjob, "_BLOCK", block)
    assert whole == read(path, content)


@pytest.mark.parametrize("fingerprint", [b"x", b"product:17", bytes(19), bytes(21), bytes(range(256)) * 40])
def test_a_fingerprint_of_another_length_becomes_the_key_that_a_crawl_will_ask_for(
    path: Path, fingerprint: bytes
) -> None:
    content = record(fingerprint) + records(1) + fingerprint.hex().encode() + b"\n" + lines(2)
    assert [as_key(fingerprint), key(1), as_key(fingerprint), key(2)] == read(path, content)[0]


def requests() -> list[Request]:
    urls = [f"https://shop.example/item?id={number}&color=blue" for number in range(300)]
    return [*map(Request, urls), *(Request(url, method="POST", body=url) for url in urls[:50])]


def test_what_scrapys_own_filter_has_written_is_read(tmp_path: Path) -> None:
    theirs = RFPDupeFilter(str(tmp_path))
    # The next Scrapy may write in another form, and then it is this that has to fail.
    assert [False] * 350 == [theirs.request_seen(request) for request in requests()]
    assert [True] * 350 == [theirs.request_seen(request) for request in requests()]
    theirs.close("finished")
    counts = ImportCounts()
    found = list(read_seen(open_seen(tmp_path), counts))
    assert [theirs.fingerprinter.fingerprint(request) for request in requests()] == found
    assert ImportCounts(350, (tmp_path / "requests.seen").stat().st_size, 0) == counts


def test_scrapys_own_filter_going_on_after_an_old_release_is_read(tmp_path: Path) -> None:
    fingerprint = RFPDupeFilter().fingerprinter.fingerprint
    old, new = requests()[:100], requests()[100:]
    text = "".join(fingerprint(request).hex() + "\n" for request in old)
    (tmp_path / "requests.seen").write_text(text)
    theirs = RFPDupeFilter(str(tmp_path))
    for request in new:
        theirs.request_seen(request)
    theirs.close("finished")
    found = list(read_seen(open_seen(tmp_path), ImportCounts()))
    assert [fingerprint(request) for request in (*old, *new)] == found


@given(st.binary(max_size=200) | st.text("0123456789abcdefx\r\n", max_size=200).map(str.encode))
def test_no_bytes_raise_and_none_is_counted_twice(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        found, counts = read(Path(directory, "requests.seen"), content)
    assert {20} >= {len(one) for one in found}
    assert 0 <= counts.bytes_skipped <= counts.bytes_read


entries = st.one_of(
    st.binary(min_size=20, max_size=20).map(lambda one: (one, one.hex().encode() + b"\n")),
    st.binary(min_size=1, max_size=300).map(lambda one: (as_key(one), record(one))),
)


@given(st.lists(entries, max_size=20))
def test_every_whole_entry_is_found_whatever_its_neighbours(written: list[tuple[bytes, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        content = b"".join(entry for _, entry in written)
        found, counts = read(Path(directory, "requests.seen"), content)
    assert [one for one, _ in written] == found
    assert 0 == counts.bytes_skipped


def test_a_job_directory_without_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateNotFound, match=f"there is no requests.seen in {tmp_path}; give the JOBDIR of"):
        open_seen(tmp_path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable, match=f"cannot read {tmp_path}: Is a directory"):
        list(read_seen(tmp_path, ImportCounts()))
