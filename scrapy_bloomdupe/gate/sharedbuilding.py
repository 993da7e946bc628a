"""How is a gate on a server built, and how is a text added to it? Beside the old one, switched in one step.

Who may build, and what is in force, is the business of ``alias``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import scrapy_bloomdupe.gate.text as gatetext
import scrapy_bloomdupe.remote.address as addresses
import scrapy_bloomdupe.remote.meta as metas
from scrapy_bloomdupe.errors import BloomdupeError, RemoteEmptied, StateError, StateNotFound
from scrapy_bloomdupe.filters.redis import open_filter
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.gate.alias import Alias, InForce
from scrapy_bloomdupe.gate.filling import (
    BuildReport,
    Filling,
    Row,
    checked_capacity,
    refuse_empty,
    refuse_overfull,
)
from scrapy_bloomdupe.gate.header import GateHeader
from scrapy_bloomdupe.gate.text import is_unassigned, normalizer
from scrapy_bloomdupe.remote.client import Server

# Seconds: who builds or adds waits longer for an answer than a crawl does.
_TIMEOUT = 30.0
_CONNECT_TIMEOUT = 3.0
_SCAN_COUNT = 1000
# How often a build that is put in force under our hands is followed.
_PATIENCE = 5


@contextmanager
def patient(url: str) -> Iterator[Server]:
    """Give the server of *url*, with time to answer.

    Raises:
        ConfigurationError: the URL is wrong, or the package ``redis`` is missing.
    """
    address = addresses.parse(url)
    server = Server(
        replace(
            address,
            timeout=max(address.timeout, _TIMEOUT),
            connect_timeout=max(address.connect_timeout, _CONNECT_TIMEOUT),
        )
    )
    try:
        yield server
    finally:
        server.close()


def open_in_force(alias: Alias, in_force: InForce) -> RemoteFilter:
    """Open the filter that an alias names.

    Raises:
        RemoteEmptied: it is gone, or another one is in its place.
        StateMismatch, StateCorrupt, RemoteError: see ``open_filter``.
    """
    prefix = alias.prefix(in_force.header.version)
    try:
        # What is there already is not made, and none of the figures are asked for: it says them itself.
        described = read_params(alias.server, prefix)
        if described is None or described[2] != in_force.epoch:
            raise alias.emptied()
        capacity, error_rate, _ = described
        found = open_filter(
            alias.server, prefix, capacity=capacity, error_rate=error_rate, create=False, renew=False
        )
    except (StateNotFound, RemoteEmptied) as exc:
        raise alias.emptied() from exc
    if found.filter_id.hex() != in_force.epoch:
        raise alias.emptied()
    return found


def read_params(server: Server, prefix: str) -> tuple[int, float, str] | None:
    """Return capacity, error rate and epoch of the filter under *prefix*; None: there is none, or it was
    never whole.

    Raises:
        RemoteError, StateCorrupt, StateMismatch: see ``meta.read``.
    """
    meta = metas.read(server, f"{prefix}:filter:meta")
    if meta is None or not meta.ready:
        return None
    return int(meta.params["capacity"]), float(meta.params["error_rate"]), meta.epoch.hex()


def build_shared_gate(
    server: Server,
    key: str | None,
    rows: Iterable[Row],
    *,
    capacity: int | None,
    error_rate: float,
    steps: tuple[str, ...],
    min_length: int,
    columns: Sequence[int] | None,
) -> BuildReport:
    """Build the gate called *key*, and put it in force: see ``building.build_gate``.

    The version that was in force before stays until the next build.

    Raises:
        ConfigurationError, StateLocked, RemoteError: see there; the old one is in force, unless the server
            was lost in the very moment of the switch.
    """
    alias = Alias(server, key)
    capacity = checked_capacity(rows, capacity, min_length)
    normalize = normalizer(steps)
    with alias.building() as build:
        raw = alias.read()
        version, keys_before = _version(raw), _num_keys(alias, raw)
        _clear(alias, but=version)
        header = GateHeader(steps, min_length, version + 1, (gatetext.tables(steps),))
        bloom = open_filter(
            server,
            alias.prefix(header.version),
            capacity=capacity,
            error_rate=error_rate,
            identity=header.identity(),
            create=True,
        )
        try:
            bloom.on_growth = refuse_overfull
            filling = Filling(bloom, normalize, min_length)
            count = filling.put_rows(rows, columns)
            refuse_empty(alias.where, count, filling, columns)
            report = BuildReport(
                alias.where, header.version, count, filling.texts, filling.short, keys_before=keys_before
            )
            while True:
                added = build.added()
                filling.put(added)
                filling.flush()
                report.added_meanwhile += len(added)
                bloom.verify()
                info = bloom.info()
                in_force = InForce(replace(header, unassigned=filling.unassigned), bloom.filter_id.hex())
                if build.switch(in_force):
                    break
        except BaseException:
            with suppress(BloomdupeError):
                # An answer may have been lost: it may be in force, or another build have begun.
                if build.holds() and bloom.filter_id.hex().encode() not in (alias.read() or b""):
                    bloom.clear()
            raise
    report.keys, report.num_bytes, report.capacity = info.num_keys, info.num_bytes, capacity
    return report


def add_to_shared_gate(server: Server, key: str | None, texts: Iterable[str]) -> int:
    """Let *texts* pass from now on, for all who ask the gate called *key*, and in a build under way.

    Returns:
        How many were new.

    Raises:
        StateError: the gate is not there, or does not open.
        RemoteError: the server could not; some may be in.
    """
    alias = Alias(server, key)
    texts = [texts] if isinstance(texts, str) else list(texts)
    raw = alias.read()
    for _ in range(_PATIENCE):
        trouble: BloomdupeError | None = None
        try:
            raw, new = _add(alias, raw, texts)
        except (StateError, RemoteEmptied) as exc:
            # The first build, or one in the place of what is damaged: nothing else judges until it is done.
            trouble, new = exc, len(texts)
        found, building = alias.note(texts)
        if found == raw:
            # It went into the version that is in force still, or is taken over by the build.
            if trouble is not None and not building:
                raise trouble
            return new
        raw = found
    raise StateError(f"{alias.where} is built anew faster than it can be added to; try again")


def _add(alias: Alias, raw: bytes | None, texts: Sequence[str]) -> tuple[bytes | None, int]:
    """Put *texts* into the version that *raw* names.

    Returns:
        The alias as it then is, and how many were new; an empty one: somebody else has changed it.
    """
    in_force = alias.unpack(raw)
    header = in_force.header
    normalize = normalizer(header.steps)
    bloom = open_in_force(alias, in_force)
    own_tables = gatetext.tables(header.steps)
    tables = header.tables if own_tables in header.tables else (*header.tables, own_tables)
    unassigned = header.unassigned + sum(1 for text in texts if is_unassigned(normalize(text)))
    changed = replace(in_force, header=replace(header, tables=tables, unassigned=unassigned))
    if raw is not None and changed != in_force:
        # Before the keys: who reads it must know how they were made.
        if not alias.change(raw, changed):
            return b"", 0
        raw = changed.pack()
    bloom.on_growth = refuse_overfull
    filling = Filling(bloom, normalize, header.min_length)
    filling.put(texts)
    filling.flush()
    return raw, filling.new


def _version(raw: bytes | None) -> int:
    """Return the version in force; 0: none that can be read."""
    try:
        # Of another release, too, whose gate is to judge until this one is built.
        return int(json.loads(raw or b"")["identity"]["version"])
    except (ValueError, KeyError, TypeError):
        return 0


def _num_keys(alias: Alias, raw: bytes | None) -> int:
    """Return how many keys the version in force has; 0: there is none, or it cannot be read."""
    try:
        return open_in_force(alias, alias.unpack(raw)).info().num_keys
    except (BloomdupeError, ValueError, KeyError, TypeError):
        return 0


def _clear(alias: Alias, *, but: int) -> None:
    """Remove what former builds have left: the version before the one in force, and halves."""
    start = f"{alias.key}:gate:v"
    pattern = "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in start) + "*"
    kept = f"{alias.prefix(but)}:".encode()
    for name in set(alias.server.scan(pattern, _SCAN_COUNT)):
        if not name.startswith(kept):
            alias.server.run("UNLINK", name, slow=True)
