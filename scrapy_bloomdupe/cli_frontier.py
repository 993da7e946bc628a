"""``bloomdupe pending``, and the frontier's lines of ``bloomdupe info``.

Both only read, also beside a running crawl; they load no code of a spider and do not import Scrapy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from scrapy_bloomdupe.assembling import FRONTIER_MARK
from scrapy_bloomdupe.cli_places import plain, refuse_url
from scrapy_bloomdupe.errors import StateNotFound
from scrapy_bloomdupe.frontier.lmdb import FrontierView, PendingRequest
from scrapy_bloomdupe.frontier.serialize import peek
from scrapy_bloomdupe.statefiles import environment_path, locate, read_meta
from scrapy_bloomdupe.stores.environment import Environment

Command = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
_COLUMNS = "{:>10} {:>8} {:<7} {:<20} {:<16} {}"


def add_pending(command: Command) -> None:
    """Add ``pending``."""
    text = "List the pending requests; also beside a running crawl."
    sub = command("pending", _pending, text)
    sub.add_argument("directory", metavar="DIR", help="a JOBDIR, or the directory of a state")
    sub.add_argument("--limit", type=_limit, default=20, help="requests to show (default: 20); 0: all")
    sub.add_argument(
        "--failed", action="store_true", help="those that failed, which BLOOMDUPE_RETRY_FAILED keeps"
    )
    sub.add_argument("--json", action="store_true")


def frontier_info(directory: Path, identity: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the counts of the frontier of a state, None: it has none.

    Raises:
        StateCorrupt, StoreError: see ``FrontierView``.
    """
    if FRONTIER_MARK not in identity:
        return None
    with _viewing(directory) as view:
        return {
            "pending": view.num_pending,
            "done": view.num_done,
            "failed": view.num_failed,
            "in_order": view.in_order,
        }


def print_frontier(frontier: Mapping[str, Any] | None) -> None:
    if frontier is None:
        print("frontier             none")
        return
    print(f"pending requests     {frontier['pending']:,}")
    print(f"requests done        {frontier['done']:,}")
    print(f"failed and kept      {frontier['failed']:,}")
    print(f"last run             {_ending(frontier['in_order'])}")


def _ending(in_order: bool) -> str:
    return "ended in order" if in_order else "under way, or did not end in order"


def _pending(arguments: argparse.Namespace) -> int:
    refuse_url(arguments.directory, "pending requests are in a directory: give the JOBDIR")
    directory = locate(arguments.directory)
    with _viewing(directory) as view:
        count = view.num_failed if arguments.failed else view.num_pending
        records = view.records(failed=arguments.failed)
        rows = (_row(record) for record in islice(records, arguments.limit or None))
        if arguments.json:
            return _print_json(rows)
        what = "failed" if arguments.failed else "pending"
        requests = "request" if count == 1 else "requests"
        print(f"{count:,} {what} {requests} in {directory}; the last run: {_ending(view.in_order)}")
        return _print_rows(rows, count)


@contextmanager
def _viewing(directory: Path) -> Iterator[FrontierView]:
    path = environment_path(directory)
    none = StateNotFound(2, f"{directory} has no frontier: BLOOMDUPE_FRONTIER was off")
    if not path.exists():
        raise none
    environment = Environment.open(path, readonly=True)
    try:
        _, identity = read_meta(environment)
        if FRONTIER_MARK not in identity:
            raise none
        yield FrontierView(environment)
    finally:
        environment.close()


def _row(record: PendingRequest) -> dict[str, Any]:
    row: dict[str, Any] = {"number": record.number, "spider": record.spider}
    if record.damaged:
        return {**row, "damaged": "its checksum does not match"}
    try:
        # Not asdict, which copies: this is done a million times.
        return {**row, **vars(peek(record.request))}
    except ValueError as exc:
        return {**row, "damaged": str(exc)}


def _print_json(rows: Iterable[dict[str, Any]]) -> int:
    """Print one list, a line per request, without holding it."""
    damaged, before = False, "["
    for row in rows:
        damaged |= "damaged" in row
        print(before + json.dumps(row), end="")
        before = ",\n "
    print("[]" if before == "[" else "]")
    return 1 if damaged else 0


def _print_rows(rows: Iterable[dict[str, Any]], count: int) -> int:
    shown = damaged = 0
    for row in rows:
        if not shown:
            print(_COLUMNS.format("number", "priority", "method", "callback", "spider", "url"))
        shown += 1
        cells = [row["number"], row.get("priority", "-")]
        cells += [plain(row.get(name) or "-") for name in ("method", "callback", "spider")]
        if "damaged" in row:
            damaged += 1
            cells.append(plain(f"damaged: {row['damaged']}"))
        else:
            cells.append(plain(row["url"]))
        print(_COLUMNS.format(*cells))
    if shown < count:
        print(f"and {count - shown:,} more: --limit 0 shows all")
    if damaged:
        print(f"{damaged:,} of these are damaged: their pages stay pending. Restore the file from a copy")
    return 1 if damaged else 0


def _limit(text: str) -> int:
    limit = int(text) if text.isdecimal() else -1
    if limit < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of requests, 0 or more")
    return limit
