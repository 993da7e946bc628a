"""CPU time of a scheduler per new link and per request that it gives, with each frontier.

``python tests/benchmarks/frontier.py [--links 5000] [--rounds 9] [--json FILE] [--profile push|pop|deep]``

Scrapy's own ``Scheduler`` in an engine that does not run, in one process, in turns of 100 requests. Group
commits are called every 30 ms of a variant's own work, and are in its time; so is what the add-on's
middleware does per output. Requests are made off the clock. ``push``: new links. ``deep``: requests that were
scheduled thousands of links ago. ``pop``: 100 that were scheduled just before, as in depth-first order, and
are acknowledged by one commit.
"""

from __future__ import annotations

import cProfile
import gc
import itertools
import pstats
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from measure import arguments_of, frozen, machine, table, targets_table, write_json
from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.utils.test import get_crawler

SLICE = 100
#: Seconds of work between group commits.
INTERVAL = 0.03
ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}
STOCK = "Scrapy, JOBDIR"
#: Settings, and whether there is a job directory.
VARIANTS: dict[str, tuple[dict[str, Any], bool]] = {
    STOCK: ({}, True),
    "ours, add-on, exact": (ADDON, True),
    "ours, add-on, bare": ({**ADDON, "BLOOMDUPE_STORE": None}, True),
    "ours, one line, exact": ({"DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter"}, True),
    "Scrapy, no JOBDIR": ({}, False),
}
PHASES = ("push", "deep", "pop")
_SCHEMES = ("data", "file", "ftp", "http", "https", "s3")


class Links(Spider):
    name = "links"

    def parse(self, response: Any, **kwargs: Any) -> None:
        """Is only named."""


class Opened:
    """A scheduler that is open, of a crawler that does not crawl; and its clock."""

    def __init__(self, settings: dict[str, Any], jobdir: str | None) -> None:
        # Nothing is downloaded; the handlers would look for a running reactor.
        settings = {**settings, "JOBDIR": jobdir, "DOWNLOAD_HANDLERS": dict.fromkeys(_SCHEMES)}
        self.crawler = crawler = get_crawler(Links, settings_dict=settings)
        self.spider = crawler.spider = Links()
        self.spider.crawler = crawler
        crawler.engine = crawler._create_engine()
        self.scheduler = Scheduler.from_crawler(crawler)
        crawler.engine._slot = SimpleNamespace(scheduler=self.scheduler, closing=None)  # type: ignore[assignment]
        self.scheduler.open(self.spider)
        self._queue: Any = None
        self._parent = SimpleNamespace(request=None)
        self._group: Any = getattr(self.scheduler.df, "_group", None)
        if self._group is not None:
            self._group._watch.count_on_flush()
            # There is no loop: the clock is ours.
            self._group._timer = SimpleNamespace(cancel=lambda: None)
            if "ADDONS" in settings:
                self._queue = self._group.queue
                self.push([Request("https://www.example.com/")])
                self._parent.request = self.scheduler.next_request()
                crawler.engine.downloader.active.add(self._parent.request)
        self.seconds = self._since = 0.0

    def take(self, work: Callable[..., Any], argument: Any) -> Any:
        """Run *work* on the clock, and what its time brings about."""
        started = time.thread_time()
        found = work(argument)
        self._since += time.thread_time() - started
        if self._since >= INTERVAL:
            self.commit()
        return found

    def commit(self, *, on_clock: bool = True) -> None:
        started = time.thread_time()
        if self._group is not None:
            self._group._watch.flush()
            queue = self._group.queue
            self._group._commit(lambda: queue.acknowledge(queue.left()))
        if on_clock:
            self.seconds += self._since + time.thread_time() - started
        self._since = 0.0

    def push(self, requests: list[Request]) -> None:
        queue, parent, enqueue = self._queue, self._parent, self.scheduler.enqueue_request
        for request in requests:
            if queue is not None:
                queue.expect(parent, request)
            enqueue(request)

    def pop(self, count: int) -> list[Request | None]:
        queue, pop = self._queue, self.scheduler.next_request
        found = []
        for _ in range(count):
            found.append(request := pop())
            if queue is not None:
                queue.exhausted(SimpleNamespace(request=request))
        return found

    def close(self) -> None:
        self.crawler.engine.downloader.active.clear()  # type: ignore[union-attr]
        self.scheduler.close("finished")


