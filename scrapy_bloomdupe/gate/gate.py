"""Is this text known to exist at all? A definite no spares a request; everything else passes.

An allow list, the opposite question to that of a seen-set, asked of the same kind of filter. It fails open: a
gate that is not there, torn, or of another release lets everything pass, says so once, and counts it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

from scrapy_bloomdupe.errors import BloomdupeError, ConfigurationError, message
from scrapy_bloomdupe.filters.base import FilterInfo
from scrapy_bloomdupe.gate.building import add_to_gate
from scrapy_bloomdupe.gate.file import GateFile, Opened
from scrapy_bloomdupe.gate.header import GateHeader
from scrapy_bloomdupe.gate.shared import Shared, SharedGate
from scrapy_bloomdupe.gate.sharedbuilding import add_to_shared_gate, patient
from scrapy_bloomdupe.gate.text import (
    DEFAULT_STEPS,
    TextStep,
    check_steps,
    digest,
    is_unassigned,
    normalizer,
)
from scrapy_bloomdupe.gate.timing import Timing
from scrapy_bloomdupe.remote.address import is_address

#: Called with what is wrong.
OnProblem = Callable[[Exception], None]

# How often a file that changes under our hands is opened anew for one answer.
_PATIENCE = 3


class Keys(Protocol):
    """What a gate asks: any filter. With ``contains_many`` (keys -> bools) it is asked for many at once."""

    def __contains__(self, key: bytes, /) -> bool: ...


class GateWarning(RuntimeWarning):
    """A gate lets everything pass."""


class Answer(Enum):
    """What a gate says of a text. Only ``REJECTED`` proves something: the text was never put in."""

    PASSED = "passed"
    REJECTED = "rejected"
    #: Too short to be judged: it passes.
    SHORT = "short"
    #: There is no gate that could judge it: it passes.
    BYPASSED = "bypassed"


@dataclass(frozen=True)
class GateInfo:
    """What a gate says of itself.

    Attributes:
        path: its file, or its server and name; empty: it has neither.
        loaded: whether it judges. If not everything passes.
        problem: what is wrong; empty: nothing.
        version: counts the builds; 0: not known.
        created: seconds since 1970; 0: not known.
        steps: text steps, in order.
        min_length: characters.
        num_keys: texts in it, after their steps; an estimate while another process adds.
        capacity: keys until it grows.
        error_rate: share of unknown texts that it was allowed to let pass.
        error_rate_estimate: the share that it lets pass now, by its bits.
        num_bytes: size of the filter.
        tables: versions of Unicode that made its keys.
        answers: how often each was given.
        lookup_us: microseconds per question that 50, 95 and 99 % did not exceed, within an eighth.
    """

    path: str
    loaded: bool
    problem: str
    version: int
    created: int
    steps: tuple[str, ...]
    min_length: int
    num_keys: int
    capacity: int
    error_rate: float
    error_rate_estimate: float
    num_bytes: int
    tables: tuple[str, ...]
    answers: dict[str, int]
    lookup_us: dict[str, float]


class Gate:
    """An allow list of texts.

    ``Gate.open(path)`` is one in a file, which other processes may replace and add to meanwhile. Threads may
    share it.

    Args:
        keys: any filter of ``digest`` keys; None: everything passes.
        steps: text steps that its keys went through.
        min_length: characters; a shorter text, after its steps, passes.
        on_problem: called when the gate cannot judge, once per kind of trouble; by default a
            ``GateWarning``.

    Raises:
        ConfigurationError: a step is not known.
    """

    def __init__(
        self,
        keys: Keys | None,
        *,
        steps: Iterable[str] = DEFAULT_STEPS,
        min_length: int = 1,
        on_problem: OnProblem | None = None,
    ) -> None:
        self._steps = check_steps(steps)
        self._min_length = min_length
        # By name: the hash of a member of an enumeration is a call of Python.
        self._counts = {answer.name: 0 for answer in Answer}
        self.timing = Timing()
        self._on_problem = on_problem or _warn
        self._keys = keys
        self._normalize: TextStep = normalizer(self._steps)
        self._file: GateFile | None = None
        self._shared: SharedGate | None = None
        self._failed: set[str] = set()
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        key: str | None = None,
        on_problem: OnProblem | None = None,
        check_every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> Gate:
        """Open the gate in a file, or on a Redis or Valkey server.

        Never raises for what it finds there: a gate that cannot judge lets everything pass, and looks every
        *check_every* seconds whether it can by now. When another file takes the place of this one it switches
        to it, before it rejects a text. Whoever puts a file there himself should
        rename it into its place: one that is written over or cut while it is mapped ends the process
        (SIGBUS).

        On a server every question is a round trip, so ask for many at once; what was added there, or built
        and put in force, judges from the next question on.

        Args:
            path: the file, or a URL such as ``redis://host/0``.
            key: the gate's name on a server; None: it is a file.
            on_problem: see the class; what it raises while the gate is opened, this raises.
            check_every: seconds between two looks at the path.
            clock: seconds; for tests.

        Raises:
            ConfigurationError: the URL or the key is wrong, or the package ``redis`` is missing.
        """
        self = cls(None, on_problem=on_problem)
        if is_address(path):
            self._shared = SharedGate(str(path), key, self._on_problem, check_every, clock)
            self._shared.refresh()
            return self
        if key is not None:
            raise ConfigurationError(f"key={key!r} is for a gate on a server, and {path} is a file")
        self._file = GateFile(Path(path).absolute(), self._on_problem, check_every, clock)
        self._file.refresh()
        return self

    def might_contain(self, text: str) -> bool:
        """Return False if *text* is certainly not in the list. True proves nothing."""
        return self.ask(text) is not Answer.REJECTED

    def might_contain_many(self, texts: Sequence[str]) -> list[bool]:
        """Return the answers of ``might_contain``: of a shared filter with one round trip."""
        return [answer is not Answer.REJECTED for answer in self.ask_many(texts)]

    def ask_many(self, texts: Sequence[str]) -> list[Answer]:
        """Return the answers of ``ask``: of a shared filter with one round trip. Never raises."""
        many = getattr(self._keys, "contains_many", None)
        if self._shared is None and many is None:
            return [self.ask(text) for text in texts]
        started = perf_counter_ns()
        try:
            answers = (
                self._ask_shared(self._shared, texts)
                if self._shared is not None
                else self._ask_keys(many, texts)
            )
        except Exception as exc:
            self._could_not(exc)
            answers = [Answer.BYPASSED] * len(texts)
        for answer in answers:
            self._counts[answer._name_] += 1
        if texts:
            self.timing.add((perf_counter_ns() - started) // len(texts))
        return answers

    def ask(self, text: str) -> Answer:
        """Return what the gate says of *text*, and count it. Never raises."""
        if self._shared is not None:
            return self.ask_many([text])[0]
        started = perf_counter_ns()
        try:
            answer = self._ask_filter(text) if self._file is None else self._ask_file(self._file, text)
        except Exception as exc:
            # No text and no trouble of a filter may cost a page.
            self._could_not(exc)
            answer = Answer.BYPASSED
        self._counts[answer._name_] += 1
        self.timing.add(perf_counter_ns() - started)
        return answer

    def add(self, texts: Iterable[str]) -> int:
        """Let *texts* pass from now on, in every process that has the file open. Best many at once.

        Returns:
            How many were new.

        Raises:
            StateError: the gate is not there, or does not open.
            FilterError: the system or the server could not.
            ConfigurationError: this gate has no file; add to its filter.
        """
        if self._shared is not None:
            with patient(self._shared.url) as server:
                return add_to_shared_gate(server, self._shared.alias.key, texts)
        if self._file is None:
            raise ConfigurationError("this gate has no file; add `digest` keys to its filter itself")
        return add_to_gate(self._file.path, texts)

    def info(self) -> GateInfo:
        """Return the figures, and what is wrong."""
        file, shared = self._file, self._shared
        opened: Opened | Shared | None = None
        measured: FilterInfo | None = None
        if file is not None:
            opened = self._refreshed(file)
        elif shared is not None:
            opened = shared.look()
        try:
            measured = opened.bloom.info() if opened is not None else None
        except BloomdupeError as exc:
            if shared is not None:
                shared.failed(exc)
            opened = None
        header = opened.header if opened is not None else None
        problem = file.problem if file is not None else shared.problem if shared is not None else None
        return GateInfo(
            path=str(file.path) if file is not None else shared.alias.where if shared is not None else "",
            loaded=measured is not None or self._keys is not None,
            problem=message(problem) if problem is not None else "",
            version=header.version if header is not None else 0,
            created=opened.created if opened is not None else 0,
            steps=header.steps if header is not None else self._steps,
            min_length=header.min_length if header is not None else self._min_length,
            num_keys=measured.num_keys if measured is not None else 0,
            capacity=sum(layer.capacity for layer in measured.layers) if measured is not None else 0,
            error_rate=measured.error_rate if measured is not None else 0.0,
            error_rate_estimate=measured.error_rate_estimate if measured is not None else 0.0,
            num_bytes=measured.num_bytes if measured is not None else 0,
            tables=header.tables if header is not None else (),
            answers={answer.value: self._counts[answer.name] for answer in Answer},
            lookup_us={f"p{share}": self.timing.microseconds(share / 100) for share in (50, 95, 99)},
        )

    def close(self) -> None:
        """Let go of the file; everything passes from now on. A second call does nothing."""
        self._keys = None
        if self._shared is not None:
            self._shared.close()
        if self._file is not None:
            with self._lock:
                self._file.close()

    def _ask_filter(self, text: str) -> Answer:
        if self._keys is None:
            return Answer.BYPASSED
        normal = self._normalize(text)
        if not normal or len(normal) < self._min_length:
            return Answer.SHORT
        return Answer.PASSED if digest(normal) in self._keys else Answer.REJECTED

    def _ask_keys(self, many: Any, texts: Sequence[str]) -> list[Answer]:
        normal = [self._normalize(text) for text in texts]
        judged = [text for text in normal if text and len(text) >= self._min_length]
        found = iter(many([digest(text) for text in judged]))
        return [
            (Answer.PASSED if next(found) else Answer.REJECTED)
            if text and len(text) >= self._min_length
            else Answer.SHORT
            for text in normal
        ]

    @staticmethod
    def _ask_shared(shared: SharedGate, texts: Sequence[str]) -> list[Answer]:
        found = shared.ask(texts)
        if found is None:
            return [Answer.BYPASSED] * len(texts)
        version, judged = found
        answers = []
        for one in judged:
            if one.seen is None:
                answers.append(Answer.SHORT)
            elif one.seen:
                answers.append(Answer.PASSED)
            elif _is_comparable(one.text, one.normal, version.header, version.own_tables):
                answers.append(Answer.REJECTED)
            else:
                answers.append(Answer.BYPASSED)
        return answers

    def _ask_file(self, file: GateFile, text: str) -> Answer:
        opened = file.current if file.clock() < file.due else self._refreshed(file)
        for _ in range(_PATIENCE):
            if opened is None:
                return Answer.BYPASSED
            normal = opened.normalize(text)
            if not normal or len(normal) < opened.header.min_length:
                return Answer.SHORT
            if digest(normal) in opened.bloom:
                return Answer.PASSED
            # A no holds only if the file is still what it was when it was opened, and still the one there.
            if not opened.bloom.is_current() or (not text.isascii() and file.means_otherwise(opened)):
                with self._lock:
                    opened = file.renew() if file.current is opened else file.current
                continue
            if not file.is_there(opened):
                with self._lock:
                    file.look()
                    latest = file.current
                if latest is not opened:
                    opened = latest
                    continue
            comparable = _is_comparable(text, normal, opened.header, opened.own_tables)
            return Answer.REJECTED if comparable else Answer.BYPASSED
        return Answer.BYPASSED

    def _refreshed(self, file: GateFile) -> Opened | None:
        with self._lock:
            return file.refresh()

    def _could_not(self, exc: Exception) -> None:
        if (name := type(exc).__name__) not in self._failed:
            self._failed.add(name)
            # What the callback raises (a warning can be an error) costs no page, either.
            with contextlib.suppress(Exception):
                self._on_problem(exc)


def _is_comparable(text: str, normal: str, header: GateHeader, own_tables: str) -> bool:
    """Return whether who built the gate made the same key of *text*, whatever Unicode he had.

    Args:
        text, normal: before and after its steps.
        header, own_tables: of the gate that does not have it, and of this process.
    """
    if text.isascii() or header.tables == (own_tables,):
        return True
    # A URL's parser has tables of its own; a character that is not known here can be part of a spelling
    # that is known there; and the other way round, if there was such a character among the keys.
    return not ("url" in header.steps or is_unassigned(normal) or (header.unassigned and normal != text))


def _warn(exc: Exception) -> None:
    told = message(exc) if isinstance(exc, BloomdupeError) else repr(exc)
    warnings.warn(f"the gate cannot judge, until it can everything passes: {told}", GateWarning, stacklevel=2)
