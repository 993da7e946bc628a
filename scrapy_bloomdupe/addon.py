"""The add-on: ``ADDONS = {"scrapy_bloomdupe.Addon": 500}`` switches everything on."""

from __future__ import annotations

from typing import Any

from scrapy.settings import BaseSettings

from scrapy_bloomdupe.dupefilter import BloomDupeFilter
from scrapy_bloomdupe.fingerprinter import RulesFingerprinter
from scrapy_bloomdupe.gatemiddleware import GateMiddleware
from scrapy_bloomdupe.middleware import AcknowledgeMiddleware, UrlRulesMiddleware
from scrapy_bloomdupe.sharedmiddleware import SharedMiddleware

# Near the engine: it sees what all other middlewares have made of a request.
_ORDER = 10
# Nearer: it is asked about the URL that the rules have made of it.
_GATE_ORDER = 5
# Next to the engine, whatever else there is.
_FIRST = -1_000_000
_SECOND = _FIRST + 1


class Addon:
    """Makes ``BloomDupeFilter`` the duplicate filter and switches its middlewares on.

    A project's own settings take precedence. With ``BLOOMDUPE_GATE`` the gate is switched on, too. With
    ``BLOOMDUPE_FINGERPRINTER`` the rules' key is the project's request fingerprint as well: for its HTTP
    cache and media pipelines too.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        settings.set("DUPEFILTER_CLASS", BloomDupeFilter, priority="addon")
        _add(settings, "SPIDER_MIDDLEWARES", UrlRulesMiddleware, _ORDER)
        if settings.get("BLOOMDUPE_GATE"):
            _add(settings, "SPIDER_MIDDLEWARES", GateMiddleware, _GATE_ORDER)
        _add(settings, "SPIDER_MIDDLEWARES", AcknowledgeMiddleware, _FIRST)
        _add(settings, "SPIDER_MIDDLEWARES", SharedMiddleware, _SECOND)
        if settings.getbool("BLOOMDUPE_RETRY_FAILED"):
            _add(settings, "DOWNLOADER_MIDDLEWARES", AcknowledgeMiddleware, _FIRST)
        if settings.getbool("BLOOMDUPE_FINGERPRINTER"):
            settings.set("REQUEST_FINGERPRINTER_CLASS", RulesFingerprinter, priority="addon")


def _add(settings: BaseSettings, name: str, middleware: type, order: int) -> None:
    middlewares = settings.getdict(name)
    # Under any of its names: twice is an error of Scrapy's. None switches it off.
    if not any(_is(middleware, found) for found in middlewares):
        middlewares[middleware] = order
        priority = max(settings.getpriority(name) or 0, 15)
        settings.set(name, middlewares, priority=priority)


def _is(middleware: type, found: Any) -> bool:
    if not isinstance(found, str):
        return found is middleware
    return found.startswith("scrapy_bloomdupe.") and found.endswith(f".{middleware.__name__}")
