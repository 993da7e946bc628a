"""What has an asynchronous iterator to give right now, before anybody waits for it?

It collects what comes at once, and never holds back what is there while it waits for more: a callback may
wait for something that depends on what it has given.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


async def batches(outputs: AsyncIterator[T], limit: int) -> AsyncIterator[list[T]]:
    """Give the outputs in their order, as many together as come without waiting, up to *limit*.

    What *outputs* raises is raised when all that came before has been given.
    """
    batch: list[T] = []
    while True:
        steps: Iterator[Any] = outputs.__anext__().__await__()
        try:
            awaited = next(steps)
        except StopIteration as found:
            batch.append(found.value)
            if len(batch) >= limit:
                yield batch
                batch = []
            continue
        except StopAsyncIteration:
            break
        except BaseException:
            if batch:
                yield batch
            raise
        # It waits for something.
        if batch:
            try:
                yield batch
            except BaseException:
                getattr(steps, "close", lambda: None)()
                raise
            batch = []
        try:
            batch.append(await _Rest(steps, awaited))
        except StopAsyncIteration:
            break
    if batch:
        yield batch


class _Rest:
    """The rest of an awaitable, of which one step was made."""

    def __init__(self, steps: Any, awaited: Any) -> None:
        self._steps = steps
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, awaited = self._steps, self._awaited
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as exc:
                try:
                    awaited = steps.throw(exc)
                except StopIteration as found:
                    return found.value
                continue
            try:
                awaited = steps.send(sent)
            except StopIteration as found:
                return found.value
