"""What is told of a filter that grows, and what is done when it cannot? The crawl ends in good time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import scrapy_bloomdupe.report as report
import scrapy_bloomdupe.scrapy_compat as scrapy_compat
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: ``finish_reason`` of a crawl whose filter was full.
FULL = "bloomdupe_full"

#: Without a store the crawl stops before the rate passes ten times the asked one. Between two looks at
#: it, one hundredth of the capacity apart, it grows by a quarter at the most (k = 30).
STOP_AT = 7.5


class GrowthWatch:
    """The ``on_growth`` of the filter of *state*."""

    def __init__(self, state: State, watch: Watch, crawler: Crawler | None) -> None:
        self._state = state
        self._watch = watch
        self._crawler = crawler

    def __call__(self, growth: Growth) -> None:
        state = self._state
        extra = {"spider": self._watch.spider}
        self._watch.set(stats.LAYERS, state.filter.num_layers)
        if growth.error is None:
            logger.info(report.grew(growth), extra=extra)
            return
        self._watch.count(stats.ERROR_GROWTH)
        if self._watch.is_first(stats.ERROR_GROWTH):
            logger.error(
                report.overfull(growth, exact=state.store is not None or state.shared is not None),
                extra=extra,
            )
        if state.shared is not None:
            # It only saves questions to a server: what it does not know is asked there.
            state.seen.frozen = True
        elif state.store is None and growth.rate > STOP_AT * state.filter.error_rate:
            if not state.seen.frozen:
                logger.error(report.full(growth, state.filter.error_rate), extra=extra)
                if self._crawler is not None and scrapy_compat.is_crawling(self._crawler):
                    scrapy_compat.close_spider(self._crawler, FULL)
            # What is still asked passes, and is not remembered.
            state.seen.frozen = True
