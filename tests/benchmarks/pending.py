"""What does it cost to go on with many pending requests? Time to open and to the first one, and memory.

A killed job is made, and a crawl that goes on with it asks its first requests again, in a process of its own:
``python tests/benchmarks/pending.py [--requests 1000000] [--rounds 3] [--json FILE]``. No site is asked: a
downloader middleware answers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from measure import anonymous_bytes, interleaved, table, write_json
from scrapy import Request, Spider
from scrapy.http import HtmlResponse

FILTER = {"DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter"}


class Pages(Spider):
    """Is to fetch so many pages; notes when the first one comes, and what memory is held."""

    name = "pages"
    figures: dict[str, float] = {}

    def parse(self, response: Any) -> Iterator[Request]:
        if not self.figures:
            self.figures["first"] = time.perf_counter()
        self.figures["bytes"] = max(anonymous_bytes(), self.figures.get("bytes", 0))
        yield from ()


class Answers:
    """Answers every request by itself."""

    def process_request(self, request: Request) -> HtmlResponse:
        return HtmlResponse(request.url, request=request, body=b"<title>page</title>")


def make_job(jobdir: Path, count: int) -> None:
    """Leave *count* pending requests of a run that was killed."""
    from scrapy.utils.request import fingerprint

    from scrapy_bloomdupe import requestbytes
    from scrapy_bloomdupe.opening import open_or_create
    from scrapy_bloomdupe.records import Record
    from scrapy_bloomdupe.settings import read

    spider = Pages()
    # Without a meaning of keys: whoever opens it first says.
    options = read({"JOBDIR": str(jobdir), "BLOOMDUPE_CAPACITY": max(count, 1000)}).options
    state = open_or_create(jobdir / "bloomdupe", options)
    journal = state.journal
    assert journal is not None
    journal.begin()
    for index in range(count):
        number = journal.next_number()
        meta = {"bloomdupe_unit": f"{journal.token}:{number}", "depth": index % 9}
        request = Request(f"https://example.com/catalogue/{index}?page={index % 97}", meta=meta)
        key = fingerprint(request)
        state.seen.check_and_add(key)
        journal.add(Record(number, key, spider.name, requestbytes.dump(request, spider)))
        if index % 2000 == 0:
            state.flush()
    state.flush()
    state.close(write=False)


def go_on(jobdir: Path, pages: int) -> dict[str, float]:
    """Crawl the first pages of what is pending in this process."""
    from scrapy.crawler import CrawlerProcess

    settings = {
        **FILTER,
        "JOBDIR": str(jobdir),
        "CLOSESPIDER_PAGECOUNT": pages,
        "DOWNLOADER_MIDDLEWARES": {Answers: 999},
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
    }
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(Pages)
    before, started = anonymous_bytes(), time.perf_counter()
    process.crawl(crawler)
    process.start()
    assert crawler.stats is not None
    assert crawler.stats.get_value("bloomdupe/replayed", 0) >= min(pages, 1)
    return {
        "open": crawler.stats.get_value("bloomdupe/open_seconds"),
        "first": Pages.figures["first"] - started,
        "bytes": Pages.figures["bytes"] - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=float, default=1e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="2,000 requests, one round")
    parser.add_argument("--child", nargs=2, metavar=("JOBDIR", "PAGES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(go_on(Path(arguments.child[0]), int(arguments.child[1]))))
        return
    count, rounds, pages = int(arguments.requests), arguments.rounds, 500
    if arguments.quick:
        count, rounds, pages = 2_000, 1, 20
    with tempfile.TemporaryDirectory() as folder:
        jobs = {"1,000 pending": 1_000, f"{count:,} pending": count}
        for name, size in jobs.items():
            make_job(Path(folder, name), size)
        megabytes = Path(folder, f"{count:,} pending", "bloomdupe", "seen.lmdb").stat().st_size / 1e6

        def run(name: str) -> Mapping[str, float]:
            job = Path(folder, "copy")
            subprocess.run(["cp", "-r", str(Path(folder, name)), str(job)], check=True)
            command = [sys.executable, __file__, "--child", str(job), str(pages)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            subprocess.run(["rm", "-r", str(job)], check=True)
            found: Mapping[str, float] = json.loads(done.stdout)
            return found

        found = interleaved({name: lambda name=name: run(name) for name in jobs}, rounds)
    rows = [["job", "state opened in ms", "first page after ms", "anonymous memory of the crawl, MB"]]
    for name, figures in found.items():
        rows.append(
            [
                name,
                f"{figures['open'] * 1000:.1f}",
                f"{figures['first'] * 1000:.0f}",
                f"{figures['bytes'] / 1e6:.1f}",
            ]
        )
    print(table(rows))
    print(f"\nThe store and journal of {count:,} pending requests take {megabytes:.0f} MB.")
    write_json(arguments.json, {"found": found, "requests": count, "megabytes": megabytes})


if __name__ == "__main__":
    main()
