"""Does `check` find what is wrong with a state, change nothing, and survive every damage?"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha1
from pathlib import Path

import pytest
from conftest import Python

from scrapy_bloomdupe.building import FilterValues
from scrapy_bloomdupe.errors import StateLocked, StateNotFound, StateUnusable
from scrapy_bloomdupe.filters.mapped import MappedFile
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.rebuilding import FilterPlan, check, rebuild
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

OPTIONS = StateOptions(1000, 0.01, "paged", "murmur3", "lmdb", {"fingerprinter": "it", "canary": "c0ffee"})
DEFAULTS = FilterValues(7000, 0.003, "classic", "blake2b")


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def silently(keys: Iterable[bytes], total: int) -> Iterable[bytes]:
    return keys


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed state of 2,500 keys; its filter of 1,000 has grown."""
    state = open_or_create(tmp_path / "state", OPTIONS)
    for number in range(2_500):
        state.seen.check_and_add(key(number))
    state.close()
    return state.directory


def files(directory: Path) -> dict[str, bytes]:
    """Return what counts as the state: everything but the two locks."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("lock")}


def test_a_state_in_use_is_neither_rebuilt_nor_checked(directory: Path) -> None:
    state = open_or_create(directory, OPTIONS)
    with pytest.raises(StateLocked):
        rebuild(directory, FilterPlan(), DEFAULTS, silently)
    with pytest.raises(StateLocked):
        list(check(directory, silently))
    state.close()


def test_what_is_not_there_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises((StateNotFound, StateUnusable)):
        list(check(tmp_path / "nowhere", silently))


def test_a_whole_state_has_no_problem_and_is_not_changed(directory: Path) -> None:
    before = files(directory)
    assert [] == list(check(directory, silently))
    assert before == files(directory)


def test_a_bare_filter_has_no_problem(tmp_path: Path) -> None:
    open_or_create(tmp_path, replace(OPTIONS, store=None)).close()
    assert [] == list(check(tmp_path, silently))


@pytest.mark.parametrize("error_rate", [0.5, 0.2])
def test_a_high_rate_is_no_problem(tmp_path: Path, error_rate: float) -> None:
    # At such a rate many keys add nothing to the filter, and are not counted by it.
    state = open_or_create(tmp_path, replace(OPTIONS, error_rate=error_rate, layout="classic"))
    for number in range(1000):
        state.seen.check_and_add(key(number))
    state.close()
    assert [] == list(check(tmp_path, silently))


def test_a_filter_that_could_not_grow_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(self: MappedFile, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    state = open_or_create(tmp_path, replace(OPTIONS, layout="classic"))
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "reserve", no_space)
        for number in range(5000):
            state.seen.check_and_add(key(number))
    state.close()
    assert [] == list(check(tmp_path, silently))


def test_keys_that_the_filter_lacks_are_counted(directory: Path) -> None:
    environment = Environment.open(directory / "seen.lmdb")
    store = LmdbStore(environment)
    for number in range(10_000, 10_100):
        store.add(key(number))
    store.close()
    environment.close()
    (problem,) = check(directory, silently)
    # The rate of one in a hundred hides a few of them; more than ten with a probability below 1e-7.
    found = problem.removeprefix(f"{directory}/seen.bloom lacks ").partition(" ")[0]
    assert 90 <= int(found) <= 100
    assert problem.endswith(
        " of the 2,600 keys of the store: their pages would be crawled again. Run `bloomdupe rebuild "
        f"{directory}`"
    )


def test_a_missing_or_foreign_store_is_a_problem(directory: Path, tmp_path: Path) -> None:
    (directory / "seen.lmdb").rename(tmp_path / "aside")
    (problem,) = check(directory, silently)
    assert f"{directory}/seen.bloom belongs to an exact store seen.lmdb, which is not there" == problem
    open_or_create(tmp_path / "other", OPTIONS).close()
    shutil.copy(tmp_path / "other" / "seen.lmdb", directory / "seen.lmdb")
    (problem,) = check(directory, silently)
    assert f"{directory}/seen.bloom has the id " in problem


_TEAR_PAGES = """
import collections
from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.building import FilterValues
from scrapy_bloomdupe.rebuilding import FilterPlan, check, rebuild

def silently(keys, total):
    return keys

store = Path("state/seen.lmdb")
whole = store.read_bytes()
old = Path("state/seen.bloom").read_bytes()
found = collections.Counter()
page = int(sys.argv[1]) * 4096
store.write_bytes(whole[:page] + bytes([int(sys.argv[2])]) * 4096 + whole[page + 4096 :])
torn = store.read_bytes()
problems = list(check(Path("state"), silently))
try:
    rebuild(Path("state"), FilterPlan(), FilterValues(1000, 0.01, "paged", "murmur3"), silently)
    print("rebuilt", len(problems) > 0)
except StateCorrupt as exc:
    assert "state/seen.lmdb" in str(exc), exc
    assert Path("state/seen.bloom").read_bytes() == old
    print("refused", len(problems) > 0)
assert store.read_bytes() == torn
"""


@pytest.mark.parametrize("fill", [0, 65, 255])
def test_a_torn_page_of_the_store_is_reported_and_kills_nobody(
    directory: Path, fill: int, python: Python
) -> None:
    whole = (directory / "seen.lmdb").read_bytes()
    outcomes = []
    for page in range(2, len(whole) // 4096, 6):
        (directory / "seen.lmdb").write_bytes(whole)
        done = python(_TEAR_PAGES, page, fill)
        assert (0, "") == (done.returncode, done.stderr)
        outcomes.append(done.stdout.strip())
    # Pages that are free in a file may be torn without harm.
    assert {"refused True"} <= set(outcomes) <= {"refused True", "rebuilt False"}
