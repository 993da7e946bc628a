"""Can Scrapy's own queue on the disk be trusted? And what is in one that nobody has a journal of?

Scrapy says what is in its queue when a crawl ends in order, and trusts the files blindly when it goes on:
after anything else they are torn. A queue that is not trusted is moved aside, never deleted.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mmh3
from scrapy.core.scheduler import Scheduler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.misc import load_object

from scrapy_bloomdupe.errors import StateUnusable

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

#: In a job directory.
QUEUE_NAME = "requests.queue"
#: In a job directory: a queue whose requests are to be taken over.
ADOPTED_NAME = "requests.queue.adopted"
_INDEX_NAME = "active.json"
_BLOCK = 1 << 20


def digest(queue: Path) -> str:
    """Return what changes with every byte of a queue's files; empty: there are none.

    About a second per gigabyte.

    Raises:
        OSError: it cannot be read.
    """
    hasher = mmh3.mmh3_x64_128()
    files = _files(queue)
    for path in files:
        hasher.update(f"{path.relative_to(queue)}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                hasher.update(block)
    return hasher.digest().hex() if files else ""


def holds_nothing(queue: Path) -> bool:
    """Return whether there is no request in the queue's files."""
    return _files(queue) == [] or (_files(queue) == [queue / _INDEX_NAME] and _index(queue) in ([], {}))


def is_closed_in_order(queue: Path) -> bool:
    """Return whether Scrapy has written what is in the queue; it can be of an earlier run."""
    return bool(_index(queue))


def move_aside(queue: Path) -> Path:
    """Give the queue a dated name beside it and return that.

    Raises:
        StateUnusable: the system refused.
    """
    stamp = time.strftime(f"{queue.name}.old-%Y%m%d-%H%M%S")
    aside, count = queue.with_name(stamp), 1
    while aside.exists():
        count += 1
        aside = queue.with_name(f"{stamp}-{count}")
    _rename(queue, aside)
    return aside


def put_for_adoption(queue: Path) -> Path:
    """Move the queue out of Scrapy's way, to where ``adopted`` reads it.

    Raises:
        StateUnusable: the system refused.
    """
    place = queue.with_name(ADOPTED_NAME)
    _rename(queue, place)
    return place


def adopted(crawler: Crawler, queue: Path) -> Iterator[Request]:
    """Give the requests of a queue, as Scrapy would; it stays as it is.

    Raises:
        Exception: whatever Scrapy's classes raise of files that are torn.
    """
    # Taking a request out changes the files.
    copy = queue.with_name(queue.name + ".copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(queue, copy / QUEUE_NAME)
    settings = crawler.settings
    try:
        scheduler = Scheduler(
            BaseDupeFilter(),
            jobdir=str(copy),
            dqclass=load_object(settings["SCHEDULER_DISK_QUEUE"]),
            mqclass=load_object(settings["SCHEDULER_MEMORY_QUEUE"]),
            stats=MemoryStatsCollector(crawler),
            pqclass=load_object(settings["SCHEDULER_PRIORITY_QUEUE"]),
            crawler=crawler,
        )
        assert crawler.spider is not None
        scheduler.open(crawler.spider)
        try:
            while scheduler.has_pending_requests() and (request := scheduler.next_request()) is not None:
                yield request
        finally:
            # It has files open; those that are torn cannot be closed in order.
            with contextlib.suppress(Exception):
                scheduler.close("")
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _index(queue: Path) -> Any:
    try:
        return json.loads((queue / _INDEX_NAME).read_bytes())
    except (OSError, ValueError):
        return None


def _files(queue: Path) -> list[Path]:
    return sorted(path for path in queue.rglob("*") if path.is_file())


def _rename(path: Path, place: Path) -> None:
    try:
        path.rename(place)
    except OSError as exc:
        raise StateUnusable(
            exc.errno,
            f"cannot move {path} to {place}: {exc.strerror}; check the permissions. Nothing was changed",
        ) from exc
