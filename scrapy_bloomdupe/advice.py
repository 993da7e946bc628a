"""What should a person do next, if something is off? Sentences, each from a condition on the figures.

It reads no file and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scrapy_bloomdupe.charts import power
from scrapy_bloomdupe.history import History, Sample

#: In order of urgency, with the word that stands before the sentence.
LEVELS = {"act": "Do something:", "watch": "Have a look:", "ok": "Fine:"}

# The filter's rate is expected, not exact: a little above what was asked is nothing.
_RATE_SLACK = 1.1
# As README says of the stats.
_MANY_LAYERS = 4
_SLOW_COMMITS = 0.1
# Fewer say nothing.
_FEW = 1_000
# Rules that are named.
_RULES = 3
# Bytes of anonymous memory that a person would notice, and how much more than at the run's begin.
_LARGE, _GROWTH = 500e6, 3

_ERRORS = {
    "open": "the state could not be opened: see the error in the log",
    "key": "the fingerprinter failed and the requests passed unfiltered: mend it",
    "rules": "a rule's function failed and the requests passed as they were: mend it",
    "check": "filter or store failed and the requests passed unfiltered: see the warning in the log",
    "commit": "keys or pending requests could not be written: make room on the disk",
    "sync": "the system could not bring the files to the disk: check the disk",
    "growth": "the full filter could not grow: make room on the disk",
    "close": "the state could not be closed in order: see the log",
    "history": "these figures could not always be kept: make room on the disk",
    "metrics": "the figures for Prometheus were not served: see the log, or take another port",
}


@dataclass(frozen=True)
class Facts:
    """What the files of a state say of themselves now.

    Attributes:
        directory: where it lies.
        keys, capacity, layers, fill, error_rate, num_bytes: as in ``history.Sample``.
        asked: the error rate that was asked for.
        exact: there is an exact store.
        pending, failed: requests in the frontier; None: there is none.
        in_order: the last run ended in order; not: it is under way, or did not.
    """

    directory: str
    keys: int
    capacity: int
    layers: int
    fill: float
    error_rate: float
    num_bytes: int
    asked: float
    exact: bool
    pending: int | None
    failed: int | None
    in_order: bool


@dataclass(frozen=True)
class Advice:
    """One sentence; ``level`` is one of ``LEVELS``."""

    level: str
    text: str


def advise(facts: Facts, history: History) -> list[Advice]:
    """Return what is to be said, the urgent first; never nothing."""
    found = [*_of_filter(facts), *_of_frontier(facts)]
    if history.samples:
        last = history.samples[-1]
        found += [
            *_of_errors(last),
            *_of_verdicts(facts, last),
            *_of_work(history, last),
            *_of_rules(history),
        ]
    else:
        found.append(
            Advice(
                "watch",
                "there is no history.jsonl in this directory, so nothing is shown over time. A crawl with "
                "a JOBDIR or BLOOMDUPE_DIR keeps one, unless BLOOMDUPE_HISTORY is 0: run the crawl (again), "
                "then this command",
            )
        )
    if history.damaged:
        found.append(
            Advice("watch", f"{history.damaged:,} lines of history.jsonl could not be read: left out")
        )
    if not any(advice.level in ("act", "watch") for advice in found):
        found.append(Advice("ok", "nothing is off in these figures"))
    order = list(LEVELS)
    return sorted(found, key=lambda advice: order.index(advice.level))


def _of_filter(facts: Facts) -> Iterator[Advice]:
    if facts.error_rate > _RATE_SLACK * facts.asked:
        cost = (
            "checks get slower, and no page is lost, since the exact store confirms"
            if facts.exact
            else "that share of the new pages is lost"
        )
        remedy = (
            "Stop the crawl and run `bloomdupe rebuild DIR` with a larger --capacity"
            if facts.exact
            else "Start anew with a larger BLOOMDUPE_CAPACITY, or with an exact store"
        )
        yield Advice(
            "watch" if facts.exact else "act",
            f"the filter is over-full: its error rate is {power(facts.error_rate)}, and {power(facts.asked)} "
            f"was asked for; {cost}. Make room on the disk if it could not grow. {remedy}",
        )
    elif facts.keys > 0.9 * facts.capacity:
        yield Advice(
            "ok",
            f"the filter holds {facts.keys:,} of {facts.capacity:,} keys and will soon grow by a layer; keep "
            f"room on the disk for it (some {facts.num_bytes / 1e6:,.0f} MB will do)",
        )
    if facts.layers > _MANY_LAYERS:
        yield Advice(
            "watch",
            f"the filter has {facts.layers} layers, and every new page asks them all: `bloomdupe rebuild DIR "
            f"--capacity {2 * facts.keys:,}` on the stopped crawl makes one of them".replace(",", "_")
            if facts.exact
            else f"the filter has {facts.layers} layers, and every new page asks them all: the next "
            "crawl should have a larger BLOOMDUPE_CAPACITY",
        )


def _of_frontier(facts: Facts) -> Iterator[Advice]:
    if facts.pending and facts.in_order:
        yield Advice(
            "watch",
            f"{facts.pending:,} requests are pending: the crawl was stopped before its end. The same command "
            "goes on with them; `bloomdupe pending DIR` lists them",
        )
    elif facts.pending is not None and not facts.in_order:
        yield Advice(
            "watch",
            f"{facts.pending:,} requests are pending, and the last run is under way or was killed. If no "
            "crawl is running, the same command goes on and misses nothing",
        )
    if facts.failed:
        yield Advice(
            "watch",
            f"{facts.failed:,} requests failed and are kept: the next run asks them again with "
            "BLOOMDUPE_RETRY_FAILED; `bloomdupe pending DIR --failed` lists them",
        )


def _of_errors(last: Sample) -> Iterator[Advice]:
    for where, count in last.errors.items():
        meaning = _ERRORS.get(where, "see the log")
        level = "watch" if where in ("history", "metrics") else "act"
        errors = "1 error" if count == 1 else f"{count:,} errors"
        yield Advice(level, f"{errors} in bloomdupe/error/{where}: {meaning}")


def _of_verdicts(facts: Facts, last: Sample) -> Iterator[Advice]:
    pages = last.new + last.false_positive
    expected = pages * max(facts.error_rate, facts.asked)
    if last.false_positive > 20 + 5 * expected:
        yield Advice(
            "watch",
            f"{last.false_positive:,} false positives among {pages:,} new pages, some {expected:,.0f} were "
            "to be expected. None of these pages was lost. After a kill that is normal (the filter "
            "knew keys whose store was not written); else run `bloomdupe check DIR`",
        )
    if not facts.exact and last.unconfirmed:
        lost = pages * facts.error_rate
        cost = "less than 1 page" if lost < 1 else f"about {lost:,.0f} pages"
        yield Advice(
            "ok" if lost < 1 else "watch",
            f"there is no exact store: by the filter's error rate {cost} of {pages:,} new ones was called "
            f"seen and lost (among the {last.unconfirmed:,} that were called so). BLOOMDUPE_STORE = 'lmdb' "
            "loses none",
        )
    duplicates = last.duplicate + last.unconfirmed
    if duplicates > 100 * _FEW and last.cached < 0.3 * duplicates:
        yield Advice(
            "ok",
            f"{last.cached / duplicates:.0%} of the duplicates were known by their exact URL; the others "
            "took a key each. A larger BLOOMDUPE_CACHE_SIZE saves time if the site repeats its links",
        )


def _of_work(history: History, last: Sample) -> Iterator[Advice]:
    if last.seconds > 10 and last.commit_seconds > _SLOW_COMMITS * last.seconds:
        yield Advice(
            "watch",
            f"writing took {last.commit_seconds / last.seconds:.0%} of the crawl's time: a slow disk, or "
            'BLOOMDUPE_SYNC = "full"',
        )
    first = next(sample for sample in history.samples if sample.run == last.run)
    before, now = first.anonymous_bytes, last.anonymous_bytes
    if before and now and now > _LARGE and now > _GROWTH * before:
        yield Advice(
            "watch",
            f"the process grew from {before / 1e6:,.0f} to {now / 1e6:,.0f} MB of anonymous memory in run "
            f"{last.run}. The seen-set takes some 20 MB of that: without a JOBDIR it is the queue, else see "
            "what the spider keeps",
        )


def _of_rules(history: History) -> Iterator[Advice]:
    blind = []
    for name, figures in history.top.rules.items():
        found, missing = figures.counts.get("key", 0), figures.counts.get("missing", 0)
        if missing > max(_FEW / 10, found):
            blind.append((missing, found, name))
    blind.sort(reverse=True)
    for missing, found, name in blind[:_RULES]:
        yield Advice(
            "watch",
            f"the rule {name!r} found no id in {missing:,} of the {found + missing:,} requests that it is "
            "for: the site may have changed its URLs, or the rule is too wide; ask `bloomdupe explain URL`",
        )
    if len(blind) > _RULES:
        yield Advice("watch", f"{len(blind) - _RULES:,} further rules found no id in most of their requests")
