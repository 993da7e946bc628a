"""Is a gate built beside the old one, switched in one step, and is nothing lost that is added meanwhile?"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Python
from gates import Told, build, judges

from scrapy_bloomdupe.errors import ConfigurationError, FilterError, StateLocked, StateUnusable
from scrapy_bloomdupe.filters.mapped import MappedFile
from scrapy_bloomdupe.gate.building import add_to_gate, build_gate
from scrapy_bloomdupe.gate.gate import Gate


def has(path: Path, *texts: str) -> list[bool]:
    gate = Gate.open(path, on_problem=Told())
    found = [gate.might_contain(text) for text in texts]
    gate.close()
    return found


def files(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_a_build_says_what_went_in(tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    report = build_gate(path, ["a1", ["b1", "b2", ""], ("c",), "A1 "], min_length=2)
    assert (1, 4, 5, 1, 3) == (report.version, report.rows, report.texts, report.short, report.keys)
    assert (1000, path.stat().st_size) == (report.capacity, report.num_bytes)
    assert [True, True, True, False] == has(path, "a1", "b1", "B2", "b3")


def test_each_build_is_a_version_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    for version, text in enumerate(("first", "second", "third"), 1):
        assert version == build_gate(path, [text]).version
    assert {"ids.gate", "ids.gate.old", "ids.gate.lock"} == files(tmp_path)
    assert [False, True] == has(path, "second", "third")
    assert [False, True, False] == has(tmp_path / "ids.gate.old", "first", "second", "third")
    gate = Gate.open(path)
    assert 3 == gate.info().version
    gate.close()


def test_a_build_in_the_place_of_what_is_no_gate_is_version_1_and_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    path.write_bytes(b"something else")
    assert 1 == build_gate(path, ["a"]).version
    assert b"something else" == (tmp_path / "ids.gate.old").read_bytes()


def test_columns_are_synonyms_and_can_be_chosen(tmp_path: Path) -> None:
    rows = [["7", "Tea Pot", "teapot", "internal"], ["8", "Mug"]]
    path = build(tmp_path / "ids.gate", rows, columns=[0, 2])
    assert [True, True, True, False, False] == has(path, "7", "teapot", "8", "mug", "internal")


def test_more_keys_than_the_capacity_make_it_grow_and_keep_its_rate(tmp_path: Path) -> None:
    rows = [f"id {number}" for number in range(20_000)]
    build_gate(tmp_path / "ids.gate", iter(rows), capacity=1000, error_rate=0.02)
    gate = Gate.open(tmp_path / "ids.gate")
    assert all(map(gate.might_contain, rows))
    assert 0.02 * 1.1 * 20_000 >= sum(gate.might_contain(f"no {number}") for number in range(20_000))
    assert gate.info().capacity > 20_000
    gate.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "one text"}, "is one text; give a list"),
        ({"min_length": 0}, "min_length=0"),
        ({"capacity": 0}, "capacity=0"),
        ({"error_rate": 2.0, "capacity": 5}, "error_rate=2.0"),
        ({"steps": ["stem"]}, "'stem' is not known"),
    ],
)
def test_a_wrong_value_is_refused_and_nothing_is_touched(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_gate(tmp_path / "ids.gate", **{"rows": ["a"], **options})  # type: ignore[arg-type]
    assert {"ids.gate.lock"} >= files(tmp_path)


def test_rows_that_can_only_be_read_once_need_a_capacity(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="capacity is missing"):
        build_gate(tmp_path / "ids.gate", iter(["a"]))


def test_rows_that_fail_leave_the_old_one_in_force(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")

    def rows() -> Iterator[str]:
        yield "gamma"
        raise OSError("the disk of the list is gone")

    with pytest.raises(OSError, match="of the list"):
        build_gate(path, rows(), capacity=10)
    assert {"ids.gate", "ids.gate.lock"} == files(tmp_path)
    assert [True, False] == has(path, "alpha", "gamma")


def test_a_full_disk_leaves_the_old_one_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path / "ids.gate")
    reserve = MappedFile.reserve

    def full(self: MappedFile, size: int) -> None:
        if size > 20_000:
            raise OSError(28, "No space left on device")
        reserve(self, size)

    monkeypatch.setattr(MappedFile, "reserve", full)
    with pytest.raises(StateUnusable, match="No space left"):
        build_gate(path, ["gamma"], capacity=100_000)
    # One that grows into it.
    with pytest.raises(FilterError, match="could not grow"):
        build_gate(path, (f"id {number}" for number in range(50_000)), capacity=1000)
    assert [True, False] == has(path, "alpha", "gamma")
    assert {"ids.gate", "ids.gate.lock"} == files(tmp_path)


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable, match="has to be writable"):
        build_gate(tmp_path / "none" / "ids.gate", ["a"])


def test_what_is_added_while_a_build_is_under_way_passes_before_and_after_it(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")

    def rows() -> Iterator[str]:
        yield "gamma"
        assert 2 == add_to_gate(path, ["Late\nOne", "late two"])
        assert [True, True] == has(path, "late one", "LATE TWO")
        yield "delta"

    report = build_gate(path, rows(), capacity=100, steps=["lower"])
    assert (2, 2, 2) == (report.added_meanwhile, report.rows, report.texts)
    # By the steps of the new one.
    assert [True, True, True] == has(path, "gamma", "LATE\nONE", "late two")
    assert [False, False] == has(path, "late one", "alpha")
    assert {"ids.gate", "ids.gate.old", "ids.gate.lock"} == files(tmp_path)


def test_what_is_added_during_the_first_build_of_all_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"

    def rows() -> Iterator[str]:
        add_to_gate(path, ["late"])
        yield "gamma"

    build_gate(path, rows(), capacity=100)
    assert [True, True] == has(path, "late", "gamma")


def test_half_a_line_of_a_killed_add_costs_no_other_one(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")

    def rows() -> Iterator[str]:
        add_to_gate(path, ["before"])
        with (tmp_path / "ids.gate.added").open("ab") as file:
            file.write(b'"half of a te')
        add_to_gate(path, ["after"])
        yield "gamma"

    assert 2 == build_gate(path, rows(), capacity=100).added_meanwhile
    assert [True, True, True] == has(path, "before", "after", "gamma")


def test_two_builds_at_a_time_are_one_too_many(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")

    def rows() -> Iterator[str]:
        with pytest.raises(StateLocked, match="is being built by another process"):
            build_gate(path, ["b"])
        yield "gamma"

    assert 2 == build_gate(path, rows(), capacity=100).version
    assert [True, False] == has(path, "gamma", "b")


@pytest.mark.parametrize("moment", ["rows", "rename", "link"])
def test_a_build_that_is_killed_leaves_a_whole_gate_and_the_next_one_works(
    tmp_path: Path, python: Python, moment: str
) -> None:
    path = build(tmp_path / "ids.gate")
    done = python(
        """
