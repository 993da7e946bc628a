"""Which generations of a filter are there, when does the next one begin, and which are dropped?

A generation takes the keys of a turn of *expire* / (n - 1) seconds, and is dropped *expire* seconds after
its end. Its times stand in the identity of its header: what a clock says later does not change them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scrapy_bloomdupe.errors import BloomdupeError, ConfigurationError, StateCorrupt
from scrapy_bloomdupe.filters.bloom import BloomFilter

SUFFIX = ".bloom"
_UNFINISHED = ".new"
#: In the identity of a generation: seconds since 1970, seconds, and a number.
_BEGAN, _UNTIL, _EXPIRE, _COUNT = MARKS = ("began", "until", "expire", "generations")

# A turn that finds no room is tried again after this share of it.
_PATIENCE = 0.01

Clock = Callable[[], float]


@dataclass(frozen=True)
class Window:
    """How long a key is remembered.

    Attributes:
        expire: seconds at the least, more than 0.
        count: generations, 2 or more.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    expire: float
    count: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.expire) and self.expire > 0):
            raise ConfigurationError(f"expire={self.expire!r} is not a number of seconds above 0")
        if not 2 <= self.count <= 100:
            raise ConfigurationError(f"generations={self.count!r} is not a whole number from 2 to 100")

    @property
    def turn(self) -> float:
        """Seconds after which the next generation begins."""
        return self.expire / (self.count - 1)

    def rounded(self, capacity: int) -> int:
        """Return the capacity of a ring that is asked for *capacity* keys: the same for each generation."""
        return math.ceil(capacity / (self.count - 1)) * (self.count - 1)

    @property
    def longest(self) -> float:
        """Seconds for which a key is remembered at the most."""
        return self.expire + self.turn


@dataclass
class Generation:
    """A filter that takes keys from *began* on and before *until*, in seconds since 1970.

    Attributes:
        expire: seconds for which they are remembered after that, at the most.
    """

    number: int
    filter: BloomFilter
    began: float
    until: float
    expire: float


class Ring:
    """The generations of a filter in *directory*, oldest first. One thread may use it.

    Attributes:
        generations: one at the least.
        is_over: all that they hold has expired, and nothing new can be added.
        error: why the last turn could not be made; the youngest generation goes on. None: it could.
    """

    def __init__(
        self,
        directory: Path,
        window: Window,
        generations: list[Generation],
        clock: Clock,
        *,
        writable: bool,
    ) -> None:
        self.directory = directory
        self.window = window
        self.generations = generations
        self.is_over = False
        self.error: Exception | None = None
        self._clock = clock
        self._writable = writable
        # Nothing is to be done from the one to the other.
        self._looked, self._due = math.inf, -math.inf

    @property
    def youngest(self) -> Generation:
        return self.generations[-1]

    def pass_time(self) -> bool:
        """Begin and drop what is due; return whether there are other generations now."""
        now = self._clock()
        if self._looked <= now < self._due:
            return False
        self._looked = now
        if max(generation.until for generation in self.generations) > now + 2 * self.window.turn:
            self._set_back(now)
        before = [generation.number for generation in self.generations]
        if self._writable and now >= self.youngest.until:
            self._begin_next(now)
        for generation in self.generations[:-1]:
            if self._end(generation) <= now:
                self.generations.remove(generation)
                self._drop(generation)
        self.is_over = self._end(self.youngest) <= now
        ends = [self._end(generation) for generation in self.generations]
        self._due = min(*ends, self.youngest.until if self._writable else math.inf)
        return before != [generation.number for generation in self.generations]

    def retime(self, window: Window) -> None:
        """Remember for another time what comes from now on, and what is there for the shorter of both.

        Raises:
            FilterError: it could not be written; nothing has changed.
        """
        youngest, now = self.youngest, self._clock()
        if now < youngest.until:
            youngest.filter.set_identity({**youngest.filter.identity, _UNTIL: repr(now)})
            youngest.until = now
        self.window, self._due = window, -math.inf

    def _set_back(self, now: float) -> None:
        """The clock was ahead when the youngest generations began, years maybe: they are set back by as much
        as is sure, so that what they hold lasts as long as it should, and at the most a turn longer."""
        latest = now + self.window.turn
        ahead = [generation for generation in self.generations if generation.until > latest]
        back = max(generation.until for generation in ahead) - latest
        for generation in ahead:
            generation.until -= back
            if self._writable:
                one = generation.filter
                with contextlib.suppress(BloomdupeError):
                    one.set_identity({**one.identity, _UNTIL: repr(generation.until)})

    def _begin_next(self, now: float) -> None:
        youngest = self.youngest
        old = youngest.filter
        try:
            self.generations.append(
                make_generation(
                    self.directory,
                    youngest.number + 1,
                    self.window,
                    now,
                    capacity=old.capacity,
                    error_rate=old.error_rate,
                    layout=old.layout,
                    scheme=old.scheme,
                    filter_id=old.filter_id,
                    identity=own_identity(old.identity),
                    created=old.created,
                )
            )
            self.error = None
        except (BloomdupeError, OSError) as exc:
            self.error = exc
            # It takes what comes, and is kept for as much longer.
            youngest.until = now + _PATIENCE * self.window.turn
            with contextlib.suppress(BloomdupeError):
                old.set_identity({**old.identity, _UNTIL: repr(youngest.until)})

    def _end(self, generation: Generation) -> float:
        return generation.until + min(generation.expire, self.window.expire)

    def _drop(self, generation: Generation) -> None:
        generation.filter.abandon()
        if self._writable:
            with contextlib.suppress(OSError):
                generation.filter.path.unlink()


