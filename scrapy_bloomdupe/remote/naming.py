"""Under which names do things lie on a server? Frozen: a key that was written has to be found again.

::

    <prefix>:filter:meta                           what the filter is (``meta``)
    <prefix>:filter:{<epoch>.<tag>}:bits:<layer>   bitmaps; or :bloom, of RedisBloom
    ... with :old behind it                        a part of a version that was replaced, for an hour
    <prefix>:filter:lock:{<prefix>:filter:meta}    who makes the next version (``replacing``)
    <prefix>:store:meta
    <prefix>:store:{<epoch>.<tag>}:set

The part in braces alone decides on which node of a Cluster a key lies (Redis Cluster specification, "Hash
tags"). The epoch in it keeps what somebody else made, or what is left of a former time, apart.
"""

from __future__ import annotations

import binascii

from scrapy_bloomdupe.errors import ConfigurationError

#: What a prefix is made of where nobody says more; scrapy-redis has ``%(spider)s:dupefilter``.
TEMPLATE = "%(spider)s:bloomdupe"
#: Slots of a Cluster (Redis Cluster specification, "Key distribution model").
NUM_SLOTS = 16_384
MAX_SHARDS = 1024


def prefix(template: str = TEMPLATE, *, spider: str = "", namespace: str = "") -> str:
    """Return the beginning of all names.

    Args:
        template: text with ``%(spider)s`` where the name of the spider belongs; without it all spiders
            share what they have seen. ``%(namespace)s`` may stand in it too.
        spider: its name.
        namespace: put in front of the template when that does not name it: for runs that must not meet,
            such as tests. Empty: none.

    Raises:
        ConfigurationError: the template is not one.
    """
    values = {"spider": _plain(spider), "namespace": _plain(namespace)}
    try:
        name = template % values
    except (KeyError, ValueError, TypeError) as exc:
        raise ConfigurationError(
            f"{template!r} is not a template for names of keys ({type(exc).__name__}: {exc}); write for "
            f"example {TEMPLATE!r}; a % of its own is written %%"
        ) from None
    if namespace and "%(namespace)" not in template:
        name = f"{values['namespace']}:{name}"
    if not name or set(name) & set("{}"):
        raise ConfigurationError(
            f"the template {template!r} gives the name {name!r}: it needs at least one letter, and no "
            "braces, which say on which node of a Cluster a key lies"
        )
    return name


def _plain(name: str) -> str:
    """Return *name* without what a Cluster or a pattern reads as more than a letter."""
    return "".join(letter if letter not in "{}*?[]\\" else f"%{ord(letter):02X}" for letter in name)


def slot(tag: bytes) -> int:
    """Return the slot of a hash tag: CRC-16/XMODEM modulo 16,384 (Redis Cluster specification)."""
    return binascii.crc_hqx(tag, 0) % NUM_SLOTS


def shard_tag(epoch: bytes, shard: int, num_shards: int) -> str:
    """Return what stands in the braces for a shard, 0 <= shard < num_shards <= 1024.

    The slots are dealt evenly: shard i has one in the i-th of *num_shards* equal parts of them, which is
    how a Cluster deals them to its nodes.
    """
    start = epoch.hex()[:16]
    number = shard
    while slot(f"{start}.{number}".encode()) * num_shards // NUM_SLOTS != shard:
        number += num_shards
    return f"{start}.{number}"
