"""Is this duplicate the target of its own redirect? Then it must pass, or its page is lost.

A page that redirects to a URL with the same key (to set a cookie, from http to https, by a rule) asks
the filter a second time for the same key, and Scrapy drops it as a duplicate of itself without a word.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

#: In ``request.meta``: how many hops the request had when its response reached a callback. Redirects of
#: Scrapy's middlewares add a hop; a copy (``meta=response.meta``) has no more than it copied.
DELIVERED = "bloomdupe_delivered_hops"

#: In ``request.meta``: of a request that was seen and has expired, its URL and when it was let pass, in
#: seconds since 1970.
RENEWED = "bloomdupe_renewed"

#: In ``request.meta``: the method of the last hop that the filter judged, if it was not GET.
ASKED = "bloomdupe_asked_method"

_REMEMBERED = 10_000
# A page can set a cookie and refresh itself once; one that refreshes itself for ever (a news ticker) would be
# fetched until Scrapy gives it up.
_REFRESHES = 1


class Keys(Protocol):
    """What makes a key of a request; None: it is never a duplicate."""

    @property
    def key(self) -> Callable[[Request], bytes | None]: ...


def _is_refresh(meta: dict[str, Any]) -> bool:
    reasons = meta.get("redirect_reasons")
    return reasons is not None and len(reasons) > 0 and reasons[-1] == "meta refresh"


class RedirectPasses:
    """Tells a redirect that Scrapy made from redirect meta that somebody copied.

    Args:
        keys: makes the keys of requests.
        max_hops: passes per key, so that no crafted meta lets one key pass for ever.
    """

    def __init__(self, keys: Keys, max_hops: int) -> None:
        self._keys = keys
        self._max_hops = max_hops
        self._granted: OrderedDict[bytes, int] = OrderedDict()

    @classmethod
    def from_settings(cls, keys: Keys, settings: BaseSettings) -> RedirectPasses:
        return cls(keys, settings.getint("REDIRECT_MAX_TIMES"))

    def asked(self, request: Request) -> None:
        """Note the method of a request that the filter judged: a redirect can turn POST into GET, and a
        page that was posted to is not the one that was got."""
        if request.method != "GET" or ASKED in request.meta:
            request.meta[ASKED] = request.method

    def response_received(self, response: Response, request: Request) -> None:
        """Handle the signal of this name: from here on the meta can be copied by a callback."""
        if hops := request.meta.get("redirect_urls"):
            request.meta[DELIVERED] = len(hops)

    def renewed(self, request: Request, key: bytes, now: float) -> None:
        """Note that *request*, with *key*, was let pass *now* because it has expired; so have its passes."""
        self.forgotten(key)
        request.meta[RENEWED] = [request.url, int(now)]

    def forgotten(self, key: bytes) -> None:
        """Give *key*, which is new again, its passes anew."""
        self._granted.pop(key, None)

    def expiry(self, request: Request, expire: float, now: float) -> float:
        """Return *expire* seconds, or less: what an expired page redirects to was asked for a moment after
        it, the last time, and is to be asked for with it again."""
        meta = request.meta
        url, time = meta.get(RENEWED) or ("", 0.0)
        hops = meta.get("redirect_urls") or []
        if meta.get("redirect_times") != len(hops) or url not in hops[meta.get(DELIVERED) or 0 :]:
            return expire
        # Not what was seen since: that is the page itself, on its way.
        return min(expire, max(now - time, 0) + 1)

    def allows(self, request: Request, key: bytes) -> bool:
        """Return whether *request*, a duplicate with *key*, is the target of its own redirect.

        Raises:
            Exception: whatever the fingerprinter raises.
        """
        meta = request.meta
        hops = meta.get("redirect_urls")
        if not hops or "redirect_ttl" not in meta or meta.get("redirect_times") != len(hops):
            return False
        # What was copied is the way of another request.
        hops = hops[meta.get(DELIVERED) or 0 :]
        # Any hop, not only the last one: a page can send a visitor elsewhere for a cookie and back.
        if meta.get(ASKED, "GET") != request.method or not any(
            self._keys.key(request.replace(url=hop)) == key for hop in dict.fromkeys(reversed(hops))
        ):
            return False
        granted = self._granted.pop(key, 0)
        if granted < (_REFRESHES if _is_refresh(meta) else self._max_hops):
            self._granted[key] = granted + 1
            if len(self._granted) > _REMEMBERED:
                self._granted.popitem(last=False)
            return True
        self._granted[key] = granted
        return False
