"""Which text of a request is a gate asked for? By the sources that rules know, and two more.

Whether the text is in the gate is not asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.extraction import Ambiguous, Extractor, Page, Untrusted
from scrapy_bloomdupe.rules.matching import HostIndex, Matcher
from scrapy_bloomdupe.rules.rule import SOURCE_KINDS, Match, make_rule
from scrapy_bloomdupe.rules.ruleset import RuleSet

if TYPE_CHECKING:
    from scrapy import Request

_WHERE = "BLOOMDUPE_GATE"
# Taken from text with escapes; of a whole URL (``url:REGEX``) they may be what the list has.
_ESCAPED = ("path", "fragment")


class GateSource:
    """Finds the text of a request.

    Args:
        sources: tried in order: those of a rule's key (``query:NAME``, ``path:REGEX``, ``fragment:REGEX``,
            ``url:REGEX``, ``call:pkg.mod:func``), ``url`` (the whole), ``meta:NAME``. What comes of the
            query, the path and the fragment is without escapes; of ``url:REGEX`` as it stands in the URL.
        match: which URLs the gate is for, as in a rule; of all others there is no text.
        spider: its name.

    Raises:
        ConfigurationError: a source or an attribute of the match is wrong.
    """

    def __init__(self, sources: Sequence[str], match: Mapping[str, Any], spider: str | None = None) -> None:
        self._spider = spider
        self._rules: RuleSet | None = None
        self._matcher: Matcher | None = None
        self._index = HostIndex([Match()])
        if match:
            given = make_rule({"name": "gate", "match": match, "steps": "safe"}, _WHERE).match
            self._matcher, self._index = Matcher(given), HostIndex([given])
        self._readers = [self._reader(source) for source in sources]
        if match or any(source != "url" and not source.startswith("meta:") for source in sources):
            self._rules = RuleSet.load()

    def text(self, request: Request) -> str | None:
        """Return the text of *request*; None: it has none, or nobody knows which.

        Raises:
            Exception: whatever a ``call:`` raises.
        """
        page = self._rules.page(request.url) if self._rules is not None else None
        if page is not None and not self._is_for(page):
            return None
        for read in self._readers:
            if (text := read(request, page)) is not None:
                return text
        return None

    def _is_for(self, page: Page) -> bool:
        if not self._index.candidates(page.host):
            return False
        return self._matcher is None or self._matcher.refusal(page, self._spider) is None

    def _reader(self, source: str) -> Callable[[Request, Page | None], str | None]:
        if source == "url":
            return lambda request, _: request.url
        kind, _, argument = source.partition(":")
        if kind == "meta":
            if not argument:
                raise ConfigurationError(f"{_WHERE}: source {source!r} lacks the name in `request.meta`")
            return lambda request, _: _as_text(request.meta.get(argument))
        if kind not in SOURCE_KINDS:
            raise ConfigurationError(
                f"{_WHERE}: source {source!r} is not one of {', '.join(SOURCE_KINDS)} (each with a colon "
                "and what follows it), meta:NAME, or url"
            )
        rule = make_rule({"name": "gate", "key": {"sources": [source]}}, _WHERE)
        assert rule.key is not None
        extractor = Extractor(rule.key, _WHERE)
        # A query is decoded as it is taken apart; a list has the words themselves.
        decode = _unescaped if kind in _ESCAPED else _as_text

        def by_rule(_: Request, page: Page | None) -> str | None:
            assert page is not None
            try:
                found = extractor.find(page)
            except (Ambiguous, Untrusted):
                return None
            return decode(found[1][0]) if found is not None else None

        return by_rule


def _unescaped(text: str) -> str | None:
    """Return *text* without escapes; None: they are not UTF-8, and nobody knows what they spell."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
