"""What did each rule do in this crawl? Counts, and a few pairs of different URLs that became one key.

It decides nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator

import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.history import RuleFigures
from scrapy_bloomdupe.keys import speaks
from scrapy_bloomdupe.rules.ruleset import Decision, RuleSet
from scrapy_bloomdupe.watch import Watch

_PAIRS = 3
# First URLs kept to find pairs: some megabytes. A merge over a longer distance is counted, not sampled.
_REMEMBERED = 10_000


class RuleWatch:
    """Counts by rule, in the stats of a crawl."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._first: OrderedDict[bytes, str] = OrderedDict()
        self._pairs: dict[str, list[tuple[str, str]]] = {}
        # By name: duplicates, and those under another URL than the first one that is remembered.
        self._duplicates: Counter[str] = Counter()
        self._merged: Counter[str] = Counter()

    def judged(self, url: str, decision: Decision, *, seen: bool) -> None:
        """Count a request that the filter was asked about."""
        if decision.missed is not None:
            self._watch.count(stats.rule(decision.missed, "missing"))
        elif decision.rule is not None:
            self._watch.count(stats.rule(decision.rule, "key"))
        if decision.action == "keep" or not speaks(decision):
            return
        key = decision.digest()
        if not seen:
            self._first[key] = url
            if len(self._first) > _REMEMBERED:
                self._first.popitem(last=False)
            return
        name = decision.rule or decision.steps_by or "-"
        self._duplicates[name] += 1
        first = self._first.get(key)
        if first is not None and first != url:
            self._merged[name] += 1
            pairs = self._pairs.setdefault(name, [])
            if len(pairs) < _PAIRS:
                pairs.append((first, url))

    def dropped(self, decision: Decision) -> None:
        """Count a request that is not sent."""
        assert decision.rule is not None
        self._watch.count(stats.rule(decision.rule, "dropped"))

    def rewritten(self, decision: Decision) -> None:
        """Count a request that is sent to another URL."""
        name = decision.rule or decision.missed or decision.steps_by or "-"
        self._watch.count(stats.rule(name, "rewritten"))

    def figures(self) -> dict[str, RuleFigures]:
        """Return duplicates, merges and sampled pairs by name of the rule."""
        return {
            name: RuleFigures(
                {"duplicates": count, "merged": self._merged[name]}, tuple(self._pairs.get(name, ()))
            )
            for name, count in self._duplicates.items()
        }

    def lines(self) -> Iterator[str]:
        """Give the sampled pairs, as lines for the log."""
        for name, pairs in self._pairs.items():
            for first, second in pairs:
                yield f"{name}: {second} was taken for {first}"


def idle_rules(rules: RuleSet, spider: str | None) -> str | None:
    """Return a warning for a crawl without the middleware; None: no rule of the spider needs it."""
    names = [
        repr(rule.name)
        for rule in rules.rules
        if (rule.missing == "drop" or rule.apply == "url")
        and (not rule.match.spider or spider in rule.match.spider)
    ]
    if not names:
        return None
    return (
        f"Rules that drop or rewrite requests only make keys in this crawl ({', '.join(names)}): their "
        "middleware is not switched on. Set ADDONS = {'scrapy_bloomdupe.Addon': 500}, or "
        "SPIDER_MIDDLEWARES = {'scrapy_bloomdupe.UrlRulesMiddleware': 10}"
    )
