"""Of which parts is a state made, and do the parts that are there belong together?

``create`` makes them, ``assemble`` opens them; whether the keys mean what they should is ``opening``'s
question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt, StateMismatch
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counting import class_for, open_filter
from scrapy_bloomdupe.frontier.lmdb import FrontierView, LmdbFrontier
from scrapy_bloomdupe.identity import SHARED_MARK, StateOptions
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.statefiles import (
    FILTER_NAME,
    FRONTIER_NAME,
    STORE_NAME,
    UNFINISHED_NAME,
    holds_keys,
    holds_requests,
    read_meta,
    write_meta,
    write_rules_file,
)
from scrapy_bloomdupe.stores.base import Store
from scrapy_bloomdupe.stores.environment import Environment, corrupt, verify
from scrapy_bloomdupe.stores.lmdb import LmdbStore
from scrapy_bloomdupe.stores.memory import MemoryStore

#: In the identity of a filter: its state has a frontier, and where.
FRONTIER_MARK = "frontier"
# What only the first edition had: a journal, which is another encoding, and an audit.
_FIRST_EDITION = {"journal": "its journal of pending requests", "audit": "an audit of its filter"}

# Bytes of a file whose pages are all read when it is opened after an unclean end: 40 ms. A larger one is read
# beside the crawl, and only if the machine was restarted or the file was changed: the death of a process
# tears nothing.
_READ_AT_ONCE = 200_000


def is_absent(directory: Path) -> bool:
    """Return whether there is no state in *directory*, or one whose creation was cut short.

    Raises:
        StateCorrupt: there is part of one.
    """
    if (directory / FILTER_NAME).exists():
        return False
    # The filter gets its name last. Empty files without it: ended in the middle of its creation.
    if (directory / STORE_NAME).exists() and holds_keys(directory / STORE_NAME):
        raise StateCorrupt(
            f"{directory} holds an exact store but no filter {FILTER_NAME}; run `bloomdupe rebuild "
            f"{directory}` to make the filter from the store. Nothing was changed"
        )
    if (directory / FRONTIER_NAME).exists() and holds_requests(directory / FRONTIER_NAME):
        raise StateCorrupt(
            f"{directory} holds pending requests but no filter {FILTER_NAME}: what was seen is "
            f"not known any more. Put the filter back, or move {directory} aside to start from nothing. "
            "Nothing was changed"
        )
    return True


def create(directory: Path, lock: DirectoryLock, options: StateOptions) -> State:
    """Make a state; what an earlier creation that was cut short has left is used.

    Raises:
        StateUnusable, ConfigurationError: see ``errors``.
    """
    unfinished = directory / UNFINISHED_NAME
    unfinished.unlink(missing_ok=True)
    environment: Environment | None = None
    store: Store | None = MemoryStore() if options.store == "memory" else None
    where = _frontier_name(options.store) if options.frontier else None
    identity = {**options.identity, "store": options.store or "none"}
    if where is not None:
        identity[FRONTIER_MARK] = where
    if options.is_shared:
        identity[SHARED_MARK] = "new"
    name = environment_name(identity)
    try:
        if name is not None:
            path = directory / name
            fresh = not path.exists() or path.stat().st_size == 0
            sync = options.sync
            environment = Environment.create(path, sync=sync) if fresh else Environment.open(path, sync=sync)
        filter = _new_filter(unfinished, options, identity)  # noqa: A001
        try:
            frontier: LmdbFrontier | None = None
            if environment is not None:
                if options.store == "lmdb":
                    store = _store(environment, create=True, frontier=bool(options.frontier))
                if options.frontier:
                    frontier = LmdbFrontier(environment, options.identity.get("spider", ""))
                write_meta(environment, filter.filter_id, filter.identity)
                environment.commit()
            write_rules_file(directory, options.rules)
            # Last: a filter in its place means that all is there.
            filter.rename(directory / FILTER_NAME)
        except BaseException:
            filter.abandon()
            raise
    except BaseException:
        if environment is not None:
            environment.close()
        raise
    lock.looked_at()
    state = State(directory, lock, filter, store, environment, options.clock)
    if frontier is not None and environment is not None:
        state.attach(frontier, environment)
    state.is_new = True
    return state


def assemble(
    directory: Path,
    lock: DirectoryLock,
    *,
    frontier: bool | None = None,
    sync: bool = False,
    beside: bool = False,
    clock: Callable[[], float] = time.time,
) -> State:
    """Open the parts that are there; nothing is written.

    Args:
        sync: see ``Environment.open``.
        beside: whether pages that may be torn can be read beside a crawl; else they are read at once.
        clock: see ``State``.
        frontier: whether ``attach_frontier`` will be called.

    Raises:
        StateUnusable, StateCorrupt: see ``errors``.
    """
    if any((directory / FILTER_NAME).glob("*.bloom")):
        raise _of_first_edition(directory, "a ring of filters, which forgets by time")
    filter = open_filter(directory / FILTER_NAME, begin=False)  # noqa: A001
    for mark, what in _FIRST_EDITION.items():
        if mark in filter.identity:
            filter.abandon()
            raise _of_first_edition(directory, what)
    environment: Environment | None = None
    store: Store | None = None
    is_suspect = False
    try:
        name = environment_name(filter.identity)
        if name is not None:
            environment, is_suspect = _open_environment(
                directory / name, filter, lock, sync=sync, beside=beside
            )
            if name == STORE_NAME:
                store = _store(environment, frontier=bool(frontier))
    except BaseException:
        filter.abandon()
        if environment is not None:
            environment.close()
        raise
    if not is_suspect:
        lock.looked_at()
    state = State(directory, lock, filter, store, environment, clock)
    state.is_suspect = is_suspect
    return state


def _of_first_edition(directory: Path, what: str) -> StateMismatch:
    return StateMismatch(
        f"{directory} was made by scrapy-bloomdupe 0.1 and holds {what}, which this release does not read. "
        "Finish the job with scrapy-bloomdupe 0.1, or start in another directory. Nothing was changed"
    )


def pending_of(state: State) -> FrontierView | None:
    """Return what is pending in a state that ``assemble`` gave; None: it has no frontier.

    Raises:
        StateCorrupt, StoreError: it cannot be read.
    """
    if FRONTIER_MARK not in state.filter.identity or state.environment is None:
        return None
    return FrontierView(state.environment)


def attach_frontier(state: State, spider: str, *, wanted: bool, sync: bool = False) -> None:
    """Open or make the frontier of a state, or make sure that it is not needed.

    Raises:
        StateCorrupt, StoreError: it cannot be read or made.
        ConfigurationError: it is not wanted, and pending requests would be left behind.
    """
    where = _frontier_name(state.filter.identity.get("store"))
    has_one = FRONTIER_MARK in state.filter.identity
    if wanted:
        environment = state.environment or _create_environment(state.directory, state.filter, sync=sync)
        try:
            state.attach(LmdbFrontier(environment, spider), environment)
        except BaseException:
            environment.close()
            raise
        if not has_one:
            state.set_identity({**state.filter.identity, FRONTIER_MARK: where})
    elif has_one and state.environment is not None:
        view = FrontierView(state.environment)
        if pending := view.num_pending + view.num_failed:
            raise ConfigurationError(
                f"the frontier is off (BLOOMDUPE_FRONTIER = False, or another SCHEDULER than Scrapy's), and "
                f"{state.directory} holds {pending:,} pending requests that are marked as seen: their pages "
                "would be lost. Leave it on until the job is finished, or move the directory aside to start "
                "from nothing"
            )
        identity = {name: value for name, value in state.filter.identity.items() if name != FRONTIER_MARK}
        state.set_identity(identity)


def environment_name(identity: Mapping[str, str]) -> str | None:
    """Return the name of the LMDB file of a state, None: it has none."""
    if identity.get("store") == "lmdb":
        return STORE_NAME
    return identity.get(FRONTIER_MARK)


def _new_filter(path: Path, options: StateOptions, identity: Mapping[str, str]) -> BloomFilter:
    return class_for(options.layout).create(
        path,
        capacity=options.capacity,
        error_rate=options.error_rate,
        layout=options.layout,
        scheme=options.scheme,
        identity=identity,
        created=int(options.clock()),
    )


def _store(environment: Environment, *, create: bool = False, frontier: bool) -> LmdbStore:
    # With a frontier a key is written with its request, so nothing is written before both are there.
    if frontier:
        return LmdbStore(environment, create=create, group_size=None)
    return LmdbStore(environment, create=create)


def _frontier_name(store: str | None) -> str:
    return STORE_NAME if store == "lmdb" else FRONTIER_NAME


def _open_environment(
    path: Path,
    filter: BloomFilter,  # noqa: A002
    lock: DirectoryLock,
    *,
    sync: bool,
    beside: bool,
) -> tuple[Environment, bool]:
    """Return the LMDB file, and whether its pages may be torn: they have to be read beside the crawl.

    Args:
        beside: whether that is possible; else they are read before.
    """
    directory = path.parent
    what = "an exact store" if path.name == STORE_NAME else "a frontier"
    if not path.exists():
        raise StateCorrupt(
            f"{filter.path} belongs to {what} {path.name}, which is not there; put it back, or move "
            f"{directory} aside to start from nothing. Nothing was changed"
        )
    size = path.stat().st_size if path.is_file() else 0
    is_left, is_small = lock.is_as_left(path), size <= _READ_AT_ONCE
    is_suspect = not is_left and (filter.was_clean or not lock.same_boot)
    # What is empty, or no file, is refused below.
    if size and not is_left and (is_small or (is_suspect and not beside)):
        if problems := verify(path):
            raise corrupt(path, problems[0])
        is_suspect = False
    environment = Environment.open(path, sync=sync, extend=beside)
    try:
        if not is_small and path.stat().st_size != size:
            # It was too short.
            is_suspect = True
        filter_id, _ = read_meta(environment)
        if filter_id != filter.filter_id:
            raise StateCorrupt(
                f"{directory}: {FILTER_NAME} has the id {filter.filter_id.hex()}, {path.name} "
                f"belongs to {filter_id.hex()}: files of two seen-sets were mixed. Put the right "
                f"file back, or run `bloomdupe rebuild {directory}` to make a filter for the store "
                "that is there. Nothing was changed"
            )
    except BaseException:
        environment.close()
        raise
    return environment, is_suspect


def _create_environment(directory: Path, filter: BloomFilter, *, sync: bool) -> Environment:  # noqa: A002
    path = directory / FRONTIER_NAME
    fresh = not path.exists() or path.stat().st_size == 0
    environment = Environment.create(path, sync=sync) if fresh else Environment.open(path, sync=sync)
    try:
        write_meta(environment, filter.filter_id, filter.identity)
    except BaseException:
        environment.close()
        raise
    return environment
