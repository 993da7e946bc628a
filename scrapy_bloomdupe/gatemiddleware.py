"""Which requests of a spider are for nothing, since what they ask for is known not to exist? A spider
middleware.

A gate on a server is asked once for all requests that a callback has to give, in a thread. It fails open:
what the gate cannot judge passes, and is counted. Redirects and retries pass no spider middleware, and are of
requests that passed.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.exceptions import NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.threads import deferToThread

import scrapy_bloomdupe.gatereport as gatereport
import scrapy_bloomdupe.scrapy_compat as scrapy_compat
import scrapy_bloomdupe.settings as settings
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.ahead import batches
from scrapy_bloomdupe.gate.gate import Answer, Gate, GateInfo
from scrapy_bloomdupe.gatesource import GateSource
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = logging.getLogger(__name__)

#: In ``request.meta``: False: the gate leaves this request alone.
META_GATE = "bloomdupe_gate"
#: In ``request.meta``: the text that the gate does not have, of a request that was let through to see.
META_SAMPLED = "bloomdupe_gate_sampled"

# Outputs in one question to a server: of a callback, and of what the spider starts with.
_AT_ONCE = 1_000
_STARTS_AT_ONCE = 50

_STATS = {
    Answer.PASSED: stats.GATE_PASSED,
    Answer.SHORT: stats.GATE_NO_VALUE,
    Answer.BYPASSED: stats.GATE_BYPASSED,
}


class GateMiddleware(BaseSpiderMiddleware):
    """Drops the requests whose text is certainly not in the gate: start requests, and those of callbacks.

    ``dont_filter`` does not spare a request, ``meta={"bloomdupe_gate": False}`` does. A request without
    a text, or with one too short, passes.

    Raises:
        NotConfigured: there is no ``BLOOMDUPE_GATE``.
        ConfigurationError: it is wrong.
    """

    def __init__(self, crawler: Crawler, chance: Callable[[], float] = random.random) -> None:
        super().__init__(crawler)
        given = settings.read_gate(crawler.settings)
        if given is None:
            raise NotConfigured("BLOOMDUPE_GATE is not set")
        self._sample = given.sample
        self._chance = chance
        self._watch = Watch(crawler)
        name = crawler.spider.name if crawler.spider is not None else None
        self._source = GateSource(given.sources, given.match, name)
        # A thread may meet it: what is counted is counted on the crawl's own.
        self._problems: deque[Exception] = deque()
        self._gate = Gate.open(given.file, key=given.key, on_problem=self._problems.append)
        self._told("url" in given.sources)
        crawler.signals.connect(self._spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> GateMiddleware:
        given = settings.read_gate(crawler.settings)
        if cls is GateMiddleware and given is not None and given.key is not None:
            return SharedGateMiddleware(crawler)
        return cls(crawler)

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        if (text := self._text(request)) is None:
            return request
        return self._judged(request, text, self._gate.ask(text))

    def _text(self, request: Request) -> str | None:
        """Return what the gate is to be asked for; None: nothing, the request passes, which is counted."""
        # A copy of the meta of a page that was let through is not let through for that.
        request.meta.pop(META_SAMPLED, None)
        if request.meta.get(META_GATE) is False:
            return None
        try:
            text = self._source.text(request)
        except Exception as exc:
            self._warn(gatereport.source_failed(exc, request))
            self._watch.count(stats.GATE_BYPASSED)
            return None
        if text is None:
            self._watch.count(stats.GATE_NO_VALUE)
        return text

    def _judged(self, request: Request, text: str, answer: Answer) -> Request | None:
        self._tell_problems()
        if answer is not Answer.REJECTED:
            self._watch.count(_STATS[answer])
            return request
        if self._sample and self._chance() < self._sample:
            request.meta[META_SAMPLED] = text
            self._watch.count(stats.GATE_SAMPLED)
            return request
        self._watch.count(stats.GATE_REJECTED)
        if self._watch.is_first(stats.GATE_REJECTED):
            logger.debug(
                "Dropped %(request)s: %(text)r is not in the gate - no more of these are shown",
                {"request": request, "text": text},
                extra={"spider": self.crawler.spider},
            )
        return None

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        request = response.request if response is not None else None
        # Once per page, however many items it brings.
        if request is not None and (text := request.meta.pop(META_SAMPLED, None)) is not None:
            self._watch.count(stats.GATE_WRONG)
            if self._watch.is_first(stats.GATE_WRONG):
                logger.warning(gatereport.wrong(text, request), extra={"spider": self.crawler.spider})
        return item

    def _tell_problems(self) -> None:
        while self._problems:
            self._warn(gatereport.problem(self._problems.popleft()))

    def _warn(self, warning: str) -> None:
        self._watch.count(stats.ERROR_GATE)
        if self._watch.is_first(stats.ERROR_GATE):
            logger.warning(warning, extra={"spider": self.crawler.spider})

    def _told(self, by_url: bool) -> None:
        info = self._measured()
        if info.loaded:
            logger.info(gatereport.opened(info), extra={"spider": self.crawler.spider})
        if info.loaded and by_url and "url" not in info.steps:
            logger.warning(gatereport.without_url(info), extra={"spider": self.crawler.spider})

    def _measured(self) -> GateInfo:
        info = self._gate.info()
        self._tell_problems()
        if info.loaded:
            self._watch.set(stats.GATE_VERSION, info.version)
            self._watch.set(stats.GATE_KEYS, info.num_keys)
            self._watch.set(stats.GATE_ERROR_RATE_ESTIMATE, info.error_rate_estimate)
        return info

    def _spider_closed(self, spider: Spider) -> None:
        info = self._measured()
        for name, microseconds in info.lookup_us.items():
            self._watch.set(stats.GATE_LOOKUP + name, microseconds)
        self._gate.close()


class SharedGateMiddleware(GateMiddleware):
    """``GateMiddleware`` for a gate on a server. Items and requests keep their order."""

    # In one form only: an answer is waited for.
    process_spider_output_async = None  # type: ignore[assignment]

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for output in self._asked(start, None, _STARTS_AT_ONCE):
            yield output

    async def process_spider_output(  # type: ignore[override]
        self, response: Response, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        async for output in self._asked(result, response, _AT_ONCE):
            yield output

    async def _asked(
        self, outputs: AsyncIterator[Any], response: Response | None, limit: int
    ) -> AsyncIterator[Any]:
        async for batch in batches(outputs, limit, scrapy_compat.turns()):
            texts = [self._text(output) if isinstance(output, Request) else None for output in batch]
            wanted = [text for text in texts if text is not None]
            answers = iter(await self._answers(wanted) if wanted else [])
            for output, text in zip(batch, texts, strict=True):
                passed = output
                if text is not None:
                    passed = self._judged(output, text, next(answers))
                elif not isinstance(output, Request):
                    passed = self.get_processed_item(output, response)
                if passed is not None:
                    yield passed

    async def _answers(self, texts: list[str]) -> list[Answer]:
        # Never fails: see ``Gate.ask_many``.
        return await maybe_deferred_to_future(deferToThread(self._gate.ask_many, texts))
