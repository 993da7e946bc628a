"""What does a crawl with scrapy-bloomdupe look like? Opens the shop, crawls it, explains the stats.

    python example_project/run.py [s01_default|s02_resume|s03_rules|s04_tmall|s05_shared|s06_report|all]
                                   [--stock] [--report FILE]

The exit code is 0 if everything came out as the shop says it must, otherwise 1. Nothing is left on
the disk, but the page of s06_report if `--report` says where.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from processes import CRAWL_ENDS, PROJECT, Crawl, Trouble, crawl, open_shop, server_log
from report import Check, print_checks, print_remarks, print_stats, print_text, print_title
from shop.counts import Counts, count
from shop.server import read_log
from shop.site import Ask, Shop
from side_by_side import RULE_LESSONS, STOCK
from together import SKIPPED, can_run, s05_shared
from watching import s06_report

SHOP = Shop()

# Seconds. Scrapy's own job directory can wait for ever after a kill.
STOCK_ENDS = 30.0


def s01_default(folder: Path, settings: Sequence[str], counts: Counts, stock: bool) -> bool:
    print_title("s01_default: one line of settings")
    with open_shop(folder) as url:
        done = crawl("s01_default", url, folder, settings=settings)
    print_text(
        f"The shop has {SHOP.products} products under {counts.addresses} addresses. The spider "
        f"followed {counts.asked:,} links in {done.seconds:.1f} seconds. Its stats, and what they "
        "say:"
    )
    print_stats({"": done.stats})
    print_remarks({"": done.remarks})
    checks = [Check("the crawl ended by itself", "finished", done.stats.get("finish_reason"))]
    return print_checks(checks + _checks(folder, counts, done, stock))


def s02_resume(folder: Path, settings: Sequence[str], counts: Counts, stock: bool) -> bool:
    print_title("s02_resume: stopped, killed, and resumed")
    settings = [*settings, f"JOBDIR={folder / 'job'}"]
    stop_after, kill_after = counts.addresses // 4, counts.addresses // 2
    log, trouble = server_log(folder), ""
    with open_shop(folder, delay=0.02) as url:
        runs = {"stopped": crawl("s02_resume", url, folder, settings=settings, stop_after=stop_after)}
        stopped = len(read_log(log))
        crawl("s02_resume", url, folder, settings=settings, kill_after=kill_after)
        # The shop still answers what was under way.
        time.sleep(0.5)
        killed = len(read_log(log))
        try:
            patience = STOCK_ENDS if stock else CRAWL_ENDS
            runs["after kill"] = crawl("s02_resume", url, folder, settings=settings, patience=patience)
        except Trouble as exc:
            if not stock:
                raise
            trouble = str(exc).partition("\n")[0]
    print_text(
        f"Ctrl-C came when the shop had given {stop_after} answers. The crawl let what was under way come "
        f"in and closed after {stopped}. The same command again, with the same JOBDIR, went on until `kill "
        f"-9` ended it at {kill_after}: a killed crawl can write nothing more, not even its stats. The same "
        "command a third time:"
    )
    print_stats({heading: run.stats for heading, run in runs.items()})
    print_remarks({f"run {heading}": run.remarks for heading, run in runs.items()})
    answered = Counter(read_log(log))
    lost = len(counts.answers - answered)
    first, last = runs["stopped"].stats, runs["after kill"].stats if "after kill" in runs else {}
    numbers = {
        "pages fetched until the kill": killed,
        "pending requests found after it": last.get("bloomdupe/resumed", 0),
        "pages fetched after it": answered.total() - killed,
        "pages lost": lost,
        "pages fetched twice (under way at the kill)": (answered - counts.answers).total(),
    }
    if stock:
        del numbers["pending requests found after it"]
    for what, number in numbers.items():
        print(f"{what:<46}{number:>6,}")
    print()
    if stock:
        end = trouble or f"The last run ended as `{last.get('finish_reason')}`."
        print_text(
            f"This was Scrapy's own filter and queue. {end} {lost} of {counts.addresses} pages were not "
            "fetched: what waits in the queue when a crawl is killed can be lost, and is marked as seen."
        )
        return first.get("finish_reason") == "shutdown"
    _, shown, products = _items(folder)
    errors = sum(name.startswith("bloomdupe/error/") for run in runs.values() for name in run.stats)
    return print_checks(
        [
            Check("the first run was stopped", "shutdown", first.get("finish_reason")),
            Check("the last run ended by itself", "finished", last.get("finish_reason")),
            Check("addresses that the shop was asked for", counts.addresses, len(answered)),
            Check("pages lost", 0, lost),
            Check("pages that show a product, in the feed", counts.items, shown),
            Check("products in them", counts.products, products),
            Check("keys that the filter keeps", counts.addresses, last.get("bloomdupe/keys")),
            Check("pending requests at the end", 0, last.get("bloomdupe/pending")),
            Check("errors of the filter", 0, errors),
        ]
    )


def _items(folder: Path) -> tuple[int, int, int]:
    """Return the numbers of items, of different pages and of products in the feed."""
    lines = (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    return len(items), len({item["url"] for item in items}), len({item["product"] for item in items})


def _checks(folder: Path, counts: Counts, done: Crawl, stock: bool) -> list[Check]:
    """Compare a run with what a crawl of the whole shop must come to."""
    answered = Counter(read_log(server_log(folder)))
    items, _, products = _items(folder)
    stats = done.stats

    def stat(name: str) -> int:
        return int(stats.get(name, 0))

    sent = stat("downloader/request_count")
    checks = [
        Check("addresses that the shop was asked for", counts.addresses, len(answered)),
        Check("  of these not asked for often enough", 0, len(counts.answers - answered)),
        Check("  of these asked for too often", 0, len(answered - counts.answers)),
        Check("requests sent, and answers by the shop's own log", sent, answered.total()),
        Check("links called duplicates", counts.duplicates, stat("dupefilter/filtered")),
        Check("items", counts.items, items),
        Check("products in them", counts.products, products),
    ]
    if not stock:
        new = stat("bloomdupe/new") + stat("bloomdupe/false_positive")
        again = sum(answered[ask] - 1 for ask in counts.answers if _sets_cookie(ask))
        errors = sum(name.startswith("bloomdupe/error/") for name in stats)
        checks += [
            Check("requests new to the filter", counts.addresses, new),
            Check("keys that the filter keeps", counts.addresses, stat("bloomdupe/keys")),
            Check("redirects to itself that passed", again, stat("bloomdupe/redirect_pass")),
            Check("errors of the filter", 0, errors),
        ]
    return checks


def _sets_cookie(ask: Ask) -> bool:
    page = SHOP.page(ask)
    return page is not None and page.cookie is not None


REPORT = "s06_report"
LESSONS = {"s01_default": s01_default, "s02_resume": s02_resume}
SHARED = "s05_shared"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="run.py", description="Crawl an offline shop.")
    choices = [*LESSONS, *RULE_LESSONS, SHARED, REPORT, "all"]
    parser.add_argument("lesson", nargs="?", default="s01_default", choices=choices)
    help_ = "crawl with Scrapy's own filter, for comparison; s03 and s04 do so by themselves"
    parser.add_argument("--stock", action="store_true", help=help_)
    help_ = "where the page of s06_report is to stay; default: nowhere"
    parser.add_argument("--report", type=Path, metavar="FILE", help=help_)
    args = parser.parse_args(argv)
    if args.stock and args.lesson in RULE_LESSONS:
        parser.error(f"{args.lesson} compares with Scrapy's own filter by itself: leave --stock out")
    if args.stock and args.lesson == SHARED:
        parser.error("Scrapy's own filter shares nothing: leave --stock out")
    if args.lesson == REPORT and args.stock:
        parser.error("Scrapy's own filter keeps no figures: leave --stock out")
    if not args.stock and importlib.util.find_spec("scrapy_bloomdupe") is None:
        print(f"{sys.executable} has no scrapy_bloomdupe: `pip install {PROJECT.parent}` first.")
        return 1
    counts = count(SHOP, self_redirect_lost=args.stock)
    good = True
    for name, lesson in LESSONS.items():
        if args.lesson in (name, "all"):
            with tempfile.TemporaryDirectory(prefix="shop-crawl-") as folder:
                good &= lesson(Path(folder), [STOCK] if args.stock else [], counts, args.stock)
    for name, compare in RULE_LESSONS.items():
        if args.lesson == name or (args.lesson == "all" and not args.stock):
            with tempfile.TemporaryDirectory(prefix="shop-crawl-") as folder:
                good &= compare(Path(folder))
    if args.lesson == SHARED or (args.lesson == "all" and not args.stock):
        if can_run():
            with tempfile.TemporaryDirectory(prefix="shop-crawl-") as folder:
                good &= s05_shared(Path(folder))
        else:
            print(SKIPPED)
            good &= args.lesson == "all"
    if args.lesson == REPORT or (args.lesson == "all" and not args.stock):
        with tempfile.TemporaryDirectory(prefix="shop-crawl-") as folder:
            good &= s06_report(Path(folder), args.report and args.report.absolute())
    if args.stock and good:
        whole = count(SHOP)
        print_text(
            f"This was Scrapy's own filter. {whole.products - counts.products} of the "
            f"{whole.products} products is missing, without an error: its page redirects to "
            "itself, setting a cookie, and the second request was taken for a duplicate of the "
            "first."
        )
    return 0 if good else 1


def _terminated(signum: int, frame: object) -> NoReturn:
    # As an exception, so that the children are ended and the folder is removed on the way out.
    sys.exit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.exit(f"Trouble: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
