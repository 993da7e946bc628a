"""Lesson 5: how do several crawls share one site? One line of settings more: the server that they all ask.

A Redis or Valkey server keeps what has been seen, as a Bloom filter and, exactly, as a set. Each crawl has
Scrapy's own scheduler and a job directory of its own; of a page that two of them find at once one is told
that it is new. A crawl asks for all links of a page in one round trip.

Each begins somewhere else, as `-a entrance=` says: without a queue that is shared, too (scrapy-redis has
one), who finds a page fetches it. `-a meet=` is for this lesson only: the site is so small that one
crawl could be through before the other has begun.

    scrapy crawl s05_shared -a shop=http://127.0.0.1:PORT/ -s BLOOMDUPE_FILTER=redis://127.0.0.1:6379 \
        -s JOBDIR=job1
    python run.py s05_shared
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from scrapy import Request

from shop_crawl.follow_all import FollowAll


class SharedSpider(FollowAll):
    """Begins at its own entrance.

    Args:
        entrance: a path of the shop.
        meet: a folder where `number` crawls wait for each other.
    """

    name = "s05_shared"
    custom_settings = {
        "DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter",
        # With -s BLOOMDUPE_FILTER=redis://HOST: on the same server. It is the default then.
        "BLOOMDUPE_STORE": "redis",
    }

    def __init__(
        self, *args: Any, entrance: str = "/", meet: str | None = None, number: str = "1", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.entrance = urljoin(self.shop, entrance)
        self.meet = Path(meet) if meet else None
        self.number = int(number)

    async def start(self) -> AsyncIterator[Request]:
        if self.meet is not None:
            Path(self.meet, self.entrance.rpartition("/")[2] or "first").touch()
            while len(list(self.meet.iterdir())) < self.number:
                await asyncio.sleep(0.01)
        yield Request(self.entrance)
