"""How is a closed state made to forget some of its keys? By the keys themselves, or by host and rule.

The exact store decides what is new, so its keys are deleted; the filter's bits stay, and the store then
proves the key new. Without one a counting filter takes a key out again, by the key only. It changes nothing
else, and makes no keys of URLs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from scrapy_bloomdupe.assembling import assemble, pending_of
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.counting import CountingFilter
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.stamps import host_of, tag, tags_of
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.lmdb import LmdbStore

#: Wraps an iteration of known length to show how far it is.
Progress = Callable[[Iterable[Any], int], Iterable[Any]]

# Keys per commit, so that neither memory nor a transaction grows with what is forgotten.
_GROUP = 10_000


@dataclass(frozen=True)
class Selection:
    """What is to be forgotten: *keys*, or else every key that is of one of the hosts and one of the rules.
    Nothing given: none.

    Attributes:
        keys: as the store has them.
        hosts, rules: names; empty: of any. A few keys with another name can have the same tag, see
            ``stamps``.
    """

    keys: frozenset[bytes] = frozenset()
    hosts: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    def by_tags(self) -> Callable[[bytes], bool]:
        """Return what tells by its value whether a key is of the hosts and the rules."""
        hosts = {tag(host_of(host if "://" in host else f"http://{host}")) for host in self.hosts}
        rules = {tag(rule) for rule in self.rules}

        def matches(value: bytes) -> bool:
            host, rule = tags_of(value)
            return (not hosts or host in hosts) and (not rules or rule in rules)

        return matches


@dataclass
class Forgotten:
    """What was done.

    Attributes:
        keys: forgotten.
        pending: not forgotten, since their request is pending: the next run asks it as it is.
        unknown: of *keys* of the selection: those that were not there.
        untold: of a selection by host: keys that an older release, or an import, wrote without one.
        stuck: that counters could not tell from others: they stay seen.
    """

    keys: int = 0
    pending: int = 0
    unknown: int = 0
    untold: int = 0
    stuck: int = 0


def forget(directory: Path, selection: Selection, progress: Progress, *, dry_run: bool = False) -> Forgotten:
    """Forget the keys of *selection*; they are on the disk when this returns.

    Cut short, some are forgotten and the others are not; it can be done again.

    Args:
        directory: of a closed state.
        dry_run: only count.

    Raises:
        ConfigurationError: there is neither an exact store nor a counting filter, or that is to forget by
            host or rule. Nothing was changed.
        StateNotFound, StateLocked, StateUnusable, StateCorrupt: see ``errors``. Nothing was changed.
        StoreError: it could not be written.
    """
    lock = DirectoryLock(directory)
    left: list[Path] | None = None
    try:
        state = assemble(directory, lock)
        was_counted = False
        try:
            path = state.environment.path if state.environment is not None else None
            whole = path is not None and lock.is_as_left(path)
            if isinstance(state.store, LmdbStore):
                done = _forget(state, state.store, selection, progress, dry_run=dry_run)
            elif isinstance(state.filter, CountingFilter):
                done = _forget_counted(state, selection, progress, dry_run=dry_run)
                was_counted = not dry_run
            else:
                raise ConfigurationError(
                    f"{directory} has no exact store (BLOOMDUPE_STORE = None): a Bloom filter cannot forget "
                    "a key without losing others. Start anew with the default BLOOMDUPE_STORE = 'lmdb' (or "
                    "with BLOOMDUPE_FILTER = 'counting') in an empty directory, or move this one aside to "
                    "crawl everything again. Nothing was changed"
                )
            left = [path] if whole and path is not None else None
        finally:
            # The filter of a store was only looked at.
            state.release_files(clean=was_counted and state.was_clean)
    finally:
        lock.release(left=left)
    return done


def _forget(
    state: State, store: LmdbStore, selection: Selection, progress: Progress, *, dry_run: bool
) -> Forgotten:
    done = Forgotten()
    pending = _pending(state, store, selection)
    for key in _chosen(store, selection, progress, done):
        if key in pending:
            done.pending += 1
            continue
        done.keys += 1
        if not dry_run:
            if done.keys == 1:
                # First: whoever is cut short forgets too few.
                _ask_starts_again(state)
            store.remove(key)
            if done.keys % _GROUP == 0:
                store.flush()
    if done.keys and not dry_run:
        store.flush()
        store.environment.sync()
    return done


def _forget_counted(state: State, selection: Selection, progress: Progress, *, dry_run: bool) -> Forgotten:
    if selection.hosts or selection.rules:
        raise ConfigurationError(
            f"{state.directory} has no exact store (BLOOMDUPE_STORE = None), and counters do not know the "
            "host or the rule of a page: give URLs or --keys. Nothing was changed"
        )
    done = Forgotten()
    pending = _pending(state, None, selection)
    if not dry_run:
        state.filter.begin()
        _ask_starts_again(state)
    for key in progress(sorted(selection.keys), len(selection.keys)):
        if key not in state.filter:
            done.unknown += 1
        elif key in pending:
            done.pending += 1
        elif dry_run or state.seen.forget(key):
            done.keys += 1
        else:
            done.stuck += 1
    if not dry_run:
        state.flush()
        state.sync()
    return done


def _chosen(store: LmdbStore, selection: Selection, progress: Progress, done: Forgotten) -> Iterator[bytes]:
    if selection.keys:
        for key in progress(sorted(selection.keys), len(selection.keys)):
            if key in store:
                yield key
            else:
                done.unknown += 1
        return
    if not selection.hosts and not selection.rules:
        return
    matches = selection.by_tags()
    for key, value in progress(store.iter_items(), store.count()):
        if matches(value):
            yield key
        elif selection.hosts and not tags_of(value)[0]:
            done.untold += 1


def _pending(state: State, store: LmdbStore | None, selection: Selection) -> set[bytes]:
    """Return the keys of requests that are pending, or failed and kept, and are selected."""
    view = pending_of(state)
    if view is None:
        return set()
    records = chain(view.records(), view.records(failed=True))
    keys = (record.key for record in records if record.key is not None)
    if store is None or selection.keys:
        return {key for key in keys if key in selection.keys}
    matches = selection.by_tags()
    return {key for key in keys if (value := store.get(key)) is not None and matches(value)}


def _ask_starts_again(state: State) -> None:
    """After a run that was killed the next one does not ask the start requests that it had asked. One of them
    may have been forgotten."""
    view = pending_of(state)
    if view is not None and not view.in_order and state.environment is not None:
        starts = state.environment.database(b"starts", create=False)
        state.environment.write(lambda txn: txn.drop(starts, delete=False))
