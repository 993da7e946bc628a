"""Which spiders share what they have seen? They give items and requests in turn, wait, and ask around."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from crawling import FollowAll
from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred


async def wait(seconds: float) -> None:
    """On any reactor."""
    from twisted.internet import reactor

    waiting: Deferred[None] = Deferred()
    later: Any = reactor.callLater
    later(seconds, waiting.callback, None)
    await maybe_deferred_to_future(waiting)


class InTurn(FollowAll):
    """Gives an item and a request in turn, and says in its last item in which order the engine got them."""

    name = "follow"
    custom_settings = {"SPIDER_MIDDLEWARES": {"sharedspiders.Nearest": -2_000_000}}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.order: list[str] = []

    async def start(self) -> AsyncIterator[Any]:
        await wait(0.01)
        async for request in super().start():
            yield {"before": request.url}
            yield request
            await wait(0.01)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        for number, href in enumerate(response.css("a::attr(href)").getall()):
            yield {"item": f"{response.url} {number}"}
            yield response.follow(href)


class InTurnWaiting(InTurn):
    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        for number, output in enumerate(super().parse(response)):
            if number % 3 == 0:
                await wait(0.005)
            yield output


class Nearest:
    """A middleware nearer the engine than ours: it makes other requests of all, and notes what comes."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> Nearest:
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for output in start:
            yield self._noted(output)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any], spider: Any = None
    ) -> AsyncIterator[Any]:
        async for output in result:
            yield self._noted(output)

    def _noted(self, output: Any) -> Any:
        if not isinstance(output, Request):
            self._crawler.stats.inc_value("test/items")
            self._note(str(output.get("item") or output.get("before")))
            return output
        self._note(output.url)
        return output.replace(headers={"X-Replaced": "yes"})

    def _note(self, what: str) -> None:
        order = self._crawler.stats.get_value("test/order", [])
        self._crawler.stats.set_value("test/order", [*order, what])


class Around(FollowAll):
    """Asks for pages past its callbacks.

    Args:
        known, fresh: URLs that it gives to the engine when the first page is there.
        again: URL that it asks for twice, unfiltered.
    """

    name = "follow"

    def __init__(self, known: str, fresh: str, again: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.known, self.fresh, self.again = known, fresh, again
        self.asked = False

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        if not self.asked:
            self.asked = True
            assert self.crawler.engine is not None
            for url in (self.known, self.fresh, self.fresh):
                self.crawler.engine.crawl(Request(url))
            for _ in range(2):
                yield Request(self.again, dont_filter=True)
        yield from super().parse(response)


class Limited(Spider):
    """Waits after its first page for something that never comes, with a limit of its own."""

    name = "follow"

    def __init__(self, start: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = json.loads(start)

    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        import asyncio

        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, callback=self.parse_page)
        try:
            async with asyncio.timeout(0.02):
                await asyncio.sleep(60)
        except TimeoutError:
            yield {"url": "in time"}

    def parse_page(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


def without_redis() -> None:
    """For ``prepare``: the extra is not installed."""
    import sys

    sys.modules["redis"] = None  # type: ignore[assignment]


def without_sql() -> None:
    """For ``prepare``: the extra is not installed."""
    import sys

    sys.modules["sqlalchemy"] = None  # type: ignore[assignment]