def make_generation(
    directory: Path,
    number: int,
    window: Window,
    now: float,
    *,
    capacity: int,
    error_rate: float,
    layout: str,
    scheme: str,
    filter_id: bytes,
    identity: Mapping[str, str],
    created: int | None = None,
) -> Generation:
    """Make an empty generation that begins *now*; see ``BloomFilter.create``.

    Raises:
        ConfigurationError, StateUnusable, FilterError: it could not be made; there is nothing of it.
    """
    path = directory / f"{number}{SUFFIX}"
    unfinished = path.with_name(path.name + _UNFINISHED)
    until = now + window.turn
    times = (repr(now), repr(until), repr(window.expire), str(window.count))
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    made = BloomFilter.create(
        unfinished,
        capacity=capacity,
        error_rate=error_rate,
        layout=layout,
        scheme=scheme,
        filter_id=filter_id,
        identity={**identity, **dict(zip(MARKS, times, strict=True))},
        created=created,
    )
    try:
        # Nobody could tell a new file whose header a power loss has taken from a torn one.
        made.sync()
        made.rename(path)
    except BaseException:
        made.abandon()
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    return Generation(number, made, now, until, window.expire)


def open_generations(directory: Path, *, readonly: bool) -> tuple[Window, list[Generation]]:
    """Open all generations in *directory*; nothing is written.

    Raises:
        StateNotFound, StateUnusable, StateCorrupt, StateMismatch: see ``BloomFilter.open``.
    """
    found: list[Generation] = []
    windows: list[Window] = []
    try:
        for number, path in files_of(directory):
            one = BloomFilter.open(path, readonly=readonly, begin=False)
            found.append(Generation(number, one, 0.0, 0.0, 0.0))
            windows.append(_read_times(found[-1]))
        kinds = {(one.filter.filter_id, window.count) for one, window in zip(found, windows, strict=True)}
        if len(kinds) != 1:
            raise StateCorrupt(
                f"{directory} holds {len(found)} generations of {len(kinds)} kinds, there have to be one "
                "or more of one kind: files were taken away or mixed. Put the right files back, or move the "
                "directory aside to start anew. Nothing was changed"
            )
    except BaseException:
        for generation in found:
            generation.filter.abandon()
        raise
    # What a younger one says is what was asked for last.
    return windows[-1], found


def files_of(directory: Path) -> list[tuple[int, Path]]:
    """Return number and path of every generation in *directory*, oldest first."""
    paths = (path for path in directory.iterdir() if path.suffix == SUFFIX and path.stem.isdecimal())
    return sorted((int(path.stem), path) for path in paths)


def discard_unfinished(directory: Path) -> None:
    """Remove what a process that was making a generation has left."""
    for path in directory.glob(f"*{SUFFIX}{_UNFINISHED}"):
        with contextlib.suppress(OSError):
            path.unlink()


def own_identity(identity: Mapping[str, str]) -> dict[str, str]:
    """Return an identity without the times of its generation."""
    return {name: value for name, value in identity.items() if name not in MARKS}


def _read_times(generation: Generation) -> Window:
    identity = generation.filter.identity
    try:
        generation.began, generation.until = float(identity[_BEGAN]), float(identity[_UNTIL])
        window = Window(float(identity[_EXPIRE]), int(identity[_COUNT]))
        generation.expire = window.expire
        return window
    except (KeyError, ValueError) as exc:
        raise StateCorrupt(
            f"{generation.filter.path} does not say when it began and for how long it counts ({exc}); the "
            "file was left as it is. Restore it from a copy, or move its directory aside to start anew"
        ) from exc
