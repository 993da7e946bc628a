"""Does one directory belong to one crawl at a time, and to nobody when its process has ended?"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import Python, StartPython

from scrapy_bloomdupe.errors import StateLocked, StateUnusable
from scrapy_bloomdupe.lock import DirectoryLock

_HOLD = """
from scrapy_bloomdupe.lock import DirectoryLock

lock = DirectoryLock(Path("."))
print("held", flush=True)
sys.stdin.read()
"""


def test_another_crawl_of_the_same_process_is_refused_by_the_process_number(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(StateLocked) as caught:
        DirectoryLock(tmp_path)
    assert (
        f"{tmp_path} is in use by process {os.getpid()}; wait until it has ended, or give this crawl a "
        "directory of its own"
    ) == caught.value.args[1]
    assert isinstance(caught.value, BlockingIOError)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_another_process_is_named(tmp_path: Path, start_python: StartPython) -> None:
    other = start_python(_HOLD)
    assert other.stdout is not None
    assert "held\n" == other.stdout.readline()
    with pytest.raises(StateLocked, match=f"is in use by process {other.pid}; wait until it has ended"):
        DirectoryLock(tmp_path)


def test_a_killed_process_holds_nothing(tmp_path: Path, start_python: StartPython) -> None:
    other = start_python(_HOLD)
    assert other.stdout is not None
    assert "held\n" == other.stdout.readline()
    other.kill()
    other.wait()
    DirectoryLock(tmp_path).release()


def test_a_refused_lock_changes_nothing(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    for _ in range(2):
        with pytest.raises(StateLocked):
            DirectoryLock(tmp_path)
    assert os.getpid() == json.loads((tmp_path / "lock").read_text())["pid"]
    lock.release()


def test_a_longer_number_of_an_ended_process_leaves_no_digits(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("99999999999")
    lock = DirectoryLock(tmp_path)
    assert os.getpid() == json.loads((tmp_path / "lock").read_text())["pid"]
    lock.release()


def test_releasing_twice_does_no_harm(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.release()
    other = DirectoryLock(tmp_path)
    lock.release()
    with pytest.raises(StateLocked):
        DirectoryLock(tmp_path)
    other.release()


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable, match=r"cannot lock .*/nowhere: No such file or directory; the state"):
        DirectoryLock(tmp_path / "nowhere")


_LOCK_AS_NOBODY = """
from scrapy_bloomdupe.errors import StateUnusable
from scrapy_bloomdupe.lock import DirectoryLock

os.chdir("readonly")
become_nobody()
try:
    DirectoryLock(Path("."))
except StateUnusable as exc:
    print(exc.args[1])
"""


def test_a_read_only_directory_is_refused_with_the_reason(tmp_path: Path, python: Python) -> None:
    directory = tmp_path / "readonly"
    directory.mkdir(mode=0o555)
    try:
        done = python(_LOCK_AS_NOBODY)
    finally:
        directory.chmod(0o755)
    assert (0, "") == (done.returncode, done.stderr)
    assert (
        "cannot lock .: Permission denied; the state needs a directory that can be written. Nothing was "
        "changed\n"
    ) == done.stdout
    assert [] == list(directory.iterdir())
