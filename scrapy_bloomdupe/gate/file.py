"""Which file is in force, is it whole, and has another one taken its place? Reads only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scrapy_bloomdupe.errors import BloomdupeError, StateCorrupt, StateMismatch, StateNotFound, StateUnusable
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.gate.header import GateHeader, of_identity
from scrapy_bloomdupe.gate.text import TextStep, normalizer, tables

# Seconds: how long another process takes to write a header that was read half.
_MOMENT = 0.01


@dataclass(frozen=True)
class Opened:
    """A gate's file that was opened.

    Attributes:
        bloom: its filter.
        header: what it says of itself.
        normalize: its steps.
        own_tables: the versions that its steps look up here.
        place: device and number of the file.
    """

    bloom: BloomFilter
    header: GateHeader
    normalize: TextStep
    own_tables: str
    place: tuple[int, int]

    @property
    def created(self) -> int:
        """Seconds since 1970."""
        return self.bloom.created


def open_file(path: Path, *, readonly: bool = True, whole: bool = True) -> Opened:
    """Open a gate's file.

    Args:
        path: the file.
        readonly: leave it as it is.
        whole: look at all of its bits; some 0.1 s for 10^8 keys.

    Raises:
        StateNotFound, StateUnusable: it is not there, or the system refused.
        StateCorrupt: it is torn, cut, has holes, or is not ours.
        StateMismatch: it is no gate, or one that this release does not read.
    """
    try:
        bloom = BloomFilter.open(path, readonly=readonly, begin=False)
    except StateNotFound as exc:
        raise StateNotFound(
            exc.errno, f"there is no gate at {path}; make one with `bloomdupe gate build`"
        ) from exc
    except StateCorrupt as exc:
        # A gate is not made anew from a store.
        found = str(exc).partition("; the file was left as it is")[0]
        raise StateCorrupt(
            f"{found}; it is no gate, or is torn: copy it again, or build it with `bloomdupe gate build`"
        ) from exc
    try:
        header = of_identity(bloom.identity, str(path))
        try:
            normalize = normalizer(header.steps)
        except BloomdupeError as exc:
            raise StateMismatch(f"{path}: {exc}") from exc
        if whole:
            _refuse_holes(path, bloom, header)
        bloom.watch()
    except BaseException:
        bloom.abandon()
        raise
    return Opened(bloom, header, normalize, tables(header.steps), bloom.place())


def _refuse_holes(path: Path, bloom: BloomFilter, header: GateHeader) -> None:
    num_set, holes = bloom.count_bits()
    if holes or num_set < header.bits:
        raise StateCorrupt(
            f"{path}: {num_set:,} bits are set and {holes:,} blocks are empty, at least {header.bits:,} and "
            "none were when it was built: it was not copied whole. Copy it again, or build it again"
        )


class GateFile:
    """The file at *path*, whichever it is by now.

    Args:
        path: where builds put it.
        on_problem: called with what went wrong, once per kind of trouble.
        check_every: seconds between two looks whether the file was replaced.
        clock: seconds; for tests.
    """

    def __init__(
        self,
        path: Path,
        on_problem: Callable[[Exception], None],
        check_every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._name = str(path)
        self.current: Opened | None = None
        self.problem: Exception | None = None
        self._on_problem = on_problem
        self._check_every = check_every
        self.clock = clock
        #: When the next ``refresh`` is due, on the clock.
        self.due = clock()
        self._said: set[str] = set()
        # What was looked at and is not to be looked at again as long as it is the same.
        self._refused: tuple[int, ...] = ()
        # Another thread may still look at it: closed when the next one is replaced.
        self._retired: Opened | None = None

    def refresh(self) -> Opened | None:
        """Return the file in force, after a look at the path if one is due. Never raises."""
        now = self.clock()
        if now >= self.due:
            self.due = now + self._check_every
            self.look()
        return self.current

    def is_there(self, opened: Opened) -> bool:
        """Return whether *opened* is still the file at the path: one call of the system, 2 us."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - a path object takes half as long again
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == opened.place

    def means_otherwise(self, opened: Opened) -> bool:
        """Return whether another process has added keys of another Unicode since *opened* was opened: what it
        lacks proves less than it did."""
        try:
            identity = opened.bloom.changed_identity()
            if identity is None:
                return False
            now = of_identity(identity, self._name)
        except BloomdupeError:
            return True  # being written, or no gate any more
        return (now.tables, now.unassigned) != (opened.header.tables, opened.header.unassigned)

    def renew(self) -> Opened | None:
        """Open the file anew: the one in force has grown, or is no more what it was. Never raises."""
        self._refused = ()
        self._load()
        return self.current

    def close(self) -> None:
        """Let go of all."""
        for opened in (self.current, self._retired):
            if opened is not None:
                opened.bloom.abandon()
        self.current = self._retired = None
        self.due = float("inf")

    def look(self) -> None:
        """Look at the path, and open what is there if it is another file. Never raises."""
        current = self.current
        signature: tuple[int, ...]
        try:
            if current is not None and self.is_there(current):
                self.problem = None
                return
            found = self.path.stat()
            signature = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        except OSError as exc:
            signature = (exc.errno or 0,)
        if signature != self._refused:
            self._refused = signature
            self._load()

    def _load(self) -> None:
        try:
            opened = _patiently(self.path)
        except (BloomdupeError, OSError, ValueError) as exc:
            self.problem = exc
            if isinstance(exc, StateUnusable):
                # The system's trouble, not the file's: it may be over.
                self._refused = ()
            # Not the old one: whoever put another file there may have added to what is valid.
            self._put(None)
            if str(exc) not in self._said:
                self._said.add(str(exc))
                self._on_problem(exc)
            return
        self.problem = None
        self._refused = ()
        self._put(opened)

    def _put(self, opened: Opened | None) -> None:
        retired, self._retired, self.current = self._retired, self.current, opened
        if retired is not None:
            with contextlib.suppress(BloomdupeError, OSError):
                retired.bloom.abandon()


def _patiently(path: Path) -> Opened:
    try:
        return open_file(path)
    except StateCorrupt:
        # A header can be read while another process writes it.
        time.sleep(_MOMENT)
        return open_file(path)
