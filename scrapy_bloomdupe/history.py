"""What were the figures of a crawl, minute by minute? ``history.jsonl`` beside the state, and its top lists.

Only files and what is in them: ``sampling`` makes the samples, ``page`` shows them. One process writes, the
one that has the lock of the state; anybody may read at any time.

Every sample counts from the beginning of the history, over all its runs: any of them can be left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

HISTORY_NAME = "history.jsonl"
TOP_NAME = "history-top.json"

#: Lines that are kept: at 450 bytes at the most, under 1 MB; at one a minute, more than a day to the minute.
MAX_LINES = 1_900
# What is not thinned.
_NEWEST = 4


@dataclass(frozen=True)
class Sample:
    """The figures at one moment.

    Attributes:
        time: seconds since 1970.
        run: 1 for the first crawl of the history.
        seconds: time under way, of all runs; no pause between them is in it.
        keys, layers, capacity, fill, error_rate: of the filter; the last two are shares, 0 to 1.
        pages: responses received.
        done: requests that the frontier has acknowledged.
        new, duplicate, false_positive, unconfirmed, expired, cached: as in ``stats``.
        pending: requests in the frontier; None: there is none.
        num_bytes: on the disk.
        anonymous_bytes: memory of the process besides mapped files; None: the system does not say.
        commit_seconds: time of the crawl's thread for writing.
        errors: counts by place, without those that are 0.
    """

    time: float = 0.0
    run: int = 0
    seconds: float = 0.0
    keys: int = 0
    layers: int = 0
    capacity: int = 0
    fill: float = 0.0
    error_rate: float = 0.0
    pages: int = 0
    done: int = 0
    new: int = 0
    duplicate: int = 0
    false_positive: int = 0
    unconfirmed: int = 0
    expired: int = 0
    cached: int = 0
    pending: int | None = None
    num_bytes: int = 0
    anonymous_bytes: int | None = None
    commit_seconds: float = 0.0
    errors: Mapping[str, int] = field(default_factory=dict)

    def after(self, before: Sample) -> Sample:
        """Return this sample of a single run as one of a history that stood at *before*."""
        totals = {name: getattr(before, name) + getattr(self, name) for name in _TOTALS}
        errors = dict(before.errors)
        for where, count in self.errors.items():
            errors[where] = errors.get(where, 0) + count
        return replace(self, run=before.run + 1, errors=errors, **totals)

    def to_line(self) -> bytes:
        values = {
            name: float(f"{value:.6g}") if isinstance(value, float) and name not in _EXACT else value
            for name, value in asdict(self).items()
        }
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Sample:
        """Return what ``to_line`` wrote; of another release what is known of it.

        Raises:
            ValueError: it is no sample.
        """
        found = _loads(line)
        if not isinstance(found, dict) or not _is_number(found.get("time")):
            raise ValueError("no sample")
        values = {name: found[name] for name in _NAMES if _is_number(found.get(name))}
        return cls(**values, errors=_counts(found.get("errors")))


_TOTALS = (
    "seconds",
    "pages",
    "done",
    "new",
    "duplicate",
    "false_positive",
    "unconfirmed",
    "expired",
    "cached",
    "commit_seconds",
)
_EXACT = ("time", "seconds")
_NAMES = tuple(each.name for each in fields(Sample) if each.name != "errors")


@dataclass(frozen=True)
class RuleFigures:
    """What one rule did: its stats, duplicates, those under another URL than the first, and some of them."""

    counts: Mapping[str, int] = field(default_factory=dict)
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Top:
    """Hosts by their duplicates, and rules by name.

    Attributes:
        slack: no host's count is too low by more than this.
    """

    hosts: tuple[tuple[str, int], ...] = ()
    slack: int = 0
    rules: Mapping[str, RuleFigures] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """All that was kept, oldest first. ``damaged``: lines that could not be read."""

    samples: tuple[Sample, ...] = ()
    top: Top = Top()
    damaged: int = 0


def read_history(directory: Path) -> History:
    """Return the history of a state; empty: there is none.

    Raises:
        OSError: there is one, and it cannot be read.
    """
    samples, damaged = [], 0
    for line in _lines(directory / HISTORY_NAME):
        try:
            samples.append(Sample.from_line(line))
        except ValueError:
            # The last one is only torn: it is being written, or its process was killed.
            damaged += line.endswith(b"\n")
    return History(tuple(samples), read_top(directory), damaged)


def read_top(directory: Path) -> Top:
    """Return what ``HistoryFile.write_top`` wrote; empty: nothing that can be read."""
    try:
        found = _loads((directory / TOP_NAME).read_bytes())
        return Top(
            hosts=tuple((str(host), int(count)) for host, count in found["hosts"] if _is_number(count)),
            slack=int(found["slack"]) if _is_number(found["slack"]) else 0,
            rules={
                str(name): RuleFigures(
                    _counts(each["counts"]), tuple((str(a), str(b)) for a, b in each["pairs"])
                )
                for name, each in found["rules"].items()
            },
        )
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return Top()


class HistoryFile:
    """The files of one state, to write to.

    Args:
        max_lines: when there are more, every second of the older ones goes; 8 or more.
    """

    def __init__(self, directory: Path, max_lines: int = MAX_LINES) -> None:
        self._directory = directory
        self._path = directory / HISTORY_NAME
        self._max_lines = max_lines
        self._num_lines = 0

    def open(self) -> Sample:
        """Mend a torn end, and return the last sample; an empty one: there is none.

        Raises:
            OSError: the file cannot be read or mended.
        """
        lines = _lines(self._path)
        if lines and not lines[-1].endswith(b"\n"):
            torn = lines.pop()
            os.truncate(self._path, self._path.stat().st_size - len(torn))
        self._num_lines = len(lines)
        for line in reversed(lines):
            try:
                return Sample.from_line(line)
            except ValueError:
                continue
        return Sample()

    def append(self, sample: Sample) -> None:
        """Write *sample*, whole or not at all.

        Raises:
            OSError: the system refused.
        """
        line = sample.to_line()
        with self._path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                if file.write(line) != len(line):
                    raise OSError(28, f"{self._path}: no room for a line")
            except OSError:
                file.truncate(size)
                raise
        self._num_lines += 1
        if self._num_lines > self._max_lines:
            self._thin()

    def write_top(self, top: Top) -> None:
        """Replace the top lists.

        Raises:
            OSError: the system refused.
        """
        self._replace(TOP_NAME, json.dumps(asdict(top)).encode())

    def _thin(self) -> None:
        lines = _lines(self._path)
        newest = len(lines) - len(lines) // _NEWEST
        lines = lines[:newest:2] + lines[newest:]
        self._replace(HISTORY_NAME, b"".join(lines))
        self._num_lines = len(lines)

    def _replace(self, name: str, data: bytes) -> None:
        new = self._directory / f"{name}.new"
        try:
            new.write_bytes(data)
            new.replace(self._directory / name)
        except OSError:
            new.unlink(missing_ok=True)
            raise


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _loads(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def _is_number(value: Any) -> bool:
    # No bool, no NaN, and nothing that arithmetic would choke on.
    return type(value) in (int, float) and abs(value) < 1e18


def _counts(found: Any) -> dict[str, int]:
    items = found.items() if isinstance(found, dict) else ()
    return {str(name): int(count) for name, count in items if _is_number(count)}
