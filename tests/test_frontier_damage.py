"""Does a job with a damaged file go on without a loss, or say that it does not?

Of each job, stopped or killed in the middle, a copy is damaged in one place and run to its end. What is
asked for is that it is honest: never ``finished`` with a page missing. In the long version (see
``killing``) every file is damaged in every way.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import BARE, EXACT, LONG, Job, jobs
from killsite import Tree

Damage = Callable[[Path], None]

SETTINGS = {"BLOOMDUPE_CAPACITY": 1000, "CLOSESPIDER_TIMEOUT": 30}
TREE = Tree(50, 5, "pph", spread=12)

# What a refused person is told to do.
NEXT_STEP = re.compile(r"\b(run|delete|remove|move|set|make|start|restore|use|give|copy)\b", re.IGNORECASE)

# As Scrapy begins a line of its log.
LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[")


def delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut(part: float) -> Damage:
    def damage(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * part)])

    return damage


def cut_last(size: int) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[:-size])  # type: ignore[func-returns-value]


def cut_pages(path: Path) -> None:
    """As a file system that had written the first pages only."""
    path.write_bytes(path.read_bytes()[: max(0, (path.stat().st_size - 1) // 4096 * 4096)])


def flip(part: float) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        if data:
            data[int((len(data) - 1) * part)] ^= 0x5A
        path.write_bytes(bytes(data))

    return damage


def overwrite(part: float) -> Damage:
    """A block of zeros, as after a power loss."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        at = int(len(data) * part) // 512 * 512
        data[at : at + 512] = bytes(len(data[at : at + 512]))
        path.write_bytes(bytes(data))

    return damage


# The first of them go round in the short version.
DAMAGES: list[tuple[str, Damage]] = [
    ("deleted", delete),
    ("a byte flipped in the middle", flip(0.5)),
    ("cut to a half", cut(0.5)),
    ("empty", empty),
    ("zeros", zero),
    ("a byte flipped at 5 %", flip(0.05)),
    ("one byte short", cut_last(1)),
    ("a block of zeros at 70 %", overwrite(0.7)),
    ("a page short", cut_pages),
    *((f"a byte flipped at {part:.1%}", flip(part)) for part in [0, 0.001, 0.01, 0.2, 0.35, 0.8, 0.95, 1]),
    *((f"cut to {part:.0%}", cut(part)) for part in [0.02, 0.2, 0.9]),
    *((f"a block of zeros at {part:.0%}", overwrite(part)) for part in [0, 0.1, 0.3, 0.5, 0.9]),
]
SHORT = 9


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    with jobs(tmp_path_factory.mktemp("jobs")) as make:
        yield make


def verdict(job: Job) -> str | None:
    """What is wrong with how the last run ended."""
    run, reason = job.last, job.reason
    last = next((line for line in reversed(run.log.splitlines()) if line.strip()), "")
    # Of several lines: the stats, which Scrapy prints before its last one.
    if not LOGGED.match(last):
        return f"the log ends with {last!r} (exit code {run.code})"
    errors = run.lines("[scrapy_bloomdupe", "ERROR")
    if reason == "finished":
        pages, items = job.lost()
        return f"finished, and lost {len(pages)} pages, {len(items)} items" if pages or items else None
    if reason is None or reason == "closespider_timeout":
        return f"finish_reason {reason}, exit code {run.code}"
    if not errors:
        return f"finish_reason {reason} without an ERROR of ours"
    if reason == "bloomdupe_refused":
        if run.code != 1:
            return f"refused with exit code {run.code}"
        if not NEXT_STEP.search(errors[0].partition("ERROR: ")[2]):
            return f"refused without a next step: {errors[0]}"
    return None


def cases(job: Job, seed: int) -> Iterator[tuple[str, str, Damage]]:
    """Path, name of a damage, damage."""
    paths = sorted(path for path in job.jobdir.rglob("*") if path.is_file())
    turn = itertools.cycle(random.Random(seed).sample(range(SHORT), SHORT))
    for path in paths:
        name = str(path.relative_to(job.jobdir))
        chosen = DAMAGES if LONG else [DAMAGES[next(turn)]]
        for what, damage in chosen:
            yield name, what, damage
    for name in ("bloomdupe", "requests.queue"):
        yield name, "deleted", delete


@pytest.mark.parametrize("store", [EXACT, BARE], ids=["exact", "bare"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_job_with_a_damaged_file_recovers_or_says_that_it_does_not(
    make: Callable[..., Job], tmp_path: Path, how: str, store: dict[str, Any]
) -> None:
    job = make(tmp_path / "job", TREE, {**store, **SETTINGS})
    job.signal_after(12, signal.SIGINT if how == "stopped" else signal.SIGKILL, DOWNLOAD_DELAY=0.02)
    assert ("shutdown" if how == "stopped" else None) == job.reason
    assert len(job.lost_pages()) > 10
    failures = []
    # In the short form each of the four takes half of them, so that all are met.
    turn = (how == "killed") ^ (store is BARE)
    for number, (name, what, damage) in enumerate(cases(job, 2 * len(how) + len(store))):
        if not LONG and number % 2 == turn:
            continue
        copy = job.copy(tmp_path / f"copy-{number}")
        damage(copy.jobdir / name)
        copy.run()
        if wrong := verdict(copy):
            failures.append(f"{name}, {what}: {wrong} ({copy.folder})")
    assert [] == failures, "\n".join(["", *failures])


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_copy_of_a_job_goes_on_where_the_job_was(
    make: Callable[..., Job], tmp_path: Path, how: str
) -> None:
    job = make(tmp_path / "job", TREE, {**EXACT, **SETTINGS})
    job.signal_after(12, signal.SIGINT if how == "stopped" else signal.SIGKILL, DOWNLOAD_DELAY=0.02)
    copy = job.copy(tmp_path / "copy")
    copy.run()
    copy.check()
    assert None is verdict(copy)
