"""What do the stats of a crawl mean, and are they what the shop says they must be?"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MEANINGS = {
    "finish_reason": "why the crawl ended: `finished` is by itself, `shutdown` is Ctrl-C",
    "downloader/request_count": "requests sent, redirects and retries included",
    "retry/count": "answers that were errors and were asked for again",
    "item_scraped_count": "product pages; a product has several addresses, each is one",
    "dupefilter/filtered": "links not followed since their page had been asked for before",
    "bloomdupe/new": "never seen before; the Bloom filter alone was sure of it",
    "bloomdupe/duplicate": "seen before; the exact store confirmed each",
    "bloomdupe/false_positive": (
        "called seen by the Bloom filter, proved new by the store; a bare filter loses these pages"
    ),
    "bloomdupe/unconfirmed": (
        "called seen by the Bloom filter, with no store to ask; only if BLOOMDUPE_STORE is None"
    ),
    "bloomdupe/redirect_pass": (
        "redirects to the page that was asked for, let pass; Scrapy's own filter loses these pages"
    ),
    "bloomdupe/resumed": "requests of earlier runs that this one found pending, and sent",
    "bloomdupe/pending": "requests scheduled and not finished when the run ended",
    "bloomdupe/done": "requests finished by this run, their items and links with them",
    "bloomdupe/keys": "what the filter knows now, earlier runs included",
    "bloomdupe/filter_bytes": "size of the Bloom filter, a memory-mapped file",
}


@dataclass(frozen=True)
class Check:
    """Something that the shop knows about itself beside what came out of the crawl."""

    what: str
    expected: object
    got: object

    @property
    def ok(self) -> bool:
        return self.expected == self.got


def print_title(text: str) -> None:
    print(f"{text}\n{'=' * len(text)}\n", flush=True)


def print_text(text: str) -> None:
    print(textwrap.fill(text, 100), end="\n\n")


def print_stats(runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a column of stats per run, and what each line means.

    Args:
        runs: heading of the column -> Scrapy's stats. A counter that never counted is not in them,
            and means 0.
    """
    known = [name for name in MEANINGS if any(name in stats for stats in runs.values())]
    ours = any(name.startswith("bloomdupe/") for name in known)
    names = [name for name in MEANINGS if name in known or (ours and name.startswith("bloomdupe/"))]
    if len(runs) > 1:
        print(" " * 26 + "".join(f"{heading:>12}" for heading in runs))
    for name in names:
        columns = "".join(f"{_number(stats.get(name, 0)):>12}" for stats in runs.values())
        first, *more = textwrap.wrap(MEANINGS[name], 98 - 26 - 12 * len(runs))
        print(f"{name:<26}{columns}  {first}")
        for line in more:
            print(" " * (26 + 12 * len(runs) + 2) + line)
    print()


def print_remarks(runs: Mapping[str, Sequence[str]]) -> None:
    """Print what the filter wrote to the log of each run, if it did."""
    for heading, remarks in runs.items():
        if remarks:
            print(f"What the filter wrote to the log{heading and f' of the {heading}'}:")
            for remark in remarks:
                print(textwrap.fill(remark, 100, initial_indent="  ", subsequent_indent="    "))
            print()


def print_checks(checks: Sequence[Check]) -> bool:
    """Print what was expected and what came out.

    Returns:
        True if they agree throughout.
    """
    question = "Does it agree with what the shop knows about itself?"
    print(f"{question:<64}{'expected':>12}{'got':>12}")
    for check in checks:
        mark = "ok" if check.ok else "DIFFERS"
        print(f"  {check.what:<62}{_number(check.expected):>12}{_number(check.got):>12}  {mark}")
    good = all(check.ok for check in checks)
    print("\nAll as it must be.\n" if good else "\nSomething DIFFERS: see above.\n")
    return good


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
