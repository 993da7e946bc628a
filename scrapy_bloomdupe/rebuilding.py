"""How is a filter made anew from the exact store, and does a state hold together?

``rebuild`` writes the new filter beside the old one and switches in one step; ``check`` changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scrapy_bloomdupe.assembling import FRONTIER_MARK, environment_name
from scrapy_bloomdupe.building import FilterValues, Progress, build_filter, version_of, with_version
from scrapy_bloomdupe.errors import BloomdupeError, ConfigurationError, StateCorrupt
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counting import open_filter
from scrapy_bloomdupe.frontier.lmdb import FrontierView
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.statefiles import FILTER_NAME, STORE_NAME, environment_path, read_meta
from scrapy_bloomdupe.stores.environment import Environment, verify
from scrapy_bloomdupe.stores.lmdb import LmdbStore


@dataclass(frozen=True)
class FilterPlan:
    """What the new filter shall be like; None: as the old one, or the default if that is not readable.

    Attributes:
        capacity: keys, 1 to 10^13; None: at least twice what the store holds.
        error_rate: 1e-12 <= error_rate < 1.
        layout, scheme: frozen names.
    """

    capacity: int | None = None
    error_rate: float | None = None
    layout: str | None = None
    scheme: str | None = None


def rebuild(directory: Path, plan: FilterPlan, defaults: FilterValues, progress: Progress) -> BloomFilter:
    """Make the filter of a closed state anew from its store, and return it, closed.

    The old filter stays in force until the new one is whole; an end at any moment leaves one of both.

    Raises:
        ConfigurationError: there is no store to build from, or a value is out of its range.
        StateLocked, StateUnusable, StateCorrupt: see ``errors``.
    """
    lock = DirectoryLock(directory)
    try:
        if not (directory / STORE_NAME).exists():
            raise ConfigurationError(
                f"{directory} has no exact store {STORE_NAME}: a filter alone cannot be rebuilt, since "
                "its keys cannot be read back"
            )
        # Before LMDB looks: a torn page can end the process.
        if problems := verify(directory / STORE_NAME):
            raise StateCorrupt(
                f"{directory / STORE_NAME}: {problems[0]}; the file was left as it is. Restore it from a "
                "copy, or move its directory aside to start anew"
            )
        environment = Environment.open(directory / STORE_NAME)
        try:
            return _rebuild(directory, environment, plan, defaults, progress)
        finally:
            environment.close()
    finally:
        lock.release()


def _rebuild(
    directory: Path, environment: Environment, plan: FilterPlan, defaults: FilterValues, progress: Progress
) -> BloomFilter:
    store = LmdbStore(environment)
    filter_id, identity = read_meta(environment)
    old, version, created = _old_values(directory / FILTER_NAME, defaults)
    identity = with_version(identity, 1 + max(version, version_of(identity)))
    # Room for as many again, so that it does not grow with the next key; an asked capacity holds.
    values = FilterValues(
        plan.capacity or max(old.capacity, 2 * store.count()),
        plan.error_rate or old.error_rate,
        plan.layout or old.layout,
        plan.scheme or old.scheme,
    )
    new = build_filter(
        directory, store, values, filter_id=filter_id, identity=identity, created=created, progress=progress
    )
    new.close()
    return new


def _old_values(path: Path, defaults: FilterValues) -> tuple[FilterValues, int, int | None]:
    """Return what the old filter is like, its version, and when it was made."""
    try:
        old = BloomFilter.open(path, readonly=True)
    except BloomdupeError:
        return defaults, 1, None
    try:
        values = FilterValues(old.capacity, old.error_rate, old.layout, old.scheme)
        return values, version_of(old.identity), old.created
    finally:
        old.abandon()


def check(directory: Path, progress: Progress) -> Iterator[str]:
    """Give every problem of a closed state; nothing: it holds together.

    Looks at the header and the size of the filter, every page of the store and the frontier, that all belong
    together, that the filter has every key of the store, and at every pending request. Changes nothing.

    Raises:
        StateLocked, StateUnusable: it could not look.
    """
    lock = DirectoryLock(directory)
    try:
        yield from _check(directory, progress)
    finally:
        lock.release()


def _check(directory: Path, progress: Progress) -> Iterator[str]:
    filter_path, path = directory / FILTER_NAME, environment_path(directory)
    filter: BloomFilter | None = None  # noqa: A001
    try:
        filter = open_filter(filter_path, readonly=True)  # noqa: A001
    except BloomdupeError as exc:
        yield str(exc)
    try:
        if path.exists():
            if problems := verify(path):
                yield from (f"{path}: {problem}" for problem in problems[:10])
            else:
                yield from _check_environment(filter, path, progress)
        elif filter is not None and filter.identity.get("store") == "lmdb":
            yield f"{filter_path} belongs to an exact store {STORE_NAME}, which is not there"
        elif filter is not None and (name := environment_name(filter.identity)) is not None:
            yield f"{filter_path} belongs to a frontier {name}, which is not there"
    finally:
        if filter is not None:
            filter.abandon()


def _check_environment(
    filter: BloomFilter | None,  # noqa: A002
    path: Path,
    progress: Progress,
) -> Iterator[str]:
    environment = Environment.open(path)
    try:
        filter_id, identity = read_meta(environment)
        if filter is not None and filter_id != filter.filter_id:
            what = "store" if path.name == STORE_NAME else "frontier"
            yield f"{filter.path} has the id {filter.filter_id.hex()}, the {what} {filter_id.hex()}"
            return
        if filter is not None and path.name == STORE_NAME:
            yield from _check_keys(filter, LmdbStore(environment), progress)
        if FRONTIER_MARK in identity:
            yield from _check_records(environment)
    except StateCorrupt as exc:
        yield str(exc)
    finally:
        environment.close()


def _check_keys(
    filter: BloomFilter,  # noqa: A002
    store: LmdbStore,
    progress: Progress,
) -> Iterator[str]:
    count = store.count()
    missing = sum(key not in filter for key in progress(store.iter_keys(), count))
    if missing:
        yield (
            f"{filter.path} lacks {missing:,} of the {count:,} keys of the store: their pages would "
            f"be crawled again. Run `bloomdupe rebuild {filter.path.parent}`"
        )


def _check_records(environment: Environment) -> Iterator[str]:
    view = FrontierView(environment)
    for failed, count in ((False, view.num_pending), (True, view.num_failed)):
        damaged = sum(record.damaged for record in view.records(failed=failed))
        if damaged:
            what, option = ("failed", " --failed") if failed else ("pending", "")
            directory = environment.path.parent
            yield (
                f"{environment.path}: {damaged:,} of the {count:,} {what} requests are damaged, and their "
                f"pages would not be crawled; `bloomdupe pending{option} --limit 0 {directory}` shows which. "
                "Restore the file from a copy, or start in an empty directory"
            )
