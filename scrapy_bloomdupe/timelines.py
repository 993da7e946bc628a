"""What of a history is drawn over time? Six charts for the page, from its samples.

``charts`` draws one of them and knows no history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import scrapy_bloomdupe.charts as charts
from scrapy_bloomdupe.advice import Facts
from scrapy_bloomdupe.charts import Chart, Format, Series, power, short
from scrapy_bloomdupe.history import Sample
from scrapy_bloomdupe.markup import escape

# Moments that a chart shows: one in four pixels or so.
_MOMENTS = 80
# Of them so many are independent where a speed is shown.
_WINDOWS = 30
_UNITS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "hours"), (120, 60, "minutes"), (0, 1, "seconds"))
_TOO_FEW = (
    '<p class="none">One moment is not enough for a line. Look again later, or set a smaller '
    "<code>BLOOMDUPE_HISTORY</code>.</p>"
)


class Timelines:
    """The charts of one history.

    Args:
        samples: one or more.
    """

    def __init__(self, facts: Facts, samples: Sequence[Sample]) -> None:
        self._facts = facts
        self._picked = pick(samples, _MOMENTS)
        self._scale, self._unit = unit_of(samples[-1].seconds)
        self._x = [sample.seconds / self._scale for sample in self._picked]
        # A resumed crawl goes on where the one before it ended.
        self._breaks = [
            (before.seconds / self._scale, f"run {after.run}")
            for before, after in pairwise(samples)
            if after.run != before.run
        ]

    def draw(self) -> str:
        """Return all charts."""
        figures = [self._keys(), self._verdicts(), self._fill(), self._rate(), self._memory()]
        if any(sample.pending is not None for sample in self._picked):
            figures.append(self._pending())
        return f'<div class="charts">{"".join(figures)}</div>'

    def _keys(self) -> str:
        lines = [self._line("keys", lambda s: s.keys, 1), self._line("pages", lambda s: s.pages, 2)]
        text = "Keys that the seen-set knows, and responses that came in."
        return self._figure("Keys and pages", text, "number", short, lines)

    def _verdicts(self) -> str:
        lines = [
            self._speed("new", lambda s: s.new, 1),
            self._speed("duplicates", lambda s: s.duplicate + s.unconfirmed, 2),
        ]
        text = "Requests judged in a second, and their sum. Duplicates are not sent"
        if self._facts.exact:
            lines.append(self._speed("false pos.", lambda s: s.false_positive, 4))
            text += "; false positives are new pages that a bare Bloom filter loses."
        else:
            text += ", on the filter's word."
        return self._figure("Verdicts by kind", text, "requests per second", short, lines)

    def _fill(self) -> str:
        lines = [
            self._line("keys", lambda s: 100 * s.keys / s.capacity if s.capacity else None, 1),
            self._line("bits set", lambda s: 100 * s.fill, 3),
            self._line("capacity", lambda s: 100.0, 4, dashed=True),
        ]
        text = (
            "Keys as a share of the capacity, at which the filter grows by a layer, and the share of bits "
            "that are set, about half when full."
        )
        return self._figure("Fill", text, "percent", lambda value: f"{value:.3g}%", lines)

    def _rate(self) -> str:
        lines = [
            self._line("estimated", lambda s: max(s.error_rate, charts.LOWEST), 1),
            self._line("asked", lambda s: self._facts.asked, 4, dashed=True),
        ]
        text = "Share of new pages that the filter alone would call seen; on a logarithmic scale."
        return self._figure("Error rate", text, "share of new pages", power, lines, log=True)

    def _memory(self) -> str:
        lines = [self._line("disk", lambda s: s.num_bytes, 1)]
        if any(sample.anonymous_bytes is not None for sample in self._picked):
            lines.append(self._line("memory", lambda s: s.anonymous_bytes, 2))
        text = "All files of the state, and memory of the whole process without mapped files."
        return self._figure("Memory and disk", text, "bytes", short, lines)

    def _pending(self) -> str:
        lines = [self._line("pending", lambda s: s.pending, 1)]
        text = "Scheduled and not finished. Zero at the end: nothing was left over."
        return self._figure("Pending requests", text, "requests", short, lines)

    def _line(
        self, name: str, of: Callable[[Sample], float | None], colour: int, *, dashed: bool = False
    ) -> Series:
        return Series(name, [of(sample) for sample in self._picked], colour, dashed)

    def _speed(self, name: str, of: Callable[[Sample], float], colour: int) -> Series:
        end = f"{short(of(self._picked[-1]))} in all"
        least = self._picked[-1].seconds / _WINDOWS
        return Series(name, speeds(self._picked, of, least), colour, end=end)

    def _figure(
        self,
        title: str,
        text: str,
        y_unit: str,
        y_format: Format,
        lines: Sequence[Series],
        *,
        log: bool = False,
    ) -> str:
        chart = Chart(
            f"{title}. {text}",
            self._x,
            f"{self._unit} of crawling",
            y_unit,
            y_format,
            [self._note(i, lines, y_format) for i in range(len(self._picked))],
            self._breaks,
            log,
        )
        drawn = charts.draw(chart, lines) or _TOO_FEW
        return f"<figure><h3>{escape(title)}</h3><figcaption>{escape(text)}</figcaption>{drawn}</figure>"

    def _note(self, i: int, lines: Sequence[Series], y_format: Format) -> str:
        sample = self._picked[i]
        values = [
            f"{line.name}: {y_format(value)}" for line in lines if (value := line.values[i]) is not None
        ]
        return "\n".join([f"{clock(sample.time)}, run {sample.run}", *values])


def pick(samples: Sequence[Sample], count: int) -> list[Sample]:
    """Return *count* of the samples or fewer, evenly in time, the first and the last among them.

    Args:
        count: 3 or more.
    """
    if len(samples) <= count:
        return list(samples)
    step = (samples[-1].seconds - samples[0].seconds) / (count - 2)
    picked = [samples[0]]
    for sample in samples[1:-1]:
        if sample.seconds - picked[-1].seconds >= step and len(picked) < count - 1:
            picked.append(sample)
    return [*picked, samples[-1]]


def speeds(
    samples: Sequence[Sample], of: Callable[[Sample], float], least: float = 0.0
) -> list[float | None]:
    """Return what was counted per second before each sample; the first one has the second's.

    Args:
        least: seconds over which it is counted, or more: of shorter ones the speed would jump.
    """
    found: list[float | None] = []
    begin = 0
    for i in range(1, len(samples)):
        while begin + 1 < i and samples[i].seconds - samples[begin + 1].seconds >= max(least, 1e-9):
            begin += 1
        seconds = samples[i].seconds - samples[begin].seconds
        counted = max(of(samples[i]) - of(samples[begin]), 0)
        found.append(counted / seconds if seconds > 0 else None)
    return [found[0] if found else None, *found]


def unit_of(seconds: float) -> tuple[int, str]:
    """Return a unit for so many seconds: its length, and its name."""
    return next((length, name) for least, length, name in _UNITS if seconds >= least)


def clock(seconds: float) -> str:
    """Return a time since 1970 as text."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
