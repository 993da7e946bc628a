"""What becomes of a request in the downloader, and of its callback's output? A middleware of both chains.

It stands next to the engine: it sees every output that the engine gets, is asked first about a request, and
last about a failed download. It decides nothing: ``units`` does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import CloseSpider, IgnoreRequest

import scrapy_bloomdupe.engine as engine
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.journaling import Journaling, of_crawler
from scrapy_bloomdupe.unit import Unit
from scrapy_bloomdupe.units import Units, in_middlewares_of

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response


def attach(crawler: Crawler) -> None:
    """Put ``JournalMiddleware`` where it belongs, if the settings do not. To be called while the scheduler is
    made: before the spider's start requests go through the middlewares.

    Raises:
        ConfigurationError: Scrapy's middlewares are not as this release knows them.
    """
    running: Any = crawler.engine
    try:
        if crawler.get_spider_middleware(JournalMiddleware) is None:
            engine.add_next_to_engine(running.scraper.spidermw, JournalMiddleware(crawler))
        if crawler.get_downloader_middleware(JournalMiddleware) is None:
            engine.add_next_to_engine(running.downloader.middleware, JournalMiddleware(crawler))
    except AttributeError as exc:
        raise ConfigurationError(
            f"the journal cannot be switched on by itself on this release of Scrapy ({exc}): set ADDONS = "
            '{"scrapy_bloomdupe.Addon": 500}, or BLOOMDUPE_JOURNAL = False to go without'
        ) from exc


# Requests put back in one turn of the loop: some milliseconds.
_BATCH = 20


class JournalMiddleware:
    """Tells the journal what becomes of requests; a spider and a downloader middleware in one.

    To stand next to the engine in both: nothing may change a request or an output after it. The duplicate
    filter puts it there by itself where the settings do not.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> JournalMiddleware:
        return cls(crawler)

    @property
    def _journaling(self) -> Journaling | None:
        # The journal is opened after the middlewares.
        return of_crawler.get(self._crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        journaling = self._journaling
        if journaling is not None:
            for count, request in enumerate(journaling.resumption.requests(), start=1):
                yield request
                if count % _BATCH == 0:
                    # Scrapy takes them as fast as they come; the crawl has to go on meanwhile.
                    await engine.next_turn()
                if journaling.closed:
                    return
        async for output in start:
            if journaling is None or not isinstance(output, Request) or journaling.start(output):
                yield output

    def process_spider_input(self, response: Response, spider: Spider | None = None) -> None:
        if (journaling := self._journaling) is not None:
            journaling.units.delivered(response)

    def process_spider_output(
        self, response: Response, result: Iterable[Any], spider: Spider | None = None
    ) -> Iterator[Any]:
        journaling = self._journaling
        unit = journaling.units.of(response) if journaling is not None else None
        if journaling is None or unit is None:
            yield from result
            return
        try:
            for output in result:
                _gave(journaling.units, unit, output)
                yield output
        except Exception as exc:
            _raised(journaling.units, unit, exc)
            raise
        _exhausted(journaling.units, unit, response)

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        journaling = self._journaling
        unit = journaling.units.of(response) if journaling is not None else None
        if journaling is None or unit is None:
            async for output in result:
                yield output
            return
        try:
            async for output in result:
                _gave(journaling.units, unit, output)
                yield output
        except Exception as exc:
            _raised(journaling.units, unit, exc)
            raise
        _exhausted(journaling.units, unit, response)

    def process_spider_exception(
        self, response: Response, exception: Exception, spider: Spider | None = None
    ) -> None:
        journaling = self._journaling
        if journaling is not None and (unit := journaling.units.of(response)) is not None:
            _raised(journaling.units, unit, exception)

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        if (journaling := self._journaling) is not None:
            in_middlewares_of.set(journaling.units.number_of(request))
            journaling.units.started(request)

    def process_exception(self, request: Request, exception: Exception, spider: Spider | None = None) -> None:
        if (journaling := self._journaling) is not None:
            journaling.units.gave_up(request, failed=not isinstance(exception, IgnoreRequest))


def _gave(units: Units, unit: Unit, output: Any) -> None:
    if isinstance(output, Request):
        units.gave_request(unit, output)
    elif output is not None:
        units.gave_item(unit)


def _raised(units: Units, unit: Unit, exc: Exception) -> None:
    if isinstance(exc, CloseSpider):
        # What else it would have given is not known: the next run asks again.
        unit.again = True
    unit.failed = True
    units.exhausted(unit)


def _exhausted(units: Units, unit: Unit, response: Response) -> None:
    # Refused by Scrapy's HttpErrorMiddleware, or by the callback.
    if response.status >= 400 and not unit.output:
        unit.failed = True
    units.exhausted(unit)
