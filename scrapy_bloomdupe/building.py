"""How is a filter made from the keys of an exact store? Beside the old one, switched in one step.

It decides neither when nor with which values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scrapy_bloomdupe.errors import FilterError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.statefiles import FILTER_NAME, UNFINISHED_NAME, discard_unfinished
from scrapy_bloomdupe.stores.base import Store

#: Wraps an iteration of known length to show how far it is.
Progress = Callable[[Iterable[bytes], int], Iterable[bytes]]


#: In the identity of a filter that was made anew: which one of its state it is.
VERSION_MARK = "version"


def version_of(identity: Mapping[str, str]) -> int:
    """Return which filter of its state it is: 1 for the first."""
    found = identity.get(VERSION_MARK, "1")
    return int(found) if found.isdecimal() else 1


def with_version(identity: Mapping[str, str], version: int) -> dict[str, str]:
    """Return the identity of the filter that has the number *version*."""
    return {**identity, VERSION_MARK: str(version)}


@dataclass(frozen=True)
class FilterValues:
    """What a filter is like: capacity in keys, error_rate, frozen names; see ``BloomFilter.create``."""

    capacity: int
    error_rate: float
    layout: str
    scheme: str


def roomy(old: BloomFilter, count: int) -> FilterValues:
    """Return values as those of *old*, with room for as many keys again as there are."""
    return FilterValues(max(old.capacity, 2 * count), old.error_rate, old.layout, old.scheme)


def build_filter(
    directory: Path,
    store: Store,
    values: FilterValues,
    *,
    filter_id: bytes,
    identity: Mapping[str, str],
    created: int | None,
    progress: Progress,
) -> BloomFilter:
    """Make a filter of all keys of *store*, put it in the place of the old one and return it, open.

    Args:
        created: when the seen-set was made, in seconds since 1970; None: that is not known.

    The old filter stays in force until the new one is whole; an end at any moment leaves one of both.

    Raises:
        ConfigurationError: a value is out of its range.
        StateUnusable, FilterError: the system refused; the old filter is in its place.
    """

    def refuse_overfull(growth: Growth) -> None:
        if growth.error is not None:
            raise FilterError(28, f"the new filter for {directory} could not grow: {growth.error}")

    discard_unfinished(directory)
    new = BloomFilter.create(
        directory / UNFINISHED_NAME,
        capacity=values.capacity,
        error_rate=values.error_rate,
        layout=values.layout,
        scheme=values.scheme,
        filter_id=filter_id,
        identity=identity,
        created=created,
    )
    new.on_growth = refuse_overfull
    try:
        for key in progress(store.iter_keys(), store.count()):
            new.add(key)
        new.flush()
        new.sync()
        new.rename(directory / FILTER_NAME, replace=True)
    except BaseException:
        new.abandon()
        discard_unfinished(directory)
        raise
    new.on_growth = None
    return new
