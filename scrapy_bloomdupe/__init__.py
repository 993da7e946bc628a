"""A Scrapy duplicate filter on a persisted Bloom filter with exact confirmation.

The public names, imported when they are first asked for: ``import scrapy`` takes a second that a
filter or a command line has no use for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy_bloomdupe.addon import Addon
    from scrapy_bloomdupe.dupefilter import BloomDupeFilter
    from scrapy_bloomdupe.errors import BloomdupeError
    from scrapy_bloomdupe.filters.bloom import BloomFilter
    from scrapy_bloomdupe.fingerprinter import RulesFingerprinter
    from scrapy_bloomdupe.gate.building import build_gate
    from scrapy_bloomdupe.gate.gate import Gate
    from scrapy_bloomdupe.gatemiddleware import GateMiddleware
    from scrapy_bloomdupe.judging import unseen
    from scrapy_bloomdupe.middleware import AcknowledgeMiddleware, UrlRulesMiddleware
    from scrapy_bloomdupe.rules.rule import Key, Match, Rule
    from scrapy_bloomdupe.rules.ruleset import Decision, RuleSet
    from scrapy_bloomdupe.scrapyredisprint import ScrapyRedisFingerprinter
    from scrapy_bloomdupe.seen import SeenSet, Verdict
    from scrapy_bloomdupe.stores.lmdb import LmdbStore
    from scrapy_bloomdupe.stores.memory import MemoryStore

__version__ = "0.1.0"

__all__ = [
    "AcknowledgeMiddleware",
    "Addon",
    "BloomDupeFilter",
    "BloomFilter",
    "BloomdupeError",
    "Decision",
    "Gate",
    "GateMiddleware",
    "Key",
    "LmdbStore",
    "Match",
    "MemoryStore",
    "Rule",
    "RuleSet",
    "RulesFingerprinter",
    "ScrapyRedisFingerprinter",
    "SeenSet",
    "UrlRulesMiddleware",
    "Verdict",
    "build_gate",
    "unseen",
]

_HOMES = {
    "Addon": "addon",
    "BloomDupeFilter": "dupefilter",
    "BloomFilter": "filters.bloom",
    "BloomdupeError": "errors",
    "Decision": "rules.ruleset",
    "Gate": "gate.gate",
    "GateMiddleware": "gatemiddleware",
    "AcknowledgeMiddleware": "middleware",
    "Key": "rules.rule",
    "LmdbStore": "stores.lmdb",
    "Match": "rules.rule",
    "MemoryStore": "stores.memory",
    "Rule": "rules.rule",
    "RuleSet": "rules.ruleset",
    "RulesFingerprinter": "fingerprinter",
    "ScrapyRedisFingerprinter": "scrapyredisprint",
    "SeenSet": "seen",
    "UrlRulesMiddleware": "middleware",
    "Verdict": "seen",
    "build_gate": "gate.building",
    "unseen": "judging",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
