"""How is a filter that several crawls share made anew from their store, while they go on?

The new version is filled beside the old one, checked, and put in force in one step (``remote.replacing``);
the parts of the old one are put aside, so that every crawl notices at its next question and goes on with the
new one. Then what came between is added.

Why no page is lost: with a shared store the store decides, whatever the filter says of a key. A key that is
the store and not in the new filter is new to the filter and a duplicate all the same; there can be some, of
crawls that asked the old filter just before the switch and the store after the last look at it.

It decides neither when nor with which values, and prints nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError, FilterError, StateMismatch
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.remote.replacing import Replacing
from scrapy_bloomdupe.shared.filling import IMPORTING
from scrapy_bloomdupe.shared.parts import RemoteStore

#: Wraps an iteration over keys of a known number; see ``building.Progress``.
Progress = Callable[[Iterable[bytes], int], Iterable[bytes]]

_BATCH = 2_000
# What a kind of filter takes more than the formula, and what the crawls bring meanwhile.
_MARGIN = 1.5
# One key in so many is looked for in the new filter before it is in force.
_SAMPLED = 100
# Seconds between two times that unfinished parts are told to stay a while longer.
_KEEPING = 60.0


@dataclass(frozen=True)
class VersionPlan:
    """What the new filter shall be like.

    Attributes:
        capacity: keys, 1 to 10^13; None: as the old one, or twice what the store holds if that is more.
        error_rate: 1e-12 <= error_rate < 1, not more than that of the old one; None: the same.
    """

    capacity: int | None = None
    error_rate: float | None = None


@dataclass(frozen=True)
class Rebuilt:
    """What was done.

    Attributes:
        old, new: versions.
        count: keys of the store that were put in before the switch.
        caught_up: those that came between, and were added after it.
        capacity, error_rate: of the new one.
    """

    old: int
    new: int
    count: int
    caught_up: int
    capacity: int
    error_rate: float


def rebuild(
    filter: RemoteFilter,  # noqa: A002
    store: RemoteStore,
    plan: VersionPlan,
    *,
    progress: Progress = lambda keys, _: keys,
    pace: Callable[[float], None] = lambda _: None,
    is_wanted: Callable[[RemoteFilter], bool] = lambda _: True,
) -> Rebuilt | None:
    """Make the next version of *filter*, which then is that.

    Args:
        store: with the keys of all that share the filter.
        pace: called with the seconds that each batch took; waits, or raises to end it.
        is_wanted: asked when nobody else can be at it; False: it is left as it is, and None returned.

    Raises:
        ConfigurationError, StateMismatch: a value is out of its range, or what is there is not whole.
        StateLocked: another process is at it.
        FilterError, RemoteError: it failed; the old version is in force, unless the server was lost in the
            very moment of the switch, or after it.
    """
    with filter.replacing() as work:
        filter.verify()
        for part in (filter, store):
            if set(IMPORTING) & set(part.identity):
                raise StateMismatch(
                    f"{part.path}: an import is under way, or was cut short: part of what had been seen is "
                    "missing; let it end, or run it again"
                )
        if not is_wanted(filter):
            return None
        expected = store.count()
        capacity = plan.capacity or max(filter.capacity, 2 * expected)
        error_rate = plan.error_rate or filter.error_rate
        if error_rate > filter.error_rate:
            raise ConfigurationError(
                f"{filter.path} keeps to error_rate={filter.error_rate:g}, as its crawls asked: a new "
                f"version of it cannot have {error_rate:g}. Take that or less, or another BLOOMDUPE_KEY"
            )
        _refuse_without_room(filter, capacity, error_rate)
        new = filter.begin(work, capacity=capacity, error_rate=error_rate)
        new.on_growth = _refuse_overfull
        count = _fill(new, _batches(progress(store.iter_keys(), expected)), work, pace)
        work.keep()
        new.info()  # all parts are there
        work.switch()
        work.retire(filter.groups(work.old))
        filter.verify()
        caught_up = 0
        for keys in _batches(store.iter_keys()):
            began = time.perf_counter()
            caught_up += filter.add_many(keys).count(False)
            pace(time.perf_counter() - began)
    return Rebuilt(work.old.version, filter.version, count, caught_up, capacity, error_rate)


def _refuse_without_room(filter: RemoteFilter, capacity: int, error_rate: float) -> None:  # noqa: A002
    """Make sure that both versions fit: a full server takes no keys of the crawls, or forgets some.

    Raises:
        FilterError: they do not.
    """
    memory = filter.memory()
    num_bytes = int(_MARGIN * sizing.size_for(capacity, error_rate).num_bits / 8)
    if memory is not None and (trouble := memory.trouble(num_bytes)):
        raise FilterError(28, f"{filter.path}: no room for a new version beside the old one: {trouble}")


def _fill(
    new: RemoteFilter, batches: Iterable[list[bytes]], work: Replacing, pace: Callable[[float], None]
) -> int:
    """Put all in, look whether it is, and return how many keys it was.

    Raises:
        FilterError: it is not.
    """
    count = added = 0
    sample: list[bytes] = []
    kept = time.monotonic()
    for keys in batches:
        began = time.perf_counter()
        added += new.add_many(keys).count(False)
        count += len(keys)
        sample += keys[::_SAMPLED]
        if len(sample) >= _BATCH:
            _check(new, sample)
            sample = []
        if time.monotonic() - kept > _KEEPING:
            work.keep_unfinished()
            kept = time.monotonic()
        pace(time.perf_counter() - began)
    _check(new, sample)
    # A key that was a false positive when it was put in is not counted, nor one that came twice.
    if new.info().num_keys < 0.99 * added - 100:
        raise FilterError(5, f"{new.path}: the new version counts {new.num_keys:,} keys of {added:,}")
    return count


def _refuse_overfull(growth: Growth) -> None:
    if growth.error is not None:
        raise FilterError(28, f"the new version could not grow: {growth.error}")


def _check(new: RemoteFilter, keys: list[bytes]) -> None:
    missing = new.contains_many(keys).count(False)
    if missing:
        raise FilterError(5, f"{new.path}: the new version lacks {missing:,} keys that were put into it")


def _batches(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(keys)
    while batch := list(islice(rest, _BATCH)):
        yield batch
