"""How does a history become a file to look at? ``bloomdupe report``.

It reads, also beside a running crawl and without its lock, and writes the one file it is told to.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from scrapy_bloomdupe.advice import Facts
from scrapy_bloomdupe.assembling import FRONTIER_MARK
from scrapy_bloomdupe.errors import StateUnusable
from scrapy_bloomdupe.filters.counting import open_filter
from scrapy_bloomdupe.frontier.lmdb import FrontierView
from scrapy_bloomdupe.history import History, read_history
from scrapy_bloomdupe.page import make_page
from scrapy_bloomdupe.statefiles import FILTER_NAME, STORE_NAME, environment_path, locate
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

Command = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]

# Pages of 8 KiB on which the fill is measured.
_PAGES = 256


def add_report(command: Command) -> None:
    """Add ``report``."""
    text = "Make a page with charts of a crawl's history; also beside a running crawl."
    sub = command("report", _report, text)
    sub.add_argument("directory", metavar="DIR", help="a JOBDIR, or the directory of a state")
    sub.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page to write (default: report.html)",
    )


def facts_of(directory: Path) -> Facts:
    """Return what the files of a state say.

    Raises:
        StateError, StoreError: they cannot be read.
    """
    filter = open_filter(directory / FILTER_NAME, readonly=True)  # noqa: A001
    try:
        info = filter.measure(_PAGES)
    finally:
        filter.abandon()
    keys, num_bytes = info.num_keys, info.num_bytes
    exact = info.identity.get("store") == "lmdb"
    pending = failed = None
    in_order = info.clean
    if exact or FRONTIER_MARK in info.identity:
        path = directory / STORE_NAME if exact else environment_path(directory)
        environment = Environment.open(path, readonly=True)
        try:
            num_bytes += environment.num_bytes()
            if exact:
                keys = LmdbStore(environment).count()
            if FRONTIER_MARK in info.identity:
                view = FrontierView(environment)
                pending, failed, in_order = view.num_pending, view.num_failed, view.in_order
        finally:
            environment.close()
    return Facts(
        directory=str(directory),
        keys=keys,
        capacity=sum(layer.capacity for layer in info.layers),
        layers=len(info.layers),
        fill=info.fill,
        error_rate=info.error_rate_estimate,
        num_bytes=num_bytes,
        asked=info.error_rate,
        exact=exact,
        pending=pending,
        failed=failed,
        in_order=in_order,
    )


def _report(arguments: argparse.Namespace) -> int:
    directory = locate(arguments.directory)
    history = _read(directory)
    page = make_page(facts_of(directory), history, time.time())
    output: Path = arguments.output
    new = output.with_name(f"{output.name}.new")
    try:
        # Whoever looks at the page while it is made anew sees the one before.
        new.write_text(page, encoding="utf-8", errors="backslashreplace")
        new.replace(output)
    except OSError as exc:
        raise StateUnusable(exc.errno, f"cannot write {output}: {exc.strerror}") from exc
    samples = len(history.samples)
    print(f"{output}: {samples:,} samples" + ("" if samples else "; the page says how to get some"))
    return 0


def _read(directory: Path) -> History:
    try:
        return read_history(directory)
    except OSError as exc:
        raise StateUnusable(exc.errno, f"cannot read the history in {directory}: {exc.strerror}") from exc
