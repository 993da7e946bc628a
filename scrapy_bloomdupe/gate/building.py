"""How is a gate built, and how is a text added to it? Beside the old one, switched in one step.

Which files there are, and who may write them, is the business of ``switching``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import scrapy_bloomdupe.gate.sharedbuilding as shared
import scrapy_bloomdupe.gate.text as gatetext
from scrapy_bloomdupe.errors import BloomdupeError, ConfigurationError, StateError
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.gate.file import open_file
from scrapy_bloomdupe.gate.filling import (
    DEFAULT_ERROR_RATE,
    BuildReport,
    Filling,
    Row,
    checked_capacity,
    refuse_empty,
    refuse_overfull,
)
from scrapy_bloomdupe.gate.header import GateHeader, of_identity
from scrapy_bloomdupe.gate.switching import beside, building, locked, note_added, read_added, switch
from scrapy_bloomdupe.gate.text import DEFAULT_STEPS, check_steps, is_unassigned, normalizer
from scrapy_bloomdupe.remote.address import is_address


def build_gate(
    path: str | Path,
    rows: Iterable[Row],
    *,
    capacity: int | None = None,
    error_rate: float = DEFAULT_ERROR_RATE,
    steps: Iterable[str] = DEFAULT_STEPS,
    min_length: int = 1,
    columns: Sequence[int] | None = None,
    key: str | None = None,
) -> BuildReport:
    """Build the gate at *path* of all texts that are valid, and put it in force.

    The one that is there stays in force until the new one is whole and on the disk, and is kept as
    ``FILE.old`` (on a server: until the next build). Processes that have it open switch by themselves. An
    end at any moment leaves one of both.

    Args:
        path: the file, or the URL of a Redis or Valkey server.
        rows: texts, or sequences of a text and its synonyms; empty ones do not count.
        capacity: texts that it is made for; with more it grows, at the same error rate. None: those of
            *rows*, which then has to be a sequence, and a fifth more.
        error_rate: share of unknown texts that pass, 1e-12 <= error_rate < 1.
        steps: names of ``text.STEPS``, in any order.
        min_length: characters, 1 and more; shorter texts, after their steps, always pass.
        columns: which of a row to take, from 0; None: all.
        key: its name on a server; None: it is a file.

    Raises:
        ConfigurationError: a value is out of its range, or there is no text in *rows*: the gate would reject
            everything.
        StateLocked: another process builds it.
        StateUnusable, FilterError: the system refused; the old one is in force.
    """
    names = check_steps(steps)
    if is_address(path):
        with shared.patient(str(path)) as server:
            return shared.build_shared_gate(
                server,
                key,
                rows,
                capacity=capacity,
                error_rate=error_rate,
                steps=names,
                min_length=min_length,
                columns=columns,
            )
    if key is not None:
        raise ConfigurationError(f"key={key!r} is for a gate on a server, and {path} is a file")
    # What lies beside it lies beside the file itself, whichever of its names is used.
    path = Path(path).resolve()
    capacity = checked_capacity(rows, capacity, min_length)
    normalize = normalizer(names)
    with building(path):
        before, keys_before = _version_before(path)
        header = GateHeader(names, min_length, before + 1, (gatetext.tables(names),))
        bloom = BloomFilter.create(
            beside(path, ".new"), capacity=capacity, error_rate=error_rate, identity=header.identity()
        )
        try:
            bloom.on_growth = refuse_overfull
            report = BuildReport(path, header.version, keys_before=keys_before)
            filling = Filling(bloom, normalize, min_length)
            report.rows = filling.put_rows(rows, columns)
            refuse_empty(path, report.rows, filling, columns)
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
    path = path.resolve()
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
            bloom.on_growth = refuse_overfull
            if opened.own_tables not in header.tables:
                header = replace(header, tables=(*header.tables, opened.own_tables))
            filling = Filling(bloom, opened.normalize, header.min_length)
            unassigned = sum(1 for text in texts if is_unassigned(opened.normalize(text)))
            header = replace(header, unassigned=header.unassigned + unassigned)
            if header != opened.header:
                # Before the keys: who reads it must know how they were made.
                bloom.set_identity(header.identity())
            filling.put(texts)
            filling.flush()
            # A copy that lacks a part is known by it.
            bloom.set_identity(replace(header, bits=bloom.count_bits()[0]).identity())
            bloom.sync()
            note_added(path, texts)
            bloom.close()
        except BaseException:
            bloom.abandon()
            raise
        return filling.new


def _version_before(path: Path) -> tuple[int, int]:
    """Return the version of the gate at *path* and its number of keys; 0: there is none."""
    try:
        old = BloomFilter.open(path, readonly=True)
    except (BloomdupeError, OSError):
        return 0, 0
    try:
        return of_identity(old.identity, str(path)).version, old.num_keys
    except BloomdupeError:
        return 0, 0
    finally:
        old.abandon()
