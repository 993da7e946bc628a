"""What does a run that goes on have to ask again? Requests from the journal, a few at a time.

After a run that ended in order Scrapy's own queue has them, but for those that it cannot hold; after any
other one the journal gives all of them back, before the spider's own start requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

import scrapy_bloomdupe.jobreport as jobreport
from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.records import Record, name_of
from scrapy_bloomdupe.unit import META_UNIT
from scrapy_bloomdupe.units import Units

if TYPE_CHECKING:
    from scrapy import Request, Spider

logger = logging.getLogger(__name__)


class Resumption:
    """The requests of earlier runs.

    Args:
        units: takes them.
        load: bytes -> request; raises if that is not possible.
        knows: whether a key is seen.
        whole: give all that is pending; else what the last run's seal says.

    Attributes:
        num_replayed: requests given.
        num_unreadable: pending requests that cannot be restored; they stay pending, too.
    """

    def __init__(
        self,
        units: Units,
        journal: Journal,
        spider: Spider,
        load: Callable[[bytes], Request],
        *,
        knows: Callable[[bytes], bool],
        whole: bool,
    ) -> None:
        self._knows = knows
        self.num_replayed = self.num_unreadable = 0
        self._units = units
        self._journal = journal
        self._spider = spider
        self._load = load
        self._whole = whole
        self._foreign: set[int] = set()
        self._stuck: set[int] = set()
        self._tried: set[int] = set()
        # Failed ones that were given and filtered.
        self._doubtful: list[Record] = []

    def requests(self) -> Iterator[Request]:
        """Give the requests to be asked again, in the order in which they were scheduled."""
        for record in self._pending():
            if (request := self._restore(record)) is not None:
                self._units.replay(request, record.number)
                self.num_replayed += 1
                yield request
        for record in self._journal.records(failed=True):
            # What cannot be restored, or is of another spider, stays where it is.
            request, _ = self._load_record(record)
            if request is not None:
                # They were forgotten: a new request, unless somebody has found it in between.
                request.meta.pop(META_UNIT, None)
                self.num_replayed += 1
                yield request
                if META_UNIT in request.meta:
                    # It is pending under another number.
                    self._journal.retire_failed(record.number)
                else:
                    self._doubtful.append(record)

    def finish(self) -> None:
        """Take off the failed requests that were filtered, at the end: their page was found by others. Unless
        it has failed there too, or waits: then they stay for the next run."""
        if len(self._journal):
            return
        for record in self._doubtful:
            if record.key is not None and self._knows(record.key):
                self._journal.retire_failed(record.number)

    def stranded(self) -> Iterator[Request]:
        """Give the pending requests that nobody is at work on, once each: the crawl is idle.

        Something took them between the journal and the downloader: a queue that could not be written, or
        read, a handler of ``request_scheduled``.
        """
        if len(self._journal) <= self._units.num_active + self.num_foreign + len(self._stuck):
            return
        for record in self._journal.records():
            number = record.number
            if self._units.is_active(number) or number in self._stuck or number in self._foreign:
                continue
            if number in self._tried:
                self._stuck.add(number)
                logger.error(jobreport.stuck(number), extra={"spider": self._spider})
            elif (request := self._restore(record)) is not None:
                self._tried.add(number)
                self._units.replay_stranded(request, number)
                self.num_replayed += 1
                yield request

    @property
    def num_foreign(self) -> int:
        """Pending requests of other spiders, which stay pending."""
        return len(self._foreign)

    @property
    def num_lost(self) -> int:
        """Pending requests that this run cannot do."""
        return len(self._stuck)

    def is_done(self, start: Request) -> bool:
        """Return whether a start request was scheduled by the run that goes on here; asked once for each."""
        name = self.name_of_start(start) if self._whole else None
        return name is not None and self._journal.skip_start(name)

    def name_of_start(self, start: Request) -> bytes | None:
        """Return 16 bytes that tell a start request from others, or None if that is not possible.

        All of it counts, not its fingerprint alone: one URL is often asked for with several callbacks or
        cookie jars.
        """
        try:
            parts = start.to_dict(spider=self._spider)
        except Exception:
            return None
        parts["meta"] = {name: value for name, value in parts["meta"].items() if name != META_UNIT}
        text = f"{self._spider.name} {sorted(parts.items())!r}"
        return blake2b(text.encode(errors="replace"), digest_size=16).digest()

    def _pending(self) -> Iterator[Record]:
        if self._whole:
            yield from self._journal.records(below=self._journal.first)
        elif (seal := self._journal.seal) is not None:
            for number in seal.again:
                if (record := self._journal.get(number)) is not None:
                    yield record

    def _restore(self, record: Record) -> Request | None:
        request, problem = self._load_record(record)
        if problem:
            self.num_unreadable += 1
            self._stuck.add(record.number)
            logger.error(jobreport.unreadable(record, problem), extra={"spider": self._spider})
        elif request is None:
            self._foreign.add(record.number)
        return request

    def _load_record(self, record: Record) -> tuple[Request | None, str]:
        """Return the request, or what is wrong with it; neither: it is of another spider."""
        if record.damaged:
            return None, "its record is damaged"
        if record.spider != name_of(self._spider.name):
            return None, ""
        try:
            return self._load(record.request), ""
        except Exception as exc:
            return None, f"{type(exc).__name__}: {exc}"
