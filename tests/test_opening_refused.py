"""Is a state that is not whole, or has no room, refused with everything left as it is?"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from conftest import Python

from scrapy_bloomdupe.errors import StateCorrupt, StateMismatch, StateUnusable
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create
from scrapy_bloomdupe.seen import Verdict

OPTIONS = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", {"fingerprinter": "of the test"})


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def write_state(directory: Path) -> None:
    state = open_or_create(directory, OPTIONS)
    for number in range(100):
        state.seen.check_and_add(key(number))
    state.close()


def files(directory: Path) -> dict[str, bytes]:
    """Return what counts as the state: everything but the two locks."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith("lock")
    }


def cut_filter(directory: Path) -> None:
    with (directory / "seen.bloom").open("r+b") as file:
        file.truncate(8000)


def mix(directory: Path) -> None:
    write_state(directory / "other")
    shutil.copy(directory / "other" / "seen.lmdb", directory / "seen.lmdb")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: (path / "seen.lmdb").unlink(),
            "belongs to an exact store seen.lmdb, which is not there; put",
        ),
        (
            lambda path: (path / "seen.bloom").unlink(),
            "no filter seen.bloom; run `bloomdupe rebuild .*Nothing was",
        ),
        (
            lambda path: (path / "seen.lmdb").write_bytes(b""),
            "seen.lmdb: the file is empty; the file was left",
        ),
        (lambda path: (path / "seen.lmdb").write_bytes(b"x" * 9999), "seen.lmdb: not an LMDB data file"),
        (lambda path: (path / "seen.bloom").write_bytes(b""), "seen.bloom: the file has 0 bytes"),
        (cut_filter, "seen.bloom: the file has 8000 bytes"),
        (mix, "files of two seen-sets were mixed. Put the right file back, or run `bloomdupe rebuild"),
    ],
    ids=["no store", "no filter", "empty store", "garbage", "empty filter", "cut filter", "mixed"],
)
def test_a_state_that_is_not_whole_is_refused_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    write_state(tmp_path)
    damage(tmp_path)
    before = files(tmp_path)
    for on_mismatch in ("error", "new"):
        # Damage is no other meaning of the keys: nothing is moved aside for it.
        with pytest.raises(StateCorrupt, match=message):
            open_or_create(tmp_path, replace(OPTIONS, on_mismatch=on_mismatch))
        assert before == files(tmp_path)


@pytest.mark.parametrize(
    ("store", "mark", "value", "what"),
    [
        ("lmdb", "journal", "seen.lmdb", "its journal of pending requests"),
        (None, "journal", "journal.lmdb", "its journal of pending requests"),
        (None, "audit", "0.001", "an audit of its filter"),
    ],
)
def test_a_state_of_the_first_edition_is_refused_and_the_release_that_reads_it_is_named(
    tmp_path: Path, store: str | None, mark: str, value: str, what: str
) -> None:
    options = replace(OPTIONS, store=store)
    open_or_create(tmp_path, options).close()
    # What it wrote into the filter of every state that had a journal, or an audit.
    state = open_existing(tmp_path)
    state.set_identity({**state.filter.identity, mark: value})
    state.close()
    before = files(tmp_path)
    expected = (
        f"{tmp_path} was made by scrapy-bloomdupe 0.1 and holds {what}, which this release does not read. "
        "Finish the job with scrapy-bloomdupe 0.1, or start in another directory. Nothing was changed"
    )
    # Its pending requests are not moved aside either.
    for changed in (options, replace(options, on_mismatch="new"), replace(options, frontier=True, reset=1)):
        with pytest.raises(StateMismatch) as caught:
            open_or_create(tmp_path, changed)
        assert expected == str(caught.value)
        assert before == files(tmp_path)


def test_a_filter_of_the_first_edition_that_forgets_by_time_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seen.bloom").mkdir()
    (tmp_path / "seen.bloom" / "1.bloom").touch()
    with pytest.raises(StateMismatch, match=r"made by scrapy-bloomdupe 0\.1 and holds a ring of filters"):
        open_or_create(tmp_path, replace(OPTIONS, on_mismatch="new"))


