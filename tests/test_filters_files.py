"""Is a filter file that is cut, missing, forbidden or in the wrong place refused, and nothing lost by it?"""

from __future__ import annotations

import errno
import re
import shutil
from hashlib import sha1
from pathlib import Path

import pytest
from conftest import Python

from scrapy_bloomdupe.errors import (
    FilterError,
    StateCorrupt,
    StateExists,
    StateNotFound,
    StateUnusable,
)
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.header import Header, unpack
from scrapy_bloomdupe.filters.mapped import MappedFile

DATA = Path(__file__).parent / "data"
LAYOUTS = ["classic", "counting", "paged"]


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def create(path: Path, layout: str = "paged", capacity: int = 1000) -> BloomFilter:
    return BloomFilter.create(path, capacity=capacity, error_rate=0.001, layout=layout)


def header_of(path: Path) -> Header:
    return unpack(path.read_bytes()[:4096], str(path), path.stat().st_size)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.bloom"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_that_was_cut_anywhere_is_refused_and_left_as_it_is(path: Path, layout: str) -> None:
    whole = (DATA / f"seen-v1-{layout}.bloom").read_bytes()
    borders = {border + step for border in (4096, 8192, 12_288) for step in (-1, 0, 1)}
    for length in sorted({1, *range(512, len(whole), 512), *borders, len(whole) - 1}):
        if length >= len(whole):
            continue
        path.write_bytes(whole[:length])
        for readonly in (False, True):
            with pytest.raises(StateCorrupt, match=f"the file has {length} bytes, its .*left as it is. Run"):
                BloomFilter.open(path, readonly=readonly)
        assert whole[:length] == path.read_bytes()


def test_an_empty_file_is_refused(path: Path) -> None:
    path.touch()
    with pytest.raises(StateCorrupt) as caught:
        BloomFilter.open(path)
    assert str(caught.value).startswith(
        f"{path}: the file has 0 bytes, its header alone has 4096; the file was"
    )
    assert 0 == path.stat().st_size


def test_a_file_that_is_longer_than_its_layers_is_opened(path: Path) -> None:
    # A process that was killed between the reservation of a layer and its entry in the header leaves one.
    path.write_bytes((DATA / "seen-v1-paged.bloom").read_bytes() + bytes(5000))
    found = BloomFilter.open(path)
    for number in range(500):
        found.add(key(number))
    assert 3 == found.num_layers
    assert [True] * 500 == [key(number) in found for number in range(500)]
    found.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_opening_never_creates(tmp_path: Path, path: Path, readonly: bool) -> None:
    with pytest.raises(StateNotFound, match=f"there is no filter at {path}"):
        BloomFilter.open(path, readonly=readonly)
    assert [] == list(tmp_path.iterdir())


def test_creating_never_overwrites(path: Path) -> None:
    path.write_bytes(b"somebody's")
    with pytest.raises(StateExists, match=f"{path} exists and is not overwritten; move it aside first"):
        create(path)
    assert b"somebody's" == path.read_bytes()


def test_renaming_overwrites_only_when_asked(tmp_path: Path, path: Path) -> None:
    found = create(tmp_path / "new.bloom")
    path.write_bytes(b"somebody's")
    with pytest.raises(StateExists, match="is not overwritten"):
        found.rename(path)
    assert b"somebody's" == path.read_bytes()
    found.rename(path, replace=True)
    found.add(key(1))
    found.close()
    assert (path, [path]) == (found.path, list(tmp_path.iterdir()))
    again = BloomFilter.open(path)
    assert key(1) in again
    again.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_directory_in_its_place_is_refused(path: Path, readonly: bool) -> None:
    path.mkdir()
    with pytest.raises(StateUnusable, match=f"cannot open {path}: .*directory.*Nothing was deleted"):
        BloomFilter.open(path, readonly=readonly)
    with pytest.raises(StateExists):
        create(path)
    assert path.is_dir()


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable, match=r"cannot create .*No such file or directory; check the path"):
        create(tmp_path / "nowhere" / "seen.bloom")
    assert [] == list(tmp_path.iterdir())