import scrapy_bloomdupe.gate.switching as switching
from scrapy_bloomdupe.gate.building import build_gate
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def rows():
    yield from (f"id {n}" for n in range(10000))
    if sys.argv[2] == "rows":
        die()
if sys.argv[2] == "rename":
    Path.rename = die
if sys.argv[2] == "link":
    os.link = die
build_gate(sys.argv[1], rows(), capacity=100)
""",
        path,
        moment,
    )
    assert -signal.SIGKILL == done.returncode, done.stderr
    assert [True, False] == has(path, "alpha", "id 7")
    # What is left of it is in nobody's way.
    assert 1 == add_to_gate(path, ["gamma"])
    assert [True] == has(path, "gamma")
    assert 2 == build_gate(path, ["delta"]).version
    assert [True, False] == has(path, "delta", "gamma")
    assert {"ids.gate", "ids.gate.old", "ids.gate.lock"} == files(tmp_path)


def test_an_add_that_is_killed_leaves_a_gate_that_opens(tmp_path: Path, python: Python) -> None:
    path = build(tmp_path / "ids.gate", [f"id {number}" for number in range(900)])
    done = python(
        """
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.gate.building import add_to_gate
BloomFilter.sync = lambda self: os.kill(os.getpid(), signal.SIGKILL)
add_to_gate(Path(sys.argv[1]), (f"later {n}" for n in range(5000)))
""",
        path,
    )
    assert -signal.SIGKILL == done.returncode, done.stderr
    gate = Gate.open(path, on_problem=Told())
    assert all(gate.might_contain(f"id {number}") for number in range(900))
    assert judges(gate)
    gate.close()
    assert 1 == add_to_gate(path, ["another one"])


def test_a_file_system_without_second_names_keeps_no_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path / "ids.gate")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert 2 == build_gate(path, ["gamma"]).version
    assert {"ids.gate", "ids.gate.lock"} == files(tmp_path)


def test_what_comes_into_force_is_not_rejected_for_a_moment(tmp_path: Path) -> None:
    path, told = build(tmp_path / "ids.gate"), Told()
    # It looks at the path by the clock, which stands still.
    gate = Gate.open(path, on_problem=told, clock=lambda: 0.0)
    assert not gate.might_contain("gamma")
    build(path, ["gamma"])
    assert gate.might_contain("gamma")
    add_to_gate(path, ["delta"])
    assert gate.might_contain("delta")
    assert not gate.might_contain("epsilon")
    assert (2, []) == (gate.info().version, told.problems)
    gate.close()


def test_a_link_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    path, link = tmp_path / "shelf" / "ids.gate", tmp_path / "link.gate"
    link.symlink_to(path)
    assert path == build_gate(link, ["alpha"]).path

    def rows() -> Iterator[str]:
        assert 1 == add_to_gate(link, ["added meanwhile"])
        yield "beta"

    gate = Gate.open(link)
    assert 1 == build_gate(path, rows(), capacity=1000).added_meanwhile
    assert [True, True, False] == gate.might_contain_many(["beta", "added meanwhile", "gamma"])
    build_gate(link, ["gamma"])
    assert link.is_symlink()
    assert gate.might_contain("gamma")
    gate.close()


@pytest.mark.parametrize(
    ("rows", "options", "why"),
    [
        ([], {}, "there were no rows"),
        ([["", ""], [""]], {}, "none of the 2 rows has a text"),
        ([["a", "b"], ["c"]], {"columns": [2, 4]}, "none of the 2 rows has a text in the columns 3, 5"),
        (["abc", " \t "], {"min_length": 4}, "all 2 texts are shorter than min_length=4"),
    ],
)
def test_a_gate_without_a_text_is_refused_since_it_would_reject_everything(
    tmp_path: Path, rows: Any, options: Any, why: str
) -> None:
    path = build(tmp_path / "ids.gate")
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        build_gate(path, rows, **options)
    assert [True, False] == has(path, "alpha", "gamma")
    assert {"ids.gate", "ids.gate.lock"} == files(tmp_path)
