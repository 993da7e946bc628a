"""How do numbers become a picture? Line charts as SVG text, for a page that brings the colours.

Pure: numbers in, text out. Every number and text is written by itself, so the same chart can stand on a light
and on a dark ground, in a column of 320 pixels or of 480.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scrapy_bloomdupe.markup import escape

WIDTH, HEIGHT = 380, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 82, 32, 38
_X0, _X1 = _LEFT, WIDTH - _RIGHT
_Y0, _Y1 = HEIGHT - _BOTTOM, _TOP
# Pixels from one label at the end of a line to the next: two rows of text.
_LABEL = 26
# Vertical lines through the whole chart.
_MANY = 8

#: Nothing on a logarithmic axis is drawn below this: fewer than one page in a trillion.
LOWEST = 1e-12

Format = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        name: written at its end, with its last value.
        values: one per x; None: unknown, the line has a gap.
        colour: 1 to 4, one of the page's.
        dashed: a limit, not something that was measured.
        end: written at its end instead of the last value.
    """

    name: str
    values: Sequence[float | None]
    colour: int
    dashed: bool = False
    end: str = ""


@dataclass(frozen=True)
class Chart:
    """What all lines of a chart have in common.

    Attributes:
        label: the chart in a sentence, for who cannot see it.
        x: values of the x axis, rising.
        x_unit, y_unit: written at the axes.
        y_format: for values at the lines' ends and the y axis.
        notes: one text per x, shown when the pointer is there.
        breaks: x values of vertical lines, with their labels.
        log: the y axis is logarithmic.
    """

    label: str
    x: Sequence[float]
    x_unit: str
    y_unit: str
    y_format: Format
    notes: Sequence[str] = ()
    breaks: Sequence[tuple[float, str]] = ()
    log: bool = False


