"""How do the rules become the project's request fingerprint? Opt-in, with a warning.

The HTTP cache and the media pipelines ask the same fingerprinter: under an id rule they serve one URL's
response for another one with the same id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.request import RequestFingerprinter

import scrapy_bloomdupe.settings as settings
from scrapy_bloomdupe.keys import RequestKeys, rules_of

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from typing_extensions import Self


class RulesFingerprinter:
    """``REQUEST_FINGERPRINTER_CLASS``: the key of the rules where they speak, else Scrapy's fingerprint."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Crawler | None = crawler
        self._keys: RequestKeys | None = None
        self._dry_run = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def fingerprint(self, request: Request) -> bytes:
        if (crawler := self._crawler) is not None:
            rules, spider = rules_of(crawler)
            self._keys = RequestKeys(RequestFingerprinter(), rules, spider)
            self._dry_run = settings.read(crawler.settings).dry_run
            # The keys of a crawler must not keep it alive.
            self._crawler = None
        keys = self._keys
        assert keys is not None
        key = None if self._dry_run else keys.key(request)
        # What is never a duplicate has a fingerprint nevertheless: its own.
        return key or keys.fingerprint(request)
