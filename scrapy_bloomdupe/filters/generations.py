"""Was this key possibly seen in the last hours or days? A ring of Bloom filters; the oldest is dropped.

The periodic reset that the literature asks for, without forgetting everything at once. With n generations
a key is remembered for *expire* seconds at the least and *expire* * n / (n - 1) at the most, from the
``add`` on that called it new; that it comes again meanwhile does not make it last longer. Every generation
has the nth part of the error rate, so that all of them together keep what was asked for.

::

    seen.bloom/
        12.bloom      the oldest generation
        13.bloom
        14.bloom      the youngest: what is added goes there
        15.bloom.new  one that is being made, never in force

An end at any moment leaves a whole ring. A time stamp per key is something that only an exact store can have.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import scrapy_bloomdupe.filters.ring as rings
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import FilterError, StateExists, StateNotFound, StateUnusable
from scrapy_bloomdupe.filters.base import FilterInfo
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.filters.ring import Clock, Ring, Window

#: A key is remembered for a third longer than asked for at the most.
DEFAULT_GENERATIONS = 4


class GenerationalFilter:
    """A filter that forgets by the clock; the contract is ``filters.base.Filter``, within the window.

    Made by ``create`` or ``open``. One thread may use it; ``sync`` may be called from another. A clock that
    is put back makes keys last longer, by two turns of a generation at the most, one that is put forward
    shorter.
    """

    def __init__(self, ring: Ring, *, writable: bool) -> None:
        self.on_growth: Callable[[Growth], None] | None = None
        self._growths = 0
        self._ring = ring
        self._path = ring.directory
        self._writable = writable
        self._closed = False
        self._was_clean = all(one.filter.was_clean for one in ring.generations)
        self._arrange()

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        capacity: int,
        error_rate: float,
        expire: float,
        generations: int = DEFAULT_GENERATIONS,
        layout: str = "paged",
        scheme: str = "murmur3",
        filter_id: bytes | None = None,
        identity: Mapping[str, str] | None = None,
        created: int | None = None,
        clock: Clock = time.time,
    ) -> GenerationalFilter:
        """Make a new directory with the first generation.

        Args:
            path: where; nothing may be there.
            capacity: keys that come within *expire*, 1 to 10^13; more make it grow.
            error_rate: false-positive rate that the whole keeps, 1e-12 times *generations* <= error_rate < 1.
            expire: seconds for which a key is remembered at the least, more than 0.
            generations: 2 to 100; more of them end more exactly, and each is asked for every new key.
            layout, scheme, filter_id, identity, created: see ``BloomFilter.create``.
            clock: gives seconds since 1970.

        Raises:
            ConfigurationError: a value is out of its range.
            StateExists, StateUnusable, FilterError: see ``errors``.
        """
        path = Path(path)
        window = Window(expire, generations)
        each = math.ceil(sizing.check_capacity(capacity) / (generations - 1))
        rate = sizing.check_error_rate(error_rate) / generations
        try:
            path.mkdir()
        except FileExistsError as exc:
            raise StateExists(17, f"{path} exists and is not overwritten; move it aside first") from exc
        except OSError as exc:
            raise StateUnusable(exc.errno, f"cannot create {path}: {exc.strerror}") from exc
        try:
            first = rings.make_generation(
                path,
                1,
                window,
                clock(),
                capacity=each,
                error_rate=rate,
                layout=layout,
                scheme=scheme,
                filter_id=filter_id or secrets.token_bytes(16),
                identity=identity or {},
                created=created,
            )
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(Ring(path, window, [first], clock, writable=True), writable=True)

    @classmethod
    def open(
        cls, path: str | Path, *, readonly: bool = False, begin: bool = True, clock: Clock = time.time
    ) -> GenerationalFilter:
        """Open an existing directory; for the arguments see ``BloomFilter.open`` and ``create``.

        Raises:
            StateNotFound, StateUnusable, StateCorrupt, StateMismatch: see ``errors``; it was left as it is.
        """
        path = Path(path)
        if not path.is_dir():
            raise StateNotFound(2, f"there is no filter of generations at {path}")
        window, found = rings.open_generations(path, readonly=readonly)
        self = cls(Ring(path, window, found, clock, writable=not readonly), writable=not readonly)
        if begin and not readonly:
            try:
                self.begin()
            except BaseException:
                self.abandon()
                raise
        return self

    @property
    def path(self) -> Path:
        return self._path

    @property
    def window(self) -> Window:
        return self._ring.window

    @property
    def error(self) -> Exception | None:
        """Why the generation that is due could not be made: the youngest goes on. None: there is none due."""
        return self._ring.error

    @property
    def filter_id(self) -> bytes:
        """16 bytes that this filter shares with what lies beside it."""
        return self._any.filter_id

    @property
    def identity(self) -> Mapping[str, str]:
        """What the keys mean."""
        return rings.own_identity(self._any.identity)

    @property
    def created(self) -> int:
        """When the seen-set was made, in seconds since 1970."""
        return self._any.created

    @property
    def capacity(self) -> int:
        """Keys that may come within *expire* before it grows, rounded up."""
        return self._any.capacity * (self.window.count - 1)

    @property
    def error_rate(self) -> float:
        """Asked rate of the whole, 0 < error_rate < 1."""
        return self._any.error_rate * self.window.count

    @property
    def layout(self) -> str:
        return self._any.layout

    @property
    def scheme(self) -> str:
        return self._any.scheme

    @property
    def num_layers(self) -> int:
        """Layers of all generations: that many are asked for a new key."""
        return sum(one.num_layers for one in self._filters())

    @property
    def num_keys(self) -> int:
        return sum(one.num_keys for one in self._filters())

    @property
    def was_clean(self) -> bool:
        """Whether it was closed in order before it was opened here."""
        return self._was_clean

    def add(self, key: bytes) -> bool:
        if self._ring.pass_time():
            self._arrange()
        for one in self._older:
            if key in one:
                return True
        return self._youngest.add(key)

    def add_many(self, keys: Sequence[bytes]) -> list[bool]:
        answers: list[bool] = []
        growths = self._growths
        for key in keys:
            answers.append(self.add(key))
            if self._growths != growths:
                break
        return answers

    def __contains__(self, key: bytes) -> bool:
        if self._ring.pass_time():
            self._arrange()
        if self._ring.is_over:
            return False
        return key in self._youngest or any(key in one for one in self._older)

    def num_bytes(self) -> int:
        """Return the size of all files in bytes."""
        return sum(one.num_bytes() for one in self._filters())

    def rate(self) -> float:
        """Return the expected false-positive rate of the whole now, 0 to 1."""
        return sizing.combined_error_rate([one.rate() for one in self._filters()])

    def info(self) -> FilterInfo:
        return self.measure(256)

    def measure(self, max_pages: int) -> FilterInfo:
        """Return the figures; see ``BloomFilter.measure``. The layers are those of all generations."""
        found = [one.measure(max_pages) for one in self._filters()]
        return replace(
            self._any.measure(1),
            path=str(self.path),
            capacity=self.capacity,
            error_rate=self.error_rate,
            num_keys=self.num_keys,
            num_bytes=self.num_bytes(),
            clean=self._was_clean,
            error_rate_estimate=sizing.combined_error_rate([info.error_rate_estimate for info in found]),
            layers=tuple(layer for info in found for layer in info.layers),
            identity=self.identity,
        )

    def rename(self, path: Path, *, replace: bool = False) -> None:
        """Give the directory another name; *replace* is refused: two rings are not exchanged in one step.

        Raises:
            StateExists: something is at *path*.
            FilterError: the system refused.
        """
        if replace or path.exists():
            raise StateExists(17, f"{path} exists and is not overwritten; move it aside first")
        try:
            self._path.rename(path)
        except OSError as exc:
            raise FilterError(exc.errno, f"cannot rename {self._path} to {path}: {exc}") from exc
        self._path = self._ring.directory = path
        for one in self._filters():
            one.moved(path)

    def set_identity(self, identity: Mapping[str, str]) -> None:
        """Write what the keys mean into all headers.

        Raises:
            ConfigurationError: it is too long.
            FilterError: it could not be written.
        """
        for one in self._filters():
            times = {name: value for name, value in one.identity.items() if name in rings.MARKS}
            one.set_identity({**identity, **times})

    def set_expire(self, expire: float) -> None:
        """Remember for *expire* seconds what comes from now on, and what is there for the shorter of both.

        It is kept with the next generation, which the next new key begins.

        Raises:
            ConfigurationError: it is no number above 0.
            FilterError: it could not be written; nothing has changed.
        """
        self._ring.retime(replace(self.window, expire=expire))

    def begin(self) -> None:
        """Mark the files as in use, and remove what was left of a generation that was not finished.

        Raises:
            FilterError: a header could not be written.
        """
        rings.discard_unfinished(self.path)
        for one in self._filters():
            one.begin()

    def flush(self) -> None:
        for one in self._filters():
            one.flush()

    def sync(self) -> None:
        """Bring bits and counts to the disk; any thread may call it.

        Raises:
            FilterError: the system could not.
        """
        for one in self._filters():
            try:
                one.sync()
            except FilterError:
                if one in self._filters():  # else it was dropped meanwhile
                    raise

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.ExitStack() as stack:
            for one in self._filters():
                stack.callback(one.close)

    def abandon(self) -> None:
        """Let go of the files without calling them clean."""
        self._closed = True
        for one in self._filters():
            one.abandon()

    @property
    def _any(self) -> BloomFilter:
        return self._ring.youngest.filter

    def _filters(self) -> list[BloomFilter]:
        return [one.filter for one in self._ring.generations]

    def _arrange(self) -> None:
        *older, self._youngest = self._filters()
        self._older = older[::-1]
        for one in older:
            one.on_growth = None
        self._youngest.on_growth = self._grew

    def _grew(self, growth: Growth) -> None:
        self._growths += 1
        if self.on_growth is not None:
            self.on_growth(replace(growth, num_keys=self.num_keys, rate=self.rate()))
