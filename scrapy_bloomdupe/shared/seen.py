"""Was this key seen, by any of several crawls? What ``seen.SeenSet`` answers for one crawl, for many.

The server decides (``parts``); here is what keeps it from being asked, and what is done about each key that
it was asked for. Verdicts can be asked for ahead, in another thread (``unknown``, ``begin``, ``leave``), and
are then taken by key. All but that asking belongs to the crawl's thread.

Invariants, the reason why no page is lost:

* A key is noted in ``claims`` before the server is asked for it, and until its request is in the frontier.
* What the server was asked for and did not answer is never asked for again: its request passes.
* What was granted or is uncertain, and was never scheduled, is given back, or passes when it comes again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

from scrapy_bloomdupe.errors import BloomdupeError, RemoteError
from scrapy_bloomdupe.filters.base import Filter
from scrapy_bloomdupe.seen import SeenSet, Verdict
from scrapy_bloomdupe.shared.claims import Claims
from scrapy_bloomdupe.shared.known import KnownKeys
from scrapy_bloomdupe.shared.parts import RemoteStore, SharedParts

#: Seconds after which a verdict that was asked for ahead counts as never used.
UNUSED_AFTER = 30.0

_GRANTED = (Verdict.NEW, Verdict.FALSE_POSITIVE)


class SharedSeen:
    """A seen-set of several crawls.

    Args:
        local: what this crawl knows for itself. With an exact store its word is final. Without one its filter
            is asked under the policy ``negatives``, only measures beside a shared store, and stays empty
            where a filter is shared.
        parts: what is shared.
        policy: one of ``seen.POLICIES``.
        claims: None: there is no frontier, and nothing to resume.
        cache_size: bytes of memory for keys whose answer is known.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        local: SeenSet,
        parts: SharedParts,
        policy: str,
        *,
        claims: Claims | None = None,
        cache_size: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.parts = parts
        self.policy = policy
        #: Keys that passed since the last run may have been killed between asking for them and writing.
        self.num_owed_passed = 0
        #: Keys that were granted and never scheduled.
        self.num_unused = 0
        #: Called when a key was made new again.
        self.on_forget: Callable[[], None] = lambda: None
        self._local = local
        self._keeps_local = local.store is not None or parts.filter is None
        self._asks_local = local.store is not None or policy == "negatives"
        self._claims = claims
        self._clock = clock
        self._known = KnownKeys(cache_size, clock)
        self._owed: set[bytes] = set(claims.keys) if claims is not None else set()
        self._left: dict[bytes, tuple[Verdict | BloomdupeError, float]] = {}
        self._asking: set[bytes] = set()
        self._held: set[bytes] = set()
        # Their requests are written with the next commit.
        self._scheduled: dict[bytes, None] = {}

    @property
    def filter(self) -> Filter:
        """The filter of this crawl's own."""
        return self._local.filter

    @property
    def store(self) -> RemoteStore | None:
        """The exact store that all share."""
        return self.parts.store

    @property
    def frozen(self) -> bool:
        """The filter of this crawl's own takes nothing more; what is shared does."""
        return self._local.frozen

    @frozen.setter
    def frozen(self, frozen: bool) -> None:
        self._local.frozen = frozen

    @property
    def num_deferred(self) -> int:
        """Keys that are not in the filter of this crawl's own yet."""
        return self._local.num_deferred

    @property
    def num_owed(self) -> int:
        """Keys that were asked for and may belong to nobody: they pass when they come."""
        return len(self._owed)

    @property
    def can_forget(self) -> bool:
        """Whether ``forget`` is possible at all."""
        return self.store is not None

    def check_and_add(
        self, key: bytes, url: str = "", rule: str | None = None, expire: float | None = None
    ) -> Verdict:
        """Judge *key* and remember it; asks the server, and waits, if nothing else knows.

        Args:
            key: as for ``seen.SeenSet``, as are *url* and *rule*, which only this crawl's own store keeps.
            expire: not kept by a server; ignored.

        Raises:
            RemoteError, StoreError: nothing is proved, so the page must not be called seen.
        """
        left = self._left.pop(key, None)
        if left is not None:
            return self._use(key, left[0], url, rule)
        if key in self._owed:
            self._owed.discard(key)
            self.num_owed_passed += 1
            return self._use(key, Verdict.NEW, url, rule)
        if key in self._asking:
            # Whoever asked will be told, and takes it if it is granted. Not to be remembered: see ``is_own``.
            return Verdict.DUPLICATE
        if (known := self._known_here(key)) is not None:
            return known
        if self._claims is not None:
            self._claims.begin([key])
        try:
            verdict: Verdict | BloomdupeError = self.parts.judge([key])[0]
        except BloomdupeError as exc:
            verdict = exc
        return self._use(key, verdict, url, rule)

    def check_and_add_many(self, keys: Sequence[bytes]) -> list[Verdict]:
        """Judge *keys* as ``check_and_add`` does one after the other, in one round trip.

        Raises:
            RemoteError, StoreError: nothing is proved of any of the keys.
        """
        asked = self.unknown(keys)
        if asked:
            self.begin(asked)
            try:
                self.leave(asked, self.parts.judge(asked))
            except BloomdupeError as exc:
                self.leave(asked, exc)
        return [self.check_and_add(key) for key in keys]

    def unknown(self, keys: Iterable[bytes]) -> list[bytes]:
        """Return which of *keys* the server has to be asked for, each once.

        Raises:
            StoreError: the store of this crawl's own failed.
        """
        return [
            key
            for key in dict.fromkeys(keys)
            if key not in self._left
            and key not in self._asking
            and key not in self._owed
            and self._known_here(key) is None
        ]

    def is_own(self, key: bytes) -> bool:
        """Return whether this crawl was granted *key*, as far as it remembers: nobody else gives it back, and
        no answer that is on its way can make it new."""
        return self._known.is_own(key)

    def begin(self, keys: Sequence[bytes]) -> None:
        """Note that the server will be asked for *keys*, which ``unknown`` gave.

        Raises:
            StoreError: not noted: they must not be asked for.
        """
        if self._claims is not None:
            self._claims.begin(keys)
        self._asking.update(keys)

    def leave(self, keys: Sequence[bytes], answer: Sequence[Verdict] | BloomdupeError) -> None:
        """Keep the server's answer for *keys* until each is asked for."""
        now = self._clock()
        answers: Sequence[Verdict | BloomdupeError]
        answers = [answer] * len(keys) if isinstance(answer, BloomdupeError) else answer
        for key, one in zip(keys, answers, strict=True):
            self._asking.discard(key)
            self._left[key] = one, now

    def unused(self, *, all_of_them: bool = False) -> list[bytes]:
        """Return the keys that were granted and not scheduled, to be given back with ``parts.give_back``.

        Whoever asks for one of them here passes, also while it is on its way back: the server would still
        call it seen. What cannot be given back stays owed.
        """
        before = self._clock() - UNUSED_AFTER
        returned: list[bytes] = []
        ended: list[bytes] = []
        for key, (answer, when) in list(self._left.items()):
            if when > before and not all_of_them:
                # They were left in this order.
                break
            del self._left[key]
            if isinstance(answer, Verdict) and answer not in _GRANTED:
                ended.append(key)
                continue
            self.num_unused += 1
            self._owed.add(key)
            self._known.discard(key)
            # Uncertain ones are not given back: another crawl may have been granted them.
            if isinstance(answer, Verdict) and self.store is not None:
                returned.append(key)
        if self._owed:
            self.on_forget()
        self._end(ended)
        return returned

    def still_owed(self) -> list[bytes]:
        """Return the keys that were asked for and belong to nobody, to be given back at the end: their page
        did not give them again, and other crawls must be able to have them."""
        return list(self._owed)

    def cleared(self) -> None:
        """All that is shared was cleared: nothing is known to be seen, and nothing is owed."""
        self._known.clear()
        owed, self._owed = self._owed, set()
        self._end(owed)
        self.on_forget()

    def given_back(self, keys: Sequence[bytes], *, done: bool) -> None:
        """Note what became of ``unused`` keys; those that could not be given back stay owed, and those that a
        filter of this crawl's own would go on to call seen."""
        if done:
            ended = [key for key in keys if not self._is_sealed(key)]
            self._owed.difference_update(ended)
            self._end(ended)

    def emptied(self, *, with_queue: bool) -> None:
        """What had been seen is gone from the server: what others were granted is not known any more, nor
        what a filter of this crawl's own says of it.

        Args:
            with_queue: the requests that were granted were there, too, and are gone with it.
        """
        if with_queue:
            self._known.clear()
        else:
            self._known.forget_foreign()
        self._asks_local = self._local.store is not None and not with_queue
        self.on_forget()

    def _is_sealed(self, key: bytes) -> bool:
        return self._asks_local and self._local.store is None and key in self._local

    def hold(self, key: bytes) -> None:
        """Keep *key*, which was just called new, in memory only until ``release``: after a crash it passes
        once more."""
        self._scheduled.pop(key, None)
        self._held.add(key)
        if self._keeps_local:
            self._local.hold(key)

    def release(self, key: bytes) -> None:
        """Remember a held *key* as others are.

        Raises:
            StoreError: the store of this crawl's own failed.
        """
        if key in self._held:
            self._held.discard(key)
            self._local.release(key)
            self._scheduled[key] = None

    def settle(self) -> None:
        """What belongs to the keys that were scheduled is written: they are no claims any more.

        Raises:
            StoreError: that could not be noted.
        """
        self._local.settle()
        if self._scheduled:
            scheduled, self._scheduled = list(self._scheduled), {}
            self._end(scheduled)

    def forget(self, key: bytes) -> bool:
        """Make *key* new again, for this crawl at least; returns True.

        Where the shared store, or a filter that is asked first, cannot forget it, it passes here when it
        comes again.

        Raises:
            StoreError: the store of this crawl's own failed.
        """
        self._known.discard(key)
        self._scheduled.pop(key, None)
        self._local.forget(key)
        given_back = False
        with contextlib.suppress(RemoteError):
            given_back = self.parts.give_back([key])
        if not given_back or (self._asks_local and self._local.store is None):
            self._owed.add(key)
            if self._claims is not None:
                self._claims.begin([key])
        self.on_forget()
        return True

    def __contains__(self, key: bytes) -> bool:
        """Whether this crawl knows that *key* was seen; the server is not asked.

        Raises:
            StoreError: the store of this crawl's own failed.
        """
        return key not in self._owed and self._known_here(key) is not None

    def _known_here(self, key: bytes) -> Verdict | None:
        if (known := self._known.get(key)) is not None:
            return known
        if key in self._held:
            return Verdict.DUPLICATE
        if self._asks_local and key in self._local:
            # What this crawl's own filter says alone is the policy's risk.
            return Verdict.UNCONFIRMED if self._local.store is None else Verdict.DUPLICATE
        return None

    def _use(self, key: bytes, answer: Verdict | BloomdupeError, url: str, rule: str | None) -> Verdict:
        """The request of *key* is judged by *answer*."""
        if isinstance(answer, Verdict) and answer not in _GRANTED:
            self._known.put_foreign(key, answer)
            if self._keeps_local and self._local.store is None:
                self._local.check_and_add(key, url, rule)
            self._end([key])
            return answer
        # It passes, and this crawl does not need it a second time. Not surely seen by all: not exact there.
        self._known.put_own(key, Verdict.DUPLICATE)
        self._scheduled[key] = None
        here = self._local.check_and_add(key, url, rule) if self._keeps_local else Verdict.NEW
        if isinstance(answer, BloomdupeError):
            raise answer
        if here is not Verdict.NEW and not self._asks_local:
            return Verdict.FALSE_POSITIVE
        return answer

    def _end(self, keys: Iterable[bytes]) -> None:
        """End the claims to *keys*, but for those that may still be granted, or are not written yet."""
        if self._claims is not None:
            busy = self._held, self._scheduled, self._asking, self._owed
            self._claims.end([key for key in keys if not any(key in keys for keys in busy)])
