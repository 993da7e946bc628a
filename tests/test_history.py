"""Is every sample kept whole or not at all, is the file bounded, and is whatever lies there survived?"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Python
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe import history
from scrapy_bloomdupe.history import HISTORY_NAME, TOP_NAME, HistoryFile, RuleFigures, Sample, Top

SAMPLE = Sample(
    time=1_790_000_000.5,
    run=1,
    seconds=60.25,
    keys=1_000_000_000,
    layers=3,
    capacity=2_000_000_000,
    fill=0.25,
    error_rate=1.5e-7,
    pages=900,
    done=890,
    new=1_000,
    duplicate=20_000,
    false_positive=2,
    unconfirmed=0,
    cached=15_000,
    pending=None,
    num_bytes=10**12,
    anonymous_bytes=64_000_000,
    commit_seconds=1.25,
    errors={"sync": 1},
)


def write(folder: Path, count: int, max_lines: int = history.MAX_LINES) -> list[Sample]:
    file = HistoryFile(folder, max_lines)
    file.open()
    samples = [replace(SAMPLE, time=float(i), seconds=float(i), keys=i) for i in range(count)]
    for sample in samples:
        file.append(sample)
    return samples


def test_a_sample_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert SAMPLE == Sample.from_line(SAMPLE.to_line())
    written = write(tmp_path, 5)
    assert tuple(written) == history.read_history(tmp_path).samples
    assert written[-1] == HistoryFile(tmp_path).open()


def test_without_files_there_is_no_history(tmp_path: Path) -> None:
    assert history.History() == history.read_history(tmp_path)
    assert Sample() == HistoryFile(tmp_path).open()
    assert [] == list(tmp_path.iterdir())


def test_a_second_run_goes_on_where_the_first_one_ended() -> None:
    second = replace(SAMPLE, run=1, keys=7, errors={"sync": 2, "commit": 1}, pending=3).after(SAMPLE)
    assert (2, 7, 3) == (second.run, second.keys, second.pending)
    assert (120.5, 1_800, 1_780, 2_000, 40_000) == (
        second.seconds,
        second.pages,
        second.done,
        second.new,
        second.duplicate,
    )
    assert {"sync": 3, "commit": 1} == second.errors
    assert 2.5 == second.commit_seconds


@pytest.mark.parametrize("cut", [1, 40, len(SAMPLE.to_line()) - 2])
def test_a_torn_last_line_is_passed_over_and_mended(tmp_path: Path, cut: int) -> None:
    written = write(tmp_path, 3)
    path = tmp_path / HISTORY_NAME
    path.write_bytes(path.read_bytes() + SAMPLE.to_line()[:cut])
    # Not counted as damage: it may be on its way.
    found = history.read_history(tmp_path)
    assert (tuple(written), 0) == (found.samples, found.damaged)
    file = HistoryFile(tmp_path)
    assert written[-1] == file.open()
    file.append(SAMPLE)
    found = history.read_history(tmp_path)
    assert ((*written, SAMPLE), 0) == (found.samples, found.damaged)


def test_lines_that_are_no_samples_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / HISTORY_NAME
    lines = [SAMPLE.to_line(), b"\xff\x00\n", b"[]\n", b'{"time": NaN}\n', b'{"keys": 3}\n', b"\n"]
    path.write_bytes(b"".join(lines))
    found = history.read_history(tmp_path)
    assert ((SAMPLE,), 5) == (found.samples, found.damaged)
    assert SAMPLE == HistoryFile(tmp_path).open()


def test_what_another_release_wrote_is_read_as_far_as_it_is_known() -> None:
    line = b'{"time": 5, "keys": 7, "pages": "many", "fill": NaN, "errors": [1], "more": {"a": 1}}'
    assert Sample(time=5, keys=7) == Sample.from_line(line)


def test_the_file_stays_bounded_and_thins_the_older_half(tmp_path: Path) -> None:
    written = write(tmp_path, 1_000, max_lines=100)
    kept = history.read_history(tmp_path).samples
    assert 50 <= len(kept) <= 100
    assert written[0] == kept[0]
    assert list(written[-20:]) == list(kept[-20:])
    gaps = [after.time - before.time for before, after in pairwise(kept)]
    # The older, the wider.
    assert 1 == max(gaps[-20:]) < max(gaps[:5])
    assert [HISTORY_NAME] == [path.name for path in tmp_path.iterdir()]


def test_the_largest_file_has_less_than_a_megabyte() -> None:
    largest = replace(
        SAMPLE,
        **dict.fromkeys(("keys", "capacity", "new", "duplicate", "cached", "pages", "done"), 10**13),
        error_rate=1.23456e-12,
        pending=10**9,
        errors=dict.fromkeys(("key", "check", "commit", "sync", "history"), 10**9),
    )
    assert len(largest.to_line()) * history.MAX_LINES < 1_000_000


def test_a_line_that_does_not_fit_is_taken_back(python: Python, tmp_path: Path) -> None:
    script = """
