"""Do the benchmarks run, from end to end? Their quick forms; no time is asserted.

What they compare with need not be installed: then their tables say so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent / "benchmarks"


def _run(name: str, tmp_path: Path) -> dict[str, object]:
    out = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHMARKS / name), "--quick", "--json", str(out)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert 0 == done.returncode, done.stderr
    # A table in Markdown: its head is underlined.
    assert any(set(line) == set("| -") for line in done.stdout.splitlines()), done.stdout
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


def test_the_pending_benchmark_goes_on_with_no_and_many_requests(tmp_path: Path) -> None:
    found = _run("pending.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert ["nothing pending", "2,000 pending"] == list(found)
    assert all(figures["first"] > 0 for figures in found.values())


def test_the_frontier_benchmark_gives_every_request_that_it_has_scheduled(tmp_path: Path) -> None:
    found = _run("frontier.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert 5 == len(found)
    assert all(["push", "deep", "pop"] == list(figures) for figures in found.values())


def test_the_kills_benchmark_loses_nothing(tmp_path: Path) -> None:
    found = _run("kills.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert [(0, 0)] == [(sums["lost pages"], sums["lost items"]) for sums in found.values()]


def test_the_fingerprints_benchmark_compares_the_keys_of_seven_kinds_of_links(tmp_path: Path) -> None:
    found = _run("fingerprints.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert 7 == len(found)
    assert all(figures["here"] > 0 for figures in found.values())


def test_the_links_benchmark_finds_every_verdict_to_be_that_of_scrapy(tmp_path: Path) -> None:
    figures = _run("links.py", tmp_path)
    judged = figures["judged"]
    assert isinstance(judged, dict)
    # Two kinds of duplicates at two shares of them.
    for name in ("Scrapy, JOBDIR", "ours, bare", "ours, exact", "ours, exact, rules"):
        assert 4 * 200 == judged[f"{name}: links"]
        assert f"{name}: seen called new" not in judged
    assert "ours, exact: new called seen" not in judged
    assert "ours, exact, rules: new called seen" not in judged


def test_the_crawls_benchmark_compares_every_verdict_of_a_crawl(tmp_path: Path) -> None:
    figures = _run("crawls.py", tmp_path)
    found, wrong = figures["found"], figures["wrong"]
    assert isinstance(found, dict)
    assert ["150/90", "10/50"] == list(found)
    assert all(one["asked"] > 100 for site in found.values() for one in site.values())
    assert 0 == wrong


def test_the_memory_benchmark_opens_what_it_filled(tmp_path: Path) -> None:
    found = _run("memory.py", tmp_path)["found"]
    assert isinstance(found, dict)
    for name in ("Scrapy's set", "ours, bare, 0.001", "ours, exact"):
        assert {"fill", "open", "memory", "disk"} == set(found[name]["20000"])


def test_the_structures_benchmark_measures_the_error_of_every_layout_and_scheme(tmp_path: Path) -> None:
    found = _run("structures.py", tmp_path)["found"]
    assert isinstance(found, dict)
    ours = {name: figures for name, figures in found.items() if name.startswith("ours")}
    assert 6 == len(ours)
    # 10,000 probes at 0.001: over 0.004 (40 hits of 10 expected) once in 10^11 runs.
    assert all(figures["error"] < 0.004 for figures in ours.values())


def test_the_lives_benchmark_asks_every_kind_of_filter_and_makes_layers_anew(tmp_path: Path) -> None:
    figures = _run("lives.py", tmp_path)
    found, layers = figures["found"], figures["layers"]
    assert isinstance(found, dict)
    assert isinstance(layers, dict)
    assert 4 == len(found)
    # 20,000 probes at 0.001: over 0.003 (60 hits of 20 expected) once in 10^11 runs.
    assert all(one["error"] < 0.003 for one in found.values())
    assert ["1 layers", "2 layers", "4 layers", "6 layers"] == list(layers)


def test_the_scale_benchmark_fills_and_asks_both_and_calculates_the_rest(tmp_path: Path) -> None:
    figures = _run("scale.py", tmp_path)
    found, paper = figures["found"], figures["paper"]
    assert isinstance(found, dict)
    assert isinstance(paper, list)
    assert ["bare", "exact"] == list(found)
    # 200,000 probes at 0.001: over 0.0015 (300 hits of 200 expected) once in 10^11 runs.
    assert all(one["20000"]["error"] < 0.0015 for one in found.values())
    assert ["", "1e+09", "1e+10"] == paper[0]


def test_the_tmall_benchmark_judges_the_same_urls_by_five_strategies(tmp_path: Path) -> None:
    found = _run("tmall.py", tmp_path)["found"]
    assert isinstance(found, dict)
    figures = found["3000"]
    assert 5 == len(figures)
    assert 1.0 == figures["improved, ids"]["accuracy"] == figures["ours, exact"]["accuracy"]
    assert figures["traditional, URLs"]["accuracy"] < 0.9


def test_the_cascade_benchmark_compares_it_with_one_filter_of_its_bits(tmp_path: Path) -> None:
    found = _run("cascade.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert 3 == len(found)
    states = ("in the page cache", "precise filter on the disk", "all on the disk")
    kinds = ("0% duplicates", "50% duplicates", "90% duplicates", "only asked, all new")
    assert all(one[f"{state}, {kind}"] > 0 for one in found.values() for state in states for kind in kinds)


def test_the_shared_benchmark_finds_every_verdict_to_be_that_of_scrapy(tmp_path: Path) -> None:
    figures = _run("shared.py", tmp_path)
    judged, missing = figures["judged"], figures["missing"]
    assert isinstance(judged, dict)
    assert isinstance(missing, dict)
    ours = {name for name in missing if name.startswith("ours")}
    # A wrong verdict ends the benchmark.
    for name in ("ours, bitmap, bare", "ours, Redis set", "ours, bitmap + Redis set, JOBDIR"):
        assert name in ours or 300 == judged[f"{name}: links"]
    crawls, memory = figures["crawls"], figures["memory"]
    assert isinstance(crawls, dict)
    assert isinstance(memory, dict)
    if "ours, bitmap, bare" not in ours:
        assert 0 == sum(one["twice"] for one in crawls.values())
        # A server's own word, of 20,000 keys.
        # 20,000 probes at 0.001: over 0.003 (60 hits of 20 expected) once in 10^11 runs.
        assert memory["ours, bitmap, bare"]["20000"]["error"] < 0.003


def test_the_gate_benchmark_builds_and_asks_and_loses_no_key(tmp_path: Path) -> None:
    found = _run("gate.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert ["ids, with room", "ids, full", "words, with room", "words, full"] == list(found)
    for figures in found.values():
        assert 1.0 == figures["known_passed"]
        # 20,000 probes at 0.01: over 0.015 (300 hits of 200 expected) once in 10^10 runs.
        assert figures["unknown_passed"] < 0.015


def test_the_benchmark_of_a_gate_on_a_server_loses_no_key(tmp_path: Path) -> None:
    found = _run("gate_shared.py", tmp_path)["found"]
    assert isinstance(found, dict)
    assert set(found) <= {"bitmaps", "RedisBloom"}
    # 20,000 probes at 0.01: over 0.015 (300 hits of 200 expected) once in 10^10 runs.
    assert all(figures["unknown_passed"] < 0.015 for figures in found.values())
