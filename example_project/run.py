"""What does a crawl with scrapy-bloomdupe look like? Opens the shop, crawls it, explains the stats.

    python example_project/run.py [s01_default|s02_resume|s03_rules|s04_tmall|all] [--stock]

The exit code is 0 if everything came out as the shop says it must, otherwise 1. Nothing is left on
the disk.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from processes import PROJECT, Crawl, Trouble, crawl, open_shop, server_log
from report import Check, print_checks, print_remarks, print_stats, print_text, print_title
from shop.counts import Counts, count
from shop.server import read_log
from shop.site import Ask, Shop
from side_by_side import RULE_LESSONS, STOCK

SHOP = Shop()


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
    return print_checks(checks + _checks(folder, counts, [done], stock))


def s02_resume(folder: Path, settings: Sequence[str], counts: Counts, stock: bool) -> bool:
    print_title("s02_resume: stop and go on")
    stop_after = counts.addresses // 3
    settings = [*settings, f"JOBDIR={folder / 'job'}"]
    with open_shop(folder, delay=0.02) as url:
        first = crawl("s02_resume", url, folder, settings=settings, stop_after=stop_after)
        before = len(read_log(server_log(folder)))
        second = crawl("s02_resume", url, folder, settings=settings)
    print_text(
        f"Ctrl-C came when the shop had given {stop_after} answers. The crawl let what was under "
        f"way come in and closed after {before}. The same command again, with the same JOBDIR, did "
        "the rest. The stats of both runs:"
    )
    print_stats({"first run": first.stats, "second run": second.stats})
    print_remarks({"first run": first.remarks, "second run": second.remarks})
    checks = [
        Check("the first run was stopped", "shutdown", first.stats.get("finish_reason")),
        Check("the second run ended by itself", "finished", second.stats.get("finish_reason")),
    ]
    return print_checks(checks + _checks(folder, counts, [first, second], stock))


def _checks(folder: Path, counts: Counts, runs: Sequence[Crawl], stock: bool) -> list[Check]:
    """Compare all runs together with what one crawl of the whole shop must come to."""
    answered = Counter(read_log(server_log(folder)))
    allowed = counts.answers.copy()
    cookie_pages = [ask for ask in counts.answers if _sets_cookie(ask)]
    if len(runs) > 1:
        # Scrapy keeps cookies in memory only. Stopped between a cookie and the page behind it, it
        # must ask for both.
        allowed.update(cookie_pages)
    # A run that goes on asks for the start page as the first one did, and is told that it was seen.
    duplicates = counts.duplicates + len(runs) - 1
    lines = (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()
    products = {json.loads(line)["product"] for line in lines}

    def total(*names: str) -> int:
        return sum(run.stats.get(name, 0) for run in runs for name in names)

    sent = total("downloader/request_count")
    checks = [
        Check("addresses that the shop was asked for", counts.addresses, len(answered)),
        Check("  of these not asked for often enough", 0, len(counts.answers - answered)),
        Check("  of these asked for too often", 0, len(answered - allowed)),
        Check("requests sent, and answers by the shop's own log", sent, answered.total()),
        Check("links called duplicates", duplicates, total("dupefilter/filtered")),
        Check("items", counts.items, len(lines)),
        Check("products in them", counts.products, len(products)),
    ]
    if not stock:
        new = total("bloomdupe/new", "bloomdupe/false_positive")
        again = sum(answered[ask] - 1 for ask in cookie_pages)
        keys = runs[-1].stats.get("bloomdupe/keys")
        errors = sum(name.startswith("bloomdupe/error/") for run in runs for name in run.stats)
        checks += [
            Check("requests new to the filter", counts.addresses, new),
            Check("keys that the filter keeps", counts.addresses, keys),
            Check("redirects to itself that passed", again, total("bloomdupe/redirect_pass")),
            Check("errors of the filter", 0, errors),
        ]
    return checks


def _sets_cookie(ask: Ask) -> bool:
    page = SHOP.page(ask)
    return page is not None and page.cookie is not None


LESSONS = {"s01_default": s01_default, "s02_resume": s02_resume}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="run.py", description="Crawl an offline shop.")
    parser.add_argument("lesson", nargs="?", default="s01_default", choices=[*LESSONS, *RULE_LESSONS, "all"])
    help_ = "crawl with Scrapy's own filter, for comparison; s03 and s04 do so by themselves"
    parser.add_argument("--stock", action="store_true", help=help_)
    args = parser.parse_args(argv)
    if args.stock and args.lesson in RULE_LESSONS:
        parser.error(f"{args.lesson} compares with Scrapy's own filter by itself: leave --stock out")
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
