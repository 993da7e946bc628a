"""Which bytes is a request known by? The one place where a request becomes a key.

Whether the key was seen is not asked here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from scrapy import Request

import scrapy_bloomdupe.settings as settings
from scrapy_bloomdupe.canary import canary_requests
from scrapy_bloomdupe.durations import shown
from scrapy_bloomdupe.fastprint import (
    fast_fingerprint,
    fast_fingerprint_of_get,
    is_scrapys,
    not_easy,
    trial,
)
from scrapy_bloomdupe.hashing import as_key
from scrapy_bloomdupe.rules.ruleset import Decision, RuleSet

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.utils.request import RequestFingerprinterProtocol

#: In ``request.meta``: a string that is the key of this request, or False: rules leave it alone.
META_KEY = "bloomdupe_key"
#: In ``request.meta``: the value of ``META_KEY`` that a callback got to see. A copy of the meta
#: (``meta=response.meta``) has both, and is not meant to be the same page.
DELIVERED_KEY = "bloomdupe_delivered_key"
#: In ``request.meta``: the value of ``META_KEY`` and the URL that it was given for. An errback or a
#: downloader middleware can copy the meta before there is a response.
GIVEN_FOR = "bloomdupe_key_given_for"

_UNDECIDED = object()
# Canaries with each of the first requests: a millisecond. A crawl need not wait for all of them to begin.
_TRIED_AT_ONCE = 10

#: What in a request's meta can give it another key than its URL does.
SPECIAL_META = frozenset({META_KEY, "verbatim_url"})


class RequestKeys:
    """Keys by the project's rules where they speak, else by its own fingerprinter.

    Args:
        fingerprinter: the project's.
        rules: None: nothing changes about what a duplicate is.
        spider: its name, for rules that are for some spiders.
    """

    def __init__(
        self,
        fingerprinter: RequestFingerprinterProtocol,
        rules: RuleSet | None = None,
        spider: str | None = None,
    ) -> None:
        self.rules = rules
        self._fingerprinter = fingerprinter
        # Until it was tried, a few canaries with each of the first requests, Scrapy is asked.
        self._fast_fingerprint: Callable[[Request], bytes | None] = not_easy
        self._trial = trial(fingerprinter) if is_scrapys(fingerprinter) else None
        #: URL -> its fingerprint in a GET request without body and ``SPECIAL_META``; None: not easy, ask
        #: ``fingerprint``.
        self.of_get: Callable[[str], bytes | None] = not_easy
        self._spider = spider
        # By object: the middleware, the filter and the log ask for the same request; a copy of it is
        # another one, whatever its meta says.
        self._decisions: WeakKeyDictionary[Request, object] = WeakKeyDictionary()

    @property
    def by_url(self) -> bool:
        """Whether nothing but method, URL, body and the names in ``SPECIAL_META`` makes a key."""
        return is_scrapys(self._fingerprinter)

    def expiring(self) -> str | None:
        """Return what says that pages expire: a rule and its length of time; None: no rule does."""
        for rule in self.rules.rules if self.rules is not None else ():
            if rule.expire is not None:
                return f"expire = {shown(rule.expire)!r} of rule {rule.name!r}"
        return None

    def key(self, request: Request) -> bytes | None:
        """Return the 20 bytes of *request*; None: it is never a duplicate.

        Where a ``call:`` of the rules fails it is the fingerprint: that merges no more than Scrapy does,
        and a page that links to itself is not crawled for ever. ``decide`` raises what failed.

        Raises:
            TypeError: the fingerprinter returned something else than bytes.
            Exception: whatever the fingerprinter raises.
        """
        try:
            decision = self.decide(request)
        except Exception:
            decision = None
        return self.key_of(request, decision)

    def key_of(self, request: Request, decision: Decision | None) -> bytes | None:
        """As ``key``, of a request that was decided."""
        if decision is None or not speaks(decision):
            return self.fingerprint(request)
        return None if decision.action == "keep" else decision.digest()

    def fingerprint(self, request: Request) -> bytes:
        """Return the 20 bytes of the project's fingerprint, whatever the rules say."""
        fast = self._fast_fingerprint(request)
        if fast is not None:
            return fast
        if self._trial is not None:
            self._try_on(self._trial)
        return as_key(self._fingerprinter.fingerprint(request))

    def _try_on(self, trial: Iterator[bool]) -> None:
        agreed = list(islice(trial, _TRIED_AT_ONCE))
        if all(agreed) and len(agreed) == _TRIED_AT_ONCE:
            return
        self._trial = None
        if all(agreed):
            self._fast_fingerprint, self.of_get = fast_fingerprint, fast_fingerprint_of_get

    def decide(self, request: Request) -> Decision | None:
        """Return what the rules say of *request*; None: nothing, its fingerprint is its key.

        Raises:
            Exception: whatever a ``call:`` of the rules raises.
        """
        if self.rules is None and META_KEY not in request.meta:
            return None
        decision = self._decisions.get(request, _UNDECIDED)
        if decision is _UNDECIDED:
            decision = self._decisions[request] = self._decide(request)
        return decision  # type: ignore[return-value]

    def remember(self, request: Request, decision: Decision | None) -> None:
        """Take *decision* for *request*, which was made of another one that was decided, or that the
        rules fail on."""
        self._decisions[request] = decision

    def response_received(self, response: Response, request: Request) -> None:
        """Handle the signal of this name: from here on the meta can be copied by a callback."""
        if isinstance(given := request.meta.get(META_KEY), str):
            request.meta[DELIVERED_KEY] = given

    def identity(self, *, with_rules: bool = True) -> Mapping[str, str]:
        """Return what the keys mean: the fingerprinter's name, its canary, and the digest of the rules.

        The canary is a digest over the fingerprints of a fixed set of requests: it tells a changed
        fingerprinter, Scrapy or w3lib whatever their versions say.
        """
        digest = hashlib.sha256()
        for request in canary_requests():
            try:
                fingerprint = self._fingerprinter.fingerprint(request)
            except Exception as exc:
                # A fingerprinter may need meta that these requests lack; that it does is part of it.
                fingerprint = type(exc).__name__.encode()
            if not isinstance(fingerprint, bytes):
                # Refused when a request is asked for; its text can hold an address.
                fingerprint = type(fingerprint).__name__.encode()
            digest.update(repr(fingerprint).encode() + b"\n")
        kind = type(self._fingerprinter)
        identity = {
            "fingerprinter": f"{kind.__module__}.{kind.__qualname__}",
            "canary": digest.hexdigest(),
        }
        if self._spider is not None:
            identity["spider"] = self._spider
        if self.rules is not None and with_rules and (digest_of_rules := self.rules.digest()):
            identity["rules"] = digest_of_rules["*"]
        return identity

    def _decide(self, request: Request) -> Decision | None:
        meta = request.meta
        given = meta.get(META_KEY)
        if given is False:
            return None
        if isinstance(given, str) and _is_own(given, request):
            if (meta.get(GIVEN_FOR) or [None])[0] != given:
                meta[GIVEN_FOR] = [given, request.url]
            return Decision("key", f"v1|meta|{len(given)}:{given}", META_KEY, request.url)
        # Whoever wants a URL to be sent as it is wants it to be told from its other spellings.
        if self.rules is None or meta.get("verbatim_url"):
            return None
        return self.rules.decide(request.url, request.method, request.body, self._spider)


