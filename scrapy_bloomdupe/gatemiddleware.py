"""Which requests of a spider are for nothing, since what they ask for is known not to exist? A spider
middleware.

It fails open: what the gate cannot judge passes, and is counted. Redirects and retries pass no spider
middleware, and are of requests that passed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.exceptions import NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

import scrapy_bloomdupe.report as report
import scrapy_bloomdupe.settings as settings
import scrapy_bloomdupe.stats as stats
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
        self._gate = Gate.open(given.file, on_problem=self._could_not)
        self._told("url" in given.sources)
        crawler.signals.connect(self._spider_closed, signal=signals.spider_closed)

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        # A copy of the meta of a page that was let through is not let through for that.
        request.meta.pop(META_SAMPLED, None)
        if request.meta.get(META_GATE) is False:
            return request
        try:
            text = self._source.text(request)
        except Exception as exc:
            self._warn(report.gate_source_failed(exc, request))
            self._watch.count(stats.GATE_BYPASSED)
            return request
        if text is None:
            self._watch.count(stats.GATE_NO_VALUE)
            return request
        answer = self._gate.ask(text)
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
                logger.warning(report.gate_wrong(text, request), extra={"spider": self.crawler.spider})
        return item

    def _could_not(self, exc: Exception, in_force: bool) -> None:
        self._warn(report.gate_problem(exc, in_force=in_force))

    def _warn(self, warning: str) -> None:
        self._watch.count(stats.ERROR_GATE)
        if self._watch.is_first(stats.ERROR_GATE):
            logger.warning(warning, extra={"spider": self.crawler.spider})

    def _told(self, by_url: bool) -> None:
        info = self._measured()
        if info.loaded:
            logger.info(report.gate_opened(info), extra={"spider": self.crawler.spider})
        if info.loaded and by_url and "url" not in info.steps:
            logger.warning(report.gate_without_url(info), extra={"spider": self.crawler.spider})

    def _measured(self) -> GateInfo:
        info = self._gate.info()
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
