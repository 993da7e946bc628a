"""Are axes readable, lines where the numbers are, and labels inside the picture and apart?"""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.charts import (
    HEIGHT,
    LOWEST,
    WIDTH,
    Chart,
    Series,
    draw,
    log_ticks,
    nice_ticks,
    power,
    short,
)

NUMBERS = st.floats(0, 1e15)


def chart(x: list[float], **more: object) -> Chart:
    return Chart("A chart.", x, "hours", "pages", short, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 330, [0, 100, 200, 300, 400]),
        (0, 1, [0, 0.5, 1]),
        (0, 0, [0, 1]),
        (0, 7, [0, 2, 4, 6, 8]),
        (0, 1_000_000, [0, 500_000, 1_000_000]),
        (0, 0.003, [0, 0.001, 0.002, 0.003]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert expected == nice_ticks(low, high, 4)


@given(NUMBERS, NUMBERS, st.integers(2, 8))
def test_ticks_span_what_is_shown_and_are_few(a: float, b: float, count: int) -> None:
    low, high = sorted((a, b))
    ticks = nice_ticks(low, high, count)
    if high - low > max(1e-9 * high, 1e-90):
        assert ticks[0] <= low * (1 + 1e-9)
        assert ticks[-1] >= high * (1 - 1e-9)
    assert len(ticks) <= count + 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e-6, 1e-3], [1e-6, 1e-5, 1e-4, 1e-3]),
        ([0.001, 0.001], [0.001, 0.01]),
        ([LOWEST, 1e-3], [1e-13, 1e-11, 1e-9, 1e-7, 1e-5, 1e-3]),
        ([0.0, 1.0], [1e-12, 1e-9, 1e-6, 1e-3, 1.0]),
    ],
)
def test_a_logarithmic_axis_has_powers_of_ten(values: list[float], expected: list[float]) -> None:
    assert expected == log_ticks(values)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (0.25, "0.25"), (999, "999"), (999.7, "1k"), (1234, "1.23k"), (5e6, "5M"), (1e13, "10T")],
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert expected == short(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, "0.5"), (0.033, "0.033"), (0.001, "0.001"), (1e-6, "1e-6"), (2.5e-11, "2.5e-11")],
)
def test_shares_are_written_as_people_do(value: float, expected: str) -> None:
    assert expected == power(value)


@pytest.mark.parametrize("x", [[], [1.0], [2.0, 2.0]])
def test_where_there_is_no_line_nothing_is_drawn(x: list[float]) -> None:
    assert "" == draw(chart(x), [Series("a", [1.0] * len(x), 1)])
    assert "" == draw(chart([0.0, 1.0]), [Series("a", [None, None], 1)])


def test_a_line_goes_through_its_points_and_has_gaps_where_nothing_is_known() -> None:
    drawn = draw(chart([0, 1, 2, 3]), [Series("a", [0, 100, None, 50], 1)])
    path = re.search(r'class="line c1" d="([^"]*)"', drawn)
    assert path is not None
    assert "M46.0 182.0L130.0 32.0M298.0 107.0" == path[1]


@given(
    st.integers(2, 12).flatmap(
        lambda n: st.tuples(
            st.lists(st.floats(0, 1e6), min_size=n, max_size=n, unique=True).map(sorted),
            st.lists(
                st.lists(st.none() | NUMBERS, min_size=n, max_size=n).map(tuple), min_size=1, max_size=4
            ),
        )
    ),
    st.booleans(),
)
def test_whatever_the_numbers_all_is_inside_and_the_names_are_apart(
    drawn_from: tuple[list[float], list[tuple[float | None, ...]]], log: bool
) -> None:
    x, lines = drawn_from
    breaks = [(x[1], "run 2"), (x[-1], "run 3")]
    notes = [f"<{value}>" for value in x]
    series = [Series(f"line {i}", values, i + 1) for i, values in enumerate(lines)]
    drawn = draw(chart(x, notes=notes, breaks=breaks, log=log), series)
    if not drawn:
        return
    root = ElementTree.fromstring(drawn)
    names = []
    for text in root.iter("text"):
        at = float(text.get("x", "")), float(text.get("y", ""))
        assert 0 <= at[0] <= WIDTH
        assert 0 < at[1] <= HEIGHT
        if "name" in text.get("class", ""):
            names.append(at[1])
    names.sort()
    assert all(after - before >= 25.9 for before, after in pairwise(names))
    for number in re.findall(
        r"[ML](-?[\d.]+) (-?[\d.]+)", " ".join(p.get("d", "") for p in root.iter("path"))
    ):
        assert 0 <= float(number[0]) <= WIDTH
        assert 0 <= float(number[1]) <= HEIGHT
    assert len(x) == len(root.findall("g"))
