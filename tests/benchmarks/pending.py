"""What it costs to go on with many pending requests: time, CPU time and memory until pages come, and disk.

``python tests/benchmarks/pending.py [--requests 1e6] [--rounds 3] [--json FILE]``, long: ``--requests 1e7``

A process schedules the requests, commits and ends without closing anything. Every round another process goes
on with the job, crawls some pages and ends likewise. No site is asked: a downloader middleware answers.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import lmdb
from frontier import ADDON, SLICE, Links, Opened, links
from measure import (
    anonymous_bytes,
    arguments_of,
    in_child,
    interleaved,
    machine,
    table,
    targets_table,
    write_json,
)
from scrapy import Request
from scrapy.http import HtmlResponse

EMPTY = "nothing pending"


class Pages(Links):
    """Notes when the first page comes, and the memory until *pages* have come; then ends the process."""

    pages = 0
    started = cpu = 0.0
    before = 0
    figures: dict[str, Any] = {}

    async def start(self) -> AsyncIterator[Any]:
        yield Request("https://www.example.com/start", callback=self.parse, dont_filter=True)

    def parse(self, response: Any, **kwargs: Any) -> Iterator[Request]:  # type: ignore[override]
        figures = self.figures
        if not figures:
            figures["first"] = time.perf_counter() - self.started
            figures["cpu"] = time.process_time() - self.cpu
            figures["came"] = 0
        figures["came"] += 1
        figures["bytes"] = anonymous_bytes() - self.before
        if figures["came"] == self.pages:
            self.end()
        yield from ()

    def closed(self, reason: str) -> None:
        self.end()

    def end(self) -> None:
        stats = self.crawler.stats
        assert stats is not None
        self.figures["open"] = stats.get_value("bloomdupe/open_seconds")
        self.figures["resumed"] = stats.get_value("bloomdupe/resumed", 0)
        print(json.dumps(self.figures), flush=True)
        os._exit(0)


class Answers:
    """Answers every request by itself."""

    def process_request(self, request: Request) -> HtmlResponse:
        return HtmlResponse(request.url, request=request, body=b"<title>page</title>")


def fill(jobdir: Path, count: int) -> None:
    """Schedule *count* requests, and end as a process that is killed after a commit."""
    opened = Opened({**ADDON, "BLOOMDUPE_CAPACITY": max(count, 1000)}, str(jobdir))
    numbers = iter(range(count))
    while requests := links(opened.spider, numbers):
        opened.push(requests)
    opened.commit()
    print(json.dumps({"pending": opened._group.queue.store.num_pending}), flush=True)
    os._exit(0)


def go_on(jobdir: Path, pages: int) -> None:
    """Crawl the first pages of what is pending in this process, which ends with it."""
    from scrapy.crawler import CrawlerProcess

    settings = {
        **ADDON,
        "JOBDIR": str(jobdir),
        "DOWNLOADER_MIDDLEWARES": {Answers: 999},
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
    }
    process = CrawlerProcess(settings)
    Pages.pages, Pages.before = pages, anonymous_bytes()
    Pages.started, Pages.cpu = time.perf_counter(), time.process_time()
    process.crawl(Pages)
    process.start()


def database_bytes(jobdir: Path) -> dict[str, int]:
    """Return the bytes of the pages of each database, and those of the file."""
    (path,) = (jobdir / "bloomdupe").glob("*.lmdb")
    found = {"file": path.stat().st_size}
    with lmdb.open(str(path), subdir=False, readonly=True, max_dbs=16) as env:
        for name in (b"pending", b"seen"):
            with env.begin(db=env.open_db(name, create=False)) as txn:
                stat = txn.stat(env.open_db(name, txn, create=False))
            pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            found[name.decode()] = pages * stat["psize"]
    return found


def main() -> None:
    parser = arguments_of(__doc__, "2,000 requests, one round", rounds=3)
    parser.add_argument("--requests", type=float, default=1e6)
    arguments = parser.parse_args()
    if arguments.child:
        what, jobdir, number = arguments.child
        {"fill": fill, "go_on": go_on}[what](Path(jobdir), int(number))
        return
    count, rounds, pages = int(arguments.requests) // SLICE * SLICE, arguments.rounds, 500
    if arguments.quick:
        count, rounds, pages = 2_000, 1, 20
    many = f"{count:,} pending"
    with tempfile.TemporaryDirectory() as folder:
        filled = in_child(__file__, "fill", Path(folder, many), count)
        # The parent of the links is pending, too.
        assert filled["pending"] == count + 1, filled
        sizes = database_bytes(Path(folder, many))

        def run(name: str) -> dict[str, float]:
            found = in_child(__file__, "go_on", Path(folder, name), pages)
            assert found["resumed"] >= pages or name == EMPTY, found
            return found

        found = interleaved({name: lambda name=name: run(name) for name in (EMPTY, many)}, rounds)  # type: ignore[misc]
    rows = [["job", "state opened in ms", "first page after ms", "CPU ms until then", "anonymous MB"]]
    for name, one in found.items():
        figures = (one["open"] * 1e3, one["first"] * 1e3, one["cpu"] * 1e3, one["bytes"] / 1e6)
        rows.append([name, *(f"{figure:.1f}" for figure in figures)])
    print(table(rows))
    each = {name: size / count for name, size in sizes.items()}
    print(
        f"\nPages of the file, bytes per pending request: {each['pending']:.0f} of its record, "
        f"{each['seen']:.0f} of its seen key; the whole file with free pages: {each['file']:.0f}\n"
    )
    beyond = {what: found[many][what] - found[EMPTY][what] for what in found[many]}
    print(
        targets_table(
            [
                ("state opened in ms", found[many]["open"] * 1e3, 50),
                ("CPU s until the first page, beyond an empty crawl", beyond["cpu"], 1),
                ("anonymous memory beyond an empty crawl, MB", beyond["bytes"] / 1e6, 20),
                ("bytes of pages per pending record", each["pending"], 250),
            ]
        )
    )
    write_json(arguments.json, {"requests": count, "machine": machine(), "found": found, "bytes": each})


if __name__ == "__main__":
    main()
