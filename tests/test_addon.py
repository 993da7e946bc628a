"""Does one line of ADDONS switch the filter on, and give way to what a project says itself?"""

from __future__ import annotations

from crawling import idle_crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.settings import Settings
from scrapy.utils.misc import load_object

import scrapy_bloomdupe

ADDONS = {"scrapy_bloomdupe.Addon": 500}


class Own(BaseDupeFilter):
    """A project's own filter."""


def test_the_addon_makes_its_filter_the_duplicate_filter() -> None:
    settings = idle_crawler(ADDONS=ADDONS).settings
    assert scrapy_bloomdupe.BloomDupeFilter is load_object(settings["DUPEFILTER_CLASS"])


def test_without_the_addon_nothing_is_changed() -> None:
    assert Settings()["DUPEFILTER_CLASS"] == idle_crawler().settings["DUPEFILTER_CLASS"]


def test_a_projects_own_filter_takes_precedence_over_the_addon() -> None:
    settings = idle_crawler(ADDONS=ADDONS, DUPEFILTER_CLASS=Own).settings
    assert Own is settings["DUPEFILTER_CLASS"]


def test_the_addon_changes_no_other_setting() -> None:
    before = Settings()
    ours = {"DUPEFILTER_CLASS", "SPIDER_MIDDLEWARES"}
    for more, changed in (({}, ours), ({"BLOOMDUPE_RETRY_FAILED": True}, ours | {"DOWNLOADER_MIDDLEWARES"})):
        settings = Settings(more)
        scrapy_bloomdupe.Addon().update_settings(settings)
        assert changed | set(more) == {name for name in settings if settings[name] != before[name]}
        assert len(before) + len(more) == len(settings)


def test_the_public_names_are_all_there() -> None:
    for name in scrapy_bloomdupe.__all__:
        assert name == getattr(scrapy_bloomdupe, name).__name__
    assert set(scrapy_bloomdupe.__all__) <= set(dir(scrapy_bloomdupe))
