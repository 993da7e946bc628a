"""What is to be done about Scrapy's own queue before Scrapy opens it?

It is trusted if it is what the last run's seal says; moved aside if the journal has what was in it; and taken
over into the journal if a job without one goes on with one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import scrapy_bloomdupe.jobreport as jobreport
import scrapy_bloomdupe.requestbytes as requestbytes
import scrapy_bloomdupe.requestqueue as requestqueue
from scrapy_bloomdupe.assembling import last_seal
from scrapy_bloomdupe.errors import BloomdupeError, ConfigurationError
from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.records import Record
from scrapy_bloomdupe.statefiles import make_directory
from scrapy_bloomdupe.unit import META_UNIT

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_CHUNK = 1_000


@dataclass
class QueueCheck:
    """What was found.

    Attributes:
        queue: Scrapy's queue; None: the crawl has none.
        trusted: it holds what the last run left pending.
        recovered: it was moved aside, and the journal has what was in it.
        notices: sentences that a person should read.
        remarks: sentences that explain what a person may find.
    """

    queue: Path | None = None
    trusted: bool = False
    recovered: bool = False
    notices: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def check_queue(jobdir: Path | None, directory: Path) -> QueueCheck:
    """Look at the queue in *jobdir*, and move it where it does no harm if it is not to be trusted.

    What cannot be looked at stays: opening the state, which comes next, refuses it and says why.

    Args:
        directory: of the state.

    Raises:
        BloomdupeError: the queue could not be moved.
    """
    if jobdir is None:
        return QueueCheck()
    check = QueueCheck(jobdir / requestqueue.QUEUE_NAME)
    try:
        make_directory(directory)
        lock = DirectoryLock(directory)
    except BloomdupeError:
        return check
    try:
        has_journal, seal = last_seal(directory, lock)
    except BloomdupeError:
        return check
    else:
        _judge(check, has_journal=has_journal, sealed=seal.queue if seal is not None else None)
    finally:
        lock.release()
    return check


def refuse_half_adopted(jobdir: Path) -> None:
    """Make sure that a crawl without a journal leaves no requests behind.

    Raises:
        ConfigurationError: a queue is being taken over into the journal.
    """
    place = jobdir / requestqueue.ADOPTED_NAME
    if place.exists():
        raise ConfigurationError(
            f"{place} holds requests that a journal was about to take over: their pages would be lost. Leave "
            "BLOOMDUPE_JOURNAL on until the job is finished"
        )


def _judge(check: QueueCheck, *, has_journal: bool, sealed: str | None) -> None:
    queue = check.queue
    assert queue is not None
    if has_journal and sealed is not None and sealed == requestqueue.digest(queue):
        check.trusted = True
    elif requestqueue.holds_nothing(queue):
        return
    elif has_journal:
        aside = requestqueue.move_aside(queue)
        check.recovered = True
        check.remarks.append(jobreport.queue_aside(queue, aside))
    elif requestqueue.is_closed_in_order(queue):
        requestqueue.put_for_adoption(queue)
    else:
        aside = requestqueue.move_aside(queue)
        check.notices.append(jobreport.queue_unreadable(queue, aside, "its index is missing or torn"))


def adopt(
    crawler: Crawler, journal: Journal, key_of: Callable[[Request], bytes | None], queue: Path | None
) -> list[str]:
    """Take the requests of a queue that was put for adoption into the journal; return notices.

    Args:
        key_of: the key that the duplicate filter would judge a request by.
        queue: where Scrapy's queue is; None: there is none.

    Cut short, it begins anew the next time; the queue is moved aside when all is written.

    Raises:
        BloomdupeError: the journal could not be written, or the queue not be moved.
    """
    place = queue.with_name(requestqueue.ADOPTED_NAME) if queue is not None else None
    spider = crawler.spider
    if place is None or not place.exists() or spider is None:
        return []
    journal.clear()
    dump = requestbytes.RequestWriter(spider)
    count, problem = 0, ""
    try:
        for request in requestqueue.adopted(crawler, place):
            number = journal.next_number()
            request.meta[META_UNIT] = f"{journal.token}:{number}"
            key = None if request.dont_filter else _key_or_none(key_of, request)
            journal.add(Record(number, key, spider.name, dump(request)))
            count += 1
            if count % _CHUNK == 0:
                journal.environment.commit()
    except BloomdupeError:
        raise
    except Exception as exc:
        # Of Scrapy's classes: the rest of the files is torn.
        problem = f"{type(exc).__name__}: {exc}"
    journal.environment.commit()
    aside = requestqueue.move_aside(place)
    logger.info(jobreport.adopted(count, aside), extra={"spider": spider})
    return [jobreport.queue_unreadable(place, aside, problem)] if problem else []


def _key_or_none(key_of: Callable[[Request], bytes | None], request: Request) -> bytes | None:
    try:
        return key_of(request)
    except Exception:
        # Of the project's fingerprinter; the filter lets such a request pass, and counts it.
        return None
