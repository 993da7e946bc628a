"""What does the version of a gate that is in force on a server say of some texts? In one round trip.

The alias is looked at in the same one, after the filter: a no holds only if the version that said it is in
force still. It fails open: while the server is away, or has no whole gate, nothing is rejected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scrapy_bloomdupe.errors import (
    BloomdupeError,
    CircuitOpen,
    RemoteEmptied,
    RemoteUnavailable,
    StateMismatch,
)
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.gate.alias import Alias
from scrapy_bloomdupe.gate.header import GateHeader
from scrapy_bloomdupe.gate.sharedbuilding import open_in_force
from scrapy_bloomdupe.gate.text import TextStep, digest, normalizer, tables
from scrapy_bloomdupe.remote.client import Server, connect

# Keys in one question: some milliseconds of the server, in which it answers nobody else.
_AT_ONCE = 1_000
# How often a gate that changes under our hands is opened anew for one answer.
_PATIENCE = 3


@dataclass(frozen=True)
class Shared:
    """A version that was opened.

    Attributes:
        raw: the alias that named it.
        bloom: its filter.
        header: what it says of itself.
        normalize: its steps.
        own_tables: the versions that its steps look up here.
    """

    raw: bytes
    bloom: RemoteFilter
    header: GateHeader
    normalize: TextStep
    own_tables: str

    @property
    def created(self) -> int:
        """Seconds since 1970."""
        return self.bloom.created


@dataclass(frozen=True)
class Judged:
    """What is known of a text.

    Attributes:
        normal: the text after its steps.
        seen: whether it is possibly in; None: too short to be asked for.
    """

    text: str
    normal: str
    seen: bool | None


class SharedGate:
    """The gate called *key* on the server of *url*, whichever version it is by now. Threads may share it.

    Args:
        url: of the server, see ``remote.address``.
        key: its name there.
        on_problem: called with what went wrong, once per kind of trouble.
        check_every: seconds between two looks whether there is a gate, while there is none.
        clock: seconds; for tests.

    Raises:
        ConfigurationError: the URL or the name is wrong, or the package ``redis`` is missing.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        on_problem: Callable[[Exception], None],
        check_every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server: Server = connect(url)
        self.alias = Alias(self.server, key)
        self.url = url
        self.current: Shared | None = None
        self.problem: Exception | None = None
        self._on_problem = on_problem
        self._check_every = check_every
        self._clock = clock
        self._due = clock()
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def ask(self, texts: Sequence[str]) -> tuple[Shared, list[Judged]] | None:
        """Return the version that judges and what it says of *texts*; None: none does, and why was said."""
        current = self.refresh()
        for _ in range(_PATIENCE):
            if current is None:
                return None
            try:
                judged = self._judge(current, texts)
            except RemoteEmptied as exc:
                # Removed by the build after the next, or gone: the alias says which.
                current = self._reopened(current, exc)
                continue
            except BloomdupeError as exc:
                self.failed(exc)
                return None
            if judged is not None:
                self.problem = None
                return current, judged
            current = self._reopened(current, None)
        return None

    def refresh(self) -> Shared | None:
        """Return the version in force as far as this process knows; look for one if there was none and a
        look is due. Raises what *on_problem* does."""
        if self.current is None and self._clock() >= self._due:
            with self._lock:
                if self.current is None and self._clock() >= self._due:
                    self._open()
        return self.current

    def look(self) -> Shared | None:
        """Return the version in force after a look at the alias; see ``refresh``."""
        current = self.refresh()
        if current is None:
            return None
        try:
            if self.alias.read() == current.raw:
                return current
        except BloomdupeError as exc:
            self.failed(exc)
            return None
        return self._reopened(current, None)

    def failed(self, exc: Exception) -> None:
        """Note what went wrong, and say it if it was not said."""
        self.problem = exc
        kind = RemoteUnavailable if isinstance(exc, CircuitOpen) else type(exc)
        if kind.__name__ not in self._said:
            self._said.add(kind.__name__)
            self._on_problem(exc)

    def close(self) -> None:
        """Let go of the server; nothing is judged from now on."""
        self.current = None
        self._due = float("inf")
        self.server.close()

    def _judge(self, current: Shared, texts: Sequence[str]) -> list[Judged] | None:
        """Return what *current* says; None: it is not in force any more."""
        least = max(1, current.header.min_length)
        normal = [current.normalize(text) for text in texts]
        digests = [digest(text) if len(text) >= least else None for text in normal]
        keys = list(dict.fromkeys(key for key in digests if key is not None))
        seen: dict[bytes, bool] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            answers, (raw,) = current.bloom.contains_with(some, [self.alias.look])
            if raw != current.raw:
                return None
            seen.update(zip(some, answers, strict=True))
        return [
            Judged(text, after, seen[key] if key is not None else None)
            for text, after, key in zip(texts, normal, digests, strict=True)
        ]

    def _reopened(self, old: Shared, trouble: Exception | None) -> Shared | None:
        with self._lock:
            if self.current is old:
                self.current = None
                self._open(but=old.raw if trouble is not None else None, trouble=trouble)
            return self.current

    def _open(self, but: bytes | None = None, trouble: Exception | None = None) -> None:
        """Open what is in force; *but*: unless it is that one, which has *trouble*."""
        self._due = self._clock() + self._check_every
        try:
            raw = self.alias.read()
            if trouble is not None and raw == but:
                raise self.alias.emptied() from trouble
            in_force = self.alias.unpack(raw)
            assert raw is not None
            bloom = open_in_force(self.alias, in_force)
            try:
                normalize = normalizer(in_force.header.steps)
            except BloomdupeError as exc:
                raise StateMismatch(f"{self.alias.where}: {exc}") from exc
            self.current = Shared(raw, bloom, in_force.header, normalize, tables(in_force.header.steps))
            self.problem = None
        except (BloomdupeError, OSError, ValueError, KeyError, TypeError) as exc:
            self.failed(exc)
