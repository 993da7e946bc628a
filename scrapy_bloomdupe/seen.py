"""Was this key seen? One question to filter and store, one verdict.

Not here: what a key is (``keys``), what to do with the verdict (``dupefilter``).
"""

from __future__ import annotations

import enum

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.base import Filter
from scrapy_bloomdupe.stores.base import Store


class Verdict(enum.Enum):
    """The answer of ``SeenSet.check_and_add``."""

    #: Certainly not seen before; it is remembered now.
    NEW = "new"
    #: Certainly seen before: the store has it.
    DUPLICATE = "duplicate"
    #: The filter said seen, the store proved it new: a page that a bare Bloom filter would have lost.
    FALSE_POSITIVE = "false_positive"
    #: The filter said seen and there is no store to ask: a duplicate, or a page lost with the
    #: filter's error rate.
    UNCONFIRMED = "unconfirmed"

    @property
    def seen(self) -> bool:
        """Whether a request with this verdict is filtered."""
        return self is Verdict.DUPLICATE or self is Verdict.UNCONFIRMED


#: When the store is asked. ``positives``: only when the filter says seen (Shu, Liang and Wang's method).
POLICIES = ("positives",)


class SeenSet:
    """A filter in front of an exact store, under the policy ``positives``.

    The filter holds every key that the store holds: it is told first, so whatever happens in between
    costs a page crawled twice and never a page lost.

    Args:
        filter: see ``filters.base.Filter``.
        store: see ``stores.base.Store``; None: the filter's word is all there is.
        policy: one of ``POLICIES``.

    Raises:
        ConfigurationError: no such policy.
    """

    def __init__(self, filter: Filter, store: Store | None, policy: str = "positives") -> None:  # noqa: A002
        if policy not in POLICIES:
            raise ConfigurationError(f"policy={policy!r} is not known; take one of {', '.join(POLICIES)}")
        self.filter = filter
        self.store = store
        self.policy = policy
        #: Take nothing more: an over-full filter without a store. Unknown keys stay ``NEW``.
        self.frozen = False

    def check_and_add(self, key: bytes) -> Verdict:
        """Judge *key* and remember it.

        Args:
            key: the bytes of a cryptographic digest, 1 to 511.

        Raises:
            StoreError: the store failed. Nothing is proved, so the page must not be called seen; the
                key may or may not be remembered, and a later look at it is right either way.
        """
        if self.frozen:
            return Verdict.UNCONFIRMED if key in self.filter else Verdict.NEW
        store = self.store
        if not self.filter.add(key):
            if store is not None:
                store.put(key)
            return Verdict.NEW
        if store is None:
            return Verdict.UNCONFIRMED
        return Verdict.FALSE_POSITIVE if store.add(key) else Verdict.DUPLICATE

    def __contains__(self, key: bytes) -> bool:
        """Whether ``check_and_add`` would call *key* seen.

        Raises:
            StoreError: the store failed.
        """
        return key in self.filter and (self.store is None or key in self.store)