@pytest.mark.parametrize("name", ["seen.bloom", "seen.lmdb"])
def test_a_directory_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    write_state(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    before = files(tmp_path)
    with pytest.raises(StateUnusable, match=f"{tmp_path}/{name}"):
        open_or_create(tmp_path, OPTIONS)
    assert before == files(tmp_path)


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bloomdupe").write_text("somebody's")
    with pytest.raises(StateUnusable, match=r"cannot make the directory .*/bloomdupe: File exists; check"):
        open_or_create(tmp_path / "bloomdupe", OPTIONS)
    assert "somebody's" == (tmp_path / "bloomdupe").read_text()


_OPEN = """
from scrapy_bloomdupe.errors import BloomdupeError
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create

if sys.argv[1] == "nobody":
    os.chdir("readonly")
    become_nobody()
else:
    limit_files(int(sys.argv[1]))
options = StateOptions(1_000_000, 0.001, "paged", "murmur3", "lmdb")
try:
    open_or_create(Path(sys.argv[2]), options)
except BloomdupeError as exc:
    print(isinstance(exc, OSError), exc.args[-1])
"""


def test_in_a_read_only_directory_no_state_is_made(tmp_path: Path, python: Python) -> None:
    directory = tmp_path / "readonly"
    directory.mkdir(mode=0o555)
    try:
        for place in (".", "job/bloomdupe"):
            done = python(_OPEN, "nobody", place)
            assert (0, "") == (done.returncode, done.stderr)
            assert "True cannot " in done.stdout
            assert "Permission denied" in done.stdout
    finally:
        directory.chmod(0o755)
    assert [] == list(directory.iterdir())


@pytest.mark.parametrize("room", [0, 4096, 8192, 10_000, 12_288, 16_384, 1_000_000])
def test_a_full_disk_at_the_start_is_an_error_and_the_next_start_works(
    tmp_path: Path, python: Python, room: int
) -> None:
    done = python(_OPEN, room, "job")
    assert (0, "") == (done.returncode, done.stderr)
    assert "True cannot " in done.stdout
    assert "seen." in done.stdout
    assert not (tmp_path / "job" / "seen.bloom").exists()
    state = open_or_create(tmp_path / "job", OPTIONS)
    assert state.is_new
    state.close()


_DIE_AT = """
import scrapy_bloomdupe.assembling as assembling
import scrapy_bloomdupe.opening as opening
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

place, name = {
    "filter": (BloomFilter, "create"),
    "store": (assembling, "LmdbStore"),
    "meta": (assembling, "write_meta"),
    "name": (BloomFilter, "rename"),
}[sys.argv[1]]
setattr(place, name, die)
opening.open_or_create(Path("job"), StateOptions(1000, 0.01, "paged", "murmur3", "lmdb"))
"""


@pytest.mark.parametrize("place", ["filter", "store", "meta", "name"])
def test_a_creation_that_was_killed_is_done_anew(tmp_path: Path, python: Python, place: str) -> None:
    assert -9 == python(_DIE_AT, place).returncode
    assert (tmp_path / "job" / "seen.lmdb").exists()
    assert not (tmp_path / "job" / "seen.bloom").exists()
    state = open_or_create(tmp_path / "job", OPTIONS)
    assert (True, Verdict.NEW) == (state.is_new, state.seen.check_and_add(key(1)))
    state.close()
    assert not (tmp_path / "job" / "seen.bloom.new").exists()
    state = open_or_create(tmp_path / "job", OPTIONS)
    assert (False, Verdict.DUPLICATE) == (state.is_new, state.seen.check_and_add(key(1)))
    state.close()


def test_an_empty_store_of_no_bytes_without_a_filter_is_a_creation_cut_short(tmp_path: Path) -> None:
    (tmp_path / "seen.lmdb").touch()
    (tmp_path / "seen.bloom.new").write_bytes(b"half")
    state = open_or_create(tmp_path, OPTIONS)
    assert state.is_new
    state.close()
