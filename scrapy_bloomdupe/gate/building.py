"""How is a gate built, and how is a text added to it? Beside the old one, switched in one step.

Which files there are, and who may write them, is the business of ``switching``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import scrapy_bloomdupe.gate.text as gatetext
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import (
    BloomdupeError,
    ConfigurationError,
    FilterError,
    StateError,
)
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.gate.file import open_file
from scrapy_bloomdupe.gate.header import GateHeader, of_identity
from scrapy_bloomdupe.gate.switching import beside, building, locked, note_added, read_added, switch
from scrapy_bloomdupe.gate.text import DEFAULT_STEPS, TextStep, check_steps, digest, is_unassigned, normalizer

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
        path: the file.
        version: its version.
        rows, texts: that were read; a row has one text or more.
        short: texts that are shorter than min_length after their steps, and pass without being in.
        keys: different ones, within the filter's error.
        added_meanwhile: texts that ``add`` was given while the build was under way.
        capacity: keys until it grows.
        num_bytes: size of the file.
    """

    path: Path
    version: int = 0
    rows: int = 0
    texts: int = 0
    short: int = 0
    keys: int = 0
    added_meanwhile: int = 0
    capacity: int = 0
    num_bytes: int = 0


@dataclass
class _Filling:
    """A filter that texts are put into."""

    bloom: BloomFilter
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

    def flush(self) -> None:
        batch = self._batch
        at = 0
        while at < len(batch):
            # The answers end early when the filter grows.
            answers = self.bloom.add_many(batch[at : at + _BATCH])
            self.new += answers.count(False)
            at += len(answers)
        batch.clear()


def build_gate(
    path: str | Path,
    rows: Iterable[Row],
    *,
    capacity: int | None = None,
    error_rate: float = DEFAULT_ERROR_RATE,
    steps: Iterable[str] = DEFAULT_STEPS,
    min_length: int = 1,
    columns: Sequence[int] | None = None,
) -> BuildReport:
    """Build the gate at *path* of all texts that are valid, and put it in force.

    The one that is there stays in force until the new one is whole and on the disk, and is kept as
    ``FILE.old``. Processes that have it open switch by themselves. An end at any moment leaves one of both.

    Args:
        path: the file.
        rows: texts, or sequences of a text and its synonyms; empty ones do not count.
        capacity: texts that it is made for; with more it grows, at the same error rate. None: those of
            *rows*, which then has to be a sequence, and a fifth more.
        error_rate: share of unknown texts that pass, 1e-12 <= error_rate < 1.
        steps: names of ``text.STEPS``, in any order.
        min_length: characters, 1 and more; shorter texts, after their steps, always pass.
        columns: which of a row to take, from 0; None: all.

    Raises:
        ConfigurationError: a value is out of its range.
        StateLocked: another process builds it.
        StateUnusable, FilterError: the system refused; the old one is in force.
    """
    path = Path(path)
    names = check_steps(steps)
    if isinstance(rows, str):
        raise ConfigurationError(f"rows={rows!r:.40} is one text; give a list of texts or rows")
    if min_length < 1:
        raise ConfigurationError(f"min_length={min_length!r} is not a number of characters, 1 or more")
    if capacity is None:
        if not isinstance(rows, Sequence):
            raise ConfigurationError("capacity is missing: these rows can only be counted by reading them")
        capacity = with_room(sum(1 if isinstance(row, str) else len(row) for row in rows))
    sizing.check_capacity(capacity)
    normalize = normalizer(names)
    with building(path):
        header = GateHeader(names, min_length, _next_version(path), (gatetext.tables(names),))
        bloom = BloomFilter.create(
            beside(path, ".new"), capacity=capacity, error_rate=error_rate, identity=header.identity()
        )
        try:
            bloom.on_growth = _refuse_overfull
            report = BuildReport(path, header.version)
            filling = _Filling(bloom, normalize, min_length)
            iterator = iter(rows)
            while some := list(islice(iterator, _BATCH)):
                report.rows += len(some)
                filling.put(_cells(some, columns))
            filling.flush()
            bloom.sync()
            with locked(path):
                texts = read_added(path)
                filling.put(texts)
                filling.flush()
                bits, _ = bloom.count_bits()
                bloom.set_identity(replace(header, unassigned=filling.unassigned, bits=bits).identity())
                bloom.close()
                switch(path)
        except BaseException:
            bloom.abandon()
            beside(path, ".new").unlink(missing_ok=True)
            raise
    report.added_meanwhile = len(texts)
    report.texts, report.short = filling.texts - len(texts), filling.short
    report.keys, report.num_bytes, report.capacity = bloom.num_keys, path.stat().st_size, capacity
    return report


def with_room(count: int) -> int:
    """Return the capacity for *count* texts and a fifth more."""
    return max(1000, int(count * ROOM) + 1)


def add_to_gate(path: Path, texts: Iterable[str]) -> int:
    """Let *texts* pass from now on, in every process that has the gate open, and in a build under way.

    Costs an opening of the file, so it is best done with many at once; they are on the disk at the end.

    Returns:
        How many were new.

    Raises:
        StateError: the gate is not there, or does not open.
        FilterError: the system could not; some may be in.
    """
    texts = [texts] if isinstance(texts, str) else list(texts)
    with locked(path):
        try:
            opened = open_file(path, readonly=False, whole=False)
        except StateError:
            # The first build, or one in the place of a damaged file: nothing else judges until it is done.
            if note_added(path, texts):
                return len(texts)
            raise
        bloom, header = opened.bloom, opened.header
        try:
            bloom.begin()
            bloom.on_growth = _refuse_overfull
            if opened.own_tables not in header.tables:
                header = replace(header, tables=(*header.tables, opened.own_tables))
            filling = _Filling(bloom, opened.normalize, header.min_length)
            unassigned = sum(1 for text in texts if is_unassigned(opened.normalize(text)))
            header = replace(header, unassigned=header.unassigned + unassigned)
            if header != opened.header:
                # Before the keys: who reads it must know how they were made.
                bloom.set_identity(header.identity())
            filling.put(texts)
            filling.flush()
            bloom.sync()
            note_added(path, texts)
            bloom.close()
        except BaseException:
            bloom.abandon()
            raise
        return filling.new


def _cells(rows: Iterable[Row], columns: Sequence[int] | None) -> Iterator[str]:
    for row in rows:
        if isinstance(row, str):
            yield row
        elif columns is None:
            yield from filter(None, row)
        else:
            yield from (row[column] for column in columns if column < len(row) and row[column])


def _refuse_overfull(growth: Growth) -> None:
    if growth.error is not None:
        raise FilterError(28, f"the gate is full and could not grow: {growth.error}; make room on the disk")


def _next_version(path: Path) -> int:
    try:
        old = BloomFilter.open(path, readonly=True)
    except (BloomdupeError, OSError):
        return 1
    try:
        return of_identity(old.identity, str(path)).version + 1
    except BloomdupeError:
        return 1
    finally:
        old.abandon()
