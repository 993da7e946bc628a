"""Was this key seen? One question to filter and store, one verdict.

Not here: what a key is (``keys``), what to do with the verdict (``dupefilter``).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.base import Filter, RemovingFilter
from scrapy_bloomdupe.stamps import stamp, time_of
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
    #: Seen, longer ago than it holds for: to be crawled again. It is seen from now on.
    EXPIRED = "expired"

    @property
    def seen(self) -> bool:
        """Whether a request with this verdict is filtered."""
        return self is Verdict.DUPLICATE or self is Verdict.UNCONFIRMED


# Members of an enum are looked up slowly.
_NEW, _DUPLICATE, _UNCONFIRMED = Verdict.NEW, Verdict.DUPLICATE, Verdict.UNCONFIRMED

#: Who decides. ``positives``: the store, when the filter says seen (Shu, Liang and Wang's method).
#: ``always``: the store; the filter only measures. ``negatives``, for a store that many crawls share
#: (``shared.seen``): the filter, when it says seen; the store of the rest.
POLICIES = ("positives", "always", "negatives")

# Seconds. A clock that is set back by so little (time servers do that) makes nothing expire; by more: what
# was seen "in the future" is crawled again, since nobody knows when that was.
_SET_BACK = 60


class SeenSet:
    """A filter in front of an exact store, both for one crawl.

    The filter holds every key that the store holds: it is told first, so whatever happens in between
    costs a page crawled twice and never a page lost.

    Args:
        filter: see ``filters.base.Filter``.
        store: see ``stores.base.Store``; None: the filter's word is all there is.
        policy: ``positives`` or ``always``.
        deferred: without a store: new keys wait until ``settle``, so that the filter's bits, which survive
            the death of the process at once, do not outlive what is written by a commit.
        clock: gives seconds since 1970.
        born: when the keys were seen of which the store does not know it: at the earliest, in seconds since
            1970.

    Raises:
        ConfigurationError: no such policy.
    """

    def __init__(
        self,
        filter: Filter,  # noqa: A002
        store: Store | None,
        policy: str = "positives",
        *,
        deferred: bool = False,
        clock: Callable[[], float] = time.time,
        born: int = 0,
    ) -> None:
        if policy not in ("positives", "always"):
            raise ConfigurationError(
                f"policy={policy!r} is not one of a single crawl; take 'positives' or 'always'"
            )
        self.filter = filter
        self.store = store
        self.policy = policy
        self._always = policy == "always"
        #: Take nothing more: an over-full filter without a store. Unknown keys stay ``NEW``.
        self.frozen = False
        self._deferred: set[bytes] | None = set() if deferred and store is None else None
        self._held: dict[bytes, bytes] = {}
        self._clock = clock
        self._born = born
        #: Called when a key was made new again.
        self.on_forget: Callable[[], None] = lambda: None

    @property
    def num_deferred(self) -> int:
        """Keys that are not in the filter yet."""
        return len(self._deferred or ()) + (len(self._held) if self.store is None else 0)

    def check_and_add(
        self, key: bytes, url: str = "", rule: str | None = None, expire: float | None = None
    ) -> Verdict:
        """Judge *key* and remember it.

        Args:
            key: the bytes of a cryptographic digest, 1 to 511.
            url, rule: of a key that is new: what was asked for, and the name of the rule that it was made
                under; the store keeps a trace of both, to forget by.
            expire: with a store: seconds after which a key that was seen is ``EXPIRED``; None: never. They
                count from the last verdict that let it pass.

        Raises:
            StoreError: the store failed. Nothing is proved, so the page must not be called seen; the
                key may or may not be remembered, and a later look at it is right either way.
        """
        store = self.store
        if self._held and key in self._held:
            return Verdict.UNCONFIRMED if store is None else Verdict.DUPLICATE
        if self.frozen:
            return Verdict.UNCONFIRMED if key in self.filter else Verdict.NEW
        if self._deferred is not None:
            return self._defer(key)
        if not self.filter.add(key):
            if store is None:
                return _NEW
            made = stamp(self._clock(), url, rule)
            if self._always:
                if store.add(key, made):
                    return _NEW
                found = None if expire is None else store.get(key)
                if found is None or expire is None:
                    return _DUPLICATE
                return self._unless_expired(key, found, url, rule, expire)
            store.put(key, made)
            return _NEW
        if store is None:
            return _UNCONFIRMED
        if expire is None:
            # Most of them: no stamp is needed.
            if key in store:
                return _DUPLICATE
        elif (value := store.get(key)) is not None:
            return self._unless_expired(key, value, url, rule, expire)
        return Verdict.FALSE_POSITIVE if store.add(key, stamp(self._clock(), url, rule)) else _DUPLICATE

    def _unless_expired(self, key: bytes, value: bytes, url: str, rule: str | None, expire: float) -> Verdict:
        assert self.store is not None
        now = self._clock()
        if not self._has_expired(value, now, expire):
            return _DUPLICATE
        self.store.put(key, stamp(now, url, rule))
        return Verdict.EXPIRED

    def _has_expired(self, value: bytes, now: float, expire: float) -> bool:
        """Return whether a key that is kept with *value* was seen *expire* seconds ago."""
        seen = time_of(value)
        age = now - (self._born if seen is None else seen)
        return age >= expire or age < -_SET_BACK

    def hold(self, key: bytes) -> None:
        """Keep *key*, which was just called new, in memory only until ``release``: it is seen, and a crash
        forgets it."""
        value = b""
        if self._deferred is not None:
            self._deferred.discard(key)
        elif self.store is not None:
            value = self.store.get(key) or b""
            self.store.remove(key)
        self._held[key] = value

    def release(self, key: bytes) -> None:
        """Remember a held *key* as others are.

        Raises:
            StoreError: as ``check_and_add``.
        """
        value = self._held.pop(key, None)
        if value is None:
            return
        if self._deferred is not None:
            self._deferred.add(key)
        elif self.store is not None:
            self.store.put(key, value)

    def settle(self) -> None:
        """Put the deferred keys into the filter: what belongs to them is written."""
        if self._deferred:
            for key in self._deferred:
                if self.frozen:
                    # Over-full in the middle of them: the rest is crawled twice rather than others lost.
                    break
                self.filter.add(key)
            self._deferred.clear()

    def forget(self, key: bytes) -> bool:
        """Make *key* new again; return whether it is: a Bloom filter alone cannot forget, if it does not
        count.

        With a store the filter's bits stay; the store then proves the key new.

        Raises:
            StoreError: the store failed.
        """
        if self.store is not None:
            self.store.remove(key)
        elif not self._forget_bare(key):
            return False
        self._held.pop(key, None)
        self.on_forget()
        return True

    @property
    def can_forget(self) -> bool:
        """Whether ``forget`` is possible at all."""
        return self.store is not None or isinstance(self.filter, RemovingFilter)

    def _forget_bare(self, key: bytes) -> bool:
        if not isinstance(self.filter, RemovingFilter):
            return False
        if key in self._held:
            return True
        if self._deferred is not None and key in self._deferred:
            self._deferred.discard(key)
            return True
        return self.filter.remove(key) or key not in self.filter

    def check_and_add_many(self, keys: Sequence[bytes]) -> list[Verdict]:
        """Judge *keys* and remember them, as ``check_and_add`` does one after the other, in less time. None
        of them expires.

        Args:
            keys: such as those of the links of a page; one may be there more than once.

        Raises:
            StoreError: the store failed. Nothing is proved of any of the keys, so none of their pages must
                be called seen; each may or may not be remembered.
        """
        verdicts: list[Verdict] = []
        while len(verdicts) < len(keys):
            rest = keys[len(verdicts) :]
            if self.frozen or self._held or self._deferred is not None:
                # Whoever watches the filter grow may have frozen it in the middle of the keys.
                return verdicts + [self.check_and_add(key) for key in rest]
            verdicts += self._judged(rest)
        return verdicts

    def _judged(self, keys: Sequence[bytes]) -> list[Verdict]:
        """Return the verdicts of the first *keys*: of as many as the filter takes at once."""
        answers = self.filter.add_many(keys)
        if self.store is None:
            return [Verdict.UNCONFIRMED if answer else Verdict.NEW for answer in answers]
        if self._always:
            new = Verdict.NEW, Verdict.FALSE_POSITIVE
            stored = self.store.add_many(keys[: len(answers)], stamp(self._clock(), "", None))
            return [
                new[answer] if added else Verdict.DUPLICATE
                for answer, added in zip(answers, stored, strict=True)
            ]
        answered = list(zip(keys, answers, strict=False))
        value = stamp(self._clock(), "", None)
        # First what is new: a key that comes again later among them has to be found.
        self.store.put_many([key for key, answer in answered if not answer], value)
        added = iter(self.store.add_many([key for key, answer in answered if answer], value))
        return [
            Verdict.NEW if not answer else Verdict.FALSE_POSITIVE if next(added) else Verdict.DUPLICATE
            for answer in answers
        ]

    def __contains__(self, key: bytes) -> bool:
        """Whether ``check_and_add`` would call *key* seen, if it does not expire.

        Raises:
            StoreError: the store failed.
        """
        if key in self._held or (self._deferred is not None and key in self._deferred):
            return True
        if self._always and self.store is not None:
            return key in self.store
        if key not in self.filter:
            return False
        return self.store is None or key in self.store

    def _defer(self, key: bytes) -> Verdict:
        assert self._deferred is not None
        if key in self._deferred or key in self.filter:
            return Verdict.UNCONFIRMED
        self._deferred.add(key)
        return Verdict.NEW
