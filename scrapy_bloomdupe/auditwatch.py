"""What is told of an audit when it finds a page that the filter would have lost? Stats, and one warning."""

from __future__ import annotations

import logging

import scrapy_bloomdupe.report as report
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.auditing import Audit
from scrapy_bloomdupe.estimating import Estimate
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.watch import Watch

logger = logging.getLogger(__name__)


def publish_audit(audit: Audit, watch: Watch) -> Estimate:
    """Set the figures of an audit, and return what it says of the other keys."""
    lost = audit.estimate()
    watch.set(stats.AUDIT_SAMPLED, audit.num_keys)
    watch.set(stats.AUDIT_LOST_ESTIMATE, round(lost.others, 1))
    watch.set(stats.AUDIT_LOST_LOW, lost.low)
    watch.set(stats.AUDIT_LOST_HIGH, lost.high)
    return lost


class AuditWatch:
    """The ``on_lost`` of *audit*, which is that of *state*."""

    def __init__(self, state: State, audit: Audit, watch: Watch) -> None:
        self._state = state
        self._audit = audit
        self._watch = watch
        self._warned = False

    def __call__(self) -> None:
        # Afterwards there is nothing to say before the end: the bounds take longer the more was found.
        if self._warned:
            return
        state = self._state
        lost = publish_audit(self._audit, self._watch)
        promised = state.filter.error_rate * state.num_keys()
        # Looked at with every find, so not wrong in 2.5 % of crawls, but in none of 400 simulated ones whose
        # filter fills up to its capacity, and in 14 % of those with the asked rate from the first key on.
        if lost.low > promised and self._watch.is_first(stats.AUDIT_LOST_LOW):
            self._warned = True
            notice = report.lossy(state, self._audit.num_keys, lost, promised)
            logger.warning(notice, extra={"spider": self._watch.spider})
