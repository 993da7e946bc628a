"""How is it switched on in one line? ``ADDONS = {"scrapy_bloomdupe.Addon": 500}``."""

from __future__ import annotations

from typing import Any

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
        # Under any of its names: twice is an error of Scrapy's. None switches it off.
        if not any(_is_ours(middleware) for middleware in middlewares):
            middlewares[UrlRulesMiddleware] = _ORDER
            priority = max(settings.getpriority("SPIDER_MIDDLEWARES") or 0, 15)
            settings.set("SPIDER_MIDDLEWARES", middlewares, priority=priority)
        if settings.getbool("BLOOMDUPE_FINGERPRINTER"):
            settings.set("REQUEST_FINGERPRINTER_CLASS", RulesFingerprinter, priority="addon")


def _is_ours(middleware: Any) -> bool:
    if not isinstance(middleware, str):
        return middleware is UrlRulesMiddleware
    return middleware.startswith("scrapy_bloomdupe.") and middleware.endswith(".UrlRulesMiddleware")
