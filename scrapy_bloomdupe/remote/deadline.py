"""How is something waited for that knows no time limit? In a thread, which is left behind if it hangs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "queue.SimpleQueue[tuple[Any, BaseException | None]]"]


class Overdue(Exception):
    """No result in time. The work goes on, and nobody learns how it ends."""


class Deadline:
    """Does one thing after the other in a thread of its own. Any thread may use it.

    The thread is a daemon: one that hangs does not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] | None = None

    def run(self, work: Callable[[], T], seconds: float) -> T:
        """Return what *work* returns.

        Args:
            seconds: so long at the most, > 0; what others have in front of it counts.

        Raises:
            Overdue: it takes longer.
        """
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        with self._lock:
            if self._jobs is None:
                self._jobs = queue.SimpleQueue()
                threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True).start()
            jobs = self._jobs
            jobs.put((work, answer))
        try:
            result, error = answer.get(timeout=seconds)
        except queue.Empty:
            with self._lock:
                if self._jobs is jobs:
                    self._jobs = None
                    jobs.put(None)
            raise Overdue(f"no answer in {seconds:g} s") from None
        if error is not None:
            raise error
        found: T = result
        return found

    def close(self) -> None:
        """Let the thread end."""
        with self._lock:
            if self._jobs is not None:
                self._jobs.put(None)
                self._jobs = None


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        work, answer = job
        try:
            answer.put((work(), None))
        except BaseException as exc:  # whatever it is belongs to the thread that waits
            answer.put((None, exc))
