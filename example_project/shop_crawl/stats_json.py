"""How do the stats of a crawl get out of its process? `-s STATS_JSON=path` writes them there."""

from __future__ import annotations

import json
from pathlib import Path

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured


class StatsJson:
    def __init__(self, crawler: Crawler, path: Path) -> None:
        self.crawler = crawler
        self.path = path

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> StatsJson:
        path = crawler.settings.get("STATS_JSON")
        if not path:
            raise NotConfigured
        extension = cls(crawler, Path(path))
        # Not spider_closed: other parts still add to the stats then.
        crawler.signals.connect(extension.write, signal=signals.engine_stopped)
        return extension

    def write(self) -> None:
        assert self.crawler.stats is not None
        stats = self.crawler.stats.get_stats()
        self.path.write_text(json.dumps(stats, default=str), encoding="utf-8")
