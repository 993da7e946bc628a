"""Have the links of this page been seen, by any crawl? Asked of the server once, for all of them.

A spider middleware next to the engine. The verdicts are left to the duplicate filter by key, so nothing is
lost when a request is replaced on its way; a request that does not come by here (a redirect,
``engine.crawl``) is asked for by itself. Items and requests keep their order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import NotConfigured

import scrapy_bloomdupe.scrapy_compat as scrapy_compat
import scrapy_bloomdupe.settings as settings
from scrapy_bloomdupe.ahead import batches
from scrapy_bloomdupe.errors import BloomdupeError, ConfigurationError
from scrapy_bloomdupe.sharing import of_crawler

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

_STARTS_AT_ONCE = 50


class SharedMiddleware:
    """Asks for all links of a page at once.

    Raises:
        NotConfigured: nothing is shared by the settings.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SharedMiddleware:
        with suppress(BloomdupeError):  # the filter refuses the crawl and says why
            if settings.read(crawler.settings).shared is None:
                raise NotConfigured
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for output in self._asked(start, _STARTS_AT_ONCE):
            yield output

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        async for output in self._asked(result):
            yield output

    async def _asked(self, outputs: AsyncIterator[Any], limit: int = 1_000) -> AsyncIterator[Any]:
        # What is shared is opened after the middlewares.
        sharing = of_crawler.get(self._crawler)
        if sharing is None:
            async for output in outputs:
                yield output
            return
        async for batch in batches(outputs, min(limit, sharing.at_once), scrapy_compat.turns()):
            await sharing.ask_for(batch)
            for output in batch:
                yield output


def attach(crawler: Crawler) -> None:
    """Put ``SharedMiddleware`` where it belongs, if the settings do not. To be called while the scheduler is
    made, and before the journal's, which stands next to the engine.

    Raises:
        ConfigurationError: Scrapy's middlewares are not as this release knows them.
    """
    running: Any = crawler.engine
    try:
        if crawler.get_spider_middleware(SharedMiddleware) is None:
            scrapy_compat.add_next_to_engine(running.scraper.spidermw, SharedMiddleware(crawler))
    except AttributeError as exc:
        raise ConfigurationError(
            f"what is shared cannot be asked for page by page on this release of Scrapy ({exc}): set "
            'ADDONS = {"scrapy_bloomdupe.Addon": 500}'
        ) from exc
