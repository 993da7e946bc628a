"""Which files make up a state, where are they, and which store belongs to which filter?

It opens no seen-set: ``state`` does.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path

from scrapy_bloomdupe.errors import StateCorrupt, StateNotFound, StateUnusable
from scrapy_bloomdupe.frontier.lmdb import FrontierView
from scrapy_bloomdupe.history import HISTORY_NAME, TOP_NAME
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore

FILTER_NAME = "seen.bloom"
STORE_NAME = "seen.lmdb"
#: The frontier of a state without an exact store; with one it is in the store's file.
FRONTIER_NAME = "frontier.lmdb"
#: A filter that is being made; never in force.
UNFINISHED_NAME = FILTER_NAME + ".new"
#: The digests of the rules by name: for messages only, the header of the filter decides.
RULES_NAME = "seen.rules.json"
#: Keys that a server was asked for, where one is shared.
CLAIMS_NAME = "claims.log"
_STATE_FILES = (
    FILTER_NAME,
    STORE_NAME,
    STORE_NAME + "-lock",
    FRONTIER_NAME,
    FRONTIER_NAME + "-lock",
    RULES_NAME,
    CLAIMS_NAME,
    HISTORY_NAME,
    TOP_NAME,
)


def locate(directory: str | Path) -> Path:
    """Return the state directory of a job directory, or *directory* itself if it is one.

    Raises:
        StateNotFound: there is neither.
    """
    path = Path(directory)
    for candidate in (path / "bloomdupe", path):
        if any((candidate / name).exists() for name in (FILTER_NAME, STORE_NAME, FRONTIER_NAME)):
            return candidate
    raise StateNotFound(
        2,
        f"there is no state in {path} or {path / 'bloomdupe'} ({FILTER_NAME}, {STORE_NAME}); give the "
        "JOBDIR or the BLOOMDUPE_DIR of a crawl",
    )


def environment_path(directory: Path) -> Path:
    """Return where the LMDB file of a state is, if it has one: store and frontier, or the frontier alone."""
    store = directory / STORE_NAME
    return store if store.exists() else directory / FRONTIER_NAME


def move_aside(directory: Path) -> Path:
    """Move the files of a closed state into a dated directory beside them and return it."""
    stamp = time.strftime("old-%Y%m%d-%H%M%S")
    aside = directory / stamp
    count = 1
    while aside.exists():
        count += 1
        aside = directory / f"{stamp}-{count}"
    try:
        aside.mkdir()
        # The filter last: as long as it is in its place, the state is whole or refused.
        for name in reversed(_STATE_FILES):
            if (directory / name).exists():
                (directory / name).rename(aside / name)
    except OSError as exc:
        raise StateUnusable(
            exc.errno, f"cannot move the state in {directory} to {aside}: {exc.strerror}"
        ) from exc
    return aside


def discard_unfinished(directory: Path) -> None:
    """Remove what a process that was making a filter has left. The caller holds the directory's lock."""
    with contextlib.suppress(OSError):  # in nobody's way: who makes the next one says what is wrong
        (directory / UNFINISHED_NAME).unlink(missing_ok=True)


def write_rules_file(directory: Path, rules: Mapping[str, str]) -> None:
    """Keep which rules made the keys, so that a later refusal can name those that changed."""
    if rules:
        (directory / RULES_NAME).write_text(json.dumps(dict(rules), indent=1) + "\n", encoding="utf-8")


def read_rules_file(directory: Path) -> Mapping[str, str]:
    """Return what ``write_rules_file`` kept; empty: nothing that can be read."""
    try:
        found = json.loads((directory / RULES_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def write_meta(environment: Environment, filter_id: bytes, identity: Mapping[str, str]) -> None:
    """Write into the store which filter it belongs to and what its keys mean."""
    meta = environment.database(b"meta", create=True)
    encoded = json.dumps(dict(identity), sort_keys=True).encode()

    def put(txn: object) -> None:
        txn.put(b"filter_id", filter_id, db=meta)  # type: ignore[attr-defined]
        txn.put(b"identity", encoded, db=meta)  # type: ignore[attr-defined]

    environment.write(put)


def read_meta(environment: Environment) -> tuple[bytes, Mapping[str, str]]:
    """Return what ``write_meta`` wrote.

    Raises:
        StateCorrupt: it is not there or cannot be read.
    """
    meta = environment.database(b"meta", create=False)
    filter_id = environment.read(meta, b"filter_id")
    identity = environment.read(meta, b"identity")
    if filter_id is None or identity is None:
        raise StateCorrupt(f"{environment.path} does not say which filter it belongs to")
    try:
        return filter_id, dict(json.loads(identity))
    except ValueError as exc:
        raise StateCorrupt(f"{environment.path}: its identity cannot be read: {exc}") from exc


def make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StateUnusable(
            exc.errno,
            f"cannot make the directory {directory}: {exc.strerror}; check the path and its permissions",
        ) from exc


def holds_keys(path: Path) -> bool:
    """Return whether the exact store at *path* holds a key; else its creation was cut short."""
    if path.is_file() and path.stat().st_size == 0:
        return False
    environment = Environment.open(path)
    try:
        return LmdbStore(environment, create=True).count() > 0
    finally:
        environment.close()


def holds_requests(path: Path) -> bool:
    """Return whether the frontier at *path* was ever used; else its creation was cut short."""
    if path.is_file() and path.stat().st_size == 0:
        return False
    environment = Environment.open(path)
    try:
        view = FrontierView(environment)
        return view.num_pending + view.num_done + view.num_failed > 0
    except StateCorrupt:
        return False
    finally:
        environment.close()
