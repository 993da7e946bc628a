"""Which requests pass whatever the filter knows, and are remembered nevertheless?

Those with ``meta={"bloomdupe": "record"}``, and start requests where ``BLOOMDUPE_RECORD_START`` says so.
Scrapy does not ask a duplicate filter about requests with ``dont_filter``: whoever sees them go by tells it
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.keys import RequestKeys
from scrapy_bloomdupe.rules.ruleset import Decision
from scrapy_bloomdupe.seen import SeenSet
from scrapy_bloomdupe.shared.seen import SharedSeen
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.http import Response

#: In ``request.meta``: ``RECORD``.
META_RECORD = "bloomdupe"
RECORD = "record"
# Scrapy's own mark, since 2.13.
_START = "is_start_request"
#: In ``request.meta``: the URL that was remembered, and whether a callback got to see that. A copy of the
#: meta (``meta=response.meta``, an errback's) is not meant to pass for ever.
RECORDED = "bloomdupe_recorded"
DELIVERED_RECORD = "bloomdupe_delivered_record"


class Recorder:
    """Sets the marks of such requests.

    Args:
        keys: of the crawl.
        key_of: what makes the key that is asked for; None: it is never a duplicate.
        seen: where marks are set.
        start: start requests with ``dont_filter`` are remembered.
    """

    def __init__(
        self,
        keys: RequestKeys,
        key_of: Callable[[Request, Decision | None], bytes | None],
        seen: SeenSet | SharedSeen,
        watch: Watch,
        *,
        start: bool,
    ) -> None:
        self._keys = keys
        self._key_of = key_of
        self._seen = seen
        self._watch = watch
        self._start = start
        #: Told of a request that the filter was not asked about, and of its mark.
        self.on_unasked: Callable[[Request, bytes], None] = lambda request, key: None

    def wants(self, request: Request) -> bool:
        """Return whether *request* passes and is remembered."""
        meta = request.meta
        if meta.get(META_RECORD) != RECORD and not (self._start and request.dont_filter and meta.get(_START)):
            return False
        url = meta.get(RECORDED, request.url)
        if meta.get(DELIVERED_RECORD) or not isinstance(url, str):
            return False
        # A retry, or what it was redirected to.
        return url == request.url or url in meta.get("redirect_urls", ())

    def unasked(self, request: Request) -> None:
        """Remember a request that the filter is not asked about and that is being sent; for a handler of
        ``request_reached_downloader``. What is scheduled only may be dropped, and nobody would fetch its
        page."""
        if request.dont_filter and self.wants(request) and (key := self.mark(request)) is not None:
            self.on_unasked(request, key)

    def mark(self, request: Request) -> bytes | None:
        """Remember *request* as seen now, and return its key; None: it has none, or that failed."""
        where = stats.ERROR_RULES
        try:
            decision = self._keys.decide(request)
            where = stats.ERROR_KEY
            key = self._key_of(request, decision)
            if key is None:
                return None
            where = stats.ERROR_CHECK
            # It is fetched now, whenever that was the last time.
            self._seen.check_and_add(key, request.url, decision.under if decision else None, 0.0)
        except Exception as exc:
            self._watch.failed(where, exc, request)
            return None
        request.meta.setdefault(RECORDED, request.url)
        self._watch.count(stats.RECORDED)
        return key

    def response_received(self, response: Response, request: Request) -> None:
        """Handle the signal of this name: from here on the meta can be copied by a callback."""
        if RECORDED not in request.meta:
            # From a cache: it was not sent.
            self.unasked(request)
        if RECORDED in request.meta:
            request.meta[DELIVERED_RECORD] = True
