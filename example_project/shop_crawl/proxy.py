"""How does a crawl reach a site that is served on this machine? The shop's server is its proxy."""

from __future__ import annotations

from scrapy import Request, Spider
from scrapy.crawler import Crawler


class ShopProxy:
    """Sends every request of the spider by way of the server in its argument `shop`."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ShopProxy:
        return cls(crawler)

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        request.meta["proxy"] = getattr(self.crawler.spider, "shop", None)
