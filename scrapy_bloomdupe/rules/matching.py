"""Which rules are for this URL? An index by host, so that a hundred sites cost what one does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

from scrapy_bloomdupe.rules.extraction import Page
from scrapy_bloomdupe.rules.rule import Match
from scrapy_bloomdupe.rules.urls import decode_form


class Matcher:
    """One ``Match``, compiled; the host is the business of the index."""

    def __init__(self, match: Match) -> None:
        flags = re.IGNORECASE if match.ignore_case else 0
        self._path = _globs(match.path, flags)
        self._exclude = _globs(match.exclude_path, flags)
        self._regex = re.compile(match.regex) if match.regex is not None else None
        self._has = match.has
        self._lacks = match.lacks
        self._spiders = match.spider

    def refusal(self, page: Page, spider: str | None) -> str | None:
        """Return why the rule is not for *page*, or None if it is."""
        path = page.parts.path if page.parts is not None else ""
        if self._spiders and spider not in self._spiders:
            return f"it is for the spiders {', '.join(self._spiders)}"
        if self._path is not None and self._path.match(path) is None:
            return f"the path {path} is not one of its"
        if self._exclude is not None and self._exclude.match(path) is not None:
            return f"the path {path} is excluded"
        if self._regex is not None and self._regex.search(page.url) is None:
            return f"{self._regex.pattern!r} is not in the URL"
        if self._has or self._lacks:
            names = {decode_form(name) for name, _ in page.params}
            for name in self._has:
                if name not in names:
                    return f"the parameter {name!r} is not there"
            for name in self._lacks:
                if name in names:
                    return f"the parameter {name!r} is there"
        return None


def _globs(globs: Sequence[str], flags: int) -> re.Pattern[str] | None:
    return re.compile("|".join(translate(glob) for glob in globs), flags) if globs else None


class HostIndex:
    """Positions of rules by host.

    Args:
        matches: of the rules, in the order in which they are asked.
    """

    def __init__(self, matches: Sequence[Match]) -> None:
        self._everywhere: list[int] = []
        self._by_host: dict[str, list[int]] = {}
        self._by_domain: dict[str, list[int]] = {}
        for position, match in enumerate(matches):
            if not match.host and not match.domain:
                self._everywhere.append(position)
            for host in match.host:
                self._by_host.setdefault(host.lower().rstrip("."), []).append(position)
            for domain in match.domain:
                self._by_domain.setdefault(domain.lower().strip("."), []).append(position)
        # A crawl sees the same few hosts again and again; a hostile one must not fill the memory.
        self.candidates = lru_cache(maxsize=4096)(self._candidates)

    def _candidates(self, host: str) -> tuple[int, ...]:
        found = set(self._everywhere)
        found.update(self._by_host.get(host, ()))
        suffix = host
        while suffix:
            found.update(self._by_domain.get(suffix, ()))
            suffix = suffix.partition(".")[2]
        return tuple(sorted(found))
