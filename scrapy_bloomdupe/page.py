"""What does a person see of a history? One page: figures, advice, charts, rules and hosts.

Self-contained: no script, no network. Its parts come from ``advice``, ``timelines`` and ``toplists``;
``cli_report`` reads and writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import scrapy_bloomdupe.toplists as toplists
from scrapy_bloomdupe.advice import LEVELS, Facts, advise
from scrapy_bloomdupe.charts import LOWEST, power, short
from scrapy_bloomdupe.history import History, Sample
from scrapy_bloomdupe.markup import POLICY, STYLE, escape
from scrapy_bloomdupe.report import size
from scrapy_bloomdupe.timelines import Timelines, clock, unit_of


def make_page(facts: Facts, history: History, now: float) -> str:
    """Return the page; it is well-formed XML, too.

    Args:
        now: seconds since 1970.
    """
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>Seen-set {escape(facts.directory, 80)}</title><style>{STYLE}</style></head><body>",
        f"<h1>Seen-set <bdi>{escape(facts.directory)}</bdi></h1>",
        f'<p class="soft">{escape(_when(history.samples, now))}</p>',
        _tiles(facts, history),
        "<h2>What to do next</h2>",
        _advice(facts, history),
    ]
    if history.samples:
        parts.append("<h2>Over time</h2>")
        parts.append(Timelines(facts, history.samples).draw())
        parts.append("<h2>Rules, by what they merged</h2>")
        parts.append(toplists.rules(history.top))
        parts.append("<h2>Hosts, by duplicates</h2>")
        parts.append(toplists.hosts(history.top))
    parts.append('<footer class="soft">Made by <code>bloomdupe report</code>.</footer></body></html>\n')
    return "\n".join(parts)


def _when(samples: Sequence[Sample], now: float) -> str:
    made = f"Looked at {clock(now)}."
    if not samples:
        return made
    runs = "1 run" if samples[-1].run == 1 else f"{samples[-1].run:,} runs"
    seconds, unit = unit_of(samples[-1].seconds)
    return (
        f"{made} {runs} since {clock(samples[0].time)}, the last figures of {clock(samples[-1].time)}; "
        f"{samples[-1].seconds / seconds:,.3g} {unit} of crawling."
    )


def _tiles(facts: Facts, history: History) -> str:
    rate = max(facts.error_rate, LOWEST)
    tiles = [
        (_count(facts.keys), "keys known"),
        (f"{facts.keys / facts.capacity:.1%}", f"of the capacity of {short(facts.capacity)} keys"),
        (
            f"{'< ' if facts.error_rate < rate else ''}{power(rate)}",
            f"error rate, {power(facts.asked)} asked",
        ),
    ]
    if history.samples:
        last = history.samples[-1]
        tiles.append((_count(last.pages), "pages received"))
        tiles.append((_count(last.duplicate + last.unconfirmed), "duplicates"))
        if facts.exact:
            tiles.append((_count(last.false_positive), "false positives caught by the store"))
        if last.anonymous_bytes is not None:
            tiles.append((size(last.anonymous_bytes), "memory, without mapped files"))
    if facts.pending is not None:
        tiles.append((_count(facts.pending), "requests pending"))
    tiles.append((size(facts.num_bytes), "on disk"))
    cells = (
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for value, what in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _count(number: int) -> str:
    # Eight digits are wider than their tile.
    return f"{number:,}" if number < 10_000_000 else short(number)


def _advice(facts: Facts, history: History) -> str:
    items = (
        f'<li class="{advice.level}"><b>{escape(LEVELS[advice.level])}</b> '
        f"<bdi>{escape(advice.text[0].upper() + advice.text[1:], 1_000)}.</bdi></li>"
        for advice in advise(facts, history)
    )
    return f'<ul class="todo">{"".join(items)}</ul>'
