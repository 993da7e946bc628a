"""Is there a state to open, may it be used, and how is a new one made?

Opening never creates, creating never overwrites, failing never deletes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt, StateMismatch, StateNotFound
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.identity import StateOptions, compare
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.statefiles import (
    FILTER_NAME,
    STORE_NAME,
    UNFINISHED_NAME,
    make_directory,
    move_aside,
    read_meta,
    store_is_empty,
    write_meta,
    write_rules_file,
)
from scrapy_bloomdupe.stores.base import Store
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore
from scrapy_bloomdupe.stores.memory import MemoryStore


def open_or_create(directory: Path, options: StateOptions) -> State:
    """Open the state in *directory*, or make it there.

    Raises:
        StateLocked, StateUnusable, StateCorrupt, StateMismatch: see ``errors``.
        ConfigurationError: an option is out of its range.
    """
    started = time.perf_counter()
    if options.store == "memory":
        raise ConfigurationError(
            f"BLOOMDUPE_STORE = 'memory' cannot be kept in {directory}: a resumed crawl would find the "
            "filter and not the store, and crawl everything again; take 'lmdb', or None for the filter "
            "alone"
        )
    directory = directory.absolute()  # a crawl may change its working directory
    make_directory(directory)
    lock = DirectoryLock(directory)
    try:
        if _is_absent(directory):
            state = _create(directory, lock, options)
        else:
            state = _open_as(directory, lock, options)
    except BaseException:
        lock.release()
        raise
    state.open_seconds = time.perf_counter() - started
    return state


def open_existing(directory: Path) -> State:
    """Open the state in *directory* as it is, whatever its keys mean.

    Raises:
        StateNotFound, StateLocked, StateUnusable, StateCorrupt: see ``errors``.
    """
    if not directory.is_dir():
        raise StateNotFound(2, f"there is no directory {directory}")
    lock = DirectoryLock(directory)
    try:
        state = _open(directory, lock)
        state.filter.begin()
    except BaseException:
        lock.release()
        raise
    return state


def open_temporary(options: StateOptions) -> State:
    """Make a state in temporary files, removed when it is closed."""
    started = time.perf_counter()
    directory = Path(tempfile.mkdtemp(prefix="bloomdupe-"))
    lock = DirectoryLock(directory)
    try:
        state = _create(directory, lock, options)
    except BaseException:
        lock.release()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    # Not only at close: Scrapy can end without closing its scheduler, on a signal while it starts.
    state.on_removal(weakref.finalize(state, _remove, directory, os.getpid()))
    state.open_seconds = time.perf_counter() - started
    return state


def _remove(directory: Path, pid: int) -> None:
    # A forked child ends too, and must not take the files of its parent with it.
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


def _is_absent(directory: Path) -> bool:
    if (directory / FILTER_NAME).exists():
        return False
    # The filter gets its name last. An empty store without it: ended in the middle of its creation.
    if not (directory / STORE_NAME).exists() or store_is_empty(directory):
        return True
    raise StateCorrupt(
        f"{directory} holds an exact store but no filter {FILTER_NAME}; run `bloomdupe rebuild "
        f"{directory}` to make the filter from the store. Nothing was changed"
    )


def _open_as(directory: Path, lock: DirectoryLock, options: StateOptions) -> State:
    state = _open(directory, lock)
    try:
        state.notices += compare(state.filter, options)
        state.filter.begin()
        _adopt(state, options)
    except StateMismatch as exc:
        state.release_files(clean=False)
        if options.on_mismatch != "new":
            raise
        aside = move_aside(directory)
        state = _create(directory, lock, options)
        state.notices.append(f"{exc} - BLOOMDUPE_ON_MISMATCH is 'new': it was moved to {aside}")
    except BaseException:
        state.release_files(clean=False)
        raise
    return state


def _adopt(state: State, options: StateOptions) -> None:
    """Give a state that was imported the meaning of the project that opens it first."""
    made, wanted = state.filter.identity, options.identity
    if "canary" in made or "canary" not in wanted:
        return
    state.set_identity({**made, **wanted})
    state.notices.append(
        f"{state.directory} was imported: its keys count from now on as made by {wanted.get('fingerprinter')}"
    )


def _create(directory: Path, lock: DirectoryLock, options: StateOptions) -> State:
    # The store first, the filter under its name last: a filter in its place means that all is there.
    unfinished = directory / UNFINISHED_NAME
    unfinished.unlink(missing_ok=True)
    environment: Environment | None = None
    store: Store | None = None
    if options.store == "lmdb":
        path = directory / STORE_NAME
        fresh = not path.exists() or path.stat().st_size == 0
        environment = Environment.create(path) if fresh else Environment.open(path)
    elif options.store == "memory":
        store = MemoryStore()
    try:
        filter = BloomFilter.create(  # noqa: A001
            unfinished,
            capacity=options.capacity,
            error_rate=options.error_rate,
            layout=options.layout,
            scheme=options.scheme,
            identity={**options.identity, "store": options.store or "none"},
        )
        try:
            if environment is not None:
                store = LmdbStore(environment, create=True)
                write_meta(environment, filter.filter_id, filter.identity)
            write_rules_file(directory, options.rules)
            filter.rename(directory / FILTER_NAME)
        except BaseException:
            filter.abandon()
            raise
    except BaseException:
        if environment is not None:
            environment.close()
        raise
    state = State(directory, lock, filter, store, environment)
    state.is_new = True
    return state


def _open(directory: Path, lock: DirectoryLock) -> State:
    filter = BloomFilter.open(directory / FILTER_NAME, begin=False)  # noqa: A001
    environment: Environment | None = None
    store: Store | None = None
    try:
        if filter.identity.get("store") == "lmdb":
            path = directory / STORE_NAME
            if not path.exists():
                raise StateCorrupt(
                    f"{filter.path} belongs to an exact store {STORE_NAME}, which is not there; put it "
                    f"back, or move {directory} aside to start anew. Nothing was changed"
                )
            environment = Environment.open(path)
            store = LmdbStore(environment)
            filter_id, _ = read_meta(environment)
            if filter_id != filter.filter_id:
                raise StateCorrupt(
                    f"{directory}: {FILTER_NAME} has the id {filter.filter_id.hex()}, {STORE_NAME} "
                    f"belongs to {filter_id.hex()}: files of two seen-sets were mixed. Put the right "
                    f"file back, or run `bloomdupe rebuild {directory}` to make a filter for the store "
                    "that is there. Nothing was changed"
                )
    except BaseException:
        filter.abandon()
        if environment is not None:
            environment.close()
        raise
    return State(directory, lock, filter, store, environment)
