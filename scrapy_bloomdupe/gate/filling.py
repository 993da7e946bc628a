"""How do texts get into a gate's filter, wherever it is? Many at once, and counted.

Not here: which filter, and how it comes into force (``building``, ``sharedbuilding``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError, FilterError
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.gate.text import TextStep, digest, is_unassigned

#: 1.26 bytes per text at capacity. A false pass costs one useless request.
DEFAULT_ERROR_RATE = 0.01
#: Room for texts that are added later, as a multiple of those counted: 10^8 of them then take 151 MB.
ROOM = 1.2
# Texts that are put in at once: enough to forget the cost of a call.
_BATCH = 4096

#: One text, or one and its synonyms.
Row = str | Sequence[str]


@dataclass
class BuildReport:
    """What went into a gate.

    Attributes:
        path: the file, or the server and the gate's name there.
        version: its version.
        rows, texts: that were read; a row has one text or more.
        short: texts that are shorter than min_length after their steps, and pass without being in.
        keys: different ones, within the filter's error.
        keys_before: those of the version before it; 0: there was none, or it cannot be read.
        added_meanwhile: texts that ``add`` was given while the build was under way.
        capacity: keys until it grows.
        num_bytes: size of the filter.
    """

    path: Path | str
    version: int = 0
    rows: int = 0
    texts: int = 0
    short: int = 0
    keys: int = 0
    keys_before: int = 0
    added_meanwhile: int = 0
    capacity: int = 0
    num_bytes: int = 0


class TakesKeys(Protocol):
    """A filter that is filled."""

    def add_many(self, keys: Sequence[bytes]) -> list[bool]: ...


@dataclass
class Filling:
    """A filter that texts are put into."""

    bloom: TakesKeys
    normalize: TextStep
    min_length: int
    unassigned: int = 0
    texts: int = 0
    short: int = 0
    new: int = 0
    _batch: list[bytes] = field(default_factory=list)

    def put(self, texts: Iterable[str]) -> None:
        normalize, append, least = self.normalize, self._batch.append, max(1, self.min_length)
        count = 0
        for count, text in enumerate(texts, 1):  # noqa: B007
            normal = normalize(text)
            if len(normal) < least:
                self.short += 1
                continue
            if not normal.isascii() and is_unassigned(normal):
                self.unassigned += 1
            append(digest(normal))
        self.texts += count
        if len(self._batch) >= _BATCH:
            self.flush()

    def put_rows(self, rows: Iterable[Row], columns: Sequence[int] | None) -> int:
        """Put all texts of *rows* in; return how many rows there were."""
        count = 0
        iterator = iter(rows)
        while some := list(islice(iterator, _BATCH)):
            count += len(some)
            self.put(_cells(some, columns))
        self.flush()
        return count

    def flush(self) -> None:
        batch = self._batch
        at = 0
        while at < len(batch):
            # The answers end early when the filter grows.
            answers = self.bloom.add_many(batch[at : at + _BATCH])
            self.new += answers.count(False)
            at += len(answers)
        batch.clear()


def checked_capacity(rows: Iterable[Row], capacity: int | None, min_length: int) -> int:
    """Return the capacity for *rows*: the given one, or what they need.

    Raises:
        ConfigurationError: a value is out of its range, or *rows* cannot be counted.
    """
    if isinstance(rows, str):
        raise ConfigurationError(f"rows={rows!r:.40} is one text; give a list of texts or rows")
    if min_length < 1:
        raise ConfigurationError(f"min_length={min_length!r} is not a number of characters, 1 or more")
    if capacity is None:
        if not isinstance(rows, Sequence):
            raise ConfigurationError("capacity is missing: these rows can only be counted by reading them")
        capacity = with_room(sum(1 if isinstance(row, str) else len(row) for row in rows))
    return sizing.check_capacity(capacity)


def with_room(count: int) -> int:
    """Return the capacity for *count* texts and a fifth more."""
    return max(1000, int(count * ROOM) + 1)


def _cells(rows: Iterable[Row], columns: Sequence[int] | None) -> Iterator[str]:
    for row in rows:
        if isinstance(row, str):
            yield row
        elif columns is None:
            yield from filter(None, row)
        else:
            yield from (row[column] for column in columns if column < len(row) and row[column])


def refuse_empty(where: Path | str, rows: int, filling: Filling, columns: Sequence[int] | None) -> None:
    """Refuse a gate without a text, which would reject everything: something went wrong before it.

    Raises:
        ConfigurationError: nothing of *rows* rows was put in.
    """
    if filling.texts > filling.short:
        return
    why = (
        f"all {filling.short:,} texts are shorter than min_length={filling.min_length} after their steps"
        if filling.short
        else "there were no rows"
        if not rows
        else f"none of the {rows:,} rows has a text"
        + (f" in the columns {', '.join(str(column + 1) for column in columns)}" if columns else "")
    )
    raise ConfigurationError(
        f"{where} was not built, and what was in force stays in force: {why}, and a gate without texts "
        "rejects everything. Look at the input"
    )


def refuse_overfull(growth: Growth) -> None:
    if growth.error is not None:
        raise FilterError(28, f"the gate is full and could not grow: {growth.error}; make room on the disk")
