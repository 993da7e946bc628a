"""Which filters and stores are there? A name for each, and how a test makes one and opens it again."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.redisbitmap import RedisBitmapFilter
from scrapy_bloomdupe.filters.redisbloom import RedisBloomFilter
from scrapy_bloomdupe.remote.client import Server, connect
from scrapy_bloomdupe.stores.environment import Environment
from scrapy_bloomdupe.stores.lmdb import LmdbStore
from scrapy_bloomdupe.stores.memory import MemoryStore
from scrapy_bloomdupe.stores.redis import RedisStore
from scrapy_bloomdupe.stores.sql import SqlStore

FILTERS = ["mapped", "bitmap", "bitmap-sharded", "bitmap-cluster", "redisbloom", "redisbloom-sharded"]
REMOTE_FILTERS = FILTERS[1:]
STORES = [
    "memory",
    "lmdb",
    "redis",
    "redis-sharded",
    "redis-cluster",
    "postgresql",
    "sqlite",
    "sqlite-one-by-one",
]

_numbers = itertools.count()


def key(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


def name() -> str:
    """Return a name that nothing has yet."""
    return f"test{next(_numbers)}"


def url_for(kind: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of the server that *kind* needs; skips the test if there is none."""
    if kind.endswith("cluster"):
        nodes = request.getfixturevalue("valkey_cluster")
        return f"redis+cluster://127.0.0.1:{nodes[0].port}?timeout=5"
    server = request.getfixturevalue("valkey_bloom" if kind.startswith("redisbloom") else "valkey")
    return f"{server.url}?timeout=5"


def open_filter(
    kind: str, server: Server, prefix: str, capacity: int, error_rate: float, **options: Any
) -> Any:
    """Open a filter on a server, or make it."""
    cls = RedisBloomFilter if kind.startswith("redisbloom") else RedisBitmapFilter
    shards = 3 if kind.endswith("sharded") else None
    return cls.open(server, prefix, capacity=capacity, error_rate=error_rate, shards=shards, **options)


class FilterKind:
    """Makes filters of one kind. The same *prefix* is the same filter."""

    def __init__(self, kind: str, folder: Path, url: str | None) -> None:
        self.kind = kind
        self._folder = folder
        self._server = connect(url) if url is not None else None

    def make(self, capacity: int = 1000, error_rate: float = 0.001, prefix: str | None = None) -> Any:
        prefix = prefix or name()
        if self._server is not None:
            return open_filter(self.kind, self._server, prefix, capacity, error_rate)
        path = self._folder / prefix
        if path.exists():
            return BloomFilter.open(path)
        return BloomFilter.create(path, capacity=capacity, error_rate=error_rate)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


@contextlib.contextmanager
def made_store(kind: str, folder: Path, url: str | None, prefix: str | None = None) -> Iterator[Any]:
    """Give a store; in a folder of its own, or under a prefix of its own."""
    prefix = prefix or name()
    if kind == "memory":
        yield MemoryStore()
    elif kind == "lmdb":
        environment = Environment.create(folder / prefix)
        try:
            yield LmdbStore(environment, create=True, group_size=10)
        finally:
            environment.close()
    elif kind.startswith("redis"):
        assert url is not None
        server = connect(url)
        yield RedisStore.open(server, prefix, shards=3 if kind.endswith("sharded") else None)
        server.close()
    else:
        store = SqlStore.open(url or f"sqlite:///{folder}/{prefix}.db", prefix)
        if kind.endswith("one-by-one"):
            store._all_at_once = store._some_at_once = None
        try:
            yield store
        finally:
            store.close()


def store_url(kind: str, request: pytest.FixtureRequest) -> str | None:
    """Return the URL of the server that a store needs; None: it needs none."""
    if kind == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return url_for(kind, request) if kind.startswith("redis") else None
