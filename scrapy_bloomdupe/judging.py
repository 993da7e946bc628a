"""Is this request a duplicate? What is asked, in which order, and what is done with the answer.

The way of every request, and the hottest code of a crawl. It opens and closes nothing (``dupefilter``). What
a key is, whether it was seen and where it is kept is the business of the floors below.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from scrapy.dupefilters import RFPDupeFilter
from scrapy.settings import Settings

import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.dryrun import DryRun, Fingerprints
from scrapy_bloomdupe.errors import RemoteEmptied, RemoteError
from scrapy_bloomdupe.frontier.group import GroupCommit
from scrapy_bloomdupe.frontier.queue import FrontierQueue
from scrapy_bloomdupe.keys import META_KEY, SPECIAL_META, RequestKeys, speaks
from scrapy_bloomdupe.rawfront import UNKNOWN, RawFront
from scrapy_bloomdupe.recording import META_RECORD, Recorder
from scrapy_bloomdupe.redirects import ASKED, RedirectPasses
from scrapy_bloomdupe.rules.ruleset import Decision
from scrapy_bloomdupe.rulewatch import RuleWatch
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.sharing import Sharing
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.tophosts import TopHosts
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.utils.request import RequestFingerprinterProtocol

Link = TypeVar("Link", bound=Any)

_VERDICTS = stats.VERDICTS
_NEW, _NEW_STAT = Verdict.NEW, stats.VERDICTS[Verdict.NEW]
_EXPIRED = Verdict.EXPIRED
# What keeps a request from being judged by its URL alone: a key of its own, a redirect, a wish.
_PASSES_FRONT = SPECIAL_META | {"redirect_urls", ASKED, META_RECORD}

# Keys that are kept between the question to a server and the verdict.
_AHEAD = 10_000

_of_crawler: WeakKeyDictionary[Crawler, JudgingFilter] = WeakKeyDictionary()


class JudgingFilter(RFPDupeFilter):
    """The half of ``BloomDupeFilter`` that judges requests, with the state that the other half opens."""

    #: Seconds since 1970: when a page was seen. A subclass may have another one.
    clock: Callable[[], float] = staticmethod(time.time)

    def __init__(
        self,
        settings: Settings,
        debug: bool,
        fingerprinter: RequestFingerprinterProtocol | None,
        crawler: Crawler | None,
    ) -> None:
        # No path: Scrapy's own file is neither read nor written.
        super().__init__(None, debug, fingerprinter=fingerprinter)
        self._keys = RequestKeys(self.fingerprinter)
        # What the verdict goes by.
        self._asked: RequestKeys | Fingerprints = self._keys
        self._redirects = RedirectPasses.from_settings(self._asked, settings)
        self._watch = Watch(crawler)
        self._rules = RuleWatch(self._watch)
        self._hosts: TopHosts | None = None
        self._dry_run: DryRun | None = None
        self._recorder: Recorder | None = None
        self._has_rules = True
        self._expire: float | None = None
        self._state: State | None = None
        # Nothing is judged, and nothing is opened any more.
        self._refused = False
        self._group: GroupCommit | None = None
        self._queue: FrontierQueue | None = None
        self._sharing: Sharing | None = None
        self._front: RawFront | None = None
        # What the front knows counts as this.
        self._known_verdict = stats.VERDICTS[Verdict.DUPLICATE]
        # Of plain GET requests that a server is asked about, until they are scheduled.
        self._ahead: dict[str, bytes] = {}

    def _register(self, crawler: Crawler) -> None:
        """Be the one that ``unseen`` asks in *crawler*."""
        _of_crawler[crawler] = self

    def request_seen(self, request: Request) -> bool:
        state = self._state
        if state is None:
            if self._refused or not self._watch.attempt(stats.ERROR_OPEN, self.open):
                self._refused = True
                return False
            state = self._state
            if state is None:
                return False
        front, keys = self._front, self._keys
        decision, url, expire = None, None, self._expire
        ahead: bytes | None = None
        if (
            front is not None
            and request.method == "GET"
            and not request.body
            and _PASSES_FRONT.isdisjoint(request.meta)
        ):
            url = request.url
            if (known := front.find(url)) is not UNKNOWN:
                self._count_known(url, known)
                if self._queue is not None:
                    self._queue.filtered(request)
                return True
            if self._ahead:
                ahead = self._ahead.pop(url, None)
        elif META_RECORD in request.meta and (recorder := self._recorder) and recorder.wants(request):
            return self._settled(request, recorder.mark(request), seen=False)
        key: bytes | None
        try:
            if ahead is not None:
                key = ahead
            elif self._has_rules or (url is None and META_KEY in request.meta):
                decision = self._decide(request)
                key = self._asked.key_of(request, decision)
            else:
                key = (keys.of_get(url) if url is not None else None) or keys.fingerprint(request)
        except Exception as exc:
            self._watch.failed(stats.ERROR_KEY, exc, request)
            return self._settled(request, None, seen=False)
        if key is None:
            self._watch.count(stats.KEPT)
            if decision is not None:
                self._judged(request, decision, seen=False)
            return self._settled(request, None, seen=False)
        try:
            if expire is None and decision is None:
                verdict = state.seen.check_and_add(key, url or request.url)
            else:
                expire = self._expiry(request, decision)
                under = decision.under if decision is not None and self._dry_run is None else None
                verdict = state.seen.check_and_add(key, request.url, under, expire)
        except Exception as exc:
            if isinstance(exc, RemoteEmptied):
                self._watch.count(stats.ERROR_SERVER)  # it has answered; what that means is said once
            else:
                place = stats.ERROR_SERVER if isinstance(exc, RemoteError) else stats.ERROR_CHECK
                self._watch.failed(place, exc, request)
            if self._sharing is not None:
                self._sharing.failed(exc)
            return self._settled(request, None, seen=False)
        seen = verdict is not _NEW and verdict.seen
        self._watch.count(_NEW_STAT if verdict is _NEW else _VERDICTS[verdict])
        if verdict is _EXPIRED:
            self._redirects.renewed(request, key, self.clock())
        if decision is not None:
            self._judged(request, decision, seen=seen, known=verdict is _EXPIRED)
        if url is None:
            if seen and "redirect_urls" in request.meta and self._is_own_redirect(request, key):
                self._watch.count(stats.REDIRECT_PASS)
                seen = False
            self._redirects.asked(request)
        added = not seen and (verdict is _NEW or not verdict.seen)
        filtered = self._settled(request, key, seen=seen, added=added)
        if filtered and self._hosts is not None:
            self._hosts.add(request.url)
        # Whether it was filtered or passes: from now on it is seen. Unless it was judged and not remembered.
        lasts = expire is None and (seen or not state.seen.frozen)
        # Of what other crawls were granted the last word is not spoken.
        if (
            url is not None
            and front is not None
            and lasts
            and (self._sharing is None or self._sharing.is_own(key))
        ):
            front.put(url, decision)
        return filtered

    def unseen(self, links: Iterable[Link]) -> list[Link]:
        """Return the links that are not known to be duplicates, before a request is made of them.

        For links that would be plain GET requests: without body, without ``dont_filter`` and
        ``meta["bloomdupe_key"]``. It knows the exact URLs that were seen last; what it
        does not know is judged when it is scheduled. What it drops is counted as filtered.

        Args:
            links: absolute URLs, or Scrapy's ``Link`` objects as ``process_links`` of a ``CrawlSpider``
                rule gets them.
        """
        front = self._front
        if front is None:
            return list(links)
        left = []
        for link in links:
            url = link if isinstance(link, str) else link.url
            if (known := front.find(url)) is UNKNOWN:
                left.append(link)
            else:
                self._count_known(url, known)
                self._watch.count("dupefilter/filtered")
        return left

    def forget(self, request: Request) -> bool:
        """Make the page of *request* new again; return whether it is.

        False: there is neither an exact store nor a counting filter (others cannot forget), or that failed,
        which is counted; or counters cannot tell its key from others.
        """
        state, done = self._state, False
        if state is None:
            return False
        try:
            key = self._asked.key(request)
            if key is None:
                return True
            self._redirects.forgotten(key)
            done = state.seen.forget(key)
        except Exception as exc:
            self._watch.failed(stats.ERROR_CHECK, exc, request)
        if done:
            self._watch.count(stats.FORGOTTEN)
        return done

    def _expiry(self, request: Request, decision: Decision | None) -> float | None:
        """Return the seconds after which the page of *request* is crawled again; None: never."""
        expire = self._expire
        if decision is not None and decision.expire is not None and self._dry_run is None:
            expire = decision.expire
        if expire is not None and "redirect_urls" in request.meta:
            expire = self._redirects.expiry(request, expire, self.clock())
        return expire

    def _count_known(self, url: str, decision: Any) -> None:
        self._watch.count(stats.CACHED)
        self._watch.count(self._known_verdict)
        if self._hosts is not None:
            self._hosts.add(url)
        if decision is not None:
            self._watch.attempt(stats.ERROR_CHECK, lambda: self._rules.judged(url, decision, seen=True))

    def _settled(self, request: Request, key: bytes | None, *, seen: bool, added: bool = True) -> bool:
        """Tell the frontier what becomes of *request*, and return whether it is filtered.

        Args:
            added: whether *key* was new; else it is known, and the request passes nevertheless.
        """
        queue = self._queue
        if queue is None:
            if not seen and self._group is not None:
                self._group.arm()
            return seen
        try:
            if seen and key is not None and queue.failed_urls and queue.replaces_failed(request, key):
                return False
            if seen:
                queue.filtered(request)
            elif key is not None:
                queue.judged(request, key, added=added)
        except Exception as exc:
            self._watch.failed(stats.ERROR_CHECK, exc, request)
            return False
        return seen

    def _decide(self, request: Request) -> Decision | None:
        try:
            return self._keys.decide(request)
        except Exception as exc:
            self._watch.failed(stats.ERROR_RULES, exc, request)
            # The key is its fingerprint; the rules are not asked again.
            self._keys.remember(request, None)
            return None

    def _judged(self, request: Request, decision: Decision, *, seen: bool, known: bool = False) -> None:
        # What is only counted must not cost a page: an exception here would.
        try:
            if self._dry_run is not None and speaks(decision):
                seen = self._dry_run.merges(request, decision, seen=seen or known) or seen
            self._rules.judged(request.url, decision, seen=seen)
        except Exception as exc:
            self._watch.failed(stats.ERROR_CHECK, exc, request)

    def _key_ahead(self, request: Request) -> bytes | None:
        """Return the key that a server is to be asked for before *request* is scheduled."""
        if request.dont_filter:
            return None
        front = self._front
        if (
            front is None
            or request.method != "GET"
            or request.body
            or not _PASSES_FRONT.isdisjoint(request.meta)
        ):
            return self._asked.key(request)
        url = request.url
        if front.find(url) is not UNKNOWN:
            return None
        if self._has_rules:  # they remember what they said of a request
            return self._asked.key(request)
        key = self._ahead.get(url)
        if key is None:
            if len(self._ahead) >= _AHEAD:  # of requests that never came
                self._ahead.clear()
            key = self._ahead[url] = self._keys.fingerprint(request)
        return key

    def _is_own_redirect(self, request: Request, key: bytes) -> bool:
        try:
            return self._redirects.allows(request, key)
        except Exception as exc:
            self._watch.failed(stats.ERROR_KEY, exc, request)
            return True


def unseen(spider: Spider, links: Iterable[Link]) -> list[Link]:
    """Return the links of *spider* that are not known to be duplicates; see ``BloomDupeFilter.unseen``.

    All of them where the crawl has another duplicate filter.
    """
    dupefilter = _of_crawler.get(spider.crawler)
    return list(links) if dupefilter is None else dupefilter.unseen(links)