def draw(chart: Chart, series: Sequence[Series]) -> str:
    """Return the chart as an SVG element; empty: there are not two moments to draw a line between."""
    values = [value for one in series for value in one.values if value is not None]
    if len(chart.x) < 2 or chart.x[-1] <= chart.x[0] or not values:
        return ""
    low, high = chart.x[0], chart.x[-1]

    def x_at(value: float) -> float:
        return _X0 + (value - low) / (high - low) * (_X1 - _X0)

    ticks = log_ticks(values) if chart.log else nice_ticks(0, max(values), 4)
    y_at = _log_scale(ticks) if chart.log else _scale(ticks)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.label)}">']
    for tick in ticks:
        y = y_at(tick)
        parts.append(f'<line class="grid" x1="{_X0}" x2="{_X1}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_X0 - 6, y + 3.5, chart.y_format(tick), "end"))
    parts.append(_text(2, 10, chart.y_unit))
    for tick in nice_ticks(low, high, 5):
        if low <= tick <= high * (1 + 1e-9):
            x = x_at(tick)
            parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_Y0}" y2="{_Y0 + 4}"/>')
            parts.append(_text(x, _Y0 + 15, short(tick), "middle"))
    parts.append(f'<line class="axis" x1="{_X0}" x2="{_X1}" y1="{_Y0}" y2="{_Y0}"/>')
    parts.append(_text((_X0 + _X1) / 2, HEIGHT - 4, chart.x_unit, "middle"))
    parts += _breaks(chart.breaks, x_at)
    for one in series:
        dashed = " dashed" if one.dashed else ""
        path = _path(chart.x, one.values, x_at, y_at)
        parts.append(f'<path class="line c{one.colour}{dashed}" d="{path}"/>')
    parts += _labels(series, chart.y_format, y_at)
    parts += _bands(chart, x_at)
    return "".join([*parts, "</svg>"])


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about *count* round numbers from *low* or below to *high* or above."""
    span = high - low
    if not span > max(1e-12 * abs(high), 1e-100):
        return [low, low + (abs(low) or 1)]
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(step for step in (1, 2, 5, 10) if step * power >= raw * 0.999) * power
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def log_ticks(values: Sequence[float]) -> list[float]:
    """Return powers of ten around *values*, six at the most."""
    low = math.floor(math.log10(max(min(values), LOWEST)))
    high = max(math.ceil(math.log10(max(*values, LOWEST)) - 1e-9), low + 1)
    step = -(-(high - low) // 5)
    return [float(f"1e{power}") for power in range(high, low - step, -step)][::-1]


def short(value: float) -> str:
    """Return a number of three digits at the most, with k, M, G or T."""
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def power(value: float) -> str:
    """Return a share as a person writes it: 0.05, 0.001, 2.5e-7."""
    if value >= 0.000_95:
        return f"{value:.2g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def _scale(ticks: Sequence[float]) -> Callable[[float], float]:
    return lambda value: _Y0 - (value - ticks[0]) / (ticks[-1] - ticks[0]) * (_Y0 - _Y1)


def _log_scale(ticks: Sequence[float]) -> Callable[[float], float]:
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    return lambda value: _Y0 - (math.log10(max(value, ticks[0])) - low) / (high - low) * (_Y0 - _Y1)


def _path(
    xs: Sequence[float],
    values: Sequence[float | None],
    x_at: Callable[[float], float],
    y_at: Callable[[float], float],
) -> str:
    parts, pen = [], "M"
    for x, value in zip(xs, values, strict=True):
        if value is None:
            pen = "M"
            continue
        parts.append(f"{pen}{x_at(x):.1f} {y_at(value):.1f}")
        pen = "L"
    return "".join(parts)


def _labels(series: Sequence[Series], y_format: Format, y_at: Callable[[float], float]) -> list[str]:
    ends = []
    for one in series:
        last = next((value for value in reversed(one.values) if value is not None), None)
        if last is not None:
            ends.append((y_at(last), one, one.end or y_format(last)))
    ends.sort(key=lambda end: end[0])
    # Apart from each other, and none below the axis.
    places = [max(_Y1 + 2, end[0]) for end in ends]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + _LABEL)
    for i in range(len(places) - 1, -1, -1):
        limit = _Y0 - 8 if i == len(places) - 1 else places[i + 1] - _LABEL
        places[i] = min(places[i], limit)
    parts = []
    for place, (_, one, value) in zip(places, ends, strict=True):
        parts.append(
            f'<text class="name t{one.colour}" x="{_X1 + 6}" y="{place:.1f}">{escape(one.name)}</text>'
        )
        parts.append(_text(_X1 + 6, place + 12, value))
    return parts


def _breaks(breaks: Sequence[tuple[float, str]], x_at: Callable[[float], float]) -> list[str]:
    if not breaks:
        return []
    parts, free = [], -math.inf
    ends = [*(x_at(x) for x, _ in breaks[1:]), _X1]
    # Many lines would hide what they divide: marks above it will do.
    bottom = _Y0 if len(breaks) <= _MANY else _Y1 - 6
    for (x, label), end in zip(breaks, ends, strict=True):
        at = x_at(x)
        parts.append(f'<line class="break" x1="{at:.1f}" x2="{at:.1f}" y1="{_Y1 - 14}" y2="{bottom}"/>')
        # Where runs were short their labels would lie on each other: the number will do, or nothing.
        text = label if end - at > 40 else label.rpartition(" ")[2]
        room = 6.5 * len(text) + 6
        if at >= free and end - at > room:
            parts.append(_text(at + 3, _Y1 - 6, text))
            free = at + room
    return parts


def _bands(chart: Chart, x_at: Callable[[float], float]) -> list[str]:
    """Return invisible columns that show a note where the pointer is."""
    if not chart.notes:
        return []
    at = [x_at(x) for x in chart.x]
    parts = []
    for i, note in enumerate(chart.notes):
        left = (at[i - 1] + at[i]) / 2 if i else _X0
        right = (at[i] + at[i + 1]) / 2 if i + 1 < len(at) else _X1
        parts.append(
            f'<g class="band"><rect x="{left:.1f}" y="{_Y1}" width="{max(right - left, 0.1):.1f}" '
            f'height="{_Y0 - _Y1}"/><path d="M{at[i]:.1f} {_Y1}V{_Y0}"/><title>{escape(note)}</title></g>'
        )
    return parts


def _text(x: float, y: float, text: str, anchor: str = "") -> str:
    end = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{end}>{escape(text)}</text>'
