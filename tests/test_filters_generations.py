"""Does a ring of filters remember a key for as long as it says, at the rate that was asked for?"""

from __future__ import annotations

import errno
import random
import shutil
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_bloomdupe.errors import (
    ConfigurationError,
    FilterError,
    StateCorrupt,
    StateExists,
    StateNotFound,
)
from scrapy_bloomdupe.filters.base import Filter, RemovingFilter
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.generations import GenerationalFilter
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.filters.mapped import MappedFile
from scrapy_bloomdupe.filters.ring import Window

HOUR = 3600.0


class Clock:
    """Seconds that a test sets."""

    def __init__(self, now: float = 1_764_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen.bloom"


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def create(path: Path, clock: Clock, **options: Any) -> GenerationalFilter:
    values = {"capacity": 1000, "error_rate": 1e-9, "expire": 3 * HOUR, **options}
    return GenerationalFilter.create(path, clock=clock, **values)


def names(path: Path) -> list[str]:
    return sorted(found.name for found in path.iterdir())


def test_it_keeps_the_contract_of_a_filter(path: Path, clock: Clock, fixed_secret: None) -> None:
    found = create(path, clock)
    assert isinstance(found, Filter)
    assert not isinstance(found, RemovingFilter)
    assert found  # scrapy-redis asks `if not self.df`
    assert not hasattr(found, "__len__")
    assert key(1) not in found
    assert [False] * 100 == [found.add(key(number)) for number in range(100)]
    assert [True] * 100 == [found.add(key(number)) for number in range(100)]
    assert [True] * 100 == found.add_many([key(number) for number in range(100)])
    assert [] == found.add_many([])
    assert [number < 100 for number in range(200)] == [key(number) in found for number in range(200)]
    assert 100 == found.num_keys
    found.close()
    before = (path / "1.bloom").read_bytes()
    found.close()
    assert before == (path / "1.bloom").read_bytes()


def test_a_batch_ends_with_the_key_that_made_it_grow(path: Path, clock: Clock, fixed_secret: None) -> None:
    found = create(path, clock, capacity=30)
    told: list[Growth] = []
    found.on_growth = told.append
    keys = [key(number) for number in range(100)]
    assert 10 == len(found.add_many(keys))
    clock.now += HOUR
    assert 10 == len(found.add_many(keys[10:]))
    assert [(2, 10), (2, 20)] == [(growth.layers, growth.num_keys) for growth in told]
    assert 4 == found.num_layers
    assert 0 < told[1].rate < 1e-9
    found.close()


def test_it_says_what_it_is(path: Path, clock: Clock, fixed_secret: None) -> None:
    identity = {"fingerprinter": "scrapy", "store": "none"}
    found = create(
        path, clock, error_rate=0.004, layout="classic", filter_id=b"sixteen bytes id", identity=identity
    )
    for number in range(100):
        found.add(key(number))
        clock.now += HOUR / 40
    info = found.info()
    assert (str(path), "classic", "murmur3") == (info.path, info.layout, info.scheme)
    assert (1002, 0.004, 100) == (info.capacity, info.error_rate, info.num_keys)
    assert identity == info.identity == found.identity
    assert b"sixteen bytes id" == found.filter_id
    assert [40, 40, 20] == [layer.num_keys for layer in info.layers]
    assert [0.001] * 3 == [layer.error_rate for layer in info.layers]
    assert sum(file.stat().st_size for file in path.iterdir()) == info.num_bytes
    found.set_identity({"canary": "c0ffee"})
    clock.now += HOUR
    found.add(key(500))
    found.close()
    again = GenerationalFilter.open(path, clock=clock)
    assert ({"canary": "c0ffee"}, Window(3 * HOUR, 4)) == (again.identity, again.window)
    assert b"sixteen bytes id" == again.filter_id
    again.close()


def test_a_key_is_remembered_for_the_window_and_not_longer(
    path: Path, clock: Clock, fixed_secret: None
) -> None:
    found = create(path, clock)
    start = clock.now
    assert (3 * HOUR, 4 * HOUR) == (found.window.expire, found.window.longest)
    found.add(b"first" * 4)
    clock.now = start + 0.999 * HOUR
    found.add(b"last!" * 4)
    clock.now = start + 3.999 * HOUR
    assert b"first" * 4 in found
    assert b"last!" * 4 in found
    assert found.add(b"first" * 4)  # to come again does not make it last longer
    clock.now = start + 4 * HOUR
    assert b"first" * 4 not in found
    assert b"last!" * 4 not in found
    assert not found.add(b"first" * 4)
    found.close()


@pytest.mark.parametrize("count", [2, 3, 4, 10])
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "seldom asked"])
def test_the_window_is_as_documented_at_any_time(
    tmp_path: Path, clock: Clock, fixed_secret: None, count: int, busy: bool
) -> None:
    found = create(tmp_path / "it", clock, generations=count, capacity=100_000)
    rng = random.Random(count)
    expire, longest = found.window.expire, found.window.longest
    assert expire * count / (count - 1) == pytest.approx(longest)
    added: dict[bytes, float] = {}
    for number in range(800):
        clock.now += rng.expovariate(1) * (HOUR / 50 if busy else rng.choice([HOUR / 50, HOUR, 5 * HOUR]))
        one = rng.randbytes(20) if rng.random() < 0.5 or not added else rng.choice(list(added)[-200:])
        seen = found.add(one)
        age = clock.now - added[one] if one in added else None
        if age is not None and age <= expire:
            assert seen, (number, age / HOUR)
        if age is None or age >= longest + 0.001:
            assert not seen, (number, age)
        if not seen:
            added[one] = clock.now
        assert one in found
        assert len(names(tmp_path / "it")) <= count
        if number % 200 == 0:
            found.close()
            found = GenerationalFilter.open(tmp_path / "it", clock=clock)
    for one, when in added.items():
        age = clock.now - when
        if age <= expire or age >= longest + 0.001:
            assert (age <= expire) == (one in found)
    found.close()


