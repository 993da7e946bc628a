"""Is a queue that somebody has touched found out, and is one that nobody trusts kept?"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import queues
from conftest import Python

import scrapy_bloomdupe.requestqueue as requestqueue
from scrapy_bloomdupe.errors import StateUnusable


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    return queues.fill(tmp_path, [("a", 0), ("b", 3), ("c", 0)])


def test_the_digest_of_nothing_is_empty(tmp_path: Path) -> None:
    assert "" == requestqueue.digest(tmp_path / "nowhere")
    (tmp_path / "empty" / "empty").mkdir(parents=True)
    assert "" == requestqueue.digest(tmp_path / "empty")


def test_the_digest_of_what_nobody_touched_stays(queue: Path) -> None:
    found = requestqueue.digest(queue)
    assert 32 == len(found)
    for path in queue.rglob("*"):
        os.utime(path)
    queue.rename(queue.with_name("elsewhere"))
    assert found == requestqueue.digest(queue.with_name("elsewhere"))


def test_every_changed_byte_of_a_queue_changes_its_digest(queue: Path) -> None:
    before = requestqueue.digest(queue)
    found = {before}
    total = 0
    for path in sorted(path for path in queue.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for at in range(0, len(data), 7):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            found.add(requestqueue.digest(queue))
            total += 1
        path.write_bytes(data)
    assert total + 1 == len(found)
    assert before == requestqueue.digest(queue)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


@pytest.mark.parametrize(
    "change",
    [
        _cut,
        _grow,
        lambda path: path.unlink(),
        lambda path: path.rename(path.with_name("renamed")),
        lambda path: path.with_name("more").write_bytes(b""),
    ],
    ids=["cut", "grown", "deleted", "renamed", "one more"],
)
def test_whatever_happens_to_a_file_changes_the_digest(queue: Path, change: Callable[[Path], None]) -> None:
    before = requestqueue.digest(queue)
    change(queue / "active.json")
    assert before != requestqueue.digest(queue)


def test_bytes_that_wander_from_one_file_to_the_next_change_the_digest(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"ab")
    (tmp_path / "2").write_bytes(b"c")
    before = requestqueue.digest(tmp_path)
    (tmp_path / "1").write_bytes(b"a")
    (tmp_path / "2").write_bytes(b"bc")
    assert before != requestqueue.digest(tmp_path)


@pytest.mark.parametrize(
    ("files", "nothing", "in_order"),
    [
        ({}, True, False),
        ({"active.json": "[]"}, True, False),
        ({"active.json": "{}"}, True, False),
        ({"active.json": ""}, False, False),
        ({"active.json": "[0"}, False, False),
        ({"active.json": "[0]"}, False, True),
        ({"active.json": '{"slot": [0]}'}, False, True),
        ({"0": "data"}, False, False),
        ({"active.json": "[]", "0": "data"}, False, False),
        ({"active.json": "[0]", "0": "data"}, False, True),
    ],
)
def test_what_scrapy_says_of_its_queue(
    tmp_path: Path, files: dict[str, str], nothing: bool, in_order: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert (nothing, in_order) == (
        requestqueue.holds_nothing(tmp_path),
        requestqueue.is_closed_in_order(tmp_path),
    )


def test_a_queue_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert requestqueue.holds_nothing(tmp_path / "nowhere")
    assert not requestqueue.is_closed_in_order(tmp_path / "nowhere")


def test_queues_are_moved_aside_side_by_side(tmp_path: Path) -> None:
    asides = []
    for number in range(3):
        queue = queues.fill(tmp_path, [(f"page-{number}", 0)])
        before = requestqueue.digest(queue)
        asides.append(requestqueue.move_aside(queue))
        assert not queue.exists()
        assert before == requestqueue.digest(asides[-1])
    assert 3 == len(set(asides))
    assert sorted(asides) == sorted(tmp_path.glob("requests.queue.old-????????-??????*"))


_MOVE_AS_NOBODY = """
import scrapy_bloomdupe.requestqueue as requestqueue
from scrapy_bloomdupe.errors import StateUnusable

os.chdir("jobdir")
become_nobody()
try:
    requestqueue.move_aside(Path("requests.queue"))
except StateUnusable as exc:
    print(exc.args[1])
"""


def test_a_queue_that_cannot_be_moved_is_an_error_that_says_what_to_do(
    tmp_path: Path, python: Python
) -> None:
    jobdir = tmp_path / "jobdir"
    queue = queues.fill(jobdir, [("a", 0)])
    jobdir.chmod(0o555)
    try:
        done = python(_MOVE_AS_NOBODY)
    finally:
        jobdir.chmod(0o755)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("cannot move requests.queue to requests.queue.old-")
    assert done.stdout.endswith(": Permission denied; check the permissions. Nothing was changed\n")
    assert queue.exists()


def test_to_move_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable, match="No such file or directory; check the permissions"):
        requestqueue.put_for_adoption(tmp_path / "requests.queue")


def test_requests_come_out_as_scrapy_gives_them_and_the_queue_stays(queue: Path) -> None:
    before = requestqueue.digest(queue)
    given = list(requestqueue.adopted(queues.crawler(), queue))
    assert ["b", "c", "a"] == [request.url.rpartition("/")[2] for request in given]
    assert [3, 0, 0] == [request.priority for request in given]
    assert {"parse"} == {getattr(request.callback, "__name__", None) for request in given}
    assert before == requestqueue.digest(queue)
    assert ["requests.queue"] == [path.name for path in queue.parent.iterdir()]


def test_whoever_stops_in_the_middle_leaves_no_copy(queue: Path) -> None:
    given = requestqueue.adopted(queues.crawler(), queue)
    next(given)
    given.close()  # type: ignore[attr-defined]
    assert ["requests.queue"] == [path.name for path in queue.parent.iterdir()]


def test_a_queue_of_nothing_gives_nothing(tmp_path: Path) -> None:
    queue = queues.fill(tmp_path, [])
    assert [] == json.loads((queue / "active.json").read_text())
    assert [] == list(requestqueue.adopted(queues.crawler(), queue))
