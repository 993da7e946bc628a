"""How does a test get a queue of Scrapy's on the disk? Scrapy's own scheduler fills one; nobody crawls."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crawling import idle_crawler
from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.http import Response
from scrapy.utils.misc import load_object

# Scrapy's default asks a downloader, which a crawler that does not crawl lacks.
SETTINGS = {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"}


class Shop(Spider):
    name = "shop"

    def parse(self, response: Response, **kwargs: Any) -> None: ...


def crawler() -> Crawler:
    found = idle_crawler(**SETTINGS)
    found.spider = Shop()
    found.spider.crawler = found
    return found


def fill(jobdir: Path, pages: Iterable[tuple[str, int]], **options: Any) -> Path:
    """Put requests for *pages* (name, priority) into the queue of *jobdir*, close it and return it.

    Args:
        options: of the requests.
    """
    crawling = crawler()
    assert crawling.spider is not None
    scheduler = Scheduler(
        BaseDupeFilter(),
        jobdir=str(jobdir),
        dqclass=load_object("scrapy.squeues.PickleLifoDiskQueue"),
        mqclass=load_object("scrapy.squeues.LifoMemoryQueue"),
        stats=crawling.stats,
        pqclass=load_object(SETTINGS["SCHEDULER_PRIORITY_QUEUE"]),
        crawler=crawling,
    )
    scheduler.open(crawling.spider)
    for name, priority in pages:
        url = f"http://shop.example/{name}"
        scheduler.enqueue_request(
            Request(url, callback=crawling.spider.parse, priority=priority, **options)  # type: ignore[attr-defined]
        )
    scheduler.close("finished")
    return jobdir / "requests.queue"
