"""How does a test crawl? The mock site and every crawl are processes of their own, none is left behind.

A test calls ``run`` (or ``running``, to do something in mid-crawl) with a spider's dotted name, settings
and arguments. The crawl's process is forked from one that
has made its imports (``forking``), reads them as JSON, runs them with Scrapy's own ``CrawlerProcess``, and
writes stats and items as JSON. ``scrapy`` runs the real command line where its exit code matters. Every
wait has an end; whatever still runs then is killed.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mocksite import child, surroundings
from scrapy import Request, Spider, signals
from scrapy.cmdline import execute
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.exceptions import ScrapyDeprecationWarning
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.statscollectors import StatsCollector
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_bloomdupe.cli import main as bloomdupe_main
from scrapy_bloomdupe.dupefilter import BloomDupeFilter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create

# Seconds; many times what it takes on a slow machine.
TIMEOUT = 60.0

ASYNCIO = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
SELECT = "twisted.internet.selectreactor.SelectReactor"

FILTER = {"DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter"}
QUIET = {"TELNETCONSOLE_ENABLED": False, "REMOTE_CONTROL_ENABLED": False, "ROBOTSTXT_OBEY": False}


class FollowAll(Spider):
    """Yields the URL of every page as an item and follows every link.

    Args:
        start: URLs to begin with, as JSON; unlike Scrapy's own start they are not ``dont_filter``.
    """

    name = "follow"

    def __init__(self, start: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_at = json.loads(start)

    async def start(self) -> AsyncIterator[Request]:
        for url in self.start_at:
            yield Request(url)

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)


@dataclass(frozen=True)
class Crawl:
    """A crawl that ended. ``stats`` and ``items`` are empty if it was killed, or was no ``run``."""

    code: int
    log: str
    stats: dict[str, Any]
    items: list[Any]

    @property
    def urls(self) -> list[str]:
        """What reached the callback of ``FollowAll``, in order of the alphabet."""
        return sorted(item["url"] for item in self.items)

    def ours(self) -> dict[str, Any]:
        """The stats of this package and of the duplicate filter."""
        return {k: v for k, v in self.stats.items() if k.startswith(("bloomdupe/", "dupefilter/"))}

    def lines(self, *parts: str) -> list[str]:
        """The lines of the log that contain all *parts*."""
        return [line for line in self.log.splitlines() if all(part in line for part in parts)]


@dataclass
class Running:
    """A crawl that is under way."""

    process: Any
    log: Path
    result: Path

    def wait_until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not happened():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"no {what} in {TIMEOUT} s:\n{self.log.read_text()}"
            time.sleep(0.01)

    def finish(self) -> Crawl:
        """Wait for the end."""
        code = self.process.wait(TIMEOUT)
        result = json.loads(self.result.read_text()) if self.result.exists() else {}
        log = self.log.read_text(errors="replace")
        return Crawl(code, log, result.get("stats", {}), result.get("items", []))


def run(folder: Path, settings: Mapping[str, Any] = FILTER, **options: Any) -> Crawl:
    """Crawl to the end; for the arguments see ``running``."""
    with running(folder, settings, **options) as crawl:
        return crawl.finish()


@contextmanager
def running(
    folder: Path,
    settings: Mapping[str, Any] = FILTER,
    *,
    spider: str = "crawling.FollowAll",
    prepare: str | None = None,
    **arguments: Any,
) -> Iterator[Running]:
    """Start a crawl in a process of its own.

    Args:
        folder: where it works; its temporary files too.
        settings: the project's; a few more keep it from the world outside.
        spider: dotted name of the class; a test module's own name will do.
        prepare: dotted name of what is called in the process before the crawl, to break something.
        arguments: of the spider; ``start`` is a list of URLs.
    """
    job = {
        "spider": spider,
        "prepare": prepare,
        "settings": {**QUIET, **settings},
        "arguments": {k: v if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()},
    }
    with _forked(folder, job) as running:
        yield running


@contextmanager
def _forked(folder: Path, job: dict[str, Any]) -> Iterator[Running]:
    # It imports this module.
    from forking import start_crawl

    number = next(n for n in itertools.count(1) if not (folder / f"job-{n}.json").exists())
    result = folder / f"result-{number}.json"
    (folder / f"job-{number}.json").write_text(json.dumps({**job, "result": str(result)}))
    process = start_crawl(folder, number, surroundings(folder))
    try:
        yield Running(process, folder / f"crawl-{number}.log", result)
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def make_state(jobdir: Path, count: int, store: str | None = "lmdb", capacity: int = 1000) -> Path:
    """Make a state of *count* keys, always the same ones, for a job directory; return the latter."""
    state = open_or_create(jobdir / "bloomdupe", StateOptions(capacity, 0.01, "classic", "murmur3", store))
    rng = random.Random(1)
    for _ in range(count):
        state.seen.check_and_add(rng.randbytes(20))
    state.close()
    return jobdir


def idle_crawler(**settings: Any) -> Crawler:
    """Return a crawler that has its settings, stats and fingerprinter, and does not crawl."""
    crawler = Crawler(FollowAll, Settings(settings, priority="project"))
    crawler.addons.load_settings(crawler.settings)
    crawler.stats = load_object(crawler.settings["STATS_CLASS"])(crawler)
    fingerprinter = load_object(crawler.settings["REQUEST_FINGERPRINTER_CLASS"])
    crawler.request_fingerprinter = build_from_crawler(fingerprinter, crawler)
    return crawler


@contextmanager
def filtering(folder: Path | None, **settings: Any) -> Iterator[tuple[BloomDupeFilter, StatsCollector]]:
    """Give an open duplicate filter of a crawler that does not crawl, and its stats."""
    crawler = idle_crawler(**{"JOBDIR": folder and str(folder), **settings})
    crawler.spider = FollowAll(start="[]")
    crawler.spider.crawler = crawler
    dupefilter = BloomDupeFilter.from_crawler(crawler)
    dupefilter.open()
    assert crawler.stats is not None
    try:
        yield dupefilter, crawler.stats
    finally:
        dupefilter.close("finished")


class Cli:
    """Our own command line, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self._capsys.readouterr()
        try:
            code = bloomdupe_main([str(word) for word in words])
        except SystemExit as exc:  # argparse
            code = int(exc.code or 0)
        return (code, *self._capsys.readouterr())

    def json(self, *words: object) -> Any:
        code, out, err = self(*words, "--json")
        assert (0, "") == (code, err)
        return json.loads(out)