def speaks(decision: Decision) -> bool:
    """Return whether the rules asked for this key; else the fingerprint is the key, as without rules."""
    return decision.rule is not None or decision.steps_by is not None


def _is_own(given: str, request: Request) -> bool:
    """Return whether a key in the meta was meant for *request*, or was copied with the rest of it."""
    meta = request.meta
    if meta.get(DELIVERED_KEY) == given:
        return False
    key, url = meta.get(GIVEN_FOR) or (given, request.url)
    # The target of a redirect is what the key was given for.
    return key != given or url == request.url or url in meta.get("redirect_urls", ())


#: Crawls with the middleware that does what rules say of dropping and rewriting.
with_middleware: WeakSet[Crawler] = WeakSet()

_of_crawler: WeakKeyDictionary[Crawler, RequestKeys] = WeakKeyDictionary()


def rules_of(crawler: Crawler) -> tuple[RuleSet | None, str | None]:
    """Return the rules of a crawl and the name of its spider.

    Raises:
        ConfigurationError: a rule or preset is wrong.
    """
    spider = crawler.spider
    rules = settings.read_rules(crawler.settings, getattr(spider, "bloomdupe_rules", ()))
    return rules, spider.name if spider is not None else None


def of_crawler(crawler: Crawler) -> RequestKeys:
    """Return the keys of a crawl: one object for its filter and its middleware.

    Raises:
        ConfigurationError: a rule or preset is wrong.
    """
    keys = _of_crawler.get(crawler)
    if keys is None:
        fingerprinter = crawler.request_fingerprinter
        assert fingerprinter is not None
        keys = _of_crawler[crawler] = RequestKeys(fingerprinter, *rules_of(crawler))
    return keys
