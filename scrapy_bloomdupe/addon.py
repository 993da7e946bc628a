"""How is it switched on in one line? ``ADDONS = {"scrapy_bloomdupe.Addon": 500}``."""

from __future__ import annotations

from scrapy.settings import BaseSettings

from scrapy_bloomdupe.dupefilter import BloomDupeFilter


class Addon:
    """Makes ``BloomDupeFilter`` the duplicate filter; a project's own setting takes precedence."""

    def update_settings(self, settings: BaseSettings) -> None:
        settings.set("DUPEFILTER_CLASS", BloomDupeFilter, priority="addon")
