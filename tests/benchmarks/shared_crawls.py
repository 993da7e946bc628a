"""How long does a whole crawl take whose server is far away? Under Scrapy's own scheduler.

The same site is crawled with each filter, every crawl in a process of its own, from its start (the
opening of the filter included) to its end.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from crawls import SETTINGS, LinksSpider
from dupefilters import OURS, Variant
from scrapy import Request
from scrapy.crawler import CrawlerProcess
from scrapy.utils.misc import load_object


def recording(dupefilter: type[Any]) -> type[Any]:
    """Return the class with a record of what it let pass."""

    class Recording(dupefilter):  # type: ignore[misc]
        passed: list[str] = []
        asked = 0

        def request_seen(self, request: Request) -> bool:
            seen: bool = super().request_seen(request)
            Recording.asked += 1
            if not seen:
                Recording.passed.append(request.url)
            return seen

    return Recording


def crawl(
    variant: Variant, url: str | None, start: str, pages: int, key: str, folder: Path
) -> dict[str, Any]:
    """Crawl in this process with a server at *url*; return seconds, pages, links, and pages asked twice."""
    settings = {**SETTINGS, **variant.all_settings(folder), "CLOSESPIDER_PAGECOUNT": pages}
    if variant.server:
        settings["REDIS_URL"] = url
    elif variant.dupefilter == OURS:
        settings["BLOOMDUPE_KEY"] = key
    watch = recording(load_object(settings["DUPEFILTER_CLASS"]))
    settings["DUPEFILTER_CLASS"] = watch
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(LinksSpider)
    process.crawl(crawler, start_urls=[start])
    began = time.perf_counter()
    process.start()
    seconds = time.perf_counter() - began
    assert crawler.stats is not None
    fetched = crawler.stats.get_value("response_received_count", 0)
    return {
        "seconds": seconds,
        "pages": fetched,
        "ms": seconds / fetched * 1e3,
        "asked": watch.asked,
        "twice": len(watch.passed) - len(set(watch.passed)),
        "round trips": crawler.stats.get_value("bloomdupe/server/asked", 0),
    }
