"""Is there a state to open, may it be used, and how is a new one made?

Opening never creates, creating never overwrites, failing never deletes.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from scrapy_bloomdupe.assembling import assemble, attach_frontier, create, is_absent, pending_of
from scrapy_bloomdupe.building import build_filter, roomy, version_of, with_version
from scrapy_bloomdupe.durations import shown
from scrapy_bloomdupe.errors import (
    ConfigurationError,
    StateCorrupt,
    StateMismatch,
    StateNotFound,
    StoreError,
)
from scrapy_bloomdupe.identity import SHARED_MARK, StateOptions, compare
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.statefiles import discard_unfinished, make_directory, move_aside
from scrapy_bloomdupe.stores.lmdb import LmdbStore


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
        if is_absent(directory):
            state = create(directory, lock, options)
        else:
            state = _open_as(directory, lock, options)
    except BaseException:
        lock.release()
        raise
    if options.policy == "always":
        state.decide_by(options.policy)
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
        state = assemble(directory, lock)
        discard_unfinished(directory)
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
        state = create(directory, lock, options)
    except BaseException:
        lock.release()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    if options.policy == "always":
        state.decide_by(options.policy)
    # Not only at close: Scrapy can end without closing its scheduler, on a signal while it starts.
    state.on_removal(weakref.finalize(state, _remove, directory, os.getpid()))
    state.open_seconds = time.perf_counter() - started
    return state


def _remove(directory: Path, pid: int) -> None:
    # A forked child ends too, and must not take the files of its parent with it.
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


def _open_as(directory: Path, lock: DirectoryLock, options: StateOptions) -> State:
    discard_unfinished(directory)
    frontier, sync = options.frontier, options.sync
    state = assemble(
        directory, lock, frontier=frontier, sync=sync, beside=frontier is not None, clock=options.clock
    )
    try:
        if _is_due(state, options):
            return _reset(state, lock, options)
        state.notices += compare(state.filter, options)
        if frontier is not None:
            attach_frontier(state, options.identity.get("spider", ""), wanted=frontier, sync=sync)
        state.filter.begin()
        _adopt(state, options)
        if not lock.same_boot:
            _rebuild_if_torn(state)
    except StateMismatch as exc:
        shared_pending = _shared_pending(state)
        state.release_files(clean=False)
        if options.on_mismatch != "new":
            raise
        if shared_pending:
            raise StateMismatch(
                f"{exc} - BLOOMDUPE_ON_MISMATCH is 'new', and {directory} holds {shared_pending:,} "
                "pending requests whose pages a server calls seen: moved aside, nobody would crawl them. "
                "Finish the job with its former settings, or move the directory aside yourself"
            ) from exc
        aside = move_aside(directory)
        state = create(directory, lock, options)
        state.notices.append(f"{exc} - BLOOMDUPE_ON_MISMATCH is 'new': it was moved to {aside}")
    except BaseException:
        state.release_files(clean=False)
        raise
    return state


def _shared_pending(state: State) -> int:
    """Return how many requests are pending whose pages are seen on a server."""
    view = pending_of(state) if SHARED_MARK in state.filter.identity else None
    return view.num_pending + view.num_failed if view is not None else 0


# One page of the filter in a hundred that did not reach the disk is found with a probability of
# 1 - 0.99^500 = 0.993.
_SAMPLE = 500


def _rebuild_if_torn(state: State) -> None:
    """Rebuild the filter from the store if it lacks keys. The machine was restarted: after the death of a
    process the filter has every key, after that of the machine its pages may not have reached the disk.

    Raises:
        StateCorrupt: the store cannot be read.
        FilterError, StateUnusable: the new filter could not be made; the old one is in its place.
    """
    store = state.store
    if state.was_clean or not isinstance(store, LmdbStore):
        return
    try:
        count = store.count()
        if all(key in state.filter for key, _ in store.sample(_SAMPLE, random.Random(count))):
            return
    except StoreError as exc:
        raise StateCorrupt(
            f"{state.directory}: the exact store cannot be read: {exc.args[-1]}. Restore it from a copy, or "
            "move the directory aside to start from nothing"
        ) from exc
    old = state.filter
    new = build_filter(
        state.directory,
        store,
        roomy(old, count),
        filter_id=old.filter_id,
        identity=with_version(old.identity, version_of(old.identity) + 1),
        created=old.created,
        progress=lambda keys, _: keys,
    )
    state.replace_filter(new)
    state.recovered["filter"] = count
    state.notices.append(
        f"The filter in {state.directory} lacked keys that the exact store has: it was rebuilt from the "
        f"{count:,} keys of the store"
    )


# Seconds that clocks may differ by.
_AHEAD = 60


def _is_due(state: State, options: StateOptions) -> bool:
    """Return whether the state is to be begun anew; one that has to wait for that says so."""
    if options.reset is None:
        return False
    if state.age < -_AHEAD:
        state.notices.append(
            f"{state.directory} was made by a clock that was {shown(-state.age)} ahead of this one: "
            f"BLOOMDUPE_RESET = {shown(options.reset)!r} counts from there. Move it aside to begin sooner"
        )
    if state.age < options.reset:
        return False
    view = pending_of(state)
    if view is None or not view.num_pending:
        return True
    state.notices.append(
        f"{state.directory} was made {shown(state.age)} ago and BLOOMDUPE_RESET is {shown(options.reset)}, "
        f"but {view.num_pending:,} requests are pending in it: it is begun anew by the first run that finds "
        "none. Let this one come to its end"
    )
    return False


def _reset(state: State, lock: DirectoryLock, options: StateOptions) -> State:
    age, directory = state.age, state.directory
    state.release_files(clean=False)
    aside = move_aside(directory)
    state = create(directory, lock, options)
    state.notices.append(
        f"{directory} was made {shown(age)} ago and BLOOMDUPE_RESET is {shown(options.reset or 0)}: it was "
        f"moved to {aside}, and everything is new. What is there can be deleted"
    )
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
