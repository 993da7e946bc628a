"""Which of the two filters on a server is it? The one that is there, else the best that it can do."""

from __future__ import annotations

from collections.abc import Mapping

import scrapy_bloomdupe.remote.meta as metas
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.redisbitmap import RedisBitmapFilter
from scrapy_bloomdupe.filters.redisbloom import RedisBloomFilter
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.remote.client import Server

KINDS: dict[str, type[RedisBitmapFilter] | type[RedisBloomFilter]] = {
    RedisBitmapFilter.kind: RedisBitmapFilter,
    RedisBloomFilter.kind: RedisBloomFilter,
}


def open_filter(
    server: Server,
    prefix: str,
    *,
    capacity: int,
    error_rate: float,
    kind: str | None = None,
    shards: int | None = None,
    identity: Mapping[str, str] | None = None,
    create: bool | None = None,
    renew: bool = False,
) -> RemoteFilter:
    """Find a filter, or make one; arguments and errors as ``RedisBitmapFilter.open``.

    Args:
        kind: ``bitmap`` or ``redisbloom``; None: the one that is there, else ``redisbloom`` where the
            server has the module, else ``bitmap``.
    """
    if kind is not None and kind not in KINDS:
        raise ConfigurationError(f"filter={kind!r} is not known on a server; take one of {', '.join(KINDS)}")
    if kind is None:
        found = metas.read(server, f"{prefix}:filter:meta")
        if found is not None and found.kind in KINDS:
            kind = found.kind
        else:
            kind = RedisBloomFilter.kind if server.has_command("BF.RESERVE") else RedisBitmapFilter.kind
    return KINDS[kind].open(
        server,
        prefix,
        capacity=capacity,
        error_rate=error_rate,
        shards=shards,
        identity=identity,
        create=create,
        renew=renew,
    )
