"""Which requests of a spider are dropped or sent elsewhere by the rules? A spider middleware.

The key of a request is not its business: the duplicate filter makes that of every request it is asked
about, of redirects and ``engine.crawl()`` too, which pass no spider middleware.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

import scrapy_bloomdupe.settings as settings
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import BloomdupeError
from scrapy_bloomdupe.keys import RequestKeys, of_crawler, with_middleware
from scrapy_bloomdupe.rules.ruleset import Decision
from scrapy_bloomdupe.rulewatch import RuleWatch
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)


class UrlRulesMiddleware(BaseSpiderMiddleware):
    """Drops requests (``missing="drop"``) and rewrites their URL (``apply="url"``), and counts both.

    For start requests and the output of callbacks, sync and async. To stand near the engine (a small
    number): what other middlewares make of a request has then been made. A request with ``dont_filter``,
    with a body or another method than GET is never dropped; one that a rule fails on passes as it is.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._keys: RequestKeys | None = None
        self._failed = False
        self._watch = Watch(crawler)
        self._rules = RuleWatch(self._watch)
        self._dry_run = False
        with_middleware.add(crawler)

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        decision = self._decide(request)
        if decision is None:
            return request
        # The id of a form can be in its body.
        has_body = request.method not in ("GET", "HEAD") or request.body
        if decision.action == "drop" and not request.dont_filter and not has_body:
            self._rules.dropped(decision)
            if self._watch.is_first(f"dropped by {decision.rule}"):
                logger.debug(
                    "Dropped %(request)s: rule %(rule)r finds no id in it - no more of this rule are shown",
                    {"request": request, "rule": decision.rule},
                    extra={"spider": self.crawler.spider},
                )
            return request if self._dry_run else None
        if decision.url == request.url:
            return request
        self._rules.rewritten(decision)
        if self._dry_run:
            return request
        rewritten = request.replace(url=decision.url)
        assert self._keys is not None
        self._keys.remember(rewritten, decision)
        return rewritten

    def _decide(self, request: Request) -> Decision | None:
        if self._failed:
            return None
        try:
            if self._keys is None:
                self._keys = of_crawler(self.crawler)
                self._dry_run = settings.read(self.crawler.settings).dry_run
            return self._keys.decide(request)
        except BloomdupeError:
            # Wrong settings: the filter refuses the crawl and says why.
            self._failed = True
        except Exception as exc:
            self._watch.failed(stats.ERROR_RULES, exc, request)
            # The filter goes by its fingerprint: the rules are not asked, and it is not said, twice.
            if self._keys is not None:
                self._keys.remember(request, None)
        return None
