"""What has an asynchronous iterator to give right now, before anybody waits for it?

It collects what comes at once, and never holds back what is there while it waits for more: a callback may
wait for something that depends on what it has given. The iterator runs in a task of its own: a time limit
that it sets itself ends what it waits for, and not what others do with its outputs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Turns(Protocol):
    """How things take turns: by asyncio, or by Twisted alone."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> Callable[[], object]:
        """Let *coroutine*, which never raises, run beside; return what cancels it."""

    def pause(self) -> tuple[Awaitable[None], Callable[[], None]]:
        """Return what to wait for, and what ends the wait: in a later turn, and called once at the most."""


class AsyncioTurns:
    """By asyncio; to be used in a running loop."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> Callable[[], object]:
        return asyncio.ensure_future(coroutine).cancel

    def pause(self) -> tuple[Awaitable[None], Callable[[], None]]:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return waiting, lambda: None if waiting.done() else waiting.set_result(None)


class _Collected(list[T]):
    """What an iterator has given and nobody has taken; it waits when there are *limit* of them."""

    def __init__(self, outputs: AsyncIterator[T], limit: int, turns: Turns) -> None:
        super().__init__()
        self._outputs, self._limit, self._turns = outputs, limit, turns
        self.ended = False
        self.failure: BaseException | None = None
        self._tell: Callable[[], None] | None = None
        self._make_room: Callable[[], None] | None = None

    async def collect(self) -> None:
        try:
            async for output in self._outputs:
                self.append(output)
                self._told()
                if len(self) >= self._limit:
                    waiting, self._make_room = self._turns.pause()
                    await waiting
        except BaseException as exc:
            self.failure = exc
        finally:
            self.ended = True
            self._told()

    async def take(self) -> list[T]:
        """Return what is there, or wait for it; empty: there is no more."""
        if not self and not self.ended:
            waiting, self._tell = self._turns.pause()
            await waiting
        batch = list(self)
        self.clear()
        make_room, self._make_room = self._make_room, None
        if make_room is not None:
            make_room()
        return batch

    def _told(self) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()


async def batches(outputs: AsyncIterator[T], limit: int, turns: Turns) -> AsyncIterator[list[T]]:
    """Give the outputs in their order, as many together as come without waiting, up to *limit*.

    What *outputs* raises is raised when all that came before has been given.
    """
    collected = _Collected(outputs, limit, turns)
    cancel = turns.start(collected.collect())
    try:
        while batch := await collected.take():
            yield batch
    finally:
        if not collected.ended:
            cancel()
    if collected.failure is not None:
        raise collected.failure
