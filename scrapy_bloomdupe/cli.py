"""What does a person ask of a seen-set from the command line? ``bloomdupe size | info | check | ...``

It parses, prints and returns exit codes: 0 fine, 1 a problem was found, 2 it could not be done. It does
not import Scrapy.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import scrapy_bloomdupe.cli_remote as cli_remote
import scrapy_bloomdupe.rebuilding as rebuilding
import scrapy_bloomdupe.settings as settings
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.building import FilterValues
from scrapy_bloomdupe.cli_export import add_export
from scrapy_bloomdupe.cli_forget import add_forget
from scrapy_bloomdupe.cli_frontier import add_pending, frontier_info, print_frontier
from scrapy_bloomdupe.cli_gate import add_gate
from scrapy_bloomdupe.cli_import import add_import, run_import
from scrapy_bloomdupe.cli_places import progress
from scrapy_bloomdupe.cli_project import use_project
from scrapy_bloomdupe.cli_report import add_report
from scrapy_bloomdupe.cli_rules import add_commands
from scrapy_bloomdupe.durations import shown
from scrapy_bloomdupe.errors import BloomdupeError, message
from scrapy_bloomdupe.filters.base import FilterInfo
from scrapy_bloomdupe.filters.counting import open_filter
from scrapy_bloomdupe.filters.layouts import LAYOUTS
from scrapy_bloomdupe.hashing import SCHEMES
from scrapy_bloomdupe.report import size as sized
from scrapy_bloomdupe.settingtable import SettingsSource
from scrapy_bloomdupe.stamps import time_of
from scrapy_bloomdupe.statefiles import FILTER_NAME, STORE_NAME, environment_path, locate
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

_DEFAULTS = FilterValues(
    settings.DEFAULT_CAPACITY,
    settings.DEFAULT_ERROR_RATE,
    settings.DEFAULT_LAYOUT,
    settings.DEFAULT_SCHEME,
)

# Keys that are looked at for the times of their last visits.
_SAMPLE = 500
# Bytes of a store whose pages take some ten seconds to look at.
_LONG_WALK = 50_000_000


def main(argv: Sequence[str] | None = None, project: SettingsSource | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        project: settings that hold where the command line says nothing.
    """
    parser = _parser("bloomdupe" if project is None else "scrapy bloomdupe")
    try:
        if project is not None:
            use_project(parser, project)
        arguments = parser.parse_args(argv)
        run: Callable[[argparse.Namespace], int] = arguments.run
        code = run(arguments)
        sys.stdout.flush()
        return code
    except BloomdupeError as exc:
        print(f"bloomdupe: {message(exc)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nbloomdupe: interrupted; nothing is half done", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `| head` has what it wants. What Python would still write at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _version() -> str:
    try:
        return version("scrapy-bloomdupe")
    except PackageNotFoundError:
        return "not installed: run from its source tree"


def _parser(prog: str = "bloomdupe") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Sizes, looks at and mends the seen-sets of scrapy-bloomdupe."
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    sub = command("size", _size, "Print what a filter of some capacity and error rate takes.")
    sub.add_argument("--capacity", type=_capacity, help="keys, for example 1e9")
    sub.add_argument("--bytes", type=float, help="instead: the keys that fit into so many bytes, 2e9")
    sub.add_argument("--error-rate", type=_error_rate, default=settings.DEFAULT_ERROR_RATE)
    sub.add_argument("--json", action="store_true")

    sub = command("info", _info, "Print parameters, keys, fill and sizes; also beside a running crawl.")
    cli_remote.add_place(sub)
    sub.add_argument("--json", action="store_true")

    sub = command("check", _check, "Check that all parts are whole and belong together.")
    cli_remote.add_place(sub, store=True)
    sub.add_argument("--sample", type=_count, metavar="N", help="on a server: look for so many keys, not all")

    add_pending(command)
    add_report(command)

    add_forget(command)

    sub = command("rebuild", _rebuild, "Make a filter anew from its store: of a closed state or a server.")
    cli_remote.add_place(sub, store=True)
    _add_filter(sub)

    cli_remote.add_clear(command)

    sub = command("import", run_import, "Take over a stock Scrapy job, or what scrapy-redis has seen.")
    add_import(sub)
    _add_filter(sub)
    add_export(command)
    add_commands(command, commands)
    add_gate(commands)
    return parser


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--capacity", type=_capacity, help="keys until the filter grows")
    parser.add_argument("--error-rate", type=_error_rate, help="for example 0.001")
    parser.add_argument("--layout", choices=sorted(LAYOUTS))
    parser.add_argument("--scheme", choices=sorted(SCHEMES))


def _size(arguments: argparse.Namespace) -> int:
    if (arguments.capacity is None) == (arguments.bytes is None):
        print("bloomdupe: size takes either --capacity or --bytes", file=sys.stderr)
        return 2
    rate = arguments.error_rate
    capacity = arguments.capacity or sizing.check_capacity(sizing.capacity_for(arguments.bytes, rate))
    size = sizing.size_for(capacity, rate)
    loads = {load: size.rate_at(load * size.capacity) for load in (0.5, 1, 2, 4)}
    if arguments.json:
        print(json.dumps({**asdict(size), "num_bytes": size.num_bytes, "rate_at_load": loads}))
        return 0
    print(f"capacity       {size.capacity:,} keys")
    print(f"error rate     {size.error_rate:g}")
    print(f"bits           {size.num_bits:,}")
    print(f"bytes          {size.num_bytes:,} ({sized(size.num_bytes)}, {size.num_bytes / 2**20:.2f} MiB)")
    print(f"hashes         {size.num_hashes}")
    print(f"bytes per URL  {size.num_bytes / size.capacity:.2f}")
    for load, at in loads.items():
        print(f"rate at {load:g} times capacity: {at:.3g}")
    return 0


def _info(arguments: argparse.Namespace) -> int:
    if cli_remote.is_remote(arguments, "key", "table"):
        return cli_remote.info(arguments)
    directory = locate(arguments.directory)
    filter = open_filter(directory / FILTER_NAME, readonly=True)  # noqa: A001
    try:
        # All pages: exact, some 0.1 s per GB that is in memory.
        info = filter.measure(sys.maxsize)
    finally:
        filter.abandon()
    store = _store_info(directory) if info.identity.get("store") == "lmdb" else None
    frontier = frontier_info(directory, info.identity)
    if arguments.json:
        print(
            json.dumps(
                {
                    **asdict(info),
                    "fill": info.fill,
                    "store": store,
                    "frontier": frontier,
                }
            )
        )
        return 0
    _print_info(directory, info, store)
    print_frontier(frontier)
    return 0


def _store_info(directory: Path) -> dict[str, Any]:
    environment = Environment.open(directory / STORE_NAME, readonly=True)
    try:
        store = LmdbStore(environment)
        times = [time_of(value) for value in dict(store.sample(_SAMPLE, random.Random(1))).values()]
        known = [time for time in times if time is not None]
        return {
            "keys": store.count(),
            "num_bytes": environment.num_bytes(),
            "sample": len(times),
            "sample_without_time": len(times) - len(known),
            "oldest_visit": min(known, default=None),
            "newest_visit": max(known, default=None),
        }
    finally:
        environment.close()


def _print_info(directory: Path, info: FilterInfo, store: dict[str, Any] | None) -> None:
    print(f"directory            {directory}")
    print(f"filter               {info.layout}, {info.scheme}, {sized(info.num_bytes)}")
    print(f"keys in the filter   {info.num_keys:,} (made for {info.capacity:,})")
    print(f"fill                 {info.fill:.1%}")
    print(f"error rate           {info.error_rate_estimate:.3g} now, {info.error_rate:g} asked")
    for i, layer in enumerate(info.layers):
        print(
            f"layer {i}              {layer.num_keys:,} of {layer.capacity:,} keys, {layer.num_bits:,} bits, "
            f"{layer.num_hashes} hashes, {layer.fill:.1%} full, rate {layer.rate:.3g}"
        )
    if store is None:
        print("exact store          none")
    else:
        print(f"exact store          {store['keys']:,} keys, {sized(store['num_bytes'])}")
        print(f"last visits          {_visits(store)}")
    print(f"made                 {_day(info.created)} ({shown(time.time() - (info.created or 0))} ago)")
    print(f"keys made by         {info.identity.get('fingerprinter', 'not known yet (imported)')}")
    print(f"closed in order      {'yes' if info.clean else 'no: in use, or killed'}")


def _visits(store: dict[str, Any]) -> str:
    """Say when the keys of a sample were last let pass, which is what expires."""
    count, unknown = store["sample"], store["sample_without_time"]
    if count == unknown:
        return "not known: an older release wrote the keys" if count else "none"
    between = f"{_day(store['oldest_visit'])} to {_day(store['newest_visit'])}"
    of = f" (of {count:,} keys, {unknown:,} without a time)" if unknown else f" (of {count:,} keys)"
    return between + of


def _day(seconds: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds or 0))


