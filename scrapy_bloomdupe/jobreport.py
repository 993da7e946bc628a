"""What does a person read about the requests of a job: pending, given again, in memory only? And its feeds.

Sentences for the log, and nothing else: ``report`` has those about the seen-set.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scrapy_bloomdupe.errors import message
from scrapy_bloomdupe.records import Record
from scrapy_bloomdupe.state import State


def left_waiting(state: State, count: int, *, jobdir: bool) -> str:
    """Return the notice of a crawl without a journal that was stopped with requests in memory only."""
    if jobdir:
        return (
            f"{count:,} requests were scheduled and not sent, and Scrapy could not write them to the JOBDIR "
            "(callbacks that are no methods of the spider, such as lambdas): they are lost, and marked as "
            f"seen in {state.directory}. SCHEDULER_DEBUG shows them; use methods as callbacks"
        )
    return (
        f"{count:,} requests were scheduled and not sent. There is no JOBDIR to keep them, and they are "
        f"marked as seen in {state.directory}: the next run will not crawl them. Set JOBDIR, or leave "
        "BLOOMDUPE_JOURNAL on, to stop and resume a crawl"
    )


def replaying(count: int, directory: Path, *, was_clean: bool) -> str:
    """Return the notice of a run that goes on from the journal."""
    why = (
        "Scrapy's own queue does not hold what the last run left"
        if was_clean
        else "The last run did not end in order"
    )
    return f"{why}: its {count:,} pending requests are asked again from the journal in {directory}"


def queue_aside(queue: Path, aside: Path) -> str:
    """Return the notice of a queue of Scrapy's that is not trusted."""
    return (
        f"{queue} was moved to {aside.name}: it was not closed in order, or was changed since, and the "
        "journal has what was in it. It can be deleted"
    )


def queue_unreadable(queue: Path, aside: Path, problem: str) -> str:
    """Return the notice of a queue that there is no journal of, and that cannot be read."""
    return (
        f"{queue} was not closed in order, and no journal knows what was in it ({problem}): it was moved to "
        f"{aside.name}. Pages that were waiting in it may never be crawled; start in an empty directory to "
        "be sure of every page"
    )


def adopted(count: int, queue: Path) -> str:
    """Return the line of a queue whose requests the journal took over."""
    return f"The journal took over {count:,} requests that waited in {queue}"


def stuck(number: int) -> str:
    """Return the line of a request that was put back and did not arrive."""
    return (
        f"Pending request {number} was scheduled again and never reached the downloader; it stays pending. "
        "See what drops it (a handler of request_scheduled, a full disk), and run the crawl again"
    )


def unreadable(record: Record, problem: str) -> str:
    """Return the line of a pending request that cannot be restored."""
    return (
        f"Pending request {record.number} cannot be restored: {problem}. Its page is not crawled by this "
        "run, and stays pending. Give the spider back what is missing, or see `bloomdupe pending`"
    )


def foreign(count: int) -> str:
    """Return the line of pending requests of another spider."""
    return f"{count:,} pending requests are of another spider and stay pending until it is run again"


def in_memory(request: object) -> str:
    """Return the line of a request that cannot be written."""
    return f"Not written, since its callback is no method of the spider or it holds what cannot be: {request}"


def in_memory_total(count: int) -> str:
    """Return the line that sums them up."""
    return (
        f"{count:,} requests are in memory only. The next run asks the pages that gave them again, and the "
        "start requests among them; what other code scheduled is gone, but not marked as seen"
    )


def not_written(state: State, exc: Exception) -> str:
    """Return the line of a crawl that is stopped because the journal could not be written."""
    return (
        f"The journal in {state.directory} could not be written: {message(exc) or repr(exc)}. The crawl is "
        "stopped: what it had not written is asked again by the next run. Make room on the disk, and start "
        "it again"
    )


def unsafe_feeds(uris: Sequence[str]) -> str:
    """Return the notice of feeds that a killed process takes with it."""
    return (
        f"Items of these feeds are only stored when the crawl ends, and are lost if it is killed, while "
        f"their pages count as done: {', '.join(uris)}. Local files without postprocessing are complete"
    )


def mended_feeds(uris: Sequence[str]) -> str:
    """Return the notice of feeds whose last line was torn."""
    return (
        f"The last line of these feeds was torn, and was ended: {', '.join(uris)}. It is no whole item; its "
        "page is asked again"
    )


def overwriting_feeds(uris: Sequence[str]) -> str:
    """Return the notice of feeds that a resumed crawl has emptied."""
    return (
        f"This job goes on, and these feeds are overwritten: {', '.join(uris)}. The items of earlier runs "
        "are no more in them; use -o, or overwrite: False"
    )
