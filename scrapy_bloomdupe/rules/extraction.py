"""Which id does a URL have by a rule's key? The query is parsed, never searched."""

from __future__ import annotations

import re
from collections.abc import Callable

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.presets import load_callable
from scrapy_bloomdupe.rules.rule import Key
from scrapy_bloomdupe.rules.text import TEXT_STEPS
from scrapy_bloomdupe.rules.urls import Parts, decode, decode_form, pairs

_MAX_VALUE = 4096
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
# Of / ? # % & = + ; in a part of a URL that was cut by nothing but a regex.
_DELIMITER_ESCAPE = re.compile("%(?:2[356BF]|3[BDF])", re.IGNORECASE)


class Ambiguous(Exception):
    """A parameter is there more than once with different values: an id, but nobody knows which."""


class Untrusted(Exception):
    """There is a value where the id should be, and it is refused: by its pattern or its length."""


class Page:
    """A URL as rules see it: parsed, escapes in their normal form.

    Attributes:
        url: the whole.
        parts: None: no URL with an authority.
        host: without port, user, and a dot at its end.
        normal: the whole with its fragment, after the steps ``parse`` and ``percent``; None: no URL at all.
    """

    __slots__ = ("_params", "host", "normal", "parts", "url")

    def __init__(self, url: str, parts: Parts | None, host: str, normal: str | None) -> None:
        self.url = url
        self.parts = parts
        self.host = host
        self.normal = normal
        self._params: tuple[tuple[str, str], ...] | None = None

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        """Raw names and values of the query, an ``amp;`` of twice escaped HTML taken off."""
        if self._params is None:
            query = self.parts.query if self.parts is not None else None
            found = pairs(query) if query else ()
            self._params = tuple([(name.removeprefix("amp;"), value) for name, value in found])
        return self._params


class Extractor:
    """Finds the values of one key.

    Raises:
        ConfigurationError: a callable cannot be imported, or a text step is not known.
    """

    def __init__(self, key: Key, where: str) -> None:
        for name in key.text:
            if name not in TEXT_STEPS:
                raise ConfigurationError(
                    f"{where}: text step {name!r} is not known; there are {', '.join(TEXT_STEPS)}"
                )
        self._key = key
        self._text = [TEXT_STEPS[name] for name in key.text]
        self._pattern = re.compile(key.pattern) if key.pattern is not None else None
        self._sources = [(source, self._reader(source, where)) for source in key.sources]

    def find(self, page: Page) -> tuple[str, tuple[str, ...]] | None:
        """Return the source that gave an id, and id and further values; None: no id.

        Raises:
            Ambiguous, Untrusted: see there; only if no source gave an id.
            Exception: whatever a ``call:`` source raises.
        """
        ambiguous: Ambiguous | None = None
        refused: str | None = None
        for source, read in self._sources:
            try:
                found = read(page)
                value = self._trusted(found) if found is not None else None
                if value is not None:
                    also = tuple(self._param(page, name) or "" for name in self._key.also)
                    return source, (value, *also)
                refused = refused or found
            except Ambiguous as exc:
                ambiguous = exc
        if ambiguous is not None:
            raise ambiguous
        if refused:
            raise Untrusted(refused)
        return None

    def _trusted(self, value: str) -> str | None:
        for step in self._text:
            value = step(value)
        if not self._key.min_length <= len(value) <= _MAX_VALUE or not value:
            return None
        if self._pattern is not None and self._pattern.fullmatch(value) is None:
            return None
        return value

    def _reader(self, source: str, where: str) -> Callable[[Page], str | None]:
        kind, _, argument = source.partition(":")
        if kind == "query":
            return lambda page: self._param(page, argument)
        if kind == "call":
            try:
                function = load_callable(argument)
            except ConfigurationError as exc:
                raise ConfigurationError(f"{where}: source {source!r}: {exc}") from exc

            def by_call(page: Page) -> str | None:
                found = function(page.url)
                if found is not None and not isinstance(found, str):
                    raise TypeError(f"{where}: source {source!r} gave {found!r:.40}, not a string or None")
                return found

            return by_call
        search = re.compile(argument).search

        def by_regex(page: Page) -> str | None:
            if kind == "url":
                text: str | None = page.url
            else:
                text = getattr(page.parts, kind) if page.parts is not None else None
            match = search(text) if text is not None else None
            if match is None:
                return None
            if match.re.groups == 0:
                return self._decoded(match[0])
            taking_part = [group for group in match.groups() if group is not None]
            if len(taking_part) <= 1:
                # None: an optional group, and no id. One: also one of several alternatives.
                return self._decoded(taking_part[0]) if taking_part else None
            # A group that does not take part keeps its place: `1//2` is not `1/2`.
            values = [self._decoded(group or "") for group in match.groups()]
            return "/".join(value.replace("%", "%25").replace("/", "%2F") for value in values).rstrip("/")

        return by_regex

    def _decoded(self, raw: str) -> str:
        if _DELIMITER_ESCAPE.search(raw):
            return raw
        value = decode(raw, self._key.encoding)
        return raw if value is None else value

    def _param(self, page: Page, wanted: str) -> str | None:
        """Return the value of a parameter by the rule's way with repeated ones."""
        key = self._key
        if key.ignore_case:
            wanted = wanted.lower()
        values = []
        for raw_name, raw_value in page.params:
            name = decode_form(raw_name, key.encoding)
            if name is None:
                continue
            if (name.lower() if key.ignore_case else name) != wanted or not raw_value:
                continue
            value = decode_form(raw_value, key.encoding)
            # `%C4`, which is no UTF-8, stays as it is; `%25C4` means the text `%C4` and must not be the same.
            values.append(raw_value if value is None or _ESCAPE.search(value) else value)
        if not values:
            return None
        if key.repeated == "reject" and len(set(values)) > 1:
            raise Ambiguous(wanted)
        return values[-1] if key.repeated == "last" else values[0]
