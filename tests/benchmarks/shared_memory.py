"""What does a seen URL take of a server's memory? A new server each, and the server's own figures.

``MEMORY USAGE`` of all its keys, and beside it how ``used_memory`` grew: connections and the interpreter of
scripts are in that, some 400 kB however many URLs there are. The filters are filled to their capacity, for
an error rate of 0.001, and asked for keys that were never added: how many of them are called seen is printed
beside it.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory import chunks, fill_set
from servers import Server, valkey

from scrapy_bloomdupe.filters.redis import open_filter
from scrapy_bloomdupe.remote.client import connect
from scrapy_bloomdupe.stores.redis import RedisStore

RATE = 1e-3
SAMPLE = 100_000
_BATCH = 1000
#: The filter's question, where it may err.
Asked = Callable[[list[bytes]], list[bool]]


def scrapy_redis(server: Server, num_keys: int) -> Asked | None:
    fill_set(server, num_keys)
    return None


def filter_of(kind: str) -> Callable[[Server, int], Asked | None]:
    def fill(server: Server, num_keys: int) -> Asked | None:
        made = open_filter(connect(server.url), "memory", capacity=num_keys, error_rate=RATE, kind=kind)
        for keys in chunks(num_keys):
            for start in range(0, len(keys), _BATCH):
                made.add_many(keys[start : start + _BATCH])
        return made.contains_many

    return fill


def redis_set(server: Server, num_keys: int) -> Asked | None:
    store = RedisStore.open(connect(server.url), "memory")
    for keys in chunks(num_keys):
        store.put_many(keys)
    return None


ALTERNATIVES: dict[str, tuple[Callable[[Server, int], Asked | None], bool]] = {
    "scrapy-redis": (scrapy_redis, False),
    "ours, bitmap, bare": (filter_of("bitmap"), False),
    "ours, RedisBloom, bare": (filter_of("redisbloom"), True),
    "ours, Redis set": (redis_set, False),
}


def measure(name: str, num_keys: int, sample: int = SAMPLE) -> dict[str, Any] | None:
    """Return bytes per key, seconds, and the error rate of filters for *sample* other keys; None: the server
    is not installed."""
    fill, needs_bloom = ALTERNATIVES[name]
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder), bloom=needs_bloom) as server:
        if server is None or needs_bloom > server.has_bloom:
            return None
        empty = server.memory_bytes()
        started = time.perf_counter()
        asked = fill(server, num_keys)
        seconds = time.perf_counter() - started
        found: dict[str, Any] = {
            "bytes": _keys_bytes(server) / num_keys,
            "used": (server.memory_bytes() - empty) / num_keys,
            "us": seconds / num_keys * 1e6,
        }
        if asked is not None:
            generator = random.Random(-1)
            hits = sum(
                sum(asked([generator.randbytes(20) for _ in range(_BATCH)])) for _ in range(sample // _BATCH)
            )
            found["error"] = hits / sample
        return found


def _keys_bytes(server: Server) -> int:
    """Return what the server says that its keys take; every member of a set is looked at."""
    client = server.client()
    return sum(int(client.memory_usage(name, samples=0)) for name in client.scan_iter())
