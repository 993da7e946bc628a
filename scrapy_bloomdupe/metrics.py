"""Where does Prometheus find the figures of a crawl? A collector, and a port on this machine.

The figures are read on the crawl's thread every few seconds; the thread that is asked for them only passes
them on. Needs ``scrapy-bloomdupe[metrics]``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scrapy import signals

import scrapy_bloomdupe.sampling as sampling
import scrapy_bloomdupe.scrapy_compat as scrapy_compat
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.history import Sample
from scrapy_bloomdupe.watch import Watch

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# Only from this machine: the figures tell what is crawled how fast.
_ADDRESS = "127.0.0.1"
# Seconds; Prometheus asks every 15 or 60. A look takes less than a millisecond.
_INTERVAL = 5.0

_VERDICTS = ("new", "duplicate", "false_positive", "unconfirmed", "expired")
_GAUGES = {
    "keys": ("Keys that are known.", "keys"),
    "layers": ("Layers of the filter.", "layers"),
    "capacity_keys": ("Keys until the filter grows.", "capacity"),
    "fill_ratio": ("Share of the filter's bits that are set.", "fill"),
    "error_rate_estimate": ("Expected false-positive rate of the filter now.", "error_rate"),
    "pending_requests": ("Requests scheduled and not done, in the frontier.", "pending"),
    "disk_bytes": ("Size of all files of the state.", "num_bytes"),
    "anonymous_memory_bytes": ("Memory of the process besides mapped files.", "anonymous_bytes"),
}
_COUNTERS = {
    "pages": ("Responses received.", "pages"),
    "done_requests": ("Requests finished.", "done"),
    "cached": ("Duplicates that were known by their exact URL.", "cached"),
    "commit_seconds": ("Time of the crawl's thread for writing.", "commit_seconds"),
}


def require() -> Any:
    """Return prometheus_client.

    Raises:
        ConfigurationError: it is not there.
    """
    try:
        import prometheus_client
    except ImportError as exc:
        raise ConfigurationError(
            "BLOOMDUPE_METRICS_PORT needs prometheus_client: run `pip install scrapy-bloomdupe[metrics]`, or "
            "leave the setting out"
        ) from exc
    return prometheus_client


class Collector:
    """The figures of one crawl, for a registry of prometheus_client.

    ``REGISTRY.register(Collector(crawler))``, before the spider is opened (in an extension's
    ``from_crawler``).
    """

    def __init__(self, crawler: Crawler) -> None:
        require()
        self._crawler = crawler
        self._watch = Watch(crawler)
        self._repeater: scrapy_compat.Repeater | None = None
        self._figures: sampling.Figures | None = None
        crawler.signals.connect(self._start, signal=signals.spider_opened)
        crawler.signals.connect(self._stop, signal=signals.spider_closed)

    def collect(self) -> Iterator[Any]:
        """Give the figures; any thread may ask."""
        if self._figures is not None:
            yield from _families(self._figures.latest)

    def _start(self) -> None:
        self._figures = sampling.of_crawler.get(self._crawler)
        if self._figures is not None:
            self._read()
            self._repeater = scrapy_compat.Repeater(self._read, _INTERVAL)

    def _read(self) -> None:
        if self._figures is not None:
            self._watch.attempt(stats.ERROR_METRICS, self._figures.read)

    def _stop(self) -> None:
        if self._repeater is not None:
            self._repeater.stop()
            self._repeater = None


class Server:
    """Serves the figures of a crawl at ``http://127.0.0.1:port/metrics``, until its spider is closed.

    A port that cannot be had is warned of and counted.

    Args:
        port: 0: any free one; the log says which.
    """

    def __init__(self, crawler: Crawler, watch: Watch, port: int) -> None:
        self._crawler = crawler
        self._watch = watch
        self._port = port
        self._server: Any = None
        self._collector = Collector(crawler)
        crawler.signals.connect(self._start, signal=signals.spider_opened)
        crawler.signals.connect(self._stop, signal=signals.spider_closed)

    def _start(self) -> None:
        client = require()
        registry = client.CollectorRegistry()
        registry.register(self._collector)
        try:
            self._server, _ = client.start_http_server(self._port, _ADDRESS, registry)
        except OSError as exc:
            self._watch.count(stats.ERROR_METRICS)
            logger.warning(
                "Port %d of %s cannot be had (%s): no figures for Prometheus in this crawl, which goes on. "
                "Set BLOOMDUPE_METRICS_PORT to another one",
                self._port,
                _ADDRESS,
                exc.strerror or exc,
                extra={"spider": self._crawler.spider},
            )
            return
        logger.info(
            "Figures for Prometheus: http://%s:%d/metrics",
            *self._server.server_address[:2],
            extra={"spider": self._crawler.spider},
        )

    def _stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _families(sample: Sample) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, (text, field) in _GAUGES.items():
        if (value := getattr(sample, field)) is not None:
            yield GaugeMetricFamily(f"bloomdupe_{name}", text, value=value)
    for name, (text, field) in _COUNTERS.items():
        yield CounterMetricFamily(f"bloomdupe_{name}", text, value=getattr(sample, field))
    verdicts = CounterMetricFamily("bloomdupe_verdicts", "Requests judged, by verdict.", labels=["verdict"])
    for verdict in _VERDICTS:
        verdicts.add_metric([verdict], getattr(sample, verdict))
    yield verdicts
    errors = CounterMetricFamily(
        "bloomdupe_errors", "Failures after which the crawl went on.", labels=["where"]
    )
    for where, count in sample.errors.items():
        errors.add_metric([where], count)
    yield errors
