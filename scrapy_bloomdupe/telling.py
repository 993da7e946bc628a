"""What is said of a state when it is opened and closed? Stats and lines of the log, in their order.

``report`` makes the sentences, ``watch`` counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import scrapy_bloomdupe.report as report
import scrapy_bloomdupe.sharedreport as sharedreport
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import RemoteError, message
from scrapy_bloomdupe.shared.seen import SharedSeen
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stockjob import SEEN_NAME
from scrapy_bloomdupe.stores.sql import SqlStore
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)


def publish(state: State, watch: Watch) -> None:
    """Set the figures of a state.

    Raises:
        StoreError: the store could not be read.
    """
    info = state.filter.info()
    keys = state.num_keys()
    if state.shared is not None:
        keys = _shared_keys(state.shared) or keys
        if state.shared.parts.filter is not None:
            info = state.shared.parts.filter.info()
    watch.set(stats.KEYS, keys)
    watch.set(stats.LAYERS, len(info.layers))
    watch.set(stats.FILL, round(info.fill, 4))
    watch.set(stats.ERROR_RATE_ESTIMATE, float(f"{info.error_rate_estimate:.3g}"))
    watch.set(stats.FILTER_BYTES, info.num_bytes)


def _shared_keys(shared: SharedSeen) -> int | None:
    """Return how many keys all crawls have seen; None: a database, which counts them one by one."""
    if isinstance(shared.store, SqlStore):
        return None
    return shared.parts.num_keys()


def opened(state: State, watch: Watch, settings: BaseSettings) -> None:
    """Say what was opened, and what a person should know of it."""
    extra = {"spider": watch.spider}
    watch.set(stats.OPEN_SECONDS, round(state.open_seconds, 6))
    if state.is_new and (seen := _seen_by_scrapy(settings)):
        state.notices.append(report.not_imported(seen))
    if not state.was_clean and state.frontier is None:
        state.notices.append(report.unclean(state))
    for what in state.recovered:
        watch.count(stats.RECOVERED + what)
    for notice in state.notices:
        logger.warning(notice, extra=extra)
    line = report.opened(state) if state.shared is None else sharedreport.shared(state.shared, state)
    logger.info(line, extra=extra)


def closing(state: State, watch: Watch, rules: Iterable[str]) -> None:
    """Say what was found in the crawl; *rules* are a line for each."""
    extra = {"spider": watch.spider}
    try:
        publish(state, watch)
    except RemoteError as exc:
        # Said already, if requests had to pass for it.
        logger.debug("The server's figures are not known: %s", message(exc), extra=extra)
    except Exception as exc:
        watch.failed(stats.ERROR_CLOSE, exc)
    watch.attempt(
        stats.ERROR_CLOSE, lambda: logger.info(report.summary(state, watch.verdicts()), extra=extra)
    )
    for line in rules:
        logger.info("Rule %s", line, extra=extra)


def left_waiting(state: State, watch: Watch, settings: BaseSettings) -> None:
    """Warn of requests that were scheduled, not sent, and are not in a disk queue, where there is no
    frontier: they are marked as seen and nobody has them. With a JOBDIR those that Scrapy could not
    serialize."""
    waiting = watch.value("scheduler/enqueued/memory") - watch.value("scheduler/dequeued/memory")
    if waiting:
        if settings.get("JOBDIR"):
            text = (
                "%d requests were scheduled and not sent, and Scrapy could not write them to the JOBDIR "
                "(callbacks that are no methods of the spider, such as lambdas): they are lost, and marked "
                "as seen in %s. SCHEDULER_DEBUG shows them; use methods as callbacks"
            )
        else:
            text = (
                "%d requests were scheduled and not sent. There is no JOBDIR to keep them, and they are "
                "marked as seen in %s: the next run will not crawl them. Set JOBDIR, or leave "
                "BLOOMDUPE_FRONTIER on, to stop and resume a crawl"
            )
        logger.warning(text, waiting, state.directory, extra={"spider": watch.spider})


def _seen_by_scrapy(settings: BaseSettings) -> Path | None:
    """Return the file of Scrapy's own filter in the job directory, if it has something in it."""
    jobdir = settings.get("JOBDIR")
    path = Path(jobdir, SEEN_NAME) if jobdir else None
    return path if path is not None and path.is_file() and path.stat().st_size else None
