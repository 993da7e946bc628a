"""``bloomdupe export``: a job that stock Scrapy goes on with, from the state of a stopped crawl.

The new files get their names when all of them are written, the queue last; then the state is moved aside.
Until then Scrapy's own queue refuses to start, and an export that was cut short is run again.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scrapy_bloomdupe.assembling import assemble, pending_of
from scrapy_bloomdupe.cli_places import refuse_url
from scrapy_bloomdupe.errors import (
    BloomdupeError,
    ConfigurationError,
    StateCorrupt,
    StateExists,
    StateUnusable,
)
from scrapy_bloomdupe.frontier.lmdb import FrontierView, LmdbFrontier, PendingRequest
from scrapy_bloomdupe.identity import SHARED_MARK
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.statefiles import locate, move_aside
from scrapy_bloomdupe.stockjob import (
    QUEUE_NAME,
    SEEN_NAME,
    STATE_NAME,
    dated,
    read_state,
    write_queue,
    write_seen,
)
from scrapy_bloomdupe.stores.environment import corrupt, verify
from scrapy_bloomdupe.stores.lmdb import LmdbStore

Command = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
_SCRAPYS_FINGERPRINTER = "scrapy.utils.request.RequestFingerprinter"


def add_export(command: Command) -> None:
    """Add ``export``."""
    sub = command("export", _export, "Write a job that stock Scrapy goes on with, and move the state aside.")
    sub.add_argument(
        "directory", metavar="DIR", help="the JOBDIR of a stopped crawl, or the directory of its state"
    )
    sub.add_argument("--to", metavar="JOBDIR", help="where to write; default: the JOBDIR of the state")
    sub.add_argument("--queue-only", action="store_true", help="the pending requests without what was seen")
    for name in ("disk-queue", "start-disk-queue", "priority-queue"):
        setting = f"SCHEDULER_{name.replace('-', '_').upper()}"
        sub.add_argument(
            f"--{name}", metavar="CLASS", help=f"default: {setting} of the project, or Scrapy's own"
        )


def _export(arguments: argparse.Namespace) -> int:
    refuse_url(arguments.directory, "a job is exported from a directory")
    directory = locate(arguments.directory)
    if arguments.to is None and directory.name != "bloomdupe":
        raise ConfigurationError(f"{directory} is not in a JOBDIR: say where to write, --to JOBDIR")
    jobdir = Path(arguments.to or directory.parent)
    lock = DirectoryLock(directory)
    try:
        state = assemble(directory, lock)
        try:
            new = _write(state, jobdir, arguments)
        except BaseException:
            _discard(jobdir)
            raise
        finally:
            state.release_files(clean=False)
        _install(jobdir, new)
        aside = move_aside(directory)
    except OSError as exc:
        if isinstance(exc, BloomdupeError):
            raise
        raise StateUnusable(
            exc.errno,
            f"cannot write {exc.filename or jobdir}: {exc.strerror}. The state was left as it is. Make room "
            "on the disk; if too many files are open, raise `ulimit -n`, which stock Scrapy needs for a "
            "file per slot, too, or take --priority-queue scrapy.pqueues.ScrapyPriorityQueue",
        ) from exc
    finally:
        lock.release()
    print(
        f"{directory}: the state was moved to {aside}, and can be deleted when stock Scrapy has finished the "
        f"job: take scrapy-bloomdupe out of the settings. To come back, run `bloomdupe import {jobdir}`"
    )
    return 0


def _write(state: State, jobdir: Path, arguments: argparse.Namespace) -> list[str]:
    """Write the files under unfinished names, and return the names that they will get, in that order."""
    # Not at the top: the other commands do without Scrapy.
    from scrapy_bloomdupe.scrapy_compat import QueueMark

    if state.is_suspect and state.environment and (problems := verify(state.environment.path)):
        raise corrupt(state.environment.path, problems[0])
    jobdir.mkdir(parents=True, exist_ok=True)
    _discard(jobdir)
    new, view = [], pending_of(state)
    if view is not None and QueueMark(jobdir).has_stock_queue():
        raise StateExists(
            17,
            f"{jobdir / QUEUE_NAME} holds requests of a stock job already: give another JOBDIR. Nothing was "
            "changed",
        )
    if arguments.queue_only:
        print("requests.seen is left out: stock Scrapy crawls again whatever the pending requests lead to")
    else:
        new.append(SEEN_NAME)
        count = write_seen(_unfinished(jobdir, SEEN_NAME), _store(state).iter_keys())
        print(f"{jobdir / SEEN_NAME}: {count:,} fingerprints")
        made_by = state.filter.identity.get("fingerprinter", _SCRAPYS_FINGERPRINTER)
        if made_by != _SCRAPYS_FINGERPRINTER:
            print(
                f"they were made by {made_by}, which the job needs again. Fingerprints of other than 20 "
                "bytes are kept as digests, which stock Scrapy does not know: it crawls their pages again"
            )
    if view is not None:
        new.append(QUEUE_NAME)
        spiders: set[str] = set()
        path = _unfinished(jobdir, QUEUE_NAME)
        count = write_queue(path, _requests(view, state, spiders), _queue_settings(arguments))
        if len(spiders) > 1:
            raise ConfigurationError(
                f"{state.directory} holds requests of {', '.join(sorted(spiders))}, and a stock job is of "
                "one spider: finish one of them first. Nothing was changed"
            )
        print(f"{jobdir / QUEUE_NAME}: {count:,} requests{''.join(f' of {spider}' for spider in spiders)}")
        spider = state.filter.identity.get("spider", "")
        if (saved := _spider_state(state, *spiders or (spider,), source=state.directory.parent)) is not None:
            new.insert(0, STATE_NAME)
            _unfinished(jobdir, STATE_NAME).write_bytes(saved)
    return new


def _unfinished(jobdir: Path, name: str) -> Path:
    return jobdir / f"{name}.new"


def _discard(jobdir: Path) -> None:
    """Remove what an export that was cut short has left."""
    for path in (_unfinished(jobdir, name) for name in (QUEUE_NAME, SEEN_NAME, STATE_NAME)):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _store(state: State) -> LmdbStore:
    identity, problem = state.filter.identity, ""
    if "rules" in identity:
        problem = "its keys were made by rules, and stock Scrapy knows pages by fingerprints"
    elif SHARED_MARK in identity:
        problem = "what was seen is on a server"
    elif isinstance(state.store, LmdbStore):
        return state.store
    else:
        problem = "it has no exact store, and a filter cannot give back its keys"
    raise ConfigurationError(
        f"{state.directory}: {problem}. --queue-only writes the pending requests alone: stock Scrapy then "
        "crawls every page again that they lead to. Nothing was changed"
    )


def _requests(view: FrontierView, state: State, spiders: set[str]) -> Iterator[PendingRequest]:
    """Give all requests in the order in which they were scheduled, failed ones last; add to *spiders*."""
    for failed in (False, True):
        for pending in view.records(failed=failed):
            if pending.damaged:
                raise StateCorrupt(
                    f"{state.directory}: the pending request {pending.number} is damaged, and its page, "
                    "which is marked as seen, would be lost. Restore the file from a copy. Nothing was "
                    "changed"
                )
            spiders.add(pending.spider)
            yield pending


def _queue_settings(arguments: argparse.Namespace) -> Any:
    from scrapy.settings import Settings

    settings, project = Settings(), getattr(arguments, "project", None)
    for name in ("disk_queue", "start_disk_queue", "priority_queue"):
        setting = f"SCHEDULER_{name.upper()}"
        if project is not None and setting in project:
            settings.set(setting, project.get(setting))
        if (asked := getattr(arguments, name)) is not None:
            settings.set(setting, asked)
    return settings


def _spider_state(state: State, spider: str, *, source: Path) -> bytes | None:
    """Return ``spider.state`` as the last run left it, None: it has none."""
    file, digest = read_state(source)
    assert state.environment is not None
    kept = LmdbFrontier(state.environment, spider).note(b"state")
    # Scrapy has written another file since the run began: at an end in order, after our last commit.
    return kept[16:] if kept is not None and kept[:16] == digest else file


def _install(jobdir: Path, new: list[str]) -> None:
    if (jobdir / SEEN_NAME).exists():
        # Of an earlier stock job, and no more than a part of what is known now.
        (jobdir / SEEN_NAME).rename(dated(jobdir / SEEN_NAME))
    for name in new:
        path = jobdir / name
        if path.is_dir():
            # Nothing is in it but the mark that makes Scrapy's queue refuse to start.
            shutil.rmtree(path)
        _unfinished(jobdir, name).rename(path)
