"""Is a length of time read as people write it, and anything else refused?"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.durations import parse, shown


@pytest.mark.parametrize(
    ("seconds", "value"),
    [
        (1, "1"),
        (1, 1),
        (0.5, 0.5),
        (45, "45s"),
        (1800, "30m"),
        (3600, "1h"),
        (5400, "1.5h"),
        (604_800, "7d"),
        (604_800, "1w"),
        (604_800, " 7 D "),
        (2**32 - 1, 2**32 - 1),
    ],
)
def test_a_length_is_a_number_of_seconds_or_has_a_unit(seconds: float, value: Any) -> None:
    assert seconds == parse(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "h",
        "-1h",
        "1y",
        "1h30m",
        "٣d",
        "0",
        0,
        -1,
        True,
        None,
        [],
        "1e9",
        float("nan"),
        float("inf"),
        2**32,
    ],
)
def test_anything_else_is_refused_with_what_would_be_right(value: Any) -> None:
    expected = f"{value!r} is not a length of time such as '30m', '1h', '7d', or a number of seconds, above 0"
    with pytest.raises(ValueError, match=re.escape(expected)):
        parse(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h", 3600),
        ("90m", 5400),
        ("2d", 172_800),
        ("7d", 604_800),
        ("8d", 691_200),
        ("0.5s", 0.5),
        ("0s", -3),
    ],
)
def test_it_is_shown_as_a_person_would_say_it(text: str, seconds: float) -> None:
    assert text == shown(seconds)


@given(st.integers(1, 2**32 - 1))
def test_what_is_shown_is_read_again_to_three_digits(seconds: int) -> None:
    assert seconds == pytest.approx(parse(shown(seconds)), rel=0.006)


@given(st.text() | st.floats() | st.integers())
def test_nothing_else_than_a_value_error_is_raised(value: Any) -> None:
    with suppress(ValueError):
        assert 0 < parse(value) < 2**32
