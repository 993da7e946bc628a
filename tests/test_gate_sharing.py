"""Does a process see what others do to the gate that it has open: add, grow, replace, break?"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from conftest import StartPython
from gates import build, change_format

from scrapy_bloomdupe.gate.building import add_to_gate, build_gate
from scrapy_bloomdupe.gate.gate import Answer, Gate

# Answers each line of its input at once; never looks at the path unless a test says how often.
READER = """
import json
from scrapy_bloomdupe.gate.gate import Gate
told = []
say = lambda exc: told.append(repr(exc))
gate = Gate.open(sys.argv[1], check_every=float(sys.argv[2]), on_problem=say)
print("open", flush=True)
for line in sys.stdin:
    print(json.dumps([gate.might_contain(text) for text in json.loads(line)]), flush=True)
"""


class Reader:
    """Another process with the gate open."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        assert "open\n" == process.stdout.readline()

    def has(self, *texts: str) -> list[bool]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(texts) + "\n")
        self._process.stdin.flush()
        found: list[bool] = json.loads(self._process.stdout.readline())
        return found


def test_what_is_added_passes_at_once_in_a_process_that_has_the_gate_open(
    tmp_path: Path, start_python: StartPython
) -> None:
    path = build(tmp_path / "ids.gate")
    reader = Reader(start_python(READER, path, 3600))
    for number in range(20):
        assert [False] == reader.has(f"new {number}")
        add_to_gate(path, [f"NEW {number}"])
        assert [True] == reader.has(f"new {number}")
    assert [True, False] == reader.has("alpha", "gamma")


def test_keys_of_another_unicode_are_told_at_once_to_who_has_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path / "ids.gate")
    gate = Gate.open(path, clock=lambda: 0.0)
    assert Answer.REJECTED is gate.ask("gr\xfcn")
    # Added by this one, it changes nothing.
    add_to_gate(path, ["delta"])
    opened = gate._file.current  # type: ignore[union-attr]
    assert [Answer.REJECTED, Answer.PASSED] == gate.ask_many(["gr\xfcn", "delta"])
    assert opened is gate._file.current  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        patch.setattr("scrapy_bloomdupe.gate.file.tables", lambda steps: "99.0.0")
        add_to_gate(path, ["beta \U000e0fff"])
    # A character that is not known here may be part of a spelling that is known there.
    assert [Answer.BYPASSED, Answer.REJECTED] == gate.ask_many(["x \U000e0ffe", "gamma"])
    assert "99.0.0" in gate.info().tables
    gate.close()


def test_what_is_added_to_a_full_gate_that_grows_passes_at_once(
    tmp_path: Path, start_python: StartPython
) -> None:
    path = build(tmp_path / "ids.gate", ["alpha"], capacity=50)
    reader = Reader(start_python(READER, path, 3600))
    for start in range(0, 2000, 400):
        texts = [f"new {number}" for number in range(start, start + 400)]
        add_to_gate(path, texts)
        assert [True] * 400 == reader.has(*texts)
    assert [True, False] == reader.has("alpha", "gamma")


def test_a_replaced_gate_is_taken_without_rejecting_what_both_have(
    tmp_path: Path, start_python: StartPython
) -> None:
    path = build(tmp_path / "ids.gate", ["always", "version 1"])
    script = """
from scrapy_bloomdupe.gate.gate import Gate
told = []
gate = Gate.open(sys.argv[1], check_every=0.01, on_problem=lambda exc: told.append(repr(exc)))
print("open", flush=True)
asked = wrong = 0
while not gate.might_contain("the end"):
    asked += 1
    wrong += not gate.might_contain("always")
print(asked > 100, wrong, gate.info().version, told, flush=True)
"""
    process = start_python(script, path)
    assert process.stdout is not None
    assert "open\n" == process.stdout.readline()
    for version in range(2, 12):
        build_gate(path, ["always", f"version {version}"])
        time.sleep(0.02)
    build_gate(path, ["always", "the end"])
    # "the end" may have been a false pass of an earlier version: once in a hundred thousand versions.
    assert "True 0 12 []\n" == process.stdout.readline()


def test_a_broken_file_in_its_place_lets_all_pass_and_a_whole_one_is_taken(
    tmp_path: Path, start_python: StartPython
) -> None:
    path = build(tmp_path / "ids.gate")
    reader = Reader(start_python(READER, path, 0))
    broken = build(tmp_path / "broken.gate", ["gamma"])
    change_format(broken, 9)
    broken.rename(path)
    assert [True, True] == reader.has("alpha", "gamma")
    path.unlink()
    assert [True, True] == reader.has("alpha", "gamma")
    build_gate(path, ["gamma"])
    assert [False, True] == reader.has("alpha", "gamma")
