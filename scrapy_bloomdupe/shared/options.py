"""What is shared, where does it lie, and who decides? Checked, and nothing is connected."""

from __future__ import annotations

from dataclasses import dataclass

from scrapy_bloomdupe.errors import ConfigurationError

#: What a crawl does when the server has lost what had been seen.
ON_EMPTY = ("pass", "stop", "refill")


@dataclass(frozen=True)
class SharedOptions:
    """What several crawls share.

    Attributes:
        filter: URL of a Redis or Valkey server; None: no filter is shared.
        store: URL of a Redis or Valkey server, or of a database as SQLAlchemy reads it; None: no exact store
            is shared.
        policy: one of ``seen.POLICIES``.
        key: template for the names, see ``remote.naming.prefix``.
        on_empty: one of ``ON_EMPTY``.
        capacity, error_rate: of the shared filter.
        rebuild_layers: it is made anew from the shared store when it has so many layers; 0: never.
        rebuild_every: seconds since it was made after which it is, too; None: never.
    """

    filter: str | None
    store: str | None
    policy: str
    key: str
    on_empty: str
    capacity: int
    error_rate: float
    rebuild_layers: int = 0
    rebuild_every: float | None = None


def check(options: SharedOptions, *, local_store: str | None) -> None:
    """Refuse what does not go together.

    Args:
        local_store: ``lmdb`` or None: what each crawl keeps for itself.

    Raises:
        ConfigurationError: names both settings and the next step.
    """
    if options.policy == "negatives" and options.store is None:
        raise ConfigurationError(
            "BLOOMDUPE_POLICY = 'negatives' lets a shared exact store decide about what the filter does not "
            "know, and BLOOMDUPE_STORE names none: set it to 'redis' or the URL of a database"
        )
    if options.policy == "negatives" and options.filter is not None:
        raise ConfigurationError(
            "BLOOMDUPE_POLICY = 'negatives' has a filter of each crawl's own before the shared store: leave "
            "BLOOMDUPE_FILTER out and give the store's URL in BLOOMDUPE_STORE"
        )
    if options.on_empty == "refill" and local_store != "lmdb":
        raise ConfigurationError(
            "BLOOMDUPE_ON_EMPTY = 'refill' fills an emptied server from the exact store of each crawl: set "
            "BLOOMDUPE_STORE = 'lmdb' beside a BLOOMDUPE_FILTER on a server, or take 'pass' or 'stop'"
        )