def test_the_rate_of_all_generations_together_is_what_was_asked_for(
    path: Path, clock: Clock, fixed_secret: None, million_keys: list[bytes], other_keys: list[bytes]
) -> None:
    # 30,000 keys in three hours, which is what it was made for; after a week.
    found = create(path, clock, capacity=30_000, error_rate=0.01)
    new = []
    for at in range(80_000):
        new.append(not found.add(million_keys[at]))
        clock.now += HOUR / 10_000
    clock.now -= HOUR / 10_000
    assert 4 == len(names(path))
    assert 40_000 == pytest.approx(found.num_keys, rel=0.01)
    # What was a false positive is not remembered: it is new when the generation that knew it is gone.
    assert all(million_keys[at] in found for at in range(50_001, 80_000) if new[at])
    wrong = sum(one in found for one in other_keys[:100_000])
    assert 0 < wrong <= 1.1 * 0.01 * 100_000
    expected = found.info().error_rate_estimate * 100_000
    assert expected == pytest.approx(wrong, abs=5 * expected**0.5)
    assert expected <= 0.01 * 100_000
    assert found.info().error_rate_estimate == pytest.approx(found.rate(), rel=0.05)
    found.close()


def test_more_keys_than_it_was_made_for_keep_the_rate(
    path: Path, clock: Clock, fixed_secret: None, million_keys: list[bytes], other_keys: list[bytes]
) -> None:
    found = create(path, clock, capacity=6_000, error_rate=0.01)
    new = []
    for at in range(40_000):
        new.append(not found.add(million_keys[at]))
        clock.now += HOUR / 10_000
    assert found.num_layers > 8
    assert all(million_keys[at] in found for at in range(10_001, 40_000) if new[at])
    assert sum(one in found for one in other_keys[:100_000]) <= 0.01 * 100_000
    found.close()


def test_generations_begin_and_end_with_the_clock(path: Path, clock: Clock, fixed_secret: None) -> None:
    found = create(path, clock)
    seen = [names(path)]
    for number in range(6):
        found.add(key(number))
        clock.now += HOUR
        found.add(key(100 + number))
        seen.append(names(path))
    assert ["1.bloom"] == seen[0]
    assert ["1.bloom", "2.bloom"] == seen[1]
    assert ["1.bloom", "2.bloom", "3.bloom", "4.bloom"] == seen[3]
    assert ["2.bloom", "3.bloom", "4.bloom", "5.bloom"] == seen[4]
    assert ["4.bloom", "5.bloom", "6.bloom", "7.bloom"] == seen[6]
    # Long after that nothing is left, and it goes on.
    clock.now += 1000 * HOUR
    assert key(105) not in found
    assert ["8.bloom"] == names(path)
    found.close()