from scrapy_bloomdupe.history import HistoryFile, Sample
file = HistoryFile(Path(sys.argv[1]))
file.open()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit_files(1000)
for i in range(10):
    try:
        file.append(Sample(time=float(i)))
    except OSError as exc:
        print(i, type(exc).__name__)
"""
    done = python(script, tmp_path)
    failed = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert failed == list(range(failed[0], 10))
    assert failed[0] >= 2
    found = history.read_history(tmp_path)
    assert (failed[0], 0) == (len(found.samples), found.damaged)
    assert (tmp_path / HISTORY_NAME).read_bytes().endswith(b"\n")


def test_top_lists_are_read_as_they_were_written(tmp_path: Path) -> None:
    top = Top(
        (("shop.example", 5), ("\ud800<b>", 1)),
        3,
        {"id": RuleFigures({"key": 4}, (("http://a/\u202e", "http://b/"),))},
    )
    HistoryFile(tmp_path).write_top(top)
    assert top == history.read_top(tmp_path)
    assert [TOP_NAME] == [path.name for path in tmp_path.iterdir()]


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_top_lists_of_any_shape_do_no_harm(tmp_path_factory: pytest.TempPathFactory, found: object) -> None:
    folder = tmp_path_factory.getbasetemp() / "top"
    folder.mkdir(exist_ok=True)
    for data in (found, {"hosts": found, "slack": 1, "rules": {}}, {"hosts": [], "slack": 0, "rules": found}):
        (folder / TOP_NAME).write_text(json.dumps(data))
        assert isinstance(history.read_top(folder), Top)


@given(st.binary())
def test_lines_of_any_bytes_do_no_harm(data: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(Sample.from_line(data), Sample)


HUGE = [b"1e999", b"-1e999", b"NaN", b"1" + b"0" * 400, b"[" * 100_000]


@pytest.mark.parametrize("value", HUGE, ids=["inf", "-inf", "nan", "digits", "deep"])
def test_numbers_that_no_file_of_ours_has_do_no_harm(tmp_path: Path, value: bytes) -> None:
    (tmp_path / TOP_NAME).write_bytes(b'{"hosts":[["a",%b],["b",2]],"slack":%b,"rules":{}}' % (value, value))
    assert history.read_top(tmp_path) in (Top((("b", 2),)), Top())
    line = b'{"time":1764000000.0,"keys":%b,"seconds":5.0,"errors":{"sync":%b}}\n' % (value, value)
    (tmp_path / HISTORY_NAME).write_bytes(line)
    found = history.read_history(tmp_path)
    assert found.samples in ((), (Sample(time=1764000000.0, seconds=5.0),))
    assert len(found.samples) + found.damaged == 1
    assert HistoryFile(tmp_path).open().seconds in (0.0, 5.0)
