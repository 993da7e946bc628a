"""How long is "7d"? Lengths of time as people write them, in seconds."""

from __future__ import annotations

import math
import re
from typing import Any

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", re.ASCII)
# 136 years: times are kept in 32 bits, see ``stamps``.
_LONGEST = 2**32 - 1

#: What a right value looks like, for messages.
EXPECTS = "a length of time such as '30m', '1h', '7d', or a number of seconds, above 0"


def parse(value: Any) -> float:
    """Return the seconds of *value*: a number of them, or text with one of the units s, m, h, d, w.

    Returns:
        0 < seconds < 2^32.

    Raises:
        ValueError: it is neither, or out of this range.
    """
    if isinstance(value, str):
        found = _TEXT.fullmatch(value.strip().lower())
        seconds = float(found[1]) * _SECONDS[found[2] or "s"] if found is not None else math.nan
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value
    else:
        seconds = math.nan
    if not 0 < seconds <= _LONGEST:
        raise ValueError(f"{value!r} is not {EXPECTS}")
    return float(seconds)


def shown(seconds: float) -> str:
    """Return the text of a length of time, in the largest unit up to days of which it has two, or one."""
    for unit in "dhms":
        size = _SECONDS[unit]
        if seconds >= 2 * size or seconds == size:
            count = seconds / size
            return f"{count:.0f}{unit}" if count >= 100 else f"{count:.3g}{unit}"
    return f"{max(seconds, 0):.3g}s"
