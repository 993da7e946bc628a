"""Do the benchmarks run, from end to end? Their quick forms; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent / "benchmarks"


def _run(name: str, tmp_path: Path) -> dict[str, object]:
    out = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHMARKS / name), "--quick", "--json", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    figures: dict[str, object] = json.loads(out.read_text())
    return figures


def test_the_opening_benchmark_opens_the_same_keys_with_both_filters(tmp_path: Path) -> None:
    found = _run("opening.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert ["scrapy", "ours"] == list(found)


def test_the_layouts_benchmark_measures_every_layout_and_scheme(tmp_path: Path) -> None:
    found = _run("layouts.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert 6 == len(found)
    # 20,000 probes at 0.001: over 0.003 (60 hits of 20 expected) once in 10^11 runs.
    assert all(figures["error"] < 0.003 for figures in found.values())


def test_the_rules_benchmark_measures_steps_and_rules_beside_w3lib(tmp_path: Path) -> None:
    found = _run("rules.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert 6 == len(found)
    assert all(figures["us"] > 0 for figures in found.values())


def test_the_pending_benchmark_goes_on_with_few_and_many_requests(tmp_path: Path) -> None:
    found = _run("pending.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert ["1,000 pending", "2,000 pending"] == list(found)
    assert all(figures["first"] > 0 for figures in found.values())


def test_the_fingerprints_benchmark_compares_the_keys_of_seven_kinds_of_links(tmp_path: Path) -> None:
    found = _run("fingerprints.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert 7 == len(found)
    assert all(figures["here"] > 0 for figures in found.values())
