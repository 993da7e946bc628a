"""How does a test make a request pending without a crawl? As ``FrontierQueue.push`` does, below it."""

from __future__ import annotations

from scrapy_bloomdupe.frontier.lmdb import Bucket, LmdbFrontier, record
from scrapy_bloomdupe.state import State


def frontier_of(state: State) -> LmdbFrontier:
    assert state.frontier is not None
    return state.frontier


def pend(
    state: State, key: bytes | None = None, request: bytes = b"request", *, priority: int = 0
) -> tuple[Bucket, int]:
    """Make a serialized request pending that was judged by *key*, and return where its record is."""
    frontier = frontier_of(state)
    bucket = frontier.buckets.get(("", -priority, False)) or frontier.bucket("", -priority, False)
    number = frontier.next
    frontier.next += 1
    frontier.added[number] = bucket, record(key, request)
    frontier.num_pending += 1
    return bucket, number