_READ_ONLY = """
from scrapy_bloomdupe.errors import StateUnusable
from scrapy_bloomdupe.filters.bloom import BloomFilter

os.chdir("readonly")
become_nobody()
for attempt in (
    lambda: BloomFilter.create("new.bloom", capacity=10, error_rate=0.1),
    lambda: BloomFilter.open("seen.bloom"),
):
    try:
        attempt()
    except StateUnusable as exc:
        print(exc)
found = BloomFilter.open("seen.bloom", readonly=True)
print(key(1) in found, key(2) in found)
found.close()
"""


def test_in_a_read_only_directory_a_filter_can_be_read_and_not_written(
    tmp_path: Path, python: Python
) -> None:
    directory = tmp_path / "readonly"
    directory.mkdir()
    found = create(directory / "seen.bloom")
    found.add(key(1))
    found.close()
    before = (directory / "seen.bloom").read_bytes()
    (directory / "seen.bloom").chmod(0o444)
    directory.chmod(0o555)
    try:
        done = python(_READ_ONLY)
    finally:
        directory.chmod(0o755)
    assert (0, "") == (done.returncode, done.stderr)
    hint = (
        "Permission denied; check the path, its permissions and the free space of the disk. Nothing was "
        "deleted"
    )
    assert [
        f"[Errno 13] cannot create new.bloom: {hint}",
        f"[Errno 13] cannot open seen.bloom: {hint}",
        "True False",
    ] == done.stdout.splitlines()
    assert before == (directory / "seen.bloom").read_bytes()
    assert ["seen.bloom"] == [one.name for one in directory.iterdir()]


_CREATE_ON_A_FULL_DISK = """
from scrapy_bloomdupe.errors import StateUnusable
from scrapy_bloomdupe.filters.bloom import BloomFilter

limit_files(100_000)
try:
    BloomFilter.create("seen.bloom", capacity=1_000_000, error_rate=0.001, layout=sys.argv[1])
except StateUnusable as exc:
    print(exc)
"""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_full_disk_at_creation_is_an_error_and_leaves_nothing(
    tmp_path: Path, layout: str, python: Python
) -> None:
    done = python(_CREATE_ON_A_FULL_DISK, layout)
    assert (0, "") == (done.returncode, done.stderr)
    assert re.match(r"\[Errno 27\] cannot reserve [17]", done.stdout)
    assert "bytes for seen.bloom: File too large; check the path, its permissions and the free" in done.stdout
    assert [] == list(tmp_path.iterdir())


def test_a_header_that_cannot_be_written_at_creation_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: MappedFile, data: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(MappedFile, "write", broken)
    with pytest.raises(FilterError, match="cannot write the header of"):
        create(path)
    assert not path.exists()


def test_a_count_that_could_not_be_written_is_written_by_the_next_flush(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = create(path)
    found.add(key(1))

    def broken(self: MappedFile, data: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "write", broken)
        with pytest.raises(FilterError, match=f"cannot write the header of {path}"):
            found.flush()
    found.flush()
    assert 1 == header_of(path).layers[0].num_keys
    found.close()


def test_space_is_reserved_and_not_left_as_a_hole(path: Path) -> None:
    # A hole that is written on a full disk would kill the process.
    found = create(path, capacity=100_000)
    size = path.stat().st_size
    assert size > 180_000
    assert size <= path.stat().st_blocks * 512
    found.close()


@pytest.mark.parametrize("begin", [False, True])
def test_opening_marks_the_file_as_in_use_only_when_it_begins(path: Path, begin: bool) -> None:
    shutil.copy(DATA / "seen-v1-paged.bloom", path)
    before = path.read_bytes()
    found = BloomFilter.open(path, begin=begin)
    assert found.was_clean
    beside = BloomFilter.open(path, readonly=True)
    assert begin is not beside.was_clean
    beside.close()
    found.abandon()
    assert begin is not (before == path.read_bytes())
