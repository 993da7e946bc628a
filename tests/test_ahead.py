"""Does what is collected ahead change nothing? Order, exceptions, waits, and an early end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
from twisted.internet.defer import Deferred

import scrapy_bloomdupe.scrapy_compat as scrapy_compat
from scrapy_bloomdupe.ahead import AsyncioTurns, batches
from scrapy_bloomdupe.scrapy_compat import TwistedTurns


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 30))


async def collect(outputs: AsyncIterator[Any], limit: int = 100) -> list[list[Any]]:
    return [batch async for batch in batches(outputs, limit, AsyncioTurns())]


async def count(stop: int, wait_before: Callable[[int], Awaitable[Any] | None] = lambda number: None) -> Any:
    for number in range(stop):
        if (waiting := wait_before(number)) is not None:
            await waiting
        yield number


def test_what_comes_at_once_comes_together_and_in_order() -> None:
    assert [[0, 1, 2, 3, 4]] == run(collect(count(5)))
    assert [] == run(collect(count(0)))


@pytest.mark.parametrize(("stop", "sizes"), [(6, [2, 2, 2]), (5, [2, 2, 1]), (1, [1])])
def test_no_more_than_asked_come_together(stop: int, sizes: list[int]) -> None:
    found = run(collect(count(stop), limit=2))
    assert (list(range(stop)), sizes) == (
        [n for batch in found for n in batch],
        [len(batch) for batch in found],
    )


WAITS: dict[str, Callable[[], Awaitable[Any]]] = {
    "sleep": lambda: asyncio.sleep(0.001),
    "a turn": lambda: asyncio.sleep(0),
    "a task": lambda: asyncio.create_task(asyncio.sleep(0.001)),
    "a wait with an end": lambda: asyncio.wait_for(asyncio.sleep(0.001), 5),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("before", [{0}, {2}, {4}, {0, 1, 2, 3, 4}, {1, 3}])
def test_waits_part_the_outputs_and_lose_none(wait: str, before: set[int]) -> None:
    found = run(collect(count(5, lambda number: WAITS[wait]() if number in before else None)))
    assert [0, 1, 2, 3, 4] == [number for batch in found for number in batch]
    # What was there is not held back.
    for number in before - {0}:
        assert number not in [other for batch in found for other in batch[1:]]


def test_a_callback_can_wait_for_what_it_has_given() -> None:
    async def crawl() -> list[int]:
        handled: list[int] = []
        arrived = asyncio.Event()

        async def callback() -> AsyncIterator[int]:
            yield 1
            await arrived.wait()
            yield 2

        async for batch in batches(callback(), 100, AsyncioTurns()):
            handled.extend(batch)
            arrived.set()
        return handled

    assert [1, 2] == run(crawl())


class Failed(Exception):
    pass


@pytest.mark.parametrize("waits", [False, True])
def test_an_exception_comes_after_what_was_given_before_it(waits: bool) -> None:
    async def crawl() -> list[list[int]]:
        async def callback() -> AsyncIterator[int]:
            yield 1
            yield 2
            if waits:
                await asyncio.sleep(0)
            raise Failed

        found: list[list[int]] = []
        with pytest.raises(Failed):  # noqa: PT012
            async for batch in batches(callback(), 100, AsyncioTurns()):
                found.append(batch)  # noqa: PERF401
        return found

    assert [[1, 2]] == run(crawl())


def test_what_is_awaited_can_fail_and_be_caught_where_it_is_awaited() -> None:
    async def crawl() -> list[list[Any]]:
        async def fail() -> None:
            await asyncio.sleep(0.001)
            raise Failed

        async def callback() -> AsyncIterator[str]:
            yield "before"
            try:
                await fail()
            except Failed:
                yield "caught"
            yield "after"

        return await collect(callback())

    assert [["before"], ["caught", "after"]] == run(crawl())


if sys.version_info >= (3, 11):  # asyncio.timeout

    def test_the_callbacks_own_time_limit_ends_what_it_waits_for() -> None:
        # While its outputs are on their way to the engine, which takes longer.
        async def crawl() -> list[str]:
            async def callback() -> AsyncIterator[str]:
                yield "before"
                try:
                    async with asyncio.timeout(0.05):
                        await asyncio.sleep(10)
                    yield "no limit"
                except TimeoutError:
                    yield "ended"

            handled: list[str] = []
            async for batch in batches(callback(), 100, AsyncioTurns()):
                handled.extend(batch)
                await asyncio.sleep(0.1)
            return handled

        assert ["before", "ended"] == run(crawl())


def test_a_callback_is_one_task_between_two_outputs() -> None:
    async def crawl() -> list[bool]:
        async def callback() -> AsyncIterator[bool]:
            yield True
            before = asyncio.current_task()
            await asyncio.sleep(0.001)
            yield before is asyncio.current_task()
            before = asyncio.current_task()
            await asyncio.sleep(0.001)
            yield before is asyncio.current_task()

        return [same for batch in await collect(callback()) for same in batch]

    assert [True, True, True] == run(crawl())


@pytest.mark.parametrize("waits", [False, True])
def test_who_stops_early_closes_the_callback(waits: bool) -> None:
    async def crawl() -> list[str]:
        said: list[str] = []

        async def callback() -> AsyncIterator[int]:
            try:
                yield 1
                if waits:
                    await asyncio.sleep(10)
                yield 2
            finally:
                said.append("closed")

        outputs = callback()
        found = batches(outputs, 1 if not waits else 100, AsyncioTurns())
        async for batch in found:
            said.append(str(batch))
            break
        await found.aclose()
        await asyncio.sleep(0.01)
        await outputs.aclose()
        return said

    assert ["[1]", "closed"] == run(crawl())


def test_who_is_cancelled_while_the_callback_waits_cancels_that() -> None:
    async def crawl() -> list[str]:
        said: list[str] = []
        waits = asyncio.Event()

        async def callback() -> AsyncIterator[int]:
            yield 1
            waits.set()
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                said.append("cancelled")
                raise

        task = asyncio.create_task(collect(callback()))
        await waits.wait()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return said

    assert ["cancelled"] == run(crawl())


class Later(TwistedTurns):
    """Turns, and Deferreds, that a test takes; in place of a reactor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[Deferred[Any]] = []
        self.soon: list[Callable[[], None]] = []
        monkeypatch.setattr(scrapy_compat, "call_soon", self.soon.append)

    def wait(self) -> Deferred[Any]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    return Later(monkeypatch)


