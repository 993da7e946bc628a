"""Which key does a URL have, what is fetched, and by which rule? All rules of a project in one place.

It needs neither Scrapy nor a crawl: ``RuleSet.load(preset="usual").decide(url)``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.catalogue import RULES
from scrapy_bloomdupe.rules.extraction import Ambiguous, Extractor, Page, Untrusted
from scrapy_bloomdupe.rules.loading import load_file
from scrapy_bloomdupe.rules.matching import HostIndex, Matcher
from scrapy_bloomdupe.rules.presets import PRESETS, Pipeline, pipeline
from scrapy_bloomdupe.rules.rule import Rule, make_rule
from scrapy_bloomdupe.rules.steps import normal_parts
from scrapy_bloomdupe.rules.urls import decode_form, hostname, split

#: Part of every key and of the digest of the rules: raised when the engine makes other keys.
ENGINE_VERSION = "v1"

_MAX_UNWRAP = 3
_MAX_DECODE = 3


@dataclass(frozen=True)
class Decision:
    """What a rule set says of one request.

    Attributes:
        action: ``key``, ``drop`` (do not send it), ``keep`` (never a duplicate).
        key: the readable key; two requests with the same key are the same page.
        rule: name of the rule that decided; None: none did, the canonical URL is the key.
        url: what is fetched.
        missed: name of the rule that was for this URL and found no id in it; None: there was none.
        source: which of the rule's sources gave the id; None: none.
        steps_by: the rule or preset whose steps made the canonical URL; None: nobody asked for any,
            and the key is what two spellings of a URL have in common by the standards.
        expire: seconds after which the page is crawled again; None: no rule says so.
        expire_by: name of the rule that does.
    """

    action: str
    key: str
    rule: str | None
    url: str
    missed: str | None = None
    source: str | None = None
    steps_by: str | None = None
    expire: float | None = None
    expire_by: str | None = None

    @property
    def under(self) -> str | None:
        """Name of the rule or preset under which the key is remembered, to forget by; None: there is none."""
        return self.rule or self.expire_by or self.steps_by

    def digest(self) -> bytes:
        """Return the 20 bytes of the key."""
        # Kept beside the fields: whoever judges a request asks, and whoever counts it.
        found: bytes | None = self.__dict__.get("_digest")
        if found is None:
            data = self.key.encode("utf-8", "surrogatepass")
            found = hashlib.blake2b(data, digest_size=20, person=b"bloomdupe rule").digest()
            self.__dict__["_digest"] = found
        return found


@dataclass(frozen=True)
class _Compiled:
    rule: Rule
    matcher: Matcher
    extractor: Extractor | None
    canonical: Pipeline
    fetch: Pipeline | None


class RuleSet:
    """Rules in the order in which they are asked, compiled; made by ``load``.

    Attributes:
        preset: name of the preset, or None.
        rules: in order: by level, then priority, specificity, and place.
    """

    def __init__(self, preset: str | None, rules: Sequence[Rule]) -> None:
        self.preset = preset
        self.rules = tuple(rules)
        names = PRESETS.get(preset or "safe", PRESETS["usual"])
        self.canonical = pipeline(names)
        self._bare = pipeline("safe")
        self._compiled = [self._compile(rule) for rule in rules]
        self._index = HostIndex([rule.match for rule in rules])

    @classmethod
    def load(
        cls,
        preset: str | None = None,
        rules: Iterable[Rule | Mapping[str, Any]] = (),
        files: Iterable[str | Path] = (),
        *,
        first: Iterable[Rule | Mapping[str, Any]] = (),
    ) -> RuleSet:
        """Return a rule set.

        Args:
            preset: steps for URLs that no rule speaks of: one of ``presets.PRESETS``, or
                ``tmall_strict``; None: ``safe``.
            rules: asked before those of files, and these before those of the preset.
            files: TOML or YAML files with a list ``rules``.
            first: asked before all, such as those of a spider.

        Raises:
            ConfigurationError: a name or rule is wrong; says which.
        """
        if preset is not None and preset not in PRESETS and preset not in RULES:
            known = ", ".join({**PRESETS, **RULES})
            raise ConfigurationError(f"preset={preset!r} is not known; take one of {known}")
        levels = [
            [make_rule(rule, "the spider's rules") for rule in first],
            [make_rule(rule, "rules") for rule in rules],
            [make_rule(rule, str(path)) for path in files for rule in load_file(Path(path))],
            list(RULES.get(preset or "", ())),
        ]
        ordered = [rule for level in levels for rule in sorted(level, key=_rank)]
        names = [rule.name for rule in ordered]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"two rules are called {name!r}; give each a name of its own")
        return cls(preset, ordered)

    def digest(self) -> dict[str, str]:
        """Return a digest per rule and, under ``*``, one of the whole: what the keys mean. Empty: no rule
        and no preset makes keys."""
        digests = {
            rule.name: _digest(repr(replace(rule, examples=()))) for rule in self.rules if rule.makes_keys
        }
        if not digests and self.preset is None:
            return {}
        whole = repr((ENGINE_VERSION, self.preset, self.canonical.names, list(digests.items())))
        return {"*": _digest(whole), **digests}

    def decide(self, url: str, method: str = "GET", body: bytes = b"", spider: str | None = None) -> Decision:
        """Return what is to be done with a request.

        Args:
            url: any string.
            method, body: a request with another method or a body is another page.
            spider: name of the spider that asks.

        Raises:
            Exception: whatever a ``call:`` of the rules raises; nothing else.
        """
        decision = self._decide(url, spider, _MAX_UNWRAP)
        method = method.upper()
        if method == "GET" and not body:
            return decision
        body_digest = hashlib.blake2b(body, digest_size=20).hexdigest()
        return replace(decision, key=f"{decision.key}|{method}|{body_digest}")

    def page(self, url: str) -> Page:
        """Return *url* as rules see it."""
        normal, parts = normal_parts(url)
        text = normal
        if text is None:
            text, parts = url, split(url)
        # With any fragment: a rule may look for its id there.
        host = hostname(parts.authority).rstrip(".") if parts is not None else ""
        bare = self._bare.of_parsed(url, text, parts) if "#" in text or text.endswith("?") else text
        return Page(bare, parts, host, normal)

    def candidates(self, page: Page) -> list[Rule]:
        """Return the rules whose host is that of *page*, in the order in which they are asked."""
        return [self.rules[i] for i in self._index.candidates(page.host)]

    def refusal(self, rule: Rule, page: Page, spider: str | None) -> str | None:
        """Return why a candidate is not for *page*; None: it is."""
        return self._compiled[self.rules.index(rule)].matcher.refusal(page, spider)

    def pipeline_of(self, url: str, spider: str | None = None) -> Pipeline:
        """Return the steps that make the canonical form of *url*."""
        page = self.page(url)
        for position in self._index.candidates(page.host):
            compiled = self._compiled[position]
            if compiled.matcher.refusal(page, spider) is not None:
                continue
            if compiled.rule.steps:
                return compiled.canonical
            if compiled.rule.is_last:
                break
        return self.canonical

    def _decide(self, url: str, spider: str | None, depth: int) -> Decision:
        page = self.page(url)
        canonical, steps_by = self.canonical, self.preset
        missed: str | None = None
        lasting: Rule | None = None

        def by_url(action: str, rule: str | None, fetched: str, missed: str | None) -> Decision:
            if page.normal is not None and canonical.names == self._bare.names:
                form = page.url
            else:
                form = canonical.of_parsed(url, page.normal, page.parts)
            key = _key("url", (form,))
            decision = Decision(action, key, rule, fetched, missed=missed, steps_by=steps_by)
            return decision if lasting is None else _lasting(decision, lasting)

        for position in self._index.candidates(page.host):
            compiled = self._compiled[position]
            rule = compiled.rule
            if compiled.matcher.refusal(page, spider) is not None:
                continue
            # One that hands on what has no id is for pages that have one.
            hands_on = rule.key is not None and rule.missing == "next"
            if rule.expire is not None and (lasting is None or rule.is_last) and not hands_on:
                lasting = rule
            if rule.steps and canonical is self.canonical:
                canonical, steps_by = compiled.canonical, rule.name
            fetched = compiled.fetch(url) if compiled.fetch is not None else url
            try:
                found = compiled.extractor.find(page) if compiled.extractor is not None else None
            except Ambiguous:
                # Not a page without an id: dropping it, or taking either, could lose one.
                return by_url("key", None, fetched, rule.name)
            except Untrusted:
                # Nor is this one, so it is not dropped.
                if rule.missing == "drop":
                    return by_url("key", None, fetched, rule.name)
                found = None
            if found is not None:
                source, values = found
                key = _key(rule.namespace, values)
                decision = Decision("key", key, rule.name, fetched, source=source)
                # The one that decides goes before another one that is for this URL too.
                lasting = rule if rule.expire is not None else lasting
                return decision if lasting is None else _lasting(decision, lasting)
            if rule.unwrap and depth and (inner := _nested(page, rule.unwrap)) is not None:
                nested = self._decide(inner, spider, depth - 1)
                if nested.rule is not None and nested.action == "key":
                    nested = replace(nested, url=fetched)
                    return nested if lasting is None or nested.expire else _lasting(nested, lasting)
            if rule.key is not None or rule.missing != "url":
                missed = missed or rule.name
            if rule.missing in ("drop", "keep"):
                return by_url(rule.missing, rule.name, fetched, missed)
            if rule.is_last:
                return by_url("key", None, fetched, missed)
        return by_url("key", None, url, missed)

    def _compile(self, rule: Rule) -> _Compiled:
        where = f"rule {rule.name!r}"
        try:
            canonical = pipeline(rule.steps) if rule.steps else self.canonical
        except ConfigurationError as exc:
            raise ConfigurationError(f"{where}: {exc}") from exc
        fetch: Pipeline | None = None
        if rule.apply == "url":
            unsafe = set() if rule.force_url else set(canonical.not_fetchable())
            fetch = pipeline([name for name in canonical.names if name not in unsafe])
        extractor = Extractor(rule.key, where) if rule.key is not None else None
        return _Compiled(rule, Matcher(rule.match), extractor, canonical, fetch)


def _lasting(decision: Decision, rule: Rule) -> Decision:
    return replace(decision, expire=rule.expire, expire_by=rule.name)


def _rank(rule: Rule) -> tuple[int, int]:
    match = rule.match
    # An exact host says more than a domain, and a path more than none.
    specificity = (
        4 * bool(match.host)
        + 2 * bool(match.domain)
        + bool(match.path or match.regex)
        + bool(match.has or match.lacks or match.spider)
    )
    return (-rule.priority, -specificity)


def _key(namespace: str, values: Sequence[str]) -> str:
    # The length before each value: no value can look like two.
    return f"{ENGINE_VERSION}|{namespace}|" + "|".join([f"{len(value)}:{value}" for value in values])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _nested(page: Page, names: Sequence[str]) -> str | None:
    """Return the URL that one of the parameters holds; None: none, or two different ones."""
    found = {_unescaped(page, value) for name, value in page.params if decode_form(name) in names and value}
    found.discard(None)
    return found.pop() if len(found) == 1 else None


def _unescaped(page: Page, raw: str) -> str | None:
    """Return the URL in a value, however often it was escaped, or None."""
    value: str | None = raw
    for _ in range(_MAX_DECODE):
        value = decode_form(value) if value is not None else None
        if value is None:
            return None
        if value.lower().startswith(("http://", "https://")):
            return value
        if value.startswith("/"):
            try:
                return urljoin(page.url, value)
            except ValueError:  # `//[` is no host
                return None
    return None
