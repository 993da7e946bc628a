"""What can a rule say? Frozen data, from keywords, plain dicts, or files; checked when it is made.

It decides nothing: ``matching`` and ``extraction`` do, for ``ruleset``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

import scrapy_bloomdupe.durations as durations
from scrapy_bloomdupe.errors import ConfigurationError

MISSING_POLICIES = ("url", "drop", "keep", "next")
APPLY = ("key", "url")
REPEATED = ("reject", "first", "last")
SOURCE_KINDS = ("query", "path", "fragment", "url", "call")
#: Namespaces of keys that no rule makes: canonical URLs, and ``request.meta``.
_RESERVED = ("url", "meta")
_HOST = re.compile(r"[A-Za-z0-9_.\[\]:-]*[A-Za-z0-9\]]\.?")
_PORT = re.compile(r"[^\[\]:]+:\d*")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")

T = TypeVar("T")


@dataclass(frozen=True)
class Match:
    """Which URLs a rule is for. All that is given must hold; of several values one.

    Attributes:
        domain: ``tmall.com`` means this host and all below it. By suffix: no list of public suffixes,
            no network.
        host: exact hosts, in addition to those of ``domain``.
        path: globs over the whole path; ``*`` also stands for slashes.
        exclude_path: globs that must not match.
        regex: must be found in the URL (scheme and host in lower case, escapes in their normal form).
        has, lacks: names of parameters that must be there, or not.
        spider: names of spiders.
        ignore_case: of ``path`` and ``exclude_path``.
    """

    domain: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    exclude_path: tuple[str, ...] = ()
    regex: str | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    spider: tuple[str, ...] = ()
    ignore_case: bool = False


@dataclass(frozen=True)
class Key:
    """Where the id of a page is found.

    Attributes:
        sources: tried in order: ``query:NAME``, ``path:REGEX``, ``fragment:REGEX``, ``url:REGEX``,
            ``call:pkg.mod:func`` (url -> str or None). The value of a regex is the one group that takes
            part (of ``news/(\\d+)|blog/(\\d+)`` either: then 5 and 5 are one id); several are joined by
            ``/``, with an empty place for one that does not (``/`` and ``%`` within one are escaped). A
            regex with groups of which none takes part finds no id. Escapes are decoded unless
            one is of ``/ ? # % & = + ;``: then all stay, since ``/a%2Fb`` is not ``/a/b``.
        namespace: ids of rules with the same namespace are the same ids; None: the rule's name.
        also: further parameters that tell pages apart, such as ``skuId``.
        pattern: regex that the whole value must match, after its text steps.
        repeated: a parameter that is there more than once with different values: ``reject`` (no id),
            ``first``, ``last``. Empty ones do not count.
        ignore_case: of the names of parameters.
        encoding: of escaped bytes, for example ``gbk``. What is none of it stays escaped.
        text: steps for the value, in this order of names: see ``text.TEXT_STEPS``.
        min_length: characters; a shorter value is too short to trust and counts as none.
    """

    sources: tuple[str, ...]
    namespace: str | None = None
    also: tuple[str, ...] = ()
    pattern: str | None = None
    repeated: str = "reject"
    ignore_case: bool = False
    encoding: str = "utf-8"
    text: tuple[str, ...] = ()
    min_length: int = 1


@dataclass(frozen=True)
class Rule:
    """When two URLs are the same page, for some URLs.

    Attributes:
        name: letters, digits, ``_ . -``; in stats and messages.
        match: which URLs.
        key: where their id is; None: the canonical URL is the key.
        steps: a preset or names of steps for the canonical URL; empty: those of the rule set.
        missing: no id found: ``url`` (the canonical URL is the key), ``drop`` (the request is dropped),
            ``keep`` (never a duplicate), ``next`` (ask the next rule).
        apply: ``key``: only the key changes. ``url``: the request is sent to the canonical URL, by
            steps that are safe to fetch.
        force_url: with ``apply="url"``: by all steps.
        unwrap: parameters that may hold a nested URL, which is then asked instead. For pages that only
            redirect: where a login form or a share page answers under such a URL, the page inside is a
            duplicate of it and is not fetched.
        priority: higher ones are asked first.
        expire: seconds, or text such as "1h" or "7d", after which a page of these URLs is crawled again;
            None: as ``BLOOMDUPE_EXPIRE`` says. Of several rules for a URL the one that decides, else the
            first. It changes no key.
        examples: ``{"same": [url, ...]}`` or ``{"differ": [url, ...]}``; see ``bloomdupe rules check``.
    """

    name: str
    match: Match = field(default_factory=Match)
    key: Key | None = None
    steps: tuple[str, ...] = ()
    missing: str = "url"
    apply: str = "key"
    force_url: bool = False
    unwrap: tuple[str, ...] = ()
    priority: int = 0
    examples: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Not in the text of a rule, of which its digest is made: see ``RuleSet.digest``.
    expire: float | None = field(default=None, repr=False)

    @property
    def makes_keys(self) -> bool:
        """Whether it changes what a duplicate is, or what is fetched."""
        says = self.key is not None or self.steps or self.unwrap or self.apply == "url"
        return bool(says) or self.missing in ("drop", "keep")

    @property
    def namespace(self) -> str:
        return (self.key.namespace if self.key is not None else None) or self.name

    @property
    def is_last(self) -> bool:
        """Whether no other rule is asked about a URL for which this one is, whatever it finds."""
        if self.missing == "url":
            return self.key is not None or self.apply == "url"
        return self.missing != "next"


def make_rule(given: Rule | Mapping[str, Any], where: str) -> Rule:
    """Return a checked rule.

    Args:
        given: a rule, or a dict of its attributes; single strings stand for lists of one.
        where: file or setting, for messages.

    Raises:
        ConfigurationError: an attribute is not known, missing or wrong; names rule and attribute.
    """
    # The attributes of a Rule as well: Match(domain="tmall.com") would be eight domains of one letter.
    attributes = vars(given) if isinstance(given, Rule) else given
    if not isinstance(attributes, Mapping):
        raise ConfigurationError(f"{where}: a rule is a dict or a Rule, not {given!r:.60}")
    name = attributes.get("name", "without a name")
    rule = _from_mapping(Rule, attributes, f"{where}: rule {name!r}")
    _check(rule, f"{where}: rule {rule.name!r}")
    return rule


def _from_mapping(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise ConfigurationError(f"{where}: {name!r} is not known; there are {', '.join(known)}")
    for name, f in known.items():
        if f.default is MISSING and f.default_factory is MISSING and name not in given:
            raise ConfigurationError(f"{where}: {name!r} is missing")
    return kind(**{name: _value(name, value, str(known[name].type), where) for name, value in given.items()})


def _value(name: str, value: Any, kind: str, where: str) -> Any:
    inner = f"{where}, {name!r}"
    if name == "match":
        return _from_mapping(Match, _mapping(value, inner), inner)
    if name == "key":
        return None if value is None else _from_mapping(Key, _mapping(value, inner), inner)
    if name == "examples":
        return _examples(value, inner)
    if name == "expire":
        return None if value is None else _seconds(value, inner)
    if kind.startswith("tuple"):
        values = (value,) if isinstance(value, str) else value
        if not isinstance(values, Sequence) or not all(isinstance(v, str) for v in values):
            raise ConfigurationError(f"{inner}: {value!r:.80} is not a string or a list of strings")
        return tuple(values)
    kinds: dict[str, Any] = {"str": str, "str | None": (str, type(None)), "bool": bool, "int": int}
    expected = kinds[kind]
    if not isinstance(value, expected):
        raise ConfigurationError(f"{inner}: {value!r:.80} should be {kind}")
    return value


def _seconds(value: Any, where: str) -> float:
    try:
        return durations.parse(value)
    except ValueError as exc:
        raise ConfigurationError(f"{where}: {exc}") from None


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    attributes = vars(value) if isinstance(value, (Match, Key)) else value
    if not isinstance(attributes, Mapping):
        raise ConfigurationError(f"{where}: {value!r:.80} is not a dict")
    return attributes


def _examples(value: Any, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for example in value if isinstance(value, (list, tuple)) else (value,):
        items = example.items() if isinstance(example, Mapping) else (example,)
        for item in items:
            if not _is_example(item):
                raise ConfigurationError(
                    f'{where}: {example!r:.80} is no example; write {{"same": [url, url]}} or '
                    '{"differ": [url, url]}'
                )
            found.append((item[0], tuple(item[1])))
    return tuple(found)


def _is_example(item: Any) -> bool:
    if not isinstance(item, (list, tuple)) or len(item) != 2 or item[0] not in ("same", "differ"):
        return False
    urls = item[1]
    return isinstance(urls, (list, tuple)) and len(urls) >= 2 and all(isinstance(url, str) for url in urls)


def _check(rule: Rule, where: str) -> None:
    def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
        if value not in allowed:
            raise ConfigurationError(f"{where}: {name}={value!r} is not one of {', '.join(allowed)}")

    one_of("missing", rule.missing, MISSING_POLICIES)
    one_of("apply", rule.apply, APPLY)
    for name, text in (("name", rule.name), ("namespace", rule.namespace)):
        if not isinstance(text, str) or not _NAME.fullmatch(text):
            raise ConfigurationError(f"{where}: {name}={text!r} may have letters, digits and _ . - only")
    if rule.namespace in _RESERVED:
        raise ConfigurationError(
            f"{where}: namespace={rule.namespace!r} is taken by keys that no rule makes; choose another name"
        )
    if not rule.makes_keys and rule.expire is None:
        raise ConfigurationError(
            f"{where}: it says nothing; give it a key, steps, unwrap, missing, apply, or expire"
        )
    for host in (*rule.match.domain, *rule.match.host):
        if not _HOST.fullmatch(host) or _PORT.fullmatch(host):
            raise ConfigurationError(
                f"{where}: {host!r} is no host name; write it without scheme, port and *, for example "
                "'shop.example' (not ASCII: as 'xn--...')"
            )
    if rule.match.regex is not None:
        _regex(rule.match.regex, f"{where}, match.regex")
    key = rule.key
    if key is None:
        return
    one_of("repeated", key.repeated, REPEATED)
    if not key.sources:
        raise ConfigurationError(f"{where}: key.sources is empty; write for example 'query:id'")
    for source in key.sources:
        kind, _, argument = source.partition(":")
        if kind not in SOURCE_KINDS or not argument:
            raise ConfigurationError(
                f"{where}: source {source!r} is not one of query:NAME, path:REGEX, fragment:REGEX, "
                "url:REGEX, call:pkg.mod:func"
            )
        if kind in ("path", "fragment", "url"):
            _regex(argument, f"{where}, source {source!r}")
    if key.pattern is not None:
        _regex(key.pattern, f"{where}, key.pattern")
    try:
        "a".encode(key.encoding)  # of no text at all Python does not look the name up
    except (LookupError, ValueError):
        raise ConfigurationError(f"{where}: encoding={key.encoding!r} is not known to Python") from None


def _regex(pattern: str, where: str) -> None:
    try:
        re.compile(pattern)
    except re.error as exc:
        raise ConfigurationError(f"{where}: {pattern!r} is no regular expression: {exc}") from exc
