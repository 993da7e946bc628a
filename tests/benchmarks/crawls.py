"""What does the filter do to a whole crawl? Pages per second of CPU time, and the filter's share of it.

The same site of pages full of links is crawled breadth-first with each filter, every crawl in a process
of its own, in turns; the site is another process. The CPU time is that of the crawl's process, from the
start of the engine to its end, and the filter's part of it is taken around each call (which adds under
a microsecond). Afterwards every verdict of the crawl is compared with a set of Scrapy's fingerprints.

``python tests/benchmarks/crawls.py [--pages 500] [--links 150] [--rounds 5] [--json FILE]``
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dupefilters import BASE, VARIANTS
from linksite import link_site
from measure import arguments_of, in_child, machine, table, targets_table, write_json
from scrapy import Request, Spider, signals
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy.utils.misc import load_object
from scrapy.utils.request import fingerprint

LOCAL = {name: variant for name, variant in VARIANTS.items() if not variant.server and "rules" not in name}
#: What whole crawls are: Scrapy's own documentation of how to crawl breadth-first, and nothing that waits.
SETTINGS = {
    "DEPTH_PRIORITY": 1,
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "ERROR",
}


class LinksSpider(Spider):
    name = "links"

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Request]:
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)


def watched(dupefilter: type[Any]) -> type[Any]:
    """Return the class with a clock around its question, and a record of what it was asked."""

    class Watched(dupefilter):  # type: ignore[misc]
        nanoseconds = 0
        asked: list[str] = []
        verdicts: list[bool] = []

        def request_seen(self, request: Request) -> bool:
            started = time.thread_time_ns()
            seen: bool = super().request_seen(request)
            Watched.nanoseconds += time.thread_time_ns() - started
            Watched.asked.append(request.url)
            Watched.verdicts.append(seen)
            return seen

    return Watched


def crawl(name: str, start: str, pages: int, folder: Path) -> dict[str, Any]:
    """Crawl in this process; return its figures."""
    settings = {**SETTINGS, **VARIANTS[name].all_settings(folder), "CLOSESPIDER_PAGECOUNT": pages}
    watch = watched(load_object(settings["DUPEFILTER_CLASS"]))
    settings["DUPEFILTER_CLASS"] = watch
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(LinksSpider)
    began: list[float] = []

    def started() -> None:
        began.append(cpu_seconds())

    crawler.signals.connect(started, signal=signals.engine_started)
    process.crawl(crawler, start_urls=[start])
    process.start()
    cpu = cpu_seconds() - began[0]
    assert crawler.stats is not None
    seen: set[bytes] = set()
    wrong = 0
    for url, verdict in zip(watch.asked, watch.verdicts, strict=True):
        known = len(seen)
        seen.add(fingerprint(Request(url)))
        wrong += verdict != (len(seen) == known)
    return {
        "pages": crawler.stats.get_value("response_received_count", 0),
        "cpu": cpu,
        "filter": watch.nanoseconds / 1e9,
        "asked": len(watch.asked),
        "duplicates": sum(watch.verdicts),
        "wrong": wrong,
    }


def cpu_seconds() -> float:
    """Return the CPU time of this process, its threads and the system's work for it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(name: str, start: str, pages: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        found = in_child(__file__, name, start, pages, folder)
    return {
        **found,
        "pages_per_s": found["pages"] / found["cpu"],
        "share": found["filter"] / found["cpu"],
        "us": found["filter"] / found["asked"] * 1e6,
    }


def targets(found: Mapping[str, Mapping[str, float]]) -> list[tuple[str, float | None, float]]:
    """Return what this benchmark was asked to show: 1.20 times the pages per CPU second, and a journal
    that costs at most a tenth."""
    inverse = {name: 1 / figures["ratio"] for name, figures in found.items()}
    off, on = "ours, exact, JOBDIR, no journal", "ours, exact, JOBDIR, journal"
    return [
        ("CPU per page, exact / Scrapy", inverse.get("ours, exact"), 0.833),
        ("CPU per page, exact, JOBDIR, no journal / Scrapy, JOBDIR", inverse.get(off), 0.833),
        ("CPU per page, exact, JOBDIR, journal / Scrapy, JOBDIR", inverse.get(on), 1.1),
    ]


def main() -> None:
    parser = arguments_of(__doc__, "10 pages with 20 links, one round", rounds=5)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--links", type=int, default=150, help="on a page; nine of ten are duplicates")
    arguments = parser.parse_args()
    if arguments.child:
        name, start, pages, folder = arguments.child
        print(json.dumps(crawl(name, start, int(pages), Path(folder))))
        return
    pages, links, rounds = arguments.pages, arguments.links, arguments.rounds
    asked = list(LOCAL)
    if arguments.quick:
        pages, links, rounds = 10, 20, 1
        asked = [name for name in LOCAL if name == BASE or "JOBDIR" in name]
    missing = {name: why for name in asked if (why := LOCAL[name].missing(None))}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in asked if name not in missing}
    with link_site(links, 0.9) as start:
        for _ in range(rounds):
            for name, done in runs.items():
                done.append(run(name, start, pages))
    # What all crawls of a round had in common falls out of the ratio.
    found = {
        name: {figure: statistics.median(one[figure] for one in done) for figure in done[0]}
        for name, done in runs.items()
    }
    for name, done in runs.items():
        base = runs["Scrapy, JOBDIR" if LOCAL[name].jobdir else BASE]
        found[name]["ratio"] = statistics.median(
            one["pages_per_s"] / other["pages_per_s"] for one, other in zip(done, base, strict=True)
        )
    rows = [["filter", "pages per CPU s", "of Scrapy's", "filter's share", "us per link", "links", "seen"]]
    for name, figures in found.items():
        row = [name, f"{figures['pages_per_s']:.1f}", f"{figures['ratio']:.2f}", f"{figures['share']:.1%}"]
        row += [f"{figures['us']:.1f}", f"{figures['asked']:,.0f}"]
        rows.append([*row, f"{figures['duplicates'] / figures['asked']:.1%}"])
    rows += [[name, why, "", "", "", "", ""] for name, why in missing.items()]
    print(
        f"{pages} pages with {links} links each, {rounds} rounds, medians; with a JOBDIR: of Scrapy with one"
    )
    print(table(rows))
    wrong = {name: sum(one["wrong"] for one in done) for name, done in runs.items()}
    print(f"\n{targets_table(targets(found))}")
    result = {"pages": pages, "links": links, "rounds": rounds, "machine": machine(), "found": found}
    write_json(arguments.json, {**result, "wrong": wrong, "missing": missing})
    if problems := [f"{name}: {count}" for name, count in wrong.items() if count and not LOCAL[name].may_err]:
        sys.exit(f"verdicts that are not Scrapy's: {'; '.join(problems)}")
    print(f"\nVerdicts that differ from Scrapy's: {sum(wrong.values())}")


if __name__ == "__main__":
    main()
