"""Pages per second of CPU time of whole crawls, with each frontier, on two kinds of sites.

``python tests/benchmarks/crawls.py [--pages 300] [--rounds 7] [--site 150/90] [--json FILE]``

A site of pages full of links, some of which are duplicates, is crawled breadth-first, every crawl in a
process of its own, in turns; the site is another process. The CPU time is that of the crawl's process from
the start of the engine to its end. Every verdict of a crawl is compared with a set of Scrapy's fingerprints.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from frontier import STOCK, VARIANTS
from linksite import link_site
from measure import arguments_of, in_child, machine, table, targets_table, write_json
from scrapy import Request, Spider, signals
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy.utils.misc import load_object
from scrapy.utils.request import fingerprint

#: By name: links on a page, share of duplicates, factor of ``--pages``, least multiple of Scrapy's pages.
SITES = {"150/90": (150, 0.9, 1, 1.3), "10/50": (10, 0.5, 4, 1.1)}
ASKED = (STOCK, "ours, add-on, exact", "ours, one line, exact", "Scrapy, no JOBDIR")
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
    """Return the class with a record of what it was asked, and what it said."""

    class Watched(dupefilter):  # type: ignore[misc]
        verdicts: list[tuple[str, bool]] = []

        def request_seen(self, request: Request) -> bool:
            seen: bool = super().request_seen(request)
            Watched.verdicts.append((request.url, seen))
            return seen

    return Watched


def crawl(name: str, start: str, pages: int, folder: Path) -> dict[str, Any]:
    """Crawl in this process; return its figures."""
    settings, jobdir = VARIANTS[name]
    ours = "scrapy_bloomdupe.BloomDupeFilter"
    stock = "scrapy.dupefilters.RFPDupeFilter"
    watch = watched(load_object(ours if name.startswith("ours") else stock))
    settings = {**SETTINGS, **settings, "DUPEFILTER_CLASS": watch, "CLOSESPIDER_PAGECOUNT": pages}
    process = CrawlerProcess({**settings, "JOBDIR": str(folder) if jobdir else None})
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
    for url, verdict in watch.verdicts:
        known = len(seen)
        seen.add(fingerprint(Request(url)))
        wrong += verdict != (len(seen) == known)
    return {
        "pages_per_s": crawler.stats.get_value("response_received_count", 0) / cpu,
        "asked": len(watch.verdicts),
        "duplicates": sum(verdict for _, verdict in watch.verdicts),
        "wrong": wrong,
    }


def cpu_seconds() -> float:
    """Return the CPU time of this process, its threads and the system's work for it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(name: str, start: str, pages: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return in_child(__file__, name, start, pages, folder)


def main() -> None:
    parser = arguments_of(__doc__, "10 pages, one round", rounds=7)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--site", choices=SITES, help="this one only")
    arguments = parser.parse_args()
    if arguments.child:
        name, start, pages, folder = arguments.child
        print(json.dumps(crawl(name, start, int(pages), Path(folder))))
        return
    pages, rounds = (10, 1) if arguments.quick else (arguments.pages, arguments.rounds)
    found: dict[str, dict[str, dict[str, float]]] = {}
    rows = [["links/% duplicates", "frontier", "pages per CPU s: best, median", "of Scrapy, JOBDIR", "links"]]
    targets, wrong = [], 0.0
    for site in [arguments.site] if arguments.site else SITES:
        links, duplicates, factor, least = SITES[site]
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in ASKED}
        with link_site(links, duplicates) as start:
            for _ in range(rounds):
                for name, done in runs.items():
                    done.append(run(name, start, pages * factor))
        for name, done in runs.items():
            ours, base = ([one["pages_per_s"] for one in which] for which in (done, runs[STOCK]))
            # What all crawls of a round had in common falls out of the ratio.
            ratio = statistics.median(mine / its for mine, its in zip(ours, base, strict=True))
            one = {"best": max(ours), "median": statistics.median(ours), "ratio": ratio}
            one |= {"ratio of bests": max(ours) / max(base), "asked": done[0]["asked"]}
            found.setdefault(site, {})[name] = one
            cells = [f"{one['best']:.1f}, {one['median']:.1f}", f"{one['ratio of bests']:.2f}, {ratio:.2f}"]
            rows.append([site, name, *cells, f"{done[0]['asked']:,}"])
            wrong += sum(one["wrong"] for one in done)
            if "add-on" in name:
                for which in ("ratio of bests", "ratio"):
                    words = f"{site}, {name}: CPU per page, of Scrapy's with a JOBDIR, {which}"
                    targets.append((words, 1 / one[which], 1 / least))
    print(f"{pages} pages (four times as many with 10 links), {rounds} rounds")
    print(f"{table(rows)}\n\n{targets_table(targets)}")
    result = {"pages": pages, "rounds": rounds, "machine": machine(), "found": found, "wrong": wrong}
    write_json(arguments.json, result)
    if wrong:
        sys.exit(f"{wrong:g} verdicts that are not Scrapy's")
    print("\nEvery verdict is Scrapy's.")


if __name__ == "__main__":
    main()