def scrapy(
    folder: Path, command: Sequence[str], settings: Mapping[str, Any], *, forked: bool = True
) -> Crawl:
    """Run Scrapy's own command line to its end; there are no stats but in the log.

    Args:
        forked: from a process that has made its imports; else as a person does, which takes a second more.
    """
    options = [f"{name}={value}" for name, value in {**QUIET, **settings}.items()]
    words = [*command, *(word for option in options for word in ("-s", option))]
    if forked:
        with _forked(folder, {"command": words}) as running:
            return running.finish()
    log = folder / "scrapy.log"
    line = [sys.executable, "-m", "scrapy", *words]
    with log.open("w") as sink, child(line, folder, stdout=sink, stderr=sink, text=True) as process:
        return Running(process, log, folder / "none").finish()


def command_line(words: Sequence[str]) -> int:
    """What ``python -m scrapy`` does; it ends the process."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    execute(["scrapy", *words])
    return 0


def main(path: str) -> int:
    """The process of a crawl."""
    job = json.loads(Path(path).read_text())
    if "command" in job:
        return command_line(job["command"])
    # Turned into exceptions, which Scrapy logs: no test would see a warning.
    warnings.simplefilter("error", ScrapyDeprecationWarning)
    if job["prepare"]:
        load_object(job["prepare"])()
    process = CrawlerProcess(job["settings"])
    crawler = process.create_crawler(load_object(job["spider"]))
    items: list[Any] = []

    def scraped(item: Any) -> None:
        items.append(item)

    crawler.signals.connect(scraped, signal=signals.item_scraped)
    process.crawl(crawler, **job["arguments"])
    process.start()
    # What this crawl had no room for, its stats have.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    result = {"stats": crawler.stats.get_stats() if crawler.stats else {}, "items": items}
    Path(job["result"]).write_text(json.dumps(result, default=str))
    return int(process.bootstrap_failed)
