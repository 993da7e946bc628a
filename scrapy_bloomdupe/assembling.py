"""Of which parts is a state made, and do the parts that are there belong together?

``create`` makes them, ``assemble`` opens them; whether the keys mean what they should is ``opening``'s
question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from scrapy_bloomdupe.auditing import AUDIT_MARK, Audit
from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counting import class_for
from scrapy_bloomdupe.filters.generations import GenerationalFilter
from scrapy_bloomdupe.filters.kinds import LocalFilter, open_local
from scrapy_bloomdupe.identity import SHARED_MARK, StateOptions
from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.records import JournalView, Seal, read_seal
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.statefiles import (
    FILTER_NAME,
    JOURNAL_NAME,
    STORE_NAME,
    UNFINISHED_NAME,
    holds_keys,
    holds_requests,
    read_meta,
    remove_filter,
    write_meta,
    write_rules_file,
)
from scrapy_bloomdupe.stores.base import Store
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore
from scrapy_bloomdupe.stores.memory import MemoryStore

#: In the identity of a filter: its state has a journal, and where.
JOURNAL_MARK = "journal"

# Bytes. The walk over all pages takes about a second per 5 MB: after the death of a process, which tears
# nothing, and after a file was copied or exchanged, only so much is walked.
_WALKED_AFTER_KILL = 4_000_000
_WALKED_AFTER_CHANGE = 100_000_000
# A crawl looks twice, before and after Scrapy opens its own queue. By path: the time of change.
_walked: dict[Path, int] = {}


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
    if (directory / JOURNAL_NAME).exists() and holds_requests(directory / JOURNAL_NAME):
        raise StateCorrupt(
            f"{directory} holds a journal of pending requests but no filter {FILTER_NAME}: what was seen is "
            f"not known any more. Put the filter back, or move {directory} and Scrapy's own queue aside to "
            "start anew. Nothing was changed"
        )
    return True


def create(directory: Path, lock: DirectoryLock, options: StateOptions) -> State:
    """Make a state; what an earlier creation that was cut short has left is used.

    Raises:
        StateUnusable, ConfigurationError: see ``errors``.
    """
    unfinished = directory / UNFINISHED_NAME
    remove_filter(unfinished)
    environment: Environment | None = None
    store: Store | None = MemoryStore() if options.store == "memory" else None
    where = _journal_name(options.store) if options.journal else None
    identity = {**options.identity, "store": options.store or "none"}
    if options.audit:
        identity[AUDIT_MARK] = repr(options.audit)
    if where is not None:
        identity[JOURNAL_MARK] = where
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
            journal: Journal | None = None
            audit: Audit | None = None
            if environment is not None:
                if options.store == "lmdb":
                    store = _store(environment, create=True, journal=bool(options.journal))
                journal = Journal(environment) if options.journal else None
                audit = _audit(environment, filter, new=True)
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
    state = State(directory, lock, filter, store, environment, options.clock, audit)
    if journal is not None and environment is not None:
        state.attach(journal, environment)
    state.is_new = True
    return state


def assemble(
    directory: Path,
    lock: DirectoryLock,
    *,
    journal: bool | None = None,
    sync: bool = False,
    clock: Callable[[], float] = time.time,
) -> State:
    """Open the parts that are there; nothing is written.

    Args:
        sync: see ``Environment.open``.
        clock: see ``State``.
        journal: whether ``attach_journal`` will be called.

    Raises:
        StateUnusable, StateCorrupt: see ``errors``.
    """
    filter = open_local(directory / FILTER_NAME, begin=False, clock=clock)  # noqa: A001
    environment: Environment | None = None
    store: Store | None = None
    audit: Audit | None = None
    try:
        name = environment_name(filter.identity)
        if name is not None:
            environment = _open_environment(directory / name, filter, lock, sync=sync)
            if name == STORE_NAME:
                store = _store(environment, journal=bool(journal))
            audit = _audit(environment, filter)
    except BaseException:
        filter.abandon()
        if environment is not None:
            environment.close()
        raise
    lock.looked_at()
    return State(directory, lock, filter, store, environment, clock, audit)


def pending_of(state: State) -> JournalView | None:
    """Return what waits in the journal of a state that ``assemble`` gave; None: it has no journal.

    Raises:
        StateCorrupt, StoreError: it cannot be read.
    """
    if JOURNAL_MARK not in state.filter.identity or state.environment is None:
        return None
    return JournalView(state.environment)


def last_seal(directory: Path, lock: DirectoryLock) -> tuple[bool, Seal | None]:
    """Return whether the state in *directory* has a journal, and what its last run left; changes nothing.

    Raises:
        StateUnusable, StateCorrupt: see ``errors``.
    """
    if is_absent(directory):
        return False, None
    state = assemble(directory, lock)
    try:
        if JOURNAL_MARK not in state.filter.identity or state.environment is None:
            return False, None
        return True, read_seal(state.environment)
    finally:
        state.release_files(clean=False)


def attach_journal(state: State, *, wanted: bool, sync: bool = False) -> None:
    """Open or make the journal of a state, or make sure that it is not needed.

    Raises:
        StateCorrupt, StoreError: it cannot be read or made.
        ConfigurationError: it is not wanted, and pending requests would be left behind.
    """
    where = _journal_name(state.filter.identity.get("store"))
    has_one = JOURNAL_MARK in state.filter.identity
    if wanted:
        environment = state.environment or _create_journal(state.directory, state.filter, sync=sync)
        try:
            state.attach(Journal(environment), environment)
        except BaseException:
            environment.close()
            raise
        if not has_one:
            state.set_identity({**state.filter.identity, JOURNAL_MARK: where})
    elif has_one and state.environment is not None:
        if pending := len(Journal(state.environment)):
            raise ConfigurationError(
                f"BLOOMDUPE_JOURNAL is off, and the journal in {state.directory} holds {pending:,} pending "
                "requests that are marked as seen: their pages would be lost. Leave it on until the job is "
                "finished, or move the directory aside to start anew"
            )
        identity = {name: value for name, value in state.filter.identity.items() if name != JOURNAL_MARK}
        state.set_identity(identity)


def environment_name(identity: Mapping[str, str]) -> str | None:
    """Return the name of the LMDB file of a state, None: it has none."""
    if identity.get("store") == "lmdb":
        return STORE_NAME
    # One file for both: a journal can come and go, the audit stays.
    return identity.get(JOURNAL_MARK, JOURNAL_NAME if AUDIT_MARK in identity else None)


def _audit(
    environment: Environment,
    filter: LocalFilter,  # noqa: A002
    *,
    new: bool = False,
) -> Audit | None:
    share = filter.identity.get(AUDIT_MARK)
    if share is None:
        return None
    assert isinstance(filter, BloomFilter)  # of generations none is audited
    return Audit(environment, filter.secret, float(share), new=new)


def _new_filter(path: Path, options: StateOptions, identity: Mapping[str, str]) -> LocalFilter:
    created = int(options.clock())
    if options.expire is not None:
        return GenerationalFilter.create(
            path,
            capacity=options.capacity,
            error_rate=options.error_rate,
            expire=options.expire,
            layout=options.layout,
            scheme=options.scheme,
            identity=identity,
            created=created,
            clock=options.clock,
        )
    return class_for(options.layout).create(
        path,
        capacity=options.capacity,
        error_rate=options.error_rate,
        layout=options.layout,
        scheme=options.scheme,
        identity=identity,
        created=created,
    )


def _store(environment: Environment, *, create: bool = False, journal: bool) -> LmdbStore:
    # With a journal a mark is written with its request, so nothing is written before both are there.
    if journal:
        return LmdbStore(environment, create=create, group_size=None)
    return LmdbStore(environment, create=create)


def _journal_name(store: str | None) -> str:
    return STORE_NAME if store == "lmdb" else JOURNAL_NAME


def _open_environment(
    path: Path,
    filter: LocalFilter,  # noqa: A002
    lock: DirectoryLock,
    *,
    sync: bool,
) -> Environment:
    directory = path.parent
    what = "an exact store" if path.name == STORE_NAME else "a journal of pending requests"
    if path.name != STORE_NAME and JOURNAL_MARK not in filter.identity:
        what = "an audit"
    if not path.exists():
        raise StateCorrupt(
            f"{filter.path} belongs to {what} {path.name}, which is not there; put it back, or move "
            f"{directory} aside (and Scrapy's own queue beside it) to start anew. Nothing was changed"
        )
    changed = path.stat().st_mtime_ns
    walk = _is_suspect(path, filter, lock) and _walked.get(path) != changed
    environment = Environment.open(path, walk=walk, sync=sync)
    try:
        if walk:
            _walked[path] = changed
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
    return environment


def _is_suspect(path: Path, filter: LocalFilter, lock: DirectoryLock) -> bool:  # noqa: A002
    """Return whether something other than a crawl may have changed the file since the last commit.

    LMDB keeps no checksums, and a torn page can end the process that reads it.
    """
    size = path.stat().st_size
    if filter.was_clean:
        return not lock.is_as_left(path) and size <= _WALKED_AFTER_CHANGE
    # The death of a process tears nothing, that of the machine can.
    return not lock.same_boot or size <= _WALKED_AFTER_KILL


def _create_journal(directory: Path, filter: LocalFilter, *, sync: bool) -> Environment:  # noqa: A002
    path = directory / JOURNAL_NAME
    fresh = not path.exists() or path.stat().st_size == 0
    environment = Environment.create(path, sync=sync) if fresh else Environment.open(path, sync=sync)
    try:
        write_meta(environment, filter.filter_id, filter.identity)
    except BaseException:
        environment.close()
        raise
    return environment
