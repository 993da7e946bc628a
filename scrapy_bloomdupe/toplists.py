"""What did the rules merge, and which hosts repeat themselves? Two tables for the page."""

from __future__ import annotations

from scrapy_bloomdupe.history import RuleFigures, Top
from scrapy_bloomdupe.markup import escape
from scrapy_bloomdupe.tophosts import EXACT, SCALE

_HOSTS = 20
_COLUMNS = {
    "key": "with an id",
    "missing": "without one",
    "duplicates": "duplicates",
    "merged": "by another URL",
    "dropped": "dropped",
    "rewritten": "rewritten",
}


def rules(top: Top) -> str:
    """Return the table of rules, those that merged the most first, and their pairs."""
    if not top.rules:
        return (
            '<p class="soft">No rule or preset has spoken in these crawls: what is a duplicate is what the '
            "project's fingerprinter says.</p>"
        )
    ordered = sorted(top.rules.items(), key=lambda item: -item[1].counts.get("merged", 0))
    head = "".join(f"<th>{escape(text)}</th>" for text in _COLUMNS.values())
    rows = "".join(
        f"<tr><td><bdi>{escape(name, 60)}</bdi></td>{_cells(figures)}</tr>" for name, figures in ordered
    )
    return (
        '<p class="soft">Requests by what a rule found in them, those that were duplicates of a page, and '
        "among these the ones whose URL was not the first one of that page (of the last 10,000 "
        "pages). The pairs are to look at: is each one page?</p>"
        f'<div class="wide"><table><thead><tr><th>rule</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{''.join(_pairs(name, figures) for name, figures in ordered)}"
    )


def hosts(top: Top) -> str:
    """Return the table of hosts, with bars."""
    if not top.hosts:
        return '<p class="soft">No duplicates yet.</p>'
    most = max(count for _, count in top.hosts) or 1
    rows = "".join(
        f"<tr><td><bdi>{escape(host, 80)}</bdi></td><td>{count:,}</td>"
        f'<td class="bar"><i style="width:{100 * count / most:.1f}%"></i></td></tr>'
        for host, count in top.hosts[:_HOSTS]
    )
    slack = f" There were many hosts: a count can lack {top.slack:,}." if top.slack else ""
    return (
        f'<p class="soft">Requests that were filtered, the first {_HOSTS} hosts. The first {EXACT:,} of a '
        f"run are counted one by one, later ones by a random sample of 1 in {SCALE}: a count of 10,000 is "
        f"right to about 800.{slack}</p>"
        "<table><thead><tr><th>host</th><th>duplicates</th><th></th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _cells(figures: RuleFigures) -> str:
    # A preset has no id to find, a rule that only makes keys drops nothing.
    counts = (figures.counts.get(what, 0) for what in _COLUMNS)
    return "".join(f"<td>{count:,}</td>" if count else "<td>&#8211;</td>" for count in counts)


def _pairs(name: str, figures: RuleFigures) -> str:
    if not figures.pairs:
        return ""
    items = "".join(
        f'<li><code><bdi>{escape(second, 300)}</bdi></code><span class="soft">was taken for</span>'
        f"<code><bdi>{escape(first, 300)}</bdi></code></li>"
        for first, second in figures.pairs
    )
    return f'<div class="card"><h3><bdi>{escape(name, 60)}</bdi></h3><ol>{items}</ol></div>'
