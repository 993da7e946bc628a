"""What do several crawls of one site fetch that share what they have seen? Every page, and how often?

A ``Fleet`` is some processes on one tree of ``killsite``, each with a first page, a job directory and a feed
of its own. It looks from outside only: at the site's log and at the feeds. Its pages have links to any
others, so that the crawls meet; who is called a duplicate and is fetched by nobody is lost.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from crawling import ASYNCIO, FILTER, QUIET, Crawl
from forking import Going, crawls, wait_until
from killsite import ROOTS, Tree
from kinds import name
from mocksite import Area, mock_site
from scrapy import signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider, ScrapyDeprecationWarning

#: Processes and pages of a fleet. The long version: BLOOMDUPE_FLEET=4 BLOOMDUPE_FLEET_PAGES=2000.
WORKERS = int(os.environ.get("BLOOMDUPE_FLEET", "3"))
PAGES = int(os.environ.get("BLOOMDUPE_FLEET_PAGES", "120"))
LONG = WORKERS > 3
#: Links of a page that lead anywhere.
EXTRA = 8
#: Every way to a page, see ``killsite``.
KINDS = "ppppphocvfd"

#: What is shared. With an exact one every page is fetched once whatever happens.
BARE = ["bitmap", "redisbloom"]
EXACT = [
    "filter and store",
    "store",
    "store under negatives",
    "postgresql",
    "filter and postgresql",
    "filter and local lmdb",
]


def sharing(kind: str, request: pytest.FixtureRequest, url: str | None = None) -> dict[str, Any]:
    """Return the settings of one of ``BARE`` and ``EXACT``; names on the server that nobody else has.

    Args:
        url: of another server than the one of all tests, or a proxy before it.
    """
    if url is None:
        url = request.getfixturevalue("valkey_bloom" if kind == "redisbloom" else "valkey").url
        url += "?timeout=5"
    database = request.getfixturevalue("postgres_url") if "postgresql" in kind else None
    settings: dict[str, Any] = {**FILTER, "BLOOMDUPE_KEY": name()}
    match kind:
        case "bitmap" | "redisbloom":
            settings |= {"BLOOMDUPE_FILTER": url, "BLOOMDUPE_STORE": None}
        case "filter and store":
            settings |= {"BLOOMDUPE_FILTER": url}
        case "store":
            settings |= {"BLOOMDUPE_STORE": url}
        case "store under negatives":
            settings |= {"BLOOMDUPE_STORE": url, "BLOOMDUPE_POLICY": "negatives"}
        case "postgresql":
            settings |= {"BLOOMDUPE_STORE": database}
        case "filter and postgresql":
            settings |= {"BLOOMDUPE_FILTER": url, "BLOOMDUPE_STORE": database}
        case "filter and local lmdb":
            settings |= {"BLOOMDUPE_FILTER": url, "BLOOMDUPE_STORE": "lmdb"}
        case _:
            raise ValueError(kind)
    return settings


@contextmanager
def fleets(folder: Path) -> Iterator[Callable[..., Fleet]]:
    """Give a function that makes a fleet of a folder, a tree, settings, and more of ``Fleet``."""
    with mock_site(folder) as site, crawls(folder) as start_crawl:
        yield lambda *args, **options: Fleet(start_crawl, site.area(), *args, **options)


@dataclass
class Fleet:
    """Some crawls of *tree*.

    Args:
        start_crawl: what ``crawls`` gives.
        area: of the site.
        folder: where everything stands.
        settings: what all of them have; may not have all that a crawl needs.
        size: number of crawls; the first pages of each are others.
        spider: name of a class in ``killspiders``.
        jobs: each has a job directory.
    """

    start_crawl: Callable[..., Going]
    area: Area
    folder: Path
    tree: Tree
    settings: Mapping[str, Any]
    size: int = WORKERS
    spider: str = "Plain"
    jobs: bool = False
    runs: list[Crawl] = field(default_factory=list)

    def start(self, number: int, *, prepare: str | None = None, **settings: Any) -> Going:
        """Start the crawl *number*; who started it ends it."""
        folder = self.folder / f"worker{number}"
        folder.mkdir(parents=True, exist_ok=True)
        places: dict[str, Any] = {"FEEDS": {str(folder / "feed"): {"format": "jsonlines"}}}
        if self.jobs:
            places["JOBDIR"] = str(folder / "jobdir")
        firsts = [root for root in range(ROOTS) if root % self.size == number] or [number]
        paths = [f"job/{self.tree.name}/{first}?meet={self.size}" for first in firsts]
        start = [self.area.at(path) for path in paths]
        job = {
            "spider": f"killspiders.{self.spider}",
            "prepare": prepare,
            "settings": {
                **QUIET,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
                "TWISTED_REACTOR": ASYNCIO,
                "RETRY_PRIORITY_ADJUST": 0,
                **places,
                **self.settings,
                **settings,
            },
            "arguments": {"start": json.dumps(start)},
        }
        return self.start_crawl(folder, job)

    @contextmanager
    def going(self, **options: Any) -> Iterator[list[Going]]:
        """Start them all; what has not ended when the block ends is killed."""
        with ExitStack() as stack:
            started = []
            for number in range(self.size):
                started.append(self.start(number, **options))
                stack.callback(started[-1].kill)
            yield started

    def run(self, **options: Any) -> list[Crawl]:
        """Crawl, all of them at once, to the end of the last."""
        with self.going(**options) as started:
            return self.finish(started)

    def finish(self, started: list[Going]) -> list[Crawl]:
        ended = [going.finish() for going in started]
        self.runs += ended
        return ended

    def kill_often(self, kills: int, seed: int, **options: Any) -> int:
        """Crawl; kill one or another so many times, all over the first nine tenths, and let it go on; return
        how many were killed in the middle."""
        rng = random.Random(seed)
        killed = 0
        with self.going(**options) as started:
            for point in sorted(rng.sample(range(self.size, self.tree.size * 9 // 10), kills)):
                self.wait_for(point, started)
                sleep(rng.uniform(0, 0.03))
                number = rng.choice([n for n, going in enumerate(started) if not going.ended()] or [0])
                killed += not started[number].ended()
                started[number].kill()
                started[number].finish()
                started[number] = self.start(number, **options)
            self.finish(started)
        return killed

    def wait_for(self, answers: int, started: list[Going]) -> None:
        """Wait until the site has answered so often, or nobody asks it any more."""
        wait_until(
            lambda: len(self.answers()) >= answers or all(going.ended() for going in started),
            f"answer {answers}",
        )

    def answers(self) -> list[tuple[str, str, int]]:
        return self.area.answers()

    def fetched(self) -> Counter[int]:
        """How often each page was answered."""
        numbers = (self.tree.number(path, status) for _, path, status in self.answers())
        return Counter(number for number in numbers if number is not None)

    def lost(self) -> list[int]:
        fetched = self.fetched()
        return [number for number in range(self.tree.size) if number not in fetched]

    def twice(self) -> dict[int, int]:
        """The pages that were fetched more than once, but for the first ones of the crawls."""
        first = max(ROOTS, self.size)
        return {number: count for number, count in self.fetched().items() if count > 1 and number >= first}

    def scraped(self) -> set[int]:
        """The pages that a feed has items of."""
        pages = set()
        for feed in self.folder.glob("worker*/feed"):
            for line in feed.read_text(errors="replace").splitlines():
                with suppress(ValueError):  # torn by a kill
                    pages.add(json.loads(line)["page"])
        return pages

    def check(self, *, once: bool = True) -> None:
        """Has each crawl ended in order, and was every page fetched, *once*?"""
        ends = [(run.code, run.stats.get("finish_reason")) for run in self.runs[-self.size :]]
        assert ([(0, "finished")] * self.size, []) == (ends, self.lost()), self.story()
        assert set() == set(range(self.tree.size)) - self.scraped(), self.story()
        if once:
            assert {} == self.twice(), self.story()

    def story(self) -> str:
        """For who has to find out why."""
        fetched = self.fetched()
        lines = [
            f"{self.folder}, {self.tree}, {self.spider}, {dict(self.settings)}",
            f"{fetched.total()} fetched; lost: {self.lost()[:20]}; twice: {list(self.twice().items())[:20]}",
        ]
        for run in self.runs:
            lines.append(f"exit code {run.code}, {run.stats.get('finish_reason')}, {run.ours()}")
            for level in ("WARNING", "ERROR", "CRITICAL"):
                lines += run.lines(f" {level}: ")
            lines += run.lines("Traceback")
        return "\n".join(lines)


class Stays:
    """An extension: a crawl with nothing to do stays while there is a file, the setting ``STAYS_FOR``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Seconds until it is asked again whether it stays; by itself five.
        ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 0.1

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Stays:
        self = cls(Path(crawler.settings["STAYS_FOR"]))
        crawler.signals.connect(self._idle, signal=signals.spider_idle)
        return self

    def _idle(self) -> None:
        if self._path.exists():
            raise DontCloseSpider


def look_often() -> None:
    """For ``prepare``: a crawl looks at its server ten times a second, and does not wait for half a minute
    for an answer that is lost."""
    import scrapy_bloomdupe.remote.client as client
    import scrapy_bloomdupe.sharing as sharing

    sharing._INTERVAL = 0.1
    client.SLOW_SECONDS = 5.0


def leave_scrapy_redis_be() -> None:
    """For ``prepare``: what scrapy-redis is warned of is its own affair."""
    warnings.simplefilter("ignore", ScrapyDeprecationWarning)
