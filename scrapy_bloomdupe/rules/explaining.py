"""Why has this URL this key? Every step and every rule that was asked, as lines to read."""

from __future__ import annotations

from collections.abc import Iterator

from scrapy_bloomdupe.durations import shown
from scrapy_bloomdupe.rules.ruleset import Decision, RuleSet


def explain(rules: RuleSet, url: str, spider: str | None = None) -> Iterator[str]:
    """Give the lines about one URL."""
    decision = rules.decide(url, spider=spider)
    yield url
    before = url
    trace = rules.pipeline_of(url, spider).trace(url)
    width = max((len(name) for name, _ in trace), default=0)
    for name, after in trace:
        yield f"  {name.ljust(width)}  {after if after != before else '='}"
        before = after
    yield from _rules(rules, url, spider, decision)
    yield f"  key:     {decision.key}"
    yield f"  fetched: {'nothing, it is dropped' if decision.action == 'drop' else decision.url}"
    if decision.expire is not None:
        yield f"  expires: after {shown(decision.expire)}, by {decision.expire_by}"
    if decision.action == "keep":
        yield "  never a duplicate: missing = 'keep'"


def _rules(rules: RuleSet, url: str, spider: str | None, decision: Decision) -> Iterator[str]:
    page = rules.page(url)
    asked = rules.candidates(page)
    if not asked:
        yield "  rule:    none is for this host; the canonical URL is the key"
        return
    for rule in asked:
        refusal = rules.refusal(rule, page, spider)
        if refusal is not None:
            yield f"  rule:    {rule.name}: not for this URL, {refusal}"
        elif rule.name == decision.rule and decision.source is not None:
            yield f"  rule:    {rule.name}: found the id by {decision.source}"
            return
        elif rule.name == decision.rule:
            yield f"  rule:    {rule.name}: found no id, missing = {rule.missing!r}"
            return
        elif rule.key is not None:
            yield f"  rule:    {rule.name}: found no id it can trust, missing = {rule.missing!r}"
        else:
            yield f"  rule:    {rule.name}: has no key of its own"
        if refusal is None and rule.is_last:
            break
    if decision.rule is not None:
        yield f"  rule:    {decision.rule}: by the URL inside it, {decision.source}"
    else:
        yield "  rule:    none found an id; the canonical URL is the key"


def compare(rules: RuleSet, first: str, second: str, spider: str | None = None) -> Iterator[str]:
    """Give the lines about whether two URLs are one page, and where they part."""
    a, b = rules.decide(first, spider=spider), rules.decide(second, spider=spider)
    if "keep" in (a.action, b.action):
        yield "two pages: one of them at least is never a duplicate, missing = 'keep'"
        return
    if a.key == b.key:
        by = a.rule if a.rule is not None else "their canonical URL"
        yield f"one page, by {by}"
        return
    if a.rule != b.rule:
        yield f"two pages: the first is decided by {a.rule or 'no rule'}, the second by {b.rule or 'no rule'}"
        return
    if a.rule is not None and a.source is not None and b.source is not None:
        yield f"two pages: {a.rule} finds different ids"
        return
    traces = (rules.pipeline_of(url, spider).trace(url) for url in (first, second))
    last = list(zip(*traces, strict=False))[-1:]
    for (_, left), (_, right) in last:
        at = next((i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), None)
        at = min(len(left), len(right)) if at is None else at
        yield f"two pages: their canonical URLs part at character {at + 1}:"
        yield f"  {left[:at]}[{left[at:]}]"
        yield f"  {right[:at]}[{right[at:]}]"