def test_what_was_closed_for_a_while_has_forgotten_what_is_due(
    path: Path, clock: Clock, fixed_secret: None
) -> None:
    found = create(path, clock)
    for number in range(4):
        found.add(key(number))
        clock.now += HOUR
    found.close()
    for later, known in ((0.0, [1, 2, 3]), (1.5 * HOUR, [2, 3]), (HOUR, [3]), (HOUR, [])):
        clock.now += later
        again = GenerationalFilter.open(path, clock=clock)
        assert again.was_clean
        assert known == [number for number in range(4) if key(number) in again]
        again.close()


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("back", [0.5, 1.5, 100, 24 * 365 * 10])
def test_a_clock_that_is_put_back_makes_keys_last_longer_but_not_until_it_is_there_again(
    path: Path, clock: Clock, fixed_secret: None, back: float, reopened: bool
) -> None:
    found = create(path, clock)
    found.add(key(1))
    clock.now += HOUR
    found.add(key(2))
    clock.now -= back * HOUR
    if reopened:
        found.close()
        found = GenerationalFilter.open(path, clock=clock)
    found.add(key(3))
    clock.now += 2.99 * HOUR
    assert [True] * 3 == [key(number) in found for number in (1, 2, 3)]
    if reopened:
        found.close()
        found = GenerationalFilter.open(path, clock=clock)
    clock.now += 3.01 * HOUR
    assert [False] * 3 == [key(number) in found for number in (1, 2, 3)]
    found.close()


def test_generations_of_a_clock_that_was_ahead_end_one_after_the_other(
    path: Path, clock: Clock, fixed_secret: None
) -> None:
    found = create(path, clock)
    for number in range(4):
        found.add(key(number))
        clock.now += HOUR
    clock.now -= 500 * HOUR
    start = clock.now
    found.add(key(9))
    ends = {}
    while key(9) in found:
        clock.now += HOUR / 8
        for number in (0, 1, 2, 3, 9):
            if number not in ends and key(number) not in found:
                ends[number] = (clock.now - start) / HOUR
    # Each an hour after the other; the last one was taken at the end of its hour, or a little later.
    assert {0: 1, 1: 2, 2: 3, 3: 4, 9: 4} == {number: round(hours) for number, hours in ends.items()}
    found.close()


