"""When are the figures of a crawl read, and what is kept of them? On a clock, on the crawl's thread.

``history`` knows the files. Whatever fails here is counted, and the crawl does not notice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import scrapy_bloomdupe.scrapy_compat as scrapy_compat
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.history import HistoryFile, RuleFigures, Sample, Top, read_top
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.tophosts import TopHosts
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_bloomdupe.rulewatch import RuleWatch

# Pages of 8 KiB a layer on which the fill is measured, always the same ones: 0.15 ms if they are in memory.
_PAGES = 64
# What is written of the top lists.
_HOSTS = 100
_RULES = 100
_PAIRS = 3
_LONGEST_URL = 500

_VERDICTS = {verdict.value: name for verdict, name in stats.VERDICTS.items()}


class Figures:
    """The figures of one crawl, from its beginning.

    Attributes:
        latest: the last ones that were read; any thread may look at it.
    """

    def __init__(self, crawler: Crawler, state: State, watch: Watch) -> None:
        self._crawler = crawler
        self._state = state
        self._watch = watch
        self._began = time.monotonic()
        self._done_before = state.frontier.num_done if state.frontier is not None else 0
        self._closed = False
        self.latest = Sample()
        of_crawler[crawler] = self

    def close(self) -> None:
        """The state is about to be closed: the latest figures are the last ones."""
        self._closed = True
        of_crawler.pop(self._crawler, None)

    def read(self) -> Sample:
        """Read them anew, on the crawl's thread.

        Raises:
            StoreError: the store could not be read.
        """
        if self._closed:
            return self.latest
        state = self._state
        info = state.filter.measure(_PAGES)
        frontier = state.frontier
        counted = self.stats()
        self.latest = Sample(
            time=round(time.time(), 1),
            run=1,
            seconds=round(time.monotonic() - self._began, 2),
            keys=state.num_keys(),
            layers=len(info.layers),
            capacity=sum(layer.capacity for layer in info.layers),
            fill=info.fill,
            error_rate=info.error_rate_estimate,
            pages=counted.get("response_received_count", 0),
            done=frontier.num_done - self._done_before if frontier is not None else 0,
            cached=counted.get(stats.CACHED, 0),
            pending=frontier.num_pending if frontier is not None else None,
            num_bytes=state.num_bytes(),
            anonymous_bytes=anonymous_bytes(),
            commit_seconds=counted.get(stats.COMMIT_SECONDS, 0.0),
            errors={
                name.removeprefix(stats.ERROR): count
                for name, count in counted.items()
                if name.startswith(stats.ERROR)
            },
            **{verdict: counted.get(name, 0) for verdict, name in _VERDICTS.items()},
        )
        return self.latest

    def stats(self) -> Mapping[str, Any]:
        """Return the stats of the crawl as they stand."""
        self._watch.flush()
        return self._crawler.stats.get_stats() if self._crawler.stats is not None else {}


#: The figures of the crawls that are under way.
of_crawler: WeakKeyDictionary[Crawler, Figures] = WeakKeyDictionary()


class Sampler:
    """Reads the figures of one crawl, and keeps the history of its state, from ``start`` until ``close``.

    Args:
        directory: where the history lies; None: none is kept.
        interval: seconds between two samples, more than 0.
    """

    def __init__(
        self,
        crawler: Crawler,
        state: State,
        watch: Watch,
        rules: RuleWatch,
        directory: Path | None,
        interval: float,
    ) -> None:
        self._figures = Figures(crawler, state, watch)
        self._watch = watch
        self._rules = rules
        self._interval = interval
        self._file = HistoryFile(directory) if directory is not None else None
        self._before: Sample | None = None
        self._top_before = read_top(directory) if directory is not None else Top()
        self._repeater: scrapy_compat.Repeater | None = None
        #: Counts the hosts of duplicates; None: nobody would look.
        self.hosts = TopHosts() if directory is not None else None
        if self.hosts is not None:
            self.hosts.seed(self._top_before.hosts, self._top_before.slack)

    def start(self) -> None:
        """Begin, with a sample; there must be a running crawl."""
        if self._file is not None:
            self._tick()
            self._repeater = scrapy_compat.Repeater(self._tick, self._interval)

    def close(self) -> None:
        """Take the last sample, while the state is still open."""
        if self._repeater is not None:
            self._repeater.stop()
            self._repeater = None
            self._tick()
        else:
            self._watch.attempt(stats.ERROR_CLOSE, self._figures.read)
        self._figures.close()

    def _tick(self) -> None:
        self._watch.attempt(stats.ERROR_HISTORY, self._sample)

    def _sample(self) -> None:
        assert self._file is not None
        if self._before is None:
            # Also if that has failed before: the trouble may have passed.
            self._before = self._file.open()
        self._file.append(self._figures.read().after(self._before))
        self._file.write_top(self._top())

    def _top(self) -> Top:
        rules: dict[str, RuleFigures] = {}
        found = {**self._rules.figures()}
        for name, count in self._figures.stats().items():
            if name.startswith(stats.RULE):
                rule, _, what = name.removeprefix(stats.RULE).rpartition("/")
                one = found.get(rule, RuleFigures())
                found[rule] = RuleFigures({**one.counts, what: count}, one.pairs)
        before = self._top_before.rules
        for name in [*before, *(each for each in found if each not in before)][:_RULES]:
            rules[name] = _sum(before.get(name, RuleFigures()), found.get(name, RuleFigures()))
        hosts = self.hosts
        assert hosts is not None
        return Top(tuple(hosts.top(_HOSTS)), hosts.slack, rules)


def anonymous_bytes() -> int | None:
    """Return the memory of this process besides mapped files, in bytes; None: the system does not say."""
    try:
        with Path("/proc/self/status").open("rb") as file:
            for line in file:
                if line.startswith(b"RssAnon:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _sum(before: RuleFigures, now: RuleFigures) -> RuleFigures:
    counts = {**before.counts}
    for what, count in now.counts.items():
        counts[what] = counts.get(what, 0) + count
    pairs = [(_cut(first), _cut(second)) for first, second in now.pairs]
    # The newest ones: rules may have changed since.
    kept = [*pairs, *(pair for pair in before.pairs if pair not in pairs)]
    return RuleFigures(counts, tuple(kept[:_PAIRS]))


def _cut(url: str) -> str:
    return url if len(url) <= _LONGEST_URL else url[: _LONGEST_URL - 1] + "…"
