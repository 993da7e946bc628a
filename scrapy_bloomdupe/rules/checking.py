"""Do the rules of a project hold what they promise? Their examples, idempotence, and rules that hide others.

Every finding is a sentence for a person; an empty list is a pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from scrapy_bloomdupe.rules.rule import Rule
from scrapy_bloomdupe.rules.ruleset import RuleSet


def check(rules: RuleSet) -> Iterator[str]:
    """Give every problem of *rules*."""
    yield from _examples(rules)
    yield from _idempotence(rules)
    yield from _shadowed(rules)


def _examples(rules: RuleSet) -> Iterator[str]:
    for rule in rules.rules:
        spider = rule.match.spider[0] if rule.match.spider else None
        for kind, urls in rule.examples:
            keys = {url: rules.decide(url, spider=spider) for url in urls}
            for first, second in combinations(urls, 2):
                a, b = keys[first], keys[second]
                if (a.key == b.key) != (kind == "same"):
                    found = "one page" if a.key == b.key else "two pages"
                    yield (
                        f"rule {rule.name!r}: its example says that {first} and {second} are "
                        f"{'the same' if kind == 'same' else 'different'}, but they are {found}: "
                        f"{a.key!r} (by {a.rule or 'no rule'}) and {b.key!r} (by {b.rule or 'no rule'})"
                    )


def _idempotence(rules: RuleSet) -> Iterator[str]:
    for rule in rules.rules:
        spider = rule.match.spider[0] if rule.match.spider else None
        for _, urls in rule.examples:
            for url in urls:
                pipeline = rules.pipeline_of(url, spider)
                once = pipeline(url)
                if (twice := pipeline(once)) != once:
                    yield (
                        f"rule {rule.name!r}: its steps make {once} of {url}, and of that {twice}: a URL "
                        "and its canonical form would be two pages; mend the step that is yours (call:)"
                    )
                decision = rules.decide(url, spider=spider)
                again = rules.decide(decision.url, spider=spider)
                if again.key != decision.key:
                    yield (
                        f"rule {rule.name!r}: {url} is fetched as {decision.url}, which has another key: "
                        f"{decision.key!r} and {again.key!r}"
                    )


def _shadowed(rules: RuleSet) -> Iterator[str]:
    for position, rule in enumerate(rules.rules):
        for earlier in rules.rules[:position]:
            if _hides(earlier, rule):
                yield (
                    f"rule {rule.name!r} is never asked: {earlier.name!r} comes first, is for all of its "
                    "URLs and hands none on; give one a priority, or set missing = 'next'"
                )
                break
    for position, rule in enumerate(rules.rules):
        for earlier in rules.rules[:position]:
            if rule.examples and (found := _overlap(rules, earlier, rule)):
                yield (
                    f"rule {rule.name!r}: its example {found} is decided by {earlier.name!r}, which comes "
                    "first; give one a priority if that is not meant"
                )


def _hides(earlier: Rule, rule: Rule) -> bool:
    """Return whether *earlier* surely takes every URL of *rule*: judged by what both say literally."""
    wide, narrow = earlier.match, rule.match
    if not earlier.is_last:
        return False
    if wide.regex or wide.has or wide.lacks or wide.exclude_path:
        return False
    if wide.path and wide.path != narrow.path:
        return False
    if wide.spider and not set(narrow.spider) <= set(wide.spider):
        return False
    if wide.spider and not narrow.spider:
        return False
    if not wide.host and not wide.domain:
        return True
    names = (*narrow.host, *narrow.domain)
    return bool(names) and all(
        name in wide.domain
        or any(name.endswith(f".{domain}") for domain in wide.domain)
        or (name in wide.host and name not in narrow.domain)
        for name in names
    )


def _overlap(rules: RuleSet, earlier: Rule, rule: Rule) -> str | None:
    if earlier.namespace == rule.namespace or rule.unwrap:
        return None  # the same ids, or the ids of the URL inside: whoever decides
    spider = rule.match.spider[0] if rule.match.spider else None
    for _, urls in rule.examples:
        for url in urls:
            if rules.decide(url, spider=spider).rule == earlier.name:
                return url
    return None
