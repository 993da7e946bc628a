"""Which spiders are killed? Each does its work in another of the ways that Scrapy allows.

All of them crawl a tree of ``killsite``: of every page they export two items, one before its links and
one after them: see ``item``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from hashlib import sha1
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

#: The items of a page.
PARTS = 2


def item(number: int, part: int, text: int) -> dict[str, Any]:
    """What is exported: *text* is the length of a page's text, in characters, on an average."""
    draw = int.from_bytes(sha1(f"{number} {part}".encode()).digest()[:2], "little")
    length = draw % (2 * text)
    return {"page": number, "part": part, "text": (f"{number}/{part} " * length)[:length].strip()}


def number_of(response: Response) -> int:
    return int(response.css("title::text").get(""))


def links(response: Response) -> Iterator[dict[str, Any]]:
    """The arguments of a request for every page that is linked."""
    for href in response.css("a::attr(href)").getall():
        yield {"url": response.urljoin(href)}
    for form in response.css("form"):
        number = form.css("input::attr(value)").get("")
        url = response.urljoin(form.attrib["action"])
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        yield {"url": url, "method": "POST", "body": f"id={number}", "headers": headers}


class Plain(Spider):
    """The usual way.

    Args:
        start: its ``start_urls``, as JSON.
        text: length of a page's text.
        ballast: characters that every request carries in its meta.
    """

    name = "plain"

    def __init__(self, start: str, text: str = "40", ballast: str = "0", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = json.loads(start)
        self.text = int(text)
        self.ballast = int(ballast)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield self.item(response, 0)
        yield from self.requests(response)
        yield self.item(response, 1)

    def item(self, response: Response, part: int) -> dict[str, Any]:
        return item(number_of(response), part, self.text)

    def requests(self, response: Response) -> Iterator[Request]:
        for number, link in enumerate(links(response)):
            yield self.request(response, number, link)

    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        seed = f"{number_of(response)} {number}".encode()
        ballast = "".join(sha1(seed + b"%d" % part).hexdigest() for part in range(self.ballast // 40))
        return Request(**link, callback=self.parse_page, meta={"ballast": ballast} if ballast else None)

    def parse_page(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield from self.parse(response)


class Filtered(Plain):
    """Its start requests go through the duplicate filter."""

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_urls:
            yield Request(url)


class Async(Plain):
    """Waits between what it yields."""

    async def parse(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        yield self.item(response, 0)
        for request in self.requests(response):
            await asyncio.sleep(0.002)
            yield request
        await asyncio.sleep(0.01)
        yield self.item(response, 1)

    async def parse_page(self, response: Response, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        async for result in self.parse(response):
            yield result


class Errback(Plain):
    """Finds pages in what its errback is given."""

    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        return Request(**link, callback=self.parse_page, errback=self.failed)

    def failed(self, failure: Any) -> Iterator[Any]:
        yield from self.requests(failure.value.response)


class Lambdas(Plain):
    """No request but those of the start can be written to a disk."""

    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        return Request(**link, callback=lambda response: self.parse(response))


class SomeLambdas(Plain):
    """Every other request cannot be written to a disk."""

    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        if number % 2:
            return super().request(response, number, link)
        return Request(**link, callback=lambda response: self.parse_page(response))


class CopiedMeta(Plain):
    """Hands on whatever stands in the meta of a response."""

    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        return Request(**link, callback=self.parse_page, meta=response.meta)


class Replaced(Plain):
    """Makes a request of the one before."""

    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        assert response.request is not None
        fresh = {"method": "GET", "body": b"", "dont_filter": False}
        return response.request.replace(**{**fresh, **link, "callback": self.parse_page})


class Follow(Plain):
    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        return response.follow(**link)


class Unfiltered(Plain):
    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        return Request(**link, dont_filter=True)


class Priorities(Plain):
    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        return Request(**link, callback=self.parse_page, priority=(number_of(response) + number) % 5 - 2)


class Arguments(Plain):
    """Its callback takes what only the request knows."""

    def request(self, response: Response, number: int, link: dict[str, Any]) -> Request:
        arguments = {"parent": number_of(response), "trail": {"at": [number]}}
        return Request(**link, callback=self.parse_child, cb_kwargs=arguments)

    def parse_child(self, response: Response, parent: int, trail: dict[str, list[int]]) -> Iterator[Any]:
        assert parent < number_of(response), "it is not this page's"
        assert 1 == len(trail["at"])
        yield from self.parse(response)


class Ruled(CrawlSpider):
    """Has no code for its links."""

    name = "ruled"
    rules = [Rule(LinkExtractor(), callback="parse_page", follow=True)]

    def __init__(self, start: str, text: str = "40", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = json.loads(start)
        self.text = int(text)

    def parse_start_url(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield from self.parse_page(response)

    def parse_page(self, response: Response) -> Iterator[Any]:
        for part in range(PARTS):
            yield item(number_of(response), part, self.text)


class SlowPipeline:
    """Items leave long after the page that they were found on."""

    async def process_item(self, item: Any, spider: Any = None) -> Any:
        await asyncio.sleep(0.02 * (item["page"] % 7))
        return item