def test_looking_at_it_changes_nothing(path: Path, clock: Clock, fixed_secret: None) -> None:
    found = create(path, clock)
    found.add(key(1))
    clock.now += HOUR
    found.add(key(2))
    found.close()
    (path / "3.bloom.new").write_bytes(b"half")
    before = {file: file.read_bytes() for file in path.iterdir()}
    beside = GenerationalFilter.open(path, readonly=True, clock=clock)
    assert [True, True, False] == [key(number) in beside for number in (1, 2, 3)]
    clock.now += 3 * HOUR
    assert [False, True] == [key(number) in beside for number in (1, 2)]
    clock.now += HOUR
    assert [False, False] == [key(number) in beside for number in (1, 2)]
    assert 1 == beside.info().num_keys
    beside.flush()
    beside.close()
    assert before == {file: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("begin", [True, False])
def test_what_was_left_of_a_generation_goes_when_it_begins(path: Path, clock: Clock, begin: bool) -> None:
    create(path, clock).close()
    (path / "2.bloom.new").write_bytes(b"half")
    (path / "somebody's").write_bytes(b"else")
    found = GenerationalFilter.open(path, begin=begin, clock=clock)
    assert ["1.bloom", *([] if begin else ["2.bloom.new"]), "somebody's"] == names(path)
    clock.now += HOUR
    found.add(key(1))
    assert ["1.bloom", "2.bloom", "somebody's"] == names(path)
    found.close()


def test_an_end_at_any_moment_of_a_turn_leaves_a_whole_ring(
    path: Path, tmp_path: Path, clock: Clock, fixed_secret: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = create(path, clock)
    for number in range(4):
        found.add(key(number))
        clock.now += HOUR
    copies: list[Path] = []

    def around(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def played(*args: Any, **options: Any) -> Any:
            for moment in (0, 1):
                copies.append(Path(shutil.copytree(path, tmp_path / f"copy-{len(copies)}")))
                if not moment:
                    result = real(*args, **options)
            return result

        monkeypatch.setattr(owner, name, played)

    with monkeypatch.context():
        for owner, name in ((MappedFile, "reserve"), (MappedFile, "write"), (MappedFile, "sync")):
            around(owner, name)
        around(Path, "rename")
        around(Path, "unlink")
        assert not found.add(key(4))  # the first is dropped, the fifth begins
        monkeypatch.undo()
    assert ["2.bloom", "3.bloom", "4.bloom", "5.bloom"] == names(path)
    found.close()
    assert len(copies) >= 8
    for copy in copies:
        again = GenerationalFilter.open(copy, clock=clock)
        assert [1, 2, 3] == [number for number in range(4) if key(number) in again]
        again.add(key(9))
        assert ["2.bloom", "3.bloom", "4.bloom", "5.bloom"] == names(copy)
        again.close()


def test_after_an_unclean_end_every_key_is_there(
    path: Path, tmp_path: Path, clock: Clock, fixed_secret: None
) -> None:
    found = create(path, clock, error_rate=1e-6)
    for number in range(1_000):
        found.add(key(number))
        clock.now += 3 * HOUR / 1_000
    shutil.copytree(path, tmp_path / "copy")
    found.close()
    again = GenerationalFilter.open(tmp_path / "copy", clock=clock)
    assert not again.was_clean
    assert all(key(number) in again for number in range(1_000))
    assert 1_000 == pytest.approx(again.num_keys, rel=0.02)
    again.close()


def test_without_room_for_the_next_generation_the_youngest_goes_on_and_keeps_its_keys(
    path: Path, clock: Clock, fixed_secret: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = create(path, clock)
    found.add(key(0))
    start = clock.now
    added = {}

    def full(self: MappedFile, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(MappedFile, "reserve", full)
        for number in range(1, 300):
            clock.now += HOUR / 50
            assert not found.add(key(number))
            added[number] = clock.now
            assert ["1.bloom"] == names(path)
        assert "No space left" in str(found.error)
        assert key(0) in found  # for longer than it should be
        # What it has done stands in the file.
        found.close()
        found = GenerationalFilter.open(path, clock=clock)
    clock.now += HOUR / 50
    found.add(key(300))
    assert None is found.error
    assert ["1.bloom", "2.bloom"] == names(path)
    while clock.now < start + 9 * HOUR:
        clock.now += HOUR / 10
        for number, when in added.items():
            if clock.now - when <= 3 * HOUR:
                assert key(number) in found
    clock.now += HOUR
    assert key(299) not in found
    found.close()


def test_a_failed_turn_leaves_no_half_generation(
    path: Path, clock: Clock, fixed_secret: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = create(path, clock)
    clock.now += HOUR

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for name in ("sync", "rename"):
        with monkeypatch.context() as patched:
            patched.setattr(MappedFile, name, fail)
            found.add(key(1))
        assert ["1.bloom"] == names(path)
        assert isinstance(found.error, FilterError)
        clock.now += HOUR
    found.close()


def test_opening_never_creates_and_creating_never_overwrites(path: Path, clock: Clock) -> None:
    with pytest.raises(StateNotFound, match="there is no filter of generations at"):
        GenerationalFilter.open(path)
    assert not path.exists()
    path.write_bytes(b"somebody's")
    with pytest.raises(StateExists, match="exists and is not overwritten"):
        create(path, clock)
    assert b"somebody's" == path.read_bytes()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"expire": 0.0}, "expire=0.0 is not a number of seconds above 0"),
        ({"expire": float("inf")}, "expire=inf is not"),
        ({"generations": 1}, "generations=1 is not a whole number from 2 to 100"),
        ({"capacity": 0}, "capacity=0 is not a whole number"),
        ({"error_rate": 1.0}, r"error_rate=1\.0 is not a share"),
        ({"scheme": "md5"}, "scheme='md5' is not known"),
        ({"layout": "spiral"}, "layout='spiral' is not known"),
    ],
)
def test_a_wrong_value_makes_nothing(path: Path, clock: Clock, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        create(path, clock, **values)
    assert not path.exists()


def test_files_that_do_not_belong_together_are_refused_and_left(
    path: Path, tmp_path: Path, clock: Clock
) -> None:
    for where in (path, tmp_path / "other"):
        found = create(where, clock)
        clock.now += HOUR
        found.add(key(1))
        found.close()
    shutil.copy(tmp_path / "other" / "2.bloom", path / "3.bloom")
    before = {file: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(StateCorrupt, match="holds 3 generations of 2 kinds, there have to be one"):
        GenerationalFilter.open(path)
    assert before == {file: file.read_bytes() for file in path.iterdir()}
    (path / "3.bloom").unlink()
    data = (path / "2.bloom").read_bytes()
    for torn in (data[:4000], data[:-1], b"", data[:300] + b"?" + data[301:]):
        (path / "2.bloom").write_bytes(torn)
        with pytest.raises(StateCorrupt, match=r"2\.bloom"):
            GenerationalFilter.open(path)
        assert torn == (path / "2.bloom").read_bytes()
    (path / "2.bloom").unlink()
    BloomFilter.create(path / "2.bloom", capacity=10, error_rate=0.1).close()
    with pytest.raises(StateCorrupt, match=r"2\.bloom does not say when it began"):
        GenerationalFilter.open(path)
    for file in path.iterdir():
        file.unlink()
    with pytest.raises(StateCorrupt, match="holds 0 generations"):
        GenerationalFilter.open(path)


def test_it_can_be_given_another_name_and_goes_on_there(
    path: Path, tmp_path: Path, clock: Clock, fixed_secret: None
) -> None:
    found = create(path, clock)
    found.add(key(1))
    (tmp_path / "taken").mkdir()
    with pytest.raises(StateExists):
        found.rename(tmp_path / "taken")
    found.rename(tmp_path / "it")
    assert tmp_path / "it" == found.path
    clock.now += HOUR
    found.add(key(2))
    clock.now += 3.5 * HOUR
    found.add(key(3))
    assert ["2.bloom", "3.bloom"] == names(tmp_path / "it")
    found.sync()
    found.close()
    assert not path.exists()


@settings(max_examples=40)
@given(
    st.integers(2, 6),
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 20)), max_size=60),
)
def test_no_key_is_denied_within_its_time(
    tmp_path_factory: pytest.TempPathFactory, count: int, steps: list[tuple[float, int]]
) -> None:
    clock = Clock()
    found = create(tmp_path_factory.mktemp("ring") / "it", clock, generations=count, expire=2.0)
    added: dict[int, float] = {}
    for pause, number in steps:
        clock.now += pause
        if not found.add(key(number)):
            added[number] = clock.now
        for one, when in added.items():
            if clock.now - when < 2.0 - 1e-6:
                assert key(one) in found
    found.close()


def remembered(found: GenerationalFilter, *numbers: int) -> list[bool]:
    return [key(number) in found for number in numbers]


@pytest.mark.parametrize("again", [False, True], ids=["at once", "opened again before a new key"])
@pytest.mark.parametrize("hours", [0.5, 1, 30])
def test_another_time_holds_for_what_comes_and_the_shorter_one_for_what_is_there(
    path: Path, clock: Clock, fixed_secret: None, hours: float, again: bool
) -> None:
    found = create(path, clock)
    found.add(key(1))
    found.set_expire(hours * HOUR)
    if again:
        found.close()
        found = GenerationalFilter.open(path, clock=clock)
        found.set_expire(hours * HOUR)
    changed = clock.now
    assert (True, False) == (found.add(key(1)), found.add(key(2)))
    found.close()
    found = GenerationalFilter.open(path, clock=clock)
    assert Window(hours * HOUR, 4) == found.window
    clock.now = changed + 0.999 * min(hours, 3) * HOUR
    assert [True, True] == remembered(found, 1, 2)
    clock.now = changed + min(hours, 3) * HOUR
    assert [False, True] == remembered(found, 1, 2)
    clock.now = changed + 0.999 * hours * HOUR
    assert [False, True] == remembered(found, 1, 2)
    clock.now = changed + 4 / 3 * hours * HOUR
    assert [False, False] == remembered(found, 1, 2)
    found.close()


def test_however_often_the_time_changes_nothing_is_forgotten_before_the_shortest(
    path: Path, clock: Clock, fixed_secret: None
) -> None:
    rng = random.Random(7)
    found, shortest = create(path, clock), 3 * HOUR
    added: dict[int, float] = {}
    for number in range(600):
        clock.now += rng.random() * HOUR / 4
        if number % 9 == 0:
            expire = rng.choice([1, 2, 3, 8]) * HOUR
            shortest = min(shortest, expire)
            found.set_expire(expire)
            if number % 2:
                found.close()
                found = GenerationalFilter.open(path, clock=clock)
                found.set_expire(expire)
        assert not found.add(key(number))
        added[number] = clock.now
        young = [one for one, when in added.items() if clock.now - when < shortest]
        assert [True] * len(young) == remembered(found, *young)
        old = [one for one, when in added.items() if clock.now - when > 8 * HOUR * 4 / 3]
        assert [False] * len(old) == remembered(found, *old)
    assert len(names(path)) < 20
    found.close()


def test_every_generation_says_when_the_seen_set_was_made(path: Path, clock: Clock) -> None:
    found = create(path, clock, created=1_700_000_000)
    for _ in range(3):
        clock.now += HOUR
        found.add(key(1))
        assert (1_700_000_000, 1_700_000_000) == (found.created, found.info().created)
    found.close()
