"""What does a person read about what is shared with other crawls, and about the server that has it?

Sentences for the log, and nothing else: ``report`` has those about the seen-set.
"""

from __future__ import annotations

from pathlib import Path

from scrapy_bloomdupe.errors import message
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.shared.parts import SharedParts
from scrapy_bloomdupe.shared.seen import SharedSeen
from scrapy_bloomdupe.shared.versions import Rebuilt
from scrapy_bloomdupe.state import State


def shared(shared: SharedSeen, state: State) -> str:
    """Return the line of a seen-set that is shared with other crawls."""
    parts = shared.parts
    names, exact = [], "no exact store: the filter's error rate costs pages"
    if parts.filter is not None:
        names.append(f"{parts.filter.kind} filter {parts.filter.path}")
        size = f" for {parts.filter.capacity:,} keys at an error rate of {parts.filter.error_rate:g}"
        names[-1] += size
    if parts.store is not None:
        names.append(f"exact store {parts.store.path}")
        exact = "exact" if shared.policy != "negatives" else "this crawl's own filter may skip a page"
    here = "temporary files" if state.temporary else str(state.directory)
    owed = (
        f"; {shared.num_owed:,} keys asked for when the last run ended pass once" if shared.num_owed else ""
    )
    unsafe = "" if state.frontier is not None else "; a kill loses what it was granted, without a frontier"
    return (
        f"Seen-set: shared by {' and '.join(names)}, {'new' if parts.was_created else 'found'} ({exact}); "
        f"this crawl's own part is in {here}{owed}{unsafe}"
    )


def given_up(count: int, lost: int) -> str:
    """Return the line of a crawl without a frontier that was stopped before it was done."""
    if lost:
        return (
            f"{count:,} requests were scheduled and not sent. They are marked as seen on the server, which "
            "cannot forget them: no crawl will have their pages. Set JOBDIR, so that the next run goes on "
            "with them"
        )
    return (
        f"{count:,} requests were scheduled and not sent. Their keys were given back to the server: whoever "
        "finds them again crawls them. Set JOBDIR, so that the next run goes on with them"
    )


def emptied(exc: Exception, on_empty: str) -> str:
    """Return the line of a server that has lost what had been seen."""
    what = {
        "pass": "It is made anew, empty, and the crawl goes on",
        "stop": "BLOOMDUPE_ON_EMPTY is 'stop': the crawl is stopped",
        "refill": "It is made anew and filled from this crawl's own store",
    }[on_empty]
    return f"{message(exc)}. {what}"


def emptied_between(parts: SharedParts, directory: Path) -> str:
    """Return the line of a server that is not what the last run of a job left."""
    return (
        f"{parts.names} is not what the last run on {directory} worked with: it was emptied, cleared or made "
        "anew, or is another server. Pages that were crawled before can be crawled again; none is lost"
    )


def renewed(names: str, refilled: int | None) -> str:
    """Return the line of a server that is in use again after it was emptied."""
    return f"{names} is in use again" + (f", with {refilled:,} keys of this crawl" if refilled else "")


def not_refilled(names: str, count: int, exc: BaseException) -> str:
    """Return the line of a refill that ended early."""
    return (
        f"{names} was filled with {count:,} keys only: {message(exc)}. Pages of the others can be crawled "
        "again; none is lost"
    )


def server_away(names: str, exc: BaseException) -> str:
    """Return the line of a server that did not answer when it was looked at."""
    return f"{names} does not answer: {message(exc) or repr(exc)}. Requests pass unjudged until it does"


def server_back(names: str) -> str:
    """Return the line of a server that answers again."""
    return f"{names} answers again"


def server_trouble(names: str, trouble: str) -> str:
    """Return the line of a server that will forget, or take no more."""
    return f"{names}: {trouble}"


def rebuilt_shared(path: str, rebuilt: Rebuilt, seconds: float) -> str:
    """Return the notice of a shared filter that this crawl has made anew."""
    return (
        f"{path} was made anew from the store: version {rebuilt.new}, {rebuilt.count:,} keys and "
        f"{rebuilt.caught_up:,} that came meanwhile, room for {rebuilt.capacity:,} keys; it took "
        f"{seconds:.1f} s beside the crawl"
    )


def followed(filter: RemoteFilter) -> str:  # noqa: A002
    """Return the notice of a shared filter that somebody has made anew."""
    return (
        f"{filter.path} was made anew from the store: this crawl goes on with version {filter.version}; "
        "nothing was lost"
    )
