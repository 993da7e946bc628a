"""How is what others have seen put into a filter and a store on a server? Opened for an import, and marked.

Until all of it is in, what was made for it carries a mark, so that a crawl does not begin on half of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import scrapy_bloomdupe.remote.meta as metas
from scrapy_bloomdupe.errors import StateMismatch
from scrapy_bloomdupe.filters.redis import open_filter
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.remote.client import Server
from scrapy_bloomdupe.remote.meta import Meta
from scrapy_bloomdupe.seen import SeenSet
from scrapy_bloomdupe.stores.redis import RedisStore

#: The identity of what an import is filling.
IMPORTING = {"importing": "1"}


@dataclass(frozen=True)
class SharedPlan:
    """What shall be there.

    Attributes:
        capacity: keys until the filter grows, 1 to 10^13.
        error_rate: 1e-12 <= error_rate < 1.
        explicit: which of the two were asked for; the others give way to what is there.
        filter, store: whether to fill the one and the other.
    """

    capacity: int
    error_rate: float
    explicit: Collection[str] = ()
    filter: bool = True
    store: bool = True


@dataclass(frozen=True)
class Shared:
    """A filter and a store under one prefix; one of them can be None."""

    filter: RemoteFilter | None
    store: RedisStore | None

    def take(self, keys: Sequence[bytes]) -> int:
        """Add *keys*, each once; return how many of them were new.

        Raises:
            RemoteError: some may have been added; it can be done again.
        """
        if self.filter is not None:
            verdicts = SeenSet(self.filter, self.store).check_and_add_many(keys)
            return sum(not verdict.seen for verdict in verdicts)
        assert self.store is not None
        return sum(self.store.add_many(keys))

    def finish(self) -> None:
        """Take the mark away.

        Raises:
            RemoteError: it may still be there.
        """
        for one in (self.filter, self.store):
            if one is not None and set(IMPORTING) & set(one.identity):
                one.set_identity({k: v for k, v in one.identity.items() if k not in IMPORTING})


def open_shared(server: Server, prefix: str, plan: SharedPlan) -> Shared:
    """Find what *plan* says under *prefix*, or make it.

    Raises:
        StateMismatch: what is there was made with other values, or one of filter and store would be made
            beside an older one, whose keys it lacks.
        ConfigurationError, StateCorrupt, RemoteError: see ``filters.redis.open_filter``.
    """
    made = metas.read(server, f"{prefix}:filter:meta") if plan.filter else None
    kept = metas.read(server, f"{prefix}:store:meta") if plan.store else None
    if plan.filter and plan.store:
        _refuse_half(server, prefix, made, kept)
    found: dict[str, Any] = dict(made.params) if made is not None else {}
    values = {
        name: getattr(plan, name) if name in plan.explicit else found.get(name, getattr(plan, name))
        for name in ("capacity", "error_rate")
    }
    return Shared(
        open_filter(server, prefix, **values, identity=IMPORTING) if plan.filter else None,
        RedisStore.open(server, prefix, identity=IMPORTING) if plan.store else None,
    )


def _refuse_half(server: Server, prefix: str, made: Meta | None, kept: Meta | None) -> None:
    for there, other, name, missing in ((made, kept, "filter", "store"), (kept, made, "store", "filter")):
        if there is not None and other is None and not set(IMPORTING) & set(there.identity):
            raise StateMismatch(
                f"{server.address} {prefix} has a {name} and no {missing}: one that is made now lacks what "
                f"the {name} knows. Import with --no-{missing}, under another --key, or clear it first"
            )
