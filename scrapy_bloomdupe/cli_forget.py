"""What does a person let a seen-set forget? ``bloomdupe forget``.

It parses, prints and returns exit codes; ``forgetting`` does it. Scrapy is imported only if there are URLs,
whose keys the project makes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from scrapy_bloomdupe.errors import ConfigurationError, StateNotFound
from scrapy_bloomdupe.filters.counting import open_filter
from scrapy_bloomdupe.forgetting import Forgotten, Selection, forget
from scrapy_bloomdupe.progress import Bar
from scrapy_bloomdupe.statefiles import FILTER_NAME, locate

Command = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
_KEY = re.compile(r"[0-9a-fA-F]{40}")
_PAGE = re.compile(r"https?://", re.IGNORECASE)


def add_forget(command: Command) -> None:
    """Add ``forget``."""
    text = "Make pages new again in the exact store of a closed state, so that the next run crawls them."
    sub = command("forget", _forget, text)
    sub.add_argument("directory", metavar="DIR", help="a JOBDIR, or the directory of a state")
    sub.add_argument("urls", metavar="URL", nargs="*", help="a page, by the URL that it is linked by")
    sub.add_argument(
        "--keys",
        metavar="FILE",
        help="lines: a URL, or the 40 hex digits of a key; - for standard input",
    )
    sub.add_argument(
        "--host",
        action="append",
        default=[],
        type=_name,
        metavar="HOST",
        help="all pages of a host; repeatable",
    )
    sub.add_argument(
        "--rule",
        action="append",
        default=[],
        type=_name,
        metavar="RULE",
        help="all pages whose key a rule or preset made; repeatable, with --host both must hold",
    )
    sub.add_argument("--dry-run", action="store_true", help="only say how many there are")
    sub.add_argument("--settings", metavar="MODULE", help="of URLs; default: the project around us")
    sub.add_argument("--spider", help="of URLs; default: the spider that made the state")


def _forget(arguments: argparse.Namespace) -> int:
    own = getattr(arguments, "own_directory", None)
    if own is not None and _PAGE.match(arguments.directory):
        # Inside a project the directory can be left out: what stands in its place is the first page.
        arguments.urls.insert(0, arguments.directory)
        arguments.directory = own
    directory = locate(arguments.directory)
    named, scanned = arguments.urls or arguments.keys, arguments.host or arguments.rule
    if bool(named) == bool(scanned):
        print(
            "bloomdupe: forget takes either URLs and --keys, or --host and --rule; see --help",
            file=sys.stderr,
        )
        return 2
    keys, urls = set(), list(arguments.urls)
    for number, line in enumerate(_lines(arguments.keys), 1):
        if _KEY.fullmatch(line):
            keys.add(bytes.fromhex(line))
        elif "://" in line:
            urls.append(line)
        elif line:
            raise ConfigurationError(
                f"{arguments.keys}, line {number}: {line!r:.100} is neither a URL nor the 40 hex digits of a "
                "key. Nothing was changed"
            )
    if urls:
        keys |= _keys_of(urls, directory, arguments)
    selection = Selection(frozenset(keys), tuple(arguments.host), tuple(arguments.rule))
    done = forget(directory, selection, _progress, dry_run=arguments.dry_run)
    return _print(directory, done, dry_run=arguments.dry_run)


def _name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text.strip()


def _lines(name: str | None) -> Iterator[str]:
    if name is None:
        return
    if name == "-":
        yield from (line.strip() for line in sys.stdin)
        return
    path = Path(name)
    if not path.exists() or path.is_dir():
        raise StateNotFound(2, f"there is no file {path}")
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from (line.strip() for line in file)


def _keys_of(urls: Iterable[str], directory: Path, arguments: argparse.Namespace) -> set[bytes]:
    """Return the keys that the project makes of *urls*.

    Raises:
        ConfigurationError: one is no URL, or the keys of the state were made in another way.
    """
    # As `python -m` does: settings modules and what `call:` names lie where a person stands.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    from scrapy_bloomdupe.project import KeyMaker

    filter = open_filter(directory / FILTER_NAME, readonly=True)  # noqa: A001
    try:
        maker = KeyMaker(arguments.settings, arguments.spider, filter.identity)
    finally:
        filter.abandon()
    maker.refuse_other(directory)
    keys = set()
    for url in urls:
        if (key := maker.key(url)) is not None:
            keys.add(key)
        else:
            print(f"{url} is never a duplicate: missing = 'keep'", file=sys.stderr)
    return keys


def _print(directory: Path, done: Forgotten, *, dry_run: bool) -> int:
    if dry_run:
        print(f"{done.keys:,} keys would be forgotten in {directory}; nothing was changed")
    else:
        print(f"{done.keys:,} keys forgotten in {directory}: their pages are new to the next run")
    if done.pending:
        print(f"{done.pending:,} more are of pending requests, which the next run asks as they are")
    if done.unknown:
        print(f"{done.unknown:,} of those asked for are not known there")
    if done.stuck:
        print(f"{done.stuck:,} cannot be told from others by the counters, and stay seen")
    if done.untold:
        print(
            f"{done.untold:,} keys have no host: an older release or `bloomdupe import` wrote them. Give "
            "their URLs"
        )
    return 0 if done.keys or done.pending else 1


def _progress(items: Iterable[Any], total: int) -> Iterator[Any]:
    with Bar("forgetting", total, "keys") as bar:
        for done, item in enumerate(items, 1):
            yield item
            if not done % 1000:
                bar.reached(done)
