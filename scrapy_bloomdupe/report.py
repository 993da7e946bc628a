"""What does a person read of a seen-set in the log? Sentences with their figures and next steps.

It formats and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import message
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.state import State

_PLACES = {
    stats.ERROR_OPEN: "the state could not be opened; every request passes unfiltered",
    stats.ERROR_KEY: "the key of a request could not be made; the request passes unfiltered",
    stats.ERROR_RULES: "a rule failed; the request passes as it is",
    stats.ERROR_CHECK: "the seen-set could not answer; the request passes unfiltered",
    stats.ERROR_SERVER: (
        "the server that is shared did not answer; requests pass unjudged until it does, and their pages can "
        "be crawled by several crawls. None is lost"
    ),
    stats.ERROR_COMMIT: (
        "seen keys could not be written; they are kept in memory and tried again. Make room on the "
        "disk: what is not written when the process ends is crawled again by the next run"
    ),
    stats.ERROR_SYNC: "the state could not be brought to the disk; a power loss could cost it",
    stats.ERROR_REBUILD: (
        "the filter could not be made anew; the old one stays in force, with more layers to ask, until "
        "`bloomdupe rebuild`"
    ),
    stats.ERROR_CLOSE: (
        "the state could not be closed in order; what was not written is crawled again by the next run"
    ),
    stats.ERROR_HISTORY: "figures for `bloomdupe report` could not be kept, which does not touch the crawl",
    stats.ERROR_METRICS: "figures for Prometheus could not be read, which does not touch the crawl",
}


def size(num_bytes: float) -> str:
    """Return a size for people, in units of 1,000 bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def opened(state: State) -> str:
    """Return the line of a state that was opened."""
    info = state.filter.measure(1)
    confirm = "exact confirmation" if state.store is not None else "no exact store"
    if state.is_new:
        place = "temporary files" if state.temporary else str(state.directory)
        return (
            f"Seen-set: new in {place} for {info.capacity:,} keys at an error rate of "
            f"{info.error_rate:g} ({size(info.num_bytes)}, {info.layout}, {info.scheme}, {confirm})"
        )
    return (
        f"Seen-set: {state.num_keys():,} keys in {state.directory}, opened in "
        f"{state.open_seconds * 1000:.1f} ms ({size(info.num_bytes)}, {info.layout}, {info.scheme}, "
        f"{confirm})"
    )


def not_imported(seen: Path) -> str:
    """Return the notice of a job that was begun with Scrapy's own filter."""
    return (
        f"{seen} holds what Scrapy's own filter has seen ({size(seen.stat().st_size)}), which this new "
        f"seen-set does not know: its pages will be crawled again. To take it over, stop, run `bloomdupe "
        f"import {seen.parent}`, and resume"
    )


def unclean(state: State) -> str:
    """Return the notice of a state without a frontier whose last process was killed."""
    return (
        f"The last run on {state.directory} did not end in order, and it had no frontier. What it had seen "
        "is here, but requests that it had scheduled and not sent are marked as seen too, and if Scrapy's "
        "own queue lost them their pages are not crawled. Start in an empty directory to be sure of every "
        "page"
    )


def summary(state: State, counts: Mapping[Verdict, int]) -> str:
    """Return the one line of a crawl's end."""
    new = counts.get(Verdict.NEW, 0) + counts.get(Verdict.FALSE_POSITIVE, 0)
    parts = [f"{new:,} new"]
    exact = state.store is not None or state.seen.store is not None
    if exact or counts.get(Verdict.DUPLICATE):
        parts.append(f"{counts.get(Verdict.DUPLICATE, 0):,} duplicates")
    if exact:
        parts.append(f"{counts.get(Verdict.FALSE_POSITIVE, 0):,} false positives caught")
    if again := counts.get(Verdict.EXPIRED, 0):
        parts.append(f"{again:,} expired and crawled again")
    if not exact or counts.get(Verdict.UNCONFIRMED):
        parts.append(f"{counts.get(Verdict.UNCONFIRMED, 0):,} unconfirmed duplicates")
    if state.shared is not None:
        return f"Seen-set: {', '.join(parts)}; shared on {state.shared.parts.names}"
    info = state.filter.info()
    layers = "1 layer" if len(info.layers) == 1 else f"{len(info.layers)} layers"
    return (
        f"Seen-set: {', '.join(parts)}; {state.num_keys():,} keys in {layers}, {info.fill:.0%} full, error "
        f"rate {max(info.error_rate_estimate, 1e-12):.2g} (asked: {info.error_rate:g}), "
        f"{size(state.num_bytes())} on disk"
    )


def grew(growth: Growth) -> str:
    """Return the notice of a further layer."""
    return (
        f"The filter reached {growth.num_keys:,} keys and grew to {growth.layers} layers for "
        f"{growth.capacity:,} keys; the error rate stays as asked. A larger BLOOMDUPE_CAPACITY from the "
        "start makes checks faster"
    )


def overfull(growth: Growth, *, exact: bool) -> str:
    """Return the notice of a filter that could not grow."""
    cost = (
        "checks get slower; no page is lost, since the exact store confirms"
        if exact
        else "the share of pages lost to false positives rises, and the crawl will be stopped before it "
        "is ten times what was asked"
    )
    return (
        f"The filter is full with {growth.num_keys:,} keys and could not grow: {growth.error}. It goes on "
        f"over-full (error rate now {growth.rate:.2g}): {cost}. Make room for it"
    )


def full(growth: Growth, error_rate: float) -> str:
    """Return the notice of a crawl that is stopped for its filter."""
    return (
        f"The filter holds {growth.num_keys:,} keys, cannot grow ({growth.error}) and has no exact store "
        f"to confirm: its error rate is {growth.rate:.2g}, {error_rate:g} was asked for. The crawl is "
        "stopped so that no more pages are lost; make room on the disk and resume"
    )


def failed(where: str, exc: Exception, request: object | None) -> str:
    """Return the one warning of a place that failed."""
    of = f" ({request})" if request is not None else ""
    return f"Seen-set: {_PLACES[where]}{of}: {message(exc) or repr(exc)}. Counted in {where}, shown once"
