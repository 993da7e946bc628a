"""Is the fingerprint the key of the filter, where somebody asked for it, and else Scrapy's own?"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from crawling import idle_crawler
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter, fingerprint

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.fingerprinter import RulesFingerprinter
from scrapy_bloomdupe.keys import of_crawler

ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}, "BLOOMDUPE_FINGERPRINTER": True}
RULES: list[dict[str, Any]] = [
    {"name": "item", "match": {"path": "/item"}, "key": {"sources": ["query:id"]}},
    {"name": "kept", "match": {"path": "/kept"}, "missing": "keep"},
    {"name": "broken", "match": {"path": "/broken"}, "key": {"sources": [f"call:{__name__}:broken"]}},
]
SHOP = "http://shop.example"


def broken(url: str) -> str:
    raise RuntimeError(url)


def requests() -> list[Request]:
    paths = ["/item?id=1", "/item?id=1&a=2", "/item?id=2", "/item", "/other?id=1", "/kept", "/broken"]
    return [Request(SHOP + path) for path in paths]


def test_fingerprints_are_the_keys_of_the_filter() -> None:
    crawler = idle_crawler(**ADDON, BLOOMDUPE_RULES=RULES)
    fingerprinter = crawler.request_fingerprinter
    assert isinstance(fingerprinter, RulesFingerprinter)
    keys = of_crawler(crawler)
    asked = requests()[:5]
    assert [keys.key(request) for request in asked] == [fingerprinter.fingerprint(r) for r in asked]
    assert 4 == len({fingerprinter.fingerprint(request) for request in asked})


def test_where_no_rule_speaks_it_is_scrapys_own() -> None:
    fingerprinter: Any = idle_crawler(**ADDON, BLOOMDUPE_RULES=RULES).request_fingerprinter
    for request in requests()[3:]:
        assert fingerprint(request) == fingerprinter.fingerprint(request)


def test_in_a_dry_run_it_is_scrapys_own() -> None:
    crawler = idle_crawler(**ADDON, BLOOMDUPE_RULES=RULES, BLOOMDUPE_DRY_RUN=True)
    fingerprinter: Any = crawler.request_fingerprinter
    assert list(map(fingerprint, requests())) == list(map(fingerprinter.fingerprint, requests()))


@pytest.mark.parametrize("settings", [{}, {"BLOOMDUPE_FINGERPRINTER": False}])
def test_nobody_gets_it_unasked(settings: dict[str, Any]) -> None:
    crawler = idle_crawler(ADDONS=ADDON["ADDONS"], BLOOMDUPE_RULES=RULES, **settings)
    assert RequestFingerprinter is type(crawler.request_fingerprinter)


def test_a_projects_own_fingerprinter_takes_precedence() -> None:
    crawler = idle_crawler(**ADDON, REQUEST_FINGERPRINTER_CLASS=RequestFingerprinter)
    assert RequestFingerprinter is type(crawler.request_fingerprinter)


def test_wrong_rules_are_refused() -> None:
    fingerprinter: Any = idle_crawler(**ADDON, BLOOMDUPE_RULES=[{"name": "a"}]).request_fingerprinter
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="it says nothing"):
            fingerprinter.fingerprint(requests()[0])


def test_it_does_not_keep_its_crawler_alive() -> None:
    crawler = idle_crawler(**ADDON, BLOOMDUPE_RULES=RULES)
    of_crawler(crawler)
    assert crawler.request_fingerprinter is not None
    crawler.request_fingerprinter.fingerprint(requests()[0])
    gone = weakref.ref(crawler)
    del crawler
    gc.collect()
    assert gone() is None
