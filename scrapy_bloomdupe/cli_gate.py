"""What does a person do with a gate? ``bloomdupe gate build | add | info | test``.

It reads keys, parses and prints; the work is done in ``gate``. It does not import Scrapy.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.cli_places import is_server, one_key, open_server, refuse_url
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.gate.building import add_to_gate, build_gate
from scrapy_bloomdupe.gate.filling import DEFAULT_ERROR_RATE, Row, with_room
from scrapy_bloomdupe.gate.gate import Answer, Gate, GateInfo
from scrapy_bloomdupe.gate.sharedbuilding import add_to_shared_gate
from scrapy_bloomdupe.gate.text import DEFAULT_STEPS, STEPS, check_steps
from scrapy_bloomdupe.progress import Bar
from scrapy_bloomdupe.report import size as sized

# Lines between two looks at the bar.
_STRIDE = 4096


def add_gate(commands: Any) -> None:
    """Add ``gate``."""
    text = "Build, extend, look at and try an allow list of keys."
    gate = commands.add_parser("gate", help=text, description=text)
    inner = gate.add_subparsers(required=True, metavar="build | add | info | test")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = inner.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        sub.add_argument(
            "file", metavar="FILE|URL", help="the gate's file, or the Redis or Valkey server that has it"
        )
        sub.add_argument("--key", metavar="NAME", help="the gate's name on the server")
        return sub

    sub = command("build", _build, "Build the gate of the keys on the standard input, and put it in force.")
    sub.add_argument(
        "--capacity",
        type=_capacity,
        help="keys; default: those of the input (a file), and a fifth more",
    )
    sub.add_argument(
        "--error-rate", type=_error_rate, default=DEFAULT_ERROR_RATE, help=f"default: {DEFAULT_ERROR_RATE}"
    )
    sub.add_argument(
        "--steps",
        type=_steps,
        default=DEFAULT_STEPS,
        help=f"some of {','.join(STEPS)}; default: {','.join(DEFAULT_STEPS)}",
    )
    sub.add_argument(
        "--min-length", type=_positive, default=1, help="characters; shorter texts always pass (default: 1)"
    )
    _add_input(sub)

    sub = command("add", _add, "Let the keys on the standard input pass from now on.")
    _add_input(sub)

    sub = command("info", _info, "Print version, steps, keys, rates and sizes; also beside a crawl.")
    sub.add_argument("--json", action="store_true")

    text = "Ask for texts: exit code 0 if all may be there, 1 if one certainly is not."
    sub = command("test", _test, text)
    sub.add_argument("texts", metavar="TEXT", nargs="+")


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=("tsv", "csv", "lines"),
        default="tsv",
        help="further columns are synonyms; lines: a line is one key (default: tsv)",
    )
    parser.add_argument(
        "--columns", type=_columns, help="which columns to take, from 1, for example 1,3 (default: all)"
    )


def _build(arguments: argparse.Namespace) -> int:
    keys = _Input(_input(), arguments.format)
    capacity = arguments.capacity
    if capacity is None:
        capacity = with_room(keys.count(arguments.columns))
    report = build_gate(
        _place(arguments),
        keys.rows("building", capacity),
        capacity=capacity,
        error_rate=arguments.error_rate,
        steps=arguments.steps,
        min_length=arguments.min_length,
        columns=arguments.columns,
        key=arguments.key,
    )
    keys.complain()
    print(
        f"{report.path}: version {report.version}, {report.texts:,} keys of {report.rows:,} rows, about "
        f"{report.keys:,} of them different; made for {report.capacity:,} at an error rate of "
        f"{arguments.error_rate:g}, {sized(report.num_bytes)}"
    )
    if 2 * report.keys < report.keys_before:
        print(
            f"that is {report.keys / report.keys_before:.1%} of the {report.keys_before:,} of the version "
            "before it: all others are rejected from now on; see that the input is whole"
        )
    if report.short:
        print(f"{report.short:,} have under {arguments.min_length} characters and pass without being in")
    if report.added_meanwhile:
        print(f"{report.added_meanwhile:,} were added while it was built, and are in")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    keys = _Input(_input(), arguments.format)
    texts: list[str] = []
    for row in keys.rows("reading", 0):
        cells = [row] if isinstance(row, str) else list(row)
        if arguments.columns is not None:
            cells = [cells[column] for column in arguments.columns if column < len(cells)]
        texts += filter(None, cells)
    place = _place(arguments)
    if isinstance(place, Path):
        added = add_to_gate(place, texts)
    else:
        with open_server(place) as server:
            added = add_to_shared_gate(server, arguments.key, texts)
            place = f"{server.address} {arguments.key}"
    keys.complain()
    print(f"{place}: {len(texts):,} keys, {added:,} of them new")
    return 0


def _input() -> BinaryIO:
    """Return the standard input.

    Raises:
        ConfigurationError: it is closed.
    """
    if sys.stdin is None:
        raise ConfigurationError("the standard input is closed: the keys come from there, for example < keys")
    return sys.stdin.buffer


def _place(arguments: argparse.Namespace) -> Path | str:
    """Return the gate's file, or the URL of the server that has it.

    Raises:
        ConfigurationError: it is a URL of something else, or has no name there; or a file has one.
    """
    place: str = arguments.file
    if is_server(place):
        one_key(arguments)
        return place
    refuse_url(place, "a gate is a file, or on a Redis or Valkey server")
    if arguments.key is not None:
        raise ConfigurationError("--key is for a server, this is a file")
    return Path(place)


def _opened(arguments: argparse.Namespace) -> Gate:
    def refuse(exc: Exception) -> NoReturn:
        raise exc

    place = _place(arguments)
    return Gate.open(place, key=arguments.key, on_problem=refuse)


def _info(arguments: argparse.Namespace) -> int:
    gate = _opened(arguments)
    info = gate.info()
    gate.close()
    if arguments.json:
        shown = asdict(info)
        # Of this process, which asked nothing.
        del shown["answers"], shown["lookup_us"]
        print(json.dumps(shown))
    else:
        _print_info(info)
    return 0


def _print_info(info: GateInfo) -> None:
    built = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info.created))
    where = "file" if os.sep == info.path[:1] else "server"
    print(f"{where:<12} {info.path}, {sized(info.num_bytes)}")
    print(f"version      {info.version}, built {built}")
    print(f"keys         {info.num_keys:,} (made for {info.capacity:,})")
    print(f"false passes {info.error_rate_estimate:.3g} now, {info.error_rate:g} asked")
    print(f"steps        {', '.join(info.steps) or 'none'}")
    print(f"min length   {info.min_length}")
    print(f"Unicode      {', '.join(info.tables)}")


def _test(arguments: argparse.Namespace) -> int:
    words = {
        Answer.PASSED: "may be there",
        Answer.REJECTED: "is not there",
        Answer.SHORT: "too short to judge",
        Answer.BYPASSED: "cannot be judged here",
    }
    gate = _opened(arguments)
    answers = gate.ask_many(arguments.texts)
    gate.close()
    for text, answer in zip(arguments.texts, answers, strict=True):
        print(f"{words[answer]:<22}{text if text.isprintable() else ascii(text)[1:-1]}")
    return int(Answer.REJECTED in answers)


@dataclass
class _Input:
    """Keys as they come in: lines, or rows of columns."""

    stream: BinaryIO
    format: str
    #: Lines that are no UTF-8.
    damaged: int = 0

    def count(self, columns: list[int] | None) -> int:
        """Return how many keys there are at the most; leaves the stream where it is.

        Raises:
            ConfigurationError: it is no file.
        """
        if not self._is_file():
            raise ConfigurationError(
                "--capacity is missing: only a file can be counted first (`bloomdupe gate build FILE < keys`)"
            )
        start = self.stream.tell()
        separator = {"tsv": b"\t", "csv": b",", "lines": b""}[self.format] if columns is None else b""
        lines = cells = 0
        while chunk := self.stream.read(1 << 20):
            lines += chunk.count(b"\n")
            cells += chunk.count(separator) if separator else 0
        self.stream.seek(start)
        return (lines + 1) * (len(columns) if columns else 1) + cells

    def rows(self, what: str, total: int) -> Iterator[Row]:
        """Give the rows, with a bar."""
        in_bytes = self._is_file()
        size = os.fstat(self.stream.fileno()).st_size if in_bytes else total
        with Bar(what, size, "B" if in_bytes else "keys") as bar:
            lines = self._lines(bar, in_bytes)
            if self.format == "lines":
                yield from (line.rstrip("\r\n") for line in lines)
            elif self.format == "tsv":
                yield from (line.rstrip("\r\n").split("\t") for line in lines)
            else:
                try:
                    yield from csv.reader(lines)
                except csv.Error as exc:
                    raise ConfigurationError(f"the keys are no CSV: {exc}; take another --format") from exc

    def complain(self) -> None:
        if self.damaged:
            print(f"{self.damaged:,} lines are no UTF-8: only the same bytes match", file=sys.stderr)

    def _is_file(self) -> bool:
        return stat.S_ISREG(os.fstat(self.stream.fileno()).st_mode)

    def _lines(self, bar: Bar, in_bytes: bool) -> Iterator[str]:
        done = 0
        while some := list(islice(self.stream, _STRIDE)):
            if not done:
                some[0] = self._checked(some[0].removeprefix(b"\xef\xbb\xbf"))
            yield from map(self._decoded, some)
            done += sum(map(len, some)) if in_bytes else len(some)
            bar.reached(done)

    def _checked(self, first: bytes) -> bytes:
        """Return the first line.

        Raises:
            ConfigurationError: they are no lines of UTF-8.
        """
        if first.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in first:
            raise ConfigurationError(
                "the keys are UTF-16 or no text, and are read as UTF-8; convert them: "
                "iconv -f UTF-16 -t UTF-8"
            )
        if self.format != "csv" and b"\r" in first.rstrip(b"\r\n"):
            raise ConfigurationError(
                "the first line has a carriage return in the middle, and lines end with \\n: convert them: "
                "tr '\\r' '\\n'"
            )
        return first

    def _decoded(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.damaged += 1
            return line.decode("utf-8", "surrogateescape")


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


def _steps(text: str) -> tuple[str, ...]:
    try:
        return check_steps(filter(None, (name.strip() for name in text.split(","))))
    except ConfigurationError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, 1 or more")
    return int(text)


def _columns(text: str) -> list[int]:
    return [_positive(number) - 1 for number in text.split(",")]
