"""Which fingerprint does scrapy-redis 0.8 and later give a request? For going on with what it has seen.

It hashes the same parts as Scrapy's own fingerprinter, and leaves the headers out of the form, also where
there are none: every fingerprint differs. Earlier releases asked Scrapy 2.6's ``request_fingerprint``.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from w3lib.url import canonicalize_url

if TYPE_CHECKING:
    from scrapy import Request


class ScrapyRedisFingerprinter:
    """``REQUEST_FINGERPRINTER_CLASS``: as scrapy-redis 0.8 and later, whose set was imported."""

    def __init__(self) -> None:
        # Scrapy asks more than once for a request; what it cannot change is kept as long as it lives.
        self._known: WeakKeyDictionary[Request, bytes] = WeakKeyDictionary()

    def fingerprint(self, request: Request) -> bytes:
        known = self._known.get(request)
        if known is None:
            data = {
                "method": request.method,
                "url": canonicalize_url(request.url),
                "body": request.body.hex(),
            }
            known = hashlib.sha1(json.dumps(data, sort_keys=True).encode(), usedforsecurity=False).digest()
            self._known[request] = known
        return known
