"""What is counted of a crawl, and what is said of a failure? Stats, and one warning per place.

It decides nothing: a failure lets the request pass, in ``dupefilter``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import scrapy_bloomdupe.report as report
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import BloomdupeError
from scrapy_bloomdupe.seen import Verdict

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Watch:
    """The stats and the log of one crawl; without a crawler (a unit test) it counts nothing."""

    def __init__(self, crawler: Crawler | None) -> None:
        self._crawler = crawler
        self._stats = crawler.stats if crawler is not None else None
        # Scrapy's collector takes 2 us per count, more than a look at the filter: with a clock that calls
        # `flush` counts are kept here in between.
        self._counts: dict[str, int] | None = None
        self._said: set[str] = set()

    @property
    def spider(self) -> Spider | None:
        return self._crawler.spider if self._crawler is not None else None

    def count(self, name: str, number: int = 1) -> None:
        counts = self._counts
        if counts is not None:
            counts[name] = counts.get(name, 0) + number
        elif self._stats is not None:
            self._stats.inc_value(name, number)

    def count_on_flush(self) -> None:
        """From now on keep counts until ``flush``."""
        if self._stats is not None and self._counts is None:
            self._counts = {}

    def flush(self) -> None:
        """Give the counts that were kept to the stats."""
        counts = self._counts
        if counts and self._stats is not None:
            for name, count in counts.items():
                self._stats.inc_value(name, count)
            counts.clear()

    def set(self, name: str, value: Any) -> None:
        if self._stats is not None:
            self._stats.set_value(name, value)

    def stop(self) -> None:
        """Flush, and keep no counts from now on."""
        self.flush()
        self._counts = None

    def value(self, name: str) -> int:
        """Return a count; 0: not counted yet."""
        self.flush()
        return int(self._stats.get_value(name, 0)) if self._stats is not None else 0

    def verdicts(self) -> dict[Verdict, int]:
        """Return how often each verdict was given."""
        return {verdict: self.value(name) for verdict, name in stats.VERDICTS.items()}

    def is_first(self, where: str) -> bool:
        """Return true once per place: repeated trouble is counted, not said again."""
        if where in self._said:
            return False
        self._said.add(where)
        return True

    def attempt(self, where: str, function: Callable[[], object]) -> bool:
        """Call *function* and return whether it did not fail; a failure is counted at *where*."""
        try:
            function()
        except Exception as exc:
            self.failed(where, exc)
            return False
        return True

    def failed(self, where: str, exc: Exception, request: Request | None = None) -> None:
        """Count a failure, and warn of the first one of its place."""
        self.count(where)
        if self.is_first(where):
            # Of an error that we raised ourselves the message says all; of another one only the trace.
            expected = isinstance(exc, BloomdupeError)
            logger.warning(
                report.failed(where, exc, request),
                exc_info=None if expected else (type(exc), exc, exc.__traceback__),
                extra={"spider": self.spider},
            )
