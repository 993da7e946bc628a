"""How is a filter made anew from the exact store, and does a state hold together?

``rebuild`` writes the new filter beside the old one and switches in one step; ``check`` changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scrapy_bloomdupe.errors import BloomdupeError, ConfigurationError, FilterError, StateCorrupt
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.lock import DirectoryLock
from scrapy_bloomdupe.statefiles import FILTER_NAME, STORE_NAME, UNFINISHED_NAME, read_meta
from scrapy_bloomdupe.stores.environment import Environment, verify
from scrapy_bloomdupe.stores.lmdb import LmdbStore

#: Wraps an iteration of known length to show how far it is.
Progress = Callable[[Iterable[bytes], int], Iterable[bytes]]


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


@dataclass(frozen=True)
class Defaults:
    """Values for what neither the plan nor the old filter says."""

    capacity: int
    error_rate: float
    layout: str
    scheme: str


def rebuild(directory: Path, plan: FilterPlan, defaults: Defaults, progress: Progress) -> BloomFilter:
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
    directory: Path, environment: Environment, plan: FilterPlan, defaults: Defaults, progress: Progress
) -> BloomFilter:
    store = LmdbStore(environment)
    filter_id, identity = read_meta(environment)
    old = _old_values(directory / FILTER_NAME, defaults)
    unfinished = directory / UNFINISHED_NAME
    unfinished.unlink(missing_ok=True)
    count = store.count()
    # Room for as many again, so that it does not grow with the next key; an asked capacity holds.
    capacity = plan.capacity or max(old.capacity, 2 * count)
    new = BloomFilter.create(
        unfinished,
        capacity=capacity,
        error_rate=plan.error_rate or old.error_rate,
        layout=plan.layout or old.layout,
        scheme=plan.scheme or old.scheme,
        filter_id=filter_id,
        identity=identity,
    )

    def refuse_overfull(growth: Growth) -> None:
        if growth.error is not None:
            raise FilterError(28, f"the new filter for {directory} could not grow: {growth.error}")

    new.on_growth = refuse_overfull
    try:
        for key in progress(store.iter_keys(), count):
            new.add(key)
        new.flush()
        new.sync()
        new.rename(directory / FILTER_NAME, replace=True)
    except BaseException:
        new.abandon()
        unfinished.unlink(missing_ok=True)
        raise
    new.close()
    return new


def _old_values(path: Path, defaults: Defaults) -> Defaults:
    try:
        old = BloomFilter.open(path, readonly=True)
    except BloomdupeError:
        return defaults
    try:
        return Defaults(old.capacity, old.error_rate, old.layout, old.scheme)
    finally:
        old.abandon()


def check(directory: Path, progress: Progress) -> Iterator[str]:
    """Give every problem of a closed state; nothing: it holds together.

    Looks at the header and the size of the filter, every page of the store, that both belong together,
    and that the filter has every key of the store. Changes nothing.

    Raises:
        StateLocked, StateUnusable: it could not look.
    """
    lock = DirectoryLock(directory)
    try:
        yield from _check(directory, progress)
    finally:
        lock.release()


def _check(directory: Path, progress: Progress) -> Iterator[str]:
    filter_path, store_path = directory / FILTER_NAME, directory / STORE_NAME
    filter: BloomFilter | None = None  # noqa: A001
    try:
        filter = BloomFilter.open(filter_path, readonly=True)  # noqa: A001
    except BloomdupeError as exc:
        yield str(exc)
    try:
        if store_path.exists():
            if problems := verify(store_path):
                yield from (f"{store_path}: {problem}" for problem in problems[:10])
            elif filter is not None:
                yield from _check_keys(filter, store_path, progress)
        elif filter is not None and filter.identity.get("store") == "lmdb":
            yield f"{filter_path} belongs to an exact store {STORE_NAME}, which is not there"
    finally:
        if filter is not None:
            filter.abandon()


def _check_keys(
    filter: BloomFilter,  # noqa: A002
    store_path: Path,
    progress: Progress,
) -> Iterator[str]:
    environment = Environment.open(store_path)
    try:
        store = LmdbStore(environment)
        filter_id, _ = read_meta(environment)
        if filter_id != filter.filter_id:
            yield f"{filter.path} has the id {filter.filter_id.hex()}, the store {filter_id.hex()}"
            return
        count = store.count()
        missing = sum(key not in filter for key in progress(store.iter_keys(), count))
        if missing:
            yield (
                f"{filter.path} lacks {missing:,} of the {count:,} keys of the store: their pages would "
                f"be crawled again. Run `bloomdupe rebuild {store_path.parent}`"
            )
    except StateCorrupt as exc:
        yield str(exc)
    finally:
        environment.close()