def links(spider: Any, numbers: Iterator[int]) -> list[Request]:
    # Scrapy's own middleware has put the depth into the meta by then.
    return [
        Request(
            f"https://www.example.com/catalogue/things-{number % 997}/article-{number}.html?page=2",
            callback=spider.parse,
            meta={"depth": 1},
        )
        for number in itertools.islice(numbers, SLICE)
    ]


def run(
    variants: dict[str, tuple[dict[str, Any], bool]], count: int, seed: int, profiled: str | None
) -> dict[str, dict[str, float]]:
    """Return microseconds per request, by variant and phase."""
    order, profile = random.Random(seed), cProfile.Profile(time.thread_time)
    numbers = {name: itertools.count() for name in variants}
    found: dict[str, dict[str, float]] = {name: {} for name in variants}
    slices = count // SLICE
    turns = {"push": slices, "deep": slices // 2, "pop": slices // 2}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = {
            name: Opened(settings, str(Path(folder, str(number))) if jobdir else None)
            for number, (name, (settings, jobdir)) in enumerate(variants.items())
        }
        gc.collect()
        for phase in PHASES:
            with frozen():
                for _ in range(turns[phase]):
                    for name in order.sample([*opened], len(opened)):
                        one = opened[name]
                        if phase != "deep":
                            requests = links(one.spider, numbers[name])
                            if phase == "push":
                                _take(one, one.push, requests, profile if phase == profiled else None)
                                continue
                            one.push(requests)
                            del requests
                            one.commit(on_clock=False)
                        popped = _take(one, one.pop, SLICE, profile if phase == profiled else None)
                        assert all(popped)
                        del popped
                        if phase == "pop":
                            one.commit()
                for name, one in opened.items():
                    one.commit()
                    found[name][phase] = one.seconds / (turns[phase] * SLICE) * 1e6
                    one.seconds = 0.0
        for one in opened.values():
            one.close()
    if profiled:
        pstats.Stats(profile).sort_stats("tottime").print_stats(28)
    return found


def _take(one: Opened, work: Callable[..., Any], argument: Any, profile: cProfile.Profile | None) -> Any:
    if profile is None:
        return one.take(work, argument)
    return profile.runcall(one.take, work, argument)


def main() -> None:
    parser = arguments_of(__doc__, "200 links, one round", rounds=9)
    parser.add_argument("--links", type=float, default=5e3)
    parser.add_argument("--profile", choices=PHASES, help="where the time of the add-on, exact, goes")
    arguments = parser.parse_args()
    count, rounds = int(arguments.links), arguments.rounds
    if arguments.quick:
        count, rounds = 200, 1
    if arguments.profile:
        name = "ours, add-on, exact"
        run({name: VARIANTS[name]}, count, 0, arguments.profile)
        return
    runs = [run(VARIANTS, count, number, None) for number in range(rounds)]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, phase in itertools.product(VARIANTS, PHASES):
        ours = [one[name][phase] for one in runs]
        base = [one[STOCK][phase] for one in runs]
        found.setdefault(name, {})[phase] = {
            "best": min(ours),
            "median": statistics.median(ours),
            "ratio of bests": min(ours) / min(base),
            "ratio": statistics.median(mine / its for mine, its in zip(ours, base, strict=True)),
        }
    rows = [["CPU us per request: best, median (as multiples of Scrapy's with a JOBDIR)", *PHASES]]
    for name, figures in found.items():
        cells = [
            f"{one['best']:.1f}, {one['median']:.1f} ({one['ratio of bests']:.2f}, {one['ratio']:.2f})"
            for one in figures.values()
        ]
        rows.append([name, *cells])
    print(f"{count:,} links, {rounds} rounds")
    print(table(rows))
    targets = [
        (f"{name}: {phase}, {which}", found[name][phase][which], limit)
        for name in ("ours, add-on, exact", "ours, add-on, bare")
        for phase, limit in zip(PHASES, (0.6, 0.25, 0.25), strict=True)
        for which in ("ratio of bests", "ratio")
    ]
    print(f"\n{targets_table(targets)}")
    write_json(arguments.json, {"links": count, "rounds": rounds, "machine": machine(), "found": found})


if __name__ == "__main__":
    main()
