"""How do the spiders here crawl? They follow every link; duplicates are no concern of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlencode

from scrapy import Request, Spider
from scrapy.http import Response

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class FollowAll(Spider):
    """Yields an item for each page that shows a product.

    Args:
        shop: the shop's address, `-a shop=http://127.0.0.1:PORT/`.
    """

    def __init__(self, *args: Any, shop: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not shop:
            raise ValueError(
                f"{self.name} needs the shop's address. Start the shop with `python -m shop.server "
                f"--port 0`, then crawl the address that it prints: `scrapy crawl {self.name} "
                "-a shop=http://127.0.0.1:PORT/`. Or let `python run.py` do both."
            )
        self.shop = shop

    async def start(self) -> AsyncIterator[Request]:
        # Scrapy's own start() says dont_filter=True. Then the duplicate filter does not get to know
        # the start page, and it is fetched a second time as soon as a page links to it, and again
        # by every resumed run.
        yield Request(self.shop)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        product = response.css("h1::attr(data-product)").get()
        if product:
            title = response.css("h1::text").get()
            yield {"product": int(product), "title": title, "url": response.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)
        for form in response.css("form"):
            action = response.urljoin(form.attrib["action"])
            for word in form.css("option::attr(value)").getall():
                # The body counts when two requests are compared: one URL, a page for each word.
                yield Request(action, method="POST", headers=FORM, body=urlencode({"word": word}))
