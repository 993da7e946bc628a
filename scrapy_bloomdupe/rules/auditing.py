"""What would the rules merge among these URLs? Counts per rule, and the largest groups first."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from scrapy_bloomdupe.rules.ruleset import RuleSet

_URL = re.compile(r"https?://[^\s\"'<>\\)\]]+")
_SAMPLES = 5


@dataclass
class Group:
    """URLs that are one page.

    Attributes:
        key: their key.
        rule: that decided; None: the canonical URL.
        count: different URLs among them.
        samples: some of them.
    """

    key: str
    rule: str | None
    count: int = 0
    samples: list[str] = field(default_factory=list)


@dataclass
class Audit:
    """What came out.

    Attributes:
        urls: lines with a URL.
        distinct: different URLs.
        pages: that would be fetched: different keys, and URLs that are never a duplicate.
        dropped: different URLs that would not be fetched.
        by_rule: different URLs by the rule that decided (``-``: none).
        missed: different URLs in which a rule for them found no id, by rule.
        groups: of two and more URLs, the largest first.
    """

    urls: int = 0
    distinct: int = 0
    pages: int = 0
    dropped: int = 0
    by_rule: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    groups: list[Group] = field(default_factory=list)


def read_urls(lines: Iterable[str]) -> Iterator[str]:
    """Give the URL of each line: a bare one, the ``url`` of a JSON object, or the first in a log line."""
    for line in lines:
        text = line.strip()
        if text.startswith("{"):
            try:
                url = json.loads(text).get("url")
            except (ValueError, AttributeError):
                url = None
            if isinstance(url, str):
                yield url
                continue
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S+$", text):
            yield text
        elif match := _URL.search(text):
            yield match[0]


def audit(rules: RuleSet, urls: Iterable[str], spider: str | None = None) -> Audit:
    """Return what *rules* make of *urls*. Holds every different URL in memory."""
    result = Audit()
    groups: dict[str, Group] = {}
    seen: set[str] = set()
    for url in urls:
        result.urls += 1
        if url in seen:
            continue
        seen.add(url)
        decision = rules.decide(url, spider=spider)
        result.by_rule[decision.rule or "-"] += 1
        if decision.missed is not None:
            result.missed[decision.missed] += 1
        if decision.action == "drop":
            result.dropped += 1
            continue
        if decision.action == "keep":
            result.pages += 1  # never a duplicate, whatever its key
            continue
        group = groups.get(decision.key)
        if group is None:
            group = groups[decision.key] = Group(decision.key, decision.rule)
        group.count += 1
        if len(group.samples) < _SAMPLES:
            group.samples.append(url)
    result.distinct = len(seen)
    result.pages += len(groups)
    result.groups = sorted((g for g in groups.values() if g.count > 1), key=lambda g: (-g.count, g.key))
    return result
