"""What is lost of a job whose processes are killed? Pages, items; and how often is a page fetched twice?

A ``Job`` is one crawl of a tree of ``killsite`` in as many runs as it takes, on one job directory and
one feed. It looks from outside only: at the site's log and at the feed. The site knows what it answered
and not whether the answer arrived; the feed does. What counts as an item is a whole line of the feed, as
another program would read it. Every wait has an end.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawling import FILTER, QUIET, Crawl
from forking import Going, crawls, wait_until
from killsite import ROOTS, Tree
from killspiders import PARTS, item
from mocksite import Area, mock_site

#: Requests under way at once.
CONCURRENCY = 8

#: Pages of a tree, trees, and kills of each. The long version: BLOOMDUPE_KILL_PAGES=1500
#: BLOOMDUPE_KILL_SEEDS=5 BLOOMDUPE_KILLS=20.
PAGES = int(os.environ.get("BLOOMDUPE_KILL_PAGES", "150"))
SEEDS = int(os.environ.get("BLOOMDUPE_KILL_SEEDS", "1"))
KILLS = int(os.environ.get("BLOOMDUPE_KILLS", "5"))
LONG = SEEDS > 1

STOCK = {"DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}
EXACT = FILTER
BARE = {**FILTER, "BLOOMDUPE_STORE": None}


@contextmanager
def jobs(folder: Path) -> Iterator[Callable[..., Job]]:
    """Give a function that makes a job: its arguments are a folder, a tree, settings, and more of ``Job``."""
    with mock_site(folder) as site, crawls(folder) as start_crawl:
        yield lambda *args, **options: Job(start_crawl, site.area(), *args, **options)


@dataclass
class Job:
    """A crawl of *tree* in several runs.

    Args:
        start_crawl: what ``crawls`` gives.
        area: of the site; one for a job and its copies.
        folder: where everything of the job stands.
        settings: of its project; may not have all that a crawl needs.
        spider: name of a class in ``killspiders``.
        text: length of a page's items.
        ballast: length of what every request carries.
        feed: "jsonlines" or "csv".
    """

    start_crawl: Callable[..., Going]
    area: Area
    folder: Path
    tree: Tree
    settings: Mapping[str, Any]
    spider: str = "Plain"
    text: int = 40
    ballast: int = 0
    feed: str = "jsonlines"

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.runs: list[Crawl] = []
        self.kills = 0
        self._before: list[str] = []
        self._from = self._log_size()
        self._until: int | None = None

    @property
    def jobdir(self) -> Path:
        return self.folder / "jobdir"

    @contextmanager
    def going(self, *, prepare: str | None = None, **settings: Any) -> Iterator[Going]:
        """Start a run; who does not wait for its end has killed it."""
        feeds = {str(self.folder / "feed"): {"format": self.feed}}
        both = {"CONCURRENT_REQUESTS": CONCURRENCY, "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY}
        # What fails once is not held back for long, and fails only once.
        places = {"JOBDIR": str(self.jobdir), "FEEDS": feeds}
        arguments = {
            "start": json.dumps([self.area.at(self.tree.link(number)) for number in range(ROOTS)]),
            "text": str(self.text),
            "ballast": str(self.ballast),
        }
        job = {
            "spider": f"killspiders.{self.spider}",
            "prepare": prepare,
            "settings": {**QUIET, **both, **places, **self.settings, **settings},
            "arguments": arguments,
        }
        going = self.start_crawl(self.folder, job)
        try:
            yield going
        finally:
            going.kill()
            self.runs.append(going.finish())

    def run(self, **options: Any) -> Crawl:
        """A run to its end."""
        with self.going(**options) as going:
            going.finish()
        return self.runs[-1]

    def kill_after(self, answers: int, pause: float = 0.0, **options: Any) -> Crawl:
        """A run that is killed *pause* seconds after so many answers, or ends before."""
        return self.signal_after(answers, signal.SIGKILL, pause=pause, **options)

    def signal_after(self, answers: int, *signals: int, pause: float = 0.0, **options: Any) -> Crawl:
        """A run that gets *signals*, a few milliseconds between them."""
        goal = len(self._lines()) + answers
        with self.going(**options) as going:
            wait_until(lambda: going.ended() or len(self._lines()) >= goal, f"answer {answers}")
            time.sleep(pause)
            for signum in signals:
                if signum == signal.SIGKILL:
                    self.kills += not going.ended()
                    going.kill()
                else:
                    going.send(signum)
                    time.sleep(0.03)
            going.finish()
        return self.runs[-1]

    def kill_often(self, kills: int, seed: int, **options: Any) -> None:
        """Kill it so many times, all over its first nine tenths, and run it to its end."""
        rng = random.Random(seed)
        points = sorted(rng.sample(range(1, self.tree.size * 9 // 10), kills))
        for before, point in itertools.pairwise([0, *points]):
            self.kill_after(point - before, rng.uniform(0, 0.02), **options)
        self.run(**options)

    def copy(self, folder: Path) -> Job:
        """The same job at the same point, in another directory; this one has had its last run."""
        if self._until is None:
            self._until = self._log_size()
        other = Job(
            self.start_crawl,
            self.area,
            folder,
            self.tree,
            self.settings,
            self.spider,
            self.text,
            self.ballast,
            self.feed,
        )
        other._before = self._lines()
        other._from = other._log_size()
        shutil.copytree(self.jobdir, other.jobdir)
        if (self.folder / "feed").exists():
            shutil.copy(self.folder / "feed", other.folder / "feed")
        return other

    def fetched(self) -> Counter[int]:
        """How often each page was answered."""
        lines = (line.split(" ") for line in self._lines())
        numbers = (
            self.tree.number(path.removeprefix(self.area.prefix), int(status)) for _, path, status in lines
        )
        return Counter(number for number in numbers if number is not None)

    def repeats(self) -> int:
        """How many answers were not the first one of their page."""
        fetched = self.fetched()
        return fetched.total() - len(fetched)

    def lost_pages(self) -> list[int]:
        fetched = self.fetched()
        return [number for number in range(self.tree.size) if number not in fetched]

    def lost_items(self) -> list[tuple[int, int]]:
        """Page and part of what should be in the feed and is not."""
        there = set(self._exported())
        parts = itertools.product(range(self.tree.size), range(PARTS))
        expected = ((item(number, part, self.text), (number, part)) for number, part in parts)
        return [which for what, which in expected if tuple(map(str, what.values())) not in there]

    @property
    def last(self) -> Crawl:
        return self.runs[-1]

    @property
    def reason(self) -> str | None:
        """The ``finish_reason`` of the last run."""
        return self.last.stats.get("finish_reason")

    def check(self) -> None:
        """Has the last run ended, and nothing been lost?"""
        assert ([], []) == self.lost(), self.story()
        assert (0, "finished") == (self.last.code, self.reason), self.story()
        assert 0 == self.last.stats.get("bloomdupe/pending"), self.story()

    def lost(self) -> tuple[list[int], list[tuple[int, int]]]:
        return self.lost_pages(), self.lost_items()

    def story(self) -> str:
        """For who has to find out why."""
        pages, items = self.lost()
        lines = [
            f"{self.folder}, {self.tree}, {self.spider}, {dict(self.settings)}",
            f"{self.kills} kills, {self.repeats()} repeats",
            f"lost: {len(pages)} pages {pages[:20]}, {len(items)} items {items[:20]}",
            f"lines of the feed that are no item: {self._torn[:5]}",
        ]
        for run in self.runs:
            reason = run.stats.get("finish_reason")
            lines.append(f"exit code {run.code}, finish_reason {reason}, {run.ours()}")
            lines += run.lines("WARNING") + run.lines("ERROR") + run.lines("CRITICAL")
        return "\n".join([*lines, "the last log ends:", *self.last.log.splitlines()[-30:]])

    def _exported(self) -> Iterator[tuple[str, ...]]:
        path = self.folder / "feed"
        self._torn: list[str] = []
        if not path.exists():
            return
        for line in path.read_text(errors="replace").splitlines():
            try:
                row = next(csv.reader([line])) if self.feed == "csv" else json.loads(line).values()
                yield tuple(map(str, row))
            except (ValueError, StopIteration, csv.Error):
                self._torn.append(line)

    def _lines(self) -> list[str]:
        with self.area.log.open("rb") as log:
            log.seek(self._from)
            lines = log.read(-1 if self._until is None else self._until - self._from).decode().splitlines()
        ours = [line for line in lines if line.split(" ")[1].startswith(self.area.prefix)]
        return self._before + ours

    def _log_size(self) -> int:
        return self.area.log.stat().st_size
