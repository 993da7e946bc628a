"""What would the rules have merged, in a crawl that filters without them? ``BLOOMDUPE_DRY_RUN``.

It decides nothing: the verdict is the one by fingerprints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.keys import RequestKeys
from scrapy_bloomdupe.opening import open_temporary
from scrapy_bloomdupe.redirects import RedirectPasses
from scrapy_bloomdupe.rules.ruleset import Decision
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.settings import BaseSettings

    from scrapy_bloomdupe.identity import StateOptions


class Fingerprints:
    """Keys of a dry run: the project's fingerprints, whatever rules and meta say."""

    def __init__(self, keys: RequestKeys) -> None:
        self.key = keys.fingerprint

    def key_of(self, request: Request, decision: Decision | None) -> bytes:
        """As ``key``: the decision does not matter."""
        return self.key(request)


class DryRun:
    """The seen-set that the rules would have made, in temporary files.

    Args:
        keys: by the rules.
        options: of the crawl's own seen-set.
    """

    def __init__(
        self, keys: RequestKeys, options: StateOptions, settings: BaseSettings, watch: Watch
    ) -> None:
        self._redirects = RedirectPasses.from_settings(keys, settings)
        # Without a frontier: nobody commits, and what waits for that waits in memory.
        self._state = open_temporary(replace(options, frontier=None))
        self._watch = watch

    def merges(self, request: Request, decision: Decision, *, seen: bool) -> bool:
        """Return whether *request* would have been a duplicate by the rules alone, and count it.

        Args:
            seen: the verdict by fingerprints.
        """
        if decision.action == "keep":
            return False
        key = decision.digest()
        merged = self._state.seen.check_and_add(key).seen and not seen
        if not merged or ("redirect_urls" in request.meta and self._redirects.allows(request, key)):
            return False
        self._watch.count(stats.DRY_RUN_MERGED)
        return True

    def close(self) -> None:
        self._state.close()
