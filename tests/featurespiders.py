"""What do the spiders of ``test_frontier_features`` do? Each does what a frontier could trip over."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

from crawling import FollowAll
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.utils.request import RequestFingerprinter


class Closing(FollowAll):
    """Raises CloseSpider in the middle of its output.

    Args:
        close: "1": do so.
    """

    def __init__(self, start: str, close: str = "", **kwargs: Any) -> None:
        super().__init__(start, **kwargs)
        self.close_it = bool(close)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        for number, output in enumerate(super().parse(response)):
            if number == 3 and self.close_it:
                raise CloseSpider("enough")
            yield output


class AtHome(FollowAll):
    allowed_domains = ["127.0.0.1"]


class Rich(Spider):
    """Its links have a callback of their own."""

    name = "shop"

    def __init__(self, start: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = json.loads(start)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, callback=self.parse_item)

    def parse_item(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class Poor(Spider):
    """The same spider, whose callback has another name now."""

    name = "shop"

    def __init__(self, start: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)

    async def start(self) -> AsyncIterator[Any]:
        for nothing in ():
            yield nothing


class Other(FollowAll):
    """Of the same project."""

    name = "other"


class Downloading(FollowAll):
    """Asks for pages inside its callback, by a request of its own and by a copy of the meta."""

    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        download = self.crawler.engine.download_async  # type: ignore[union-attr]
        for name in ("sub", "Sub", "broken"):
            url = response.urljoin(f"../{name}/inside?of={urlsplit(response.url).path.rpartition('/')[2]}")
            found = await download(Request(url, meta=dict(response.meta)))
            yield {"url": found.url}
        for output in super().parse(response):
            yield output


class Lambdas(FollowAll):
    """No disk can hold its links."""

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        for output in super().parse(response):
            if isinstance(output, Request):
                output = output.replace(callback=lambda response: self.parse(response))
            yield output


class Unwritable(FollowAll):
    """Its start request looks the same in every run, and no disk can hold it."""

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url, meta={"log": sys.stdin, "download_slot": "start"})


class KeylessFingerprinter(RequestFingerprinter):
    """Fails for the pages."""

    def fingerprint(self, request: Request) -> bytes:
        if "/page/" in request.url:
            raise ValueError("the project's own")
        return super().fingerprint(request)


def scrapy_cannot_write_its_queue() -> None:
    """For ``prepare``: as on a disk that is full when the scheduler closes."""

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    Scheduler._write_dqs_state = full  # type: ignore[method-assign]


class Choosy(FollowAll):
    """A handler of its own drops what it does not want.

    Args:
        refuse: the end of the URLs of these.
        of: "start": start requests only; "links": others only.
        unasked: "1": the filter is not asked about start requests.
    """

    def __init__(self, start: str, refuse: str = "", of: str = "start", unasked: str = "") -> None:
        super().__init__(start)
        self.refuse, self.of, self.unasked = refuse, of, bool(unasked)

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.choose, signal=signals.request_scheduled)
        return spider

    async def start(self) -> AsyncIterator[Request]:
        async for request in super().start():
            yield request.replace(dont_filter=self.unasked)

    def choose(self, request: Request) -> None:
        is_start = bool(request.meta.get("is_start_request"))
        if self.refuse and request.url.endswith(self.refuse) and is_start is (self.of == "start"):
            raise IgnoreRequest("not that one")
