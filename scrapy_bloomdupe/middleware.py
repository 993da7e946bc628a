"""Middlewares: what the rules drop and rewrite, and what becomes of a request.

``UrlRulesMiddleware`` applies the rules to what a spider gives. The key of a request is not its business: the
duplicate filter makes one of every request, of redirections and ``engine.crawl()`` too, which pass no spider
middleware. ``AcknowledgeMiddleware`` tells the frontier when a callback has given all of its output.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import CloseSpider, IgnoreRequest, NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

import scrapy_bloomdupe.settings as settings
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import BloomdupeError
from scrapy_bloomdupe.frontier.queue import FrontierQueue, queues
from scrapy_bloomdupe.keys import RequestKeys, of_crawler, with_middleware
from scrapy_bloomdupe.rules.ruleset import Decision
from scrapy_bloomdupe.rulewatch import RuleWatch
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)


class UrlRulesMiddleware(BaseSpiderMiddleware):
    """Drops requests (``missing="drop"``) and rewrites their URL (``apply="url"``), and counts both.

    For start requests and the output of callbacks, sync and async. To stand near the engine (a small
    number): what other middlewares make of a request has then been made. A request with ``dont_filter``,
    with a body or another method than GET is never dropped; one that a rule fails on passes as it is.

    Raises:
        NotConfigured: there are no rules; each output would pass through it for nothing.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UrlRulesMiddleware:
        with suppress(BloomdupeError):  # wrong rules: the filter refuses the crawl and says why
            if of_crawler(crawler).rules is None:
                raise NotConfigured
        return cls(crawler)

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


class AcknowledgeMiddleware:
    """Tells the frontier what a callback gives, and which requests fail; a spider and a downloader
    middleware.

    To stand next to the engine in both: nothing may change an output after it. Without it a request is done
    when the engine no longer has it, which is a little later, and nothing is known of failures.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> AcknowledgeMiddleware:
        return cls(crawler)

    @property
    def _queue(self) -> FrontierQueue | None:
        # The frontier is opened after the middlewares.
        return queues.get(self._crawler)

    def process_spider_output(
        self, response: Response, result: Iterable[Any], spider: Spider | None = None
    ) -> Iterator[Any]:
        queue, has_output = self._queue, False
        if queue is None:
            yield from result
            return
        try:
            for output in result:
                has_output = True
                _expect(queue, response, output)
                yield output
        except Exception as exc:
            _raised(queue, response, exc)
            raise
        _exhausted(queue, response, has_output=has_output)

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        queue, has_output = self._queue, False
        if queue is None:
            async for output in result:
                yield output
            return
        try:
            async for output in result:
                has_output = True
                _expect(queue, response, output)
                yield output
        except Exception as exc:
            _raised(queue, response, exc)
            raise
        _exhausted(queue, response, has_output=has_output)

    def process_spider_exception(
        self, response: Response, exception: Exception, spider: Spider | None = None
    ) -> None:
        if (queue := self._queue) is not None:
            _raised(queue, response, exception)

    def process_exception(self, request: Request, exception: Exception, spider: Spider | None = None) -> None:
        if (queue := self._queue) is not None and not isinstance(exception, IgnoreRequest):
            queue.failed(request)


def _expect(queue: FrontierQueue, response: Response, output: Any) -> None:
    if isinstance(output, Request):
        queue.expect(response, output)
    elif output is not None:
        queue.expect_item(response)


def _raised(queue: FrontierQueue, response: Response, exc: Exception) -> None:
    # What else the callback would have given is not known after CloseSpider: the next run asks again.
    if not isinstance(exc, CloseSpider) and response.request is not None:
        queue.failed(response.request)


def _exhausted(queue: FrontierQueue, response: Response, *, has_output: bool) -> None:
    # Refused by Scrapy's HttpErrorMiddleware, or by the callback.
    if response.status >= 400 and not has_output and response.request is not None:
        queue.failed(response.request)
    queue.exhausted(response)
