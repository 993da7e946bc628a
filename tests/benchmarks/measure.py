"""How are alternatives measured side by side? Interleaved rounds, medians, ratios, one table.

The machine is shared and noisy: every round runs every alternative once, and the median over the rounds
is compared, never one run with another one's.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def interleaved(
    alternatives: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int
) -> dict[str, dict[str, float]]:
    """Run every alternative once per round and return the median of each of its figures."""
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in alternatives}
    for _ in range(rounds):
        for name, run in alternatives.items():
            found[name].append(run())
    return {
        name: {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
        for name, runs in found.items()
    }


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process in bytes: what is not page cache of a file. Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not tell RssAnon in /proc/self/status; run this on Linux")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        return f"| {' | '.join(cells)} |"

    return "\n".join([line(rows[0]), line(["-" * width for width in widths]), *map(line, rows[1:])])


def write_json(path: Path | None, result: Any) -> None:
    """Write *result* for later comparison, if a path was asked for."""
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")