def test_without_asyncio_deferreds_are_waited_for(later: Later) -> None:
    handled: list[list[int]] = []

    async def crawl() -> None:
        outputs = count(6, lambda number: later.wait() if number in (1, 3) else None)
        async for batch in batches(outputs, 2, later):
            handled.append(batch)  # noqa: PERF401

    done = Deferred.fromCoroutine(crawl())
    assert ([[0]], 1) == (handled, len(later.waiting))
    later.waiting[0].callback(None)
    later.turn()
    assert [[0], [1, 2]] == handled
    later.waiting[1].callback(None)
    later.turn()
    assert [[0], [1, 2], [3, 4], [5]] == handled
    assert done.called


def test_without_asyncio_a_deferred_that_fails_is_caught_where_it_is_awaited(later: Later) -> None:
    async def callback() -> AsyncIterator[str]:
        yield "before"
        try:
            await later.wait()
        except Failed:
            yield "caught"

    async def crawl() -> list[list[str]]:
        return [batch async for batch in batches(callback(), 100, later)]

    done = Deferred.fromCoroutine(crawl())
    later.waiting[0].errback(Failed())
    later.turn()
    assert [["before"], ["caught"]] == done.result


def test_without_asyncio_who_is_cancelled_cancels_what_is_awaited(later: Later) -> None:
    async def crawl() -> None:
        outputs = count(2, lambda number: later.wait() if number else None)
        async for _ in batches(outputs, 100, later):
            pass

    done = Deferred.fromCoroutine(crawl())
    done.addErrback(lambda failure: None)
    done.cancel()
    assert later.waiting[0].called
    later.turn()