def _check(arguments: argparse.Namespace) -> int:
    if cli_remote.is_remote(arguments, "key", "table", "sample", "store"):
        return cli_remote.check(arguments)
    directory = locate(arguments.directory)
    _announce_walk(directory)
    problems = list(rebuilding.check(directory, progress("checking")))
    for problem in problems:
        print(problem)
    if not problems:
        exact = (directory / STORE_NAME).exists()
        compared = (
            "every key of the store is in the filter" if exact else "there is no exact store to compare"
        )
        print(f"{directory}: whole; {compared}")
    return 1 if problems else 0


def _rebuild(arguments: argparse.Namespace) -> int:
    if cli_remote.is_remote(arguments, "key", "table", "store"):
        return cli_remote.rebuild(arguments)
    directory = locate(arguments.directory)
    plan = rebuilding.FilterPlan(arguments.capacity, arguments.error_rate, arguments.layout, arguments.scheme)
    _announce_walk(directory)
    new = rebuilding.rebuild(directory, plan, _DEFAULTS, progress("rebuilding"))
    print(
        f"{directory / FILTER_NAME}: {new.num_keys:,} keys, made for {new.capacity:,} at an error rate of "
        f"{new.error_rate:g}"
    )
    return 0


def _announce_walk(directory: Path) -> None:
    path = environment_path(directory)
    if path.is_file() and path.stat().st_size > _LONG_WALK:
        print(f"looking at every page of {path}, {sized(path.stat().st_size)}", file=sys.stderr)


def _capacity(text: str) -> int:
    try:
        return sizing.check_capacity(float(text.replace("_", "")))
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _error_rate(text: str) -> float:
    try:
        return sizing.check_error_rate(float(text))
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _count(text: str) -> int:
    count = int(text.replace("_", "")) if text.replace("_", "").isdecimal() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of keys, 1 or more")
    return count
