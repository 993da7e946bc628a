"""Does one directory belong to one crawl at a time, and to nobody when its process has ended?"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import Python, StartPython

import scrapy_bloomdupe.lock as locks
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


def test_nothing_is_known_of_a_directory_that_is_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a")
    lock = DirectoryLock(tmp_path)
    assert (False, False) == (lock.same_boot, lock.is_as_left(path))
    lock.release()


_LOOK_AND_HOLD = """
from scrapy_bloomdupe.lock import DirectoryLock

lock = DirectoryLock(Path("."))
lock.looked_at()
print("held", flush=True)
sys.stdin.read()
"""


def test_the_next_one_knows_that_the_machine_has_been_up_since(
    tmp_path: Path, start_python: StartPython
) -> None:
    other = start_python(_LOOK_AND_HOLD)
    assert other.stdout is not None
    assert "held\n" == other.stdout.readline()
    other.kill()
    other.wait()
    lock = DirectoryLock(tmp_path)
    assert lock.same_boot
    lock.release()


@pytest.mark.parametrize("boot", ["another", "", None, 5, ["a"]])
def test_after_a_new_start_of_the_machine_it_is_not_the_same(tmp_path: Path, boot: object) -> None:
    lock = DirectoryLock(tmp_path)
    lock.looked_at()
    lock.release()
    note = json.loads((tmp_path / "lock").read_text())
    (tmp_path / "lock").write_text(json.dumps({**note, "boot": boot}))
    lock = DirectoryLock(tmp_path)
    assert not lock.same_boot
    lock.release()


@pytest.mark.parametrize("how", ["released", "killed"])
def test_after_a_new_start_of_the_machine_nobody_is_believed_who_has_not_looked(
    tmp_path: Path, start_python: StartPython, how: str
) -> None:
    (tmp_path / "lock").write_text(json.dumps({"boot": "another", "left": {}}))
    if how == "released":
        DirectoryLock(tmp_path).release()
    else:
        other = start_python(_HOLD)
        assert other.stdout is not None
        assert "held\n" == other.stdout.readline()
        other.kill()
        other.wait()
    lock = DirectoryLock(tmp_path)
    assert not lock.same_boot
    lock.looked_at()
    lock.release()
    lock = DirectoryLock(tmp_path)
    assert lock.same_boot
    lock.release()


def test_a_system_that_does_not_tell_its_runs_apart_is_never_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_boot", lambda: "")
    lock = DirectoryLock(tmp_path)
    lock.looked_at()
    lock.release()
    lock = DirectoryLock(tmp_path)
    assert not lock.same_boot
    lock.release()


def leave(directory: Path, *left: Path) -> None:
    lock = DirectoryLock(directory)
    lock.release(left=left)


def test_a_file_is_as_it_was_left_until_somebody_touches_it(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"a")
    other.write_bytes(b"a")
    leave(tmp_path, path)
    for _ in range(2):
        lock = DirectoryLock(tmp_path)
        assert (True, False) == (lock.is_as_left(path), lock.is_as_left(other))
        # Who has changed nothing leaves the note as it is.
        lock.release()
    path.write_bytes(b"b")
    lock = DirectoryLock(tmp_path)
    assert not lock.is_as_left(path)
    lock.release()


@pytest.mark.parametrize("how", ["longer", "later", "gone", "another file in its place"])
def test_whoever_touches_a_file_is_found(tmp_path: Path, how: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a")
    leave(tmp_path, path)
    found = path.stat()
    if how == "longer":
        path.write_bytes(b"ab")
        os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    elif how == "later":
        os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns + 1000))
    elif how == "gone":
        path.unlink()
    else:
        (tmp_path / "new").write_bytes(b"a")
        (tmp_path / "new").replace(path)
    lock = DirectoryLock(tmp_path)
    assert not lock.is_as_left(path)
    lock.release()


def test_after_a_process_that_died_nothing_is_as_it_was_left(
    tmp_path: Path, start_python: StartPython
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a")
    leave(tmp_path, path)
    other = start_python(_HOLD)
    assert other.stdout is not None
    assert "held\n" == other.stdout.readline()
    other.kill()
    other.wait()
    lock = DirectoryLock(tmp_path)
    assert not lock.is_as_left(path)
    lock.release()


@pytest.mark.parametrize("note", ["", "[]", "5", '"x"', "{", '{"left": 5}', '{"left": [1]}', "\0\0\0"])
def test_a_note_of_nonsense_says_nothing(tmp_path: Path, note: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a")
    (tmp_path / "lock").write_text(note)
    lock = DirectoryLock(tmp_path)
    assert (False, False) == (lock.same_boot, lock.is_as_left(path))
    lock.release()
    leave(tmp_path, path)
    lock = DirectoryLock(tmp_path)
    assert lock.is_as_left(path)
    lock.release()
