"""How is it switched on in one line? ``ADDONS = {"scrapy_bloomdupe.Addon": 500}``."""

from __future__ import annotations

from scrapy.settings import BaseSettings

from scrapy_bloomdupe.dupefilter import BloomDupeFilter
from scrapy_bloomdupe.fingerprinter import RulesFingerprinter
from scrapy_bloomdupe.middleware import UrlRulesMiddleware

# Near the engine: it sees what all other middlewares have made of a request.
_ORDER = 10


class Addon:
    """Makes ``BloomDupeFilter`` the duplicate filter and switches the rules' middleware on.

    A project's own settings take precedence. With ``BLOOMDUPE_FINGERPRINTER`` the rules' key is the
    project's request fingerprint as well: for its HTTP cache and media pipelines too.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        settings.set("DUPEFILTER_CLASS", BloomDupeFilter, priority="addon")
        middlewares = settings.getdict("SPIDER_MIDDLEWARES")
        if UrlRulesMiddleware not in middlewares and "scrapy_bloomdupe.UrlRulesMiddleware" not in middlewares:
            middlewares[UrlRulesMiddleware] = _ORDER
            priority = max(settings.getpriority("SPIDER_MIDDLEWARES") or 0, 15)
            settings.set("SPIDER_MIDDLEWARES", middlewares, priority=priority)
        if settings.getbool("BLOOMDUPE_FINGERPRINTER"):
            settings.set("REQUEST_FINGERPRINTER_CLASS", RulesFingerprinter, priority="addon")
