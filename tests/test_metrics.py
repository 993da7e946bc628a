"""Does Prometheus get the figures of a crawl that runs, and does no crawl fall over it?"""

from __future__ import annotations

import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import ASYNCIO, FILTER, SELECT, run, running
from mocksite import Area, Site, mock_site
from prometheus_client import CollectorRegistry, generate_latest
from scrapy import signals

import scrapy_bloomdupe.metrics as metrics
from scrapy_bloomdupe.settings import read

SIZE = 60


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def area(site: Site) -> Area:
    return site.area()


def look_often() -> None:
    """For ``prepare``: figures are read more often than anybody needs."""
    metrics._INTERVAL = 0.05


def no_client() -> None:
    """For ``prepare``: as if prometheus_client were not installed."""
    sys.modules["prometheus_client"] = None  # type: ignore[assignment]


class OwnRegistry:
    """An extension that has a registry of its own, and writes what it says when the spider is closed."""

    def __init__(self, crawler: Any) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(metrics.Collector(crawler))
        self.path = Path(crawler.settings["OWN_REGISTRY"])
        crawler.signals.connect(self.closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Any) -> OwnRegistry:
        return cls(crawler)

    def closed(self) -> None:
        self.path.write_bytes(generate_latest(self.registry))


def figures(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT])
@pytest.mark.parametrize("jobdir", [True, False])
def test_a_running_crawl_is_asked(tmp_path: Path, area: Area, reactor: str, jobdir: bool) -> None:
    settings = {
        **FILTER,
        "JOBDIR": str(tmp_path / "job") if jobdir else None,
        "TWISTED_REACTOR": reactor,
        "BLOOMDUPE_METRICS_PORT": 0,
        "DOWNLOAD_DELAY": 0.05,
    }
    start = [area.at(f"tree/{SIZE}/0")]
    with running(tmp_path, settings, prepare="test_metrics.look_often", start=start) as going:
        address = re.compile(r"http://127\.0\.0\.1:\d+/metrics")

        def told() -> Any:
            return going.log.exists() and address.search(going.log.read_text())

        going.wait_until(lambda: bool(told()), "address")
        url = told()[0]
        asked: dict[str, float] = {}

        def ask() -> bool:
            with urllib.request.urlopen(url, timeout=10) as answer:
                asked.update(figures(answer.read().decode()))
            return asked["bloomdupe_pages_total"] >= 5

        going.wait_until(ask, "five pages")
        going.process.send_signal(signal.SIGTERM)
        done = going.finish()
    assert "shutdown" == done.stats["finish_reason"]
    assert not any(name.startswith("bloomdupe/error/") for name in done.stats)
    assert 5 <= asked["bloomdupe_keys"] <= SIZE
    assert 5 <= asked['bloomdupe_verdicts_total{verdict="new"}'] <= SIZE
    assert 0 < asked['bloomdupe_verdicts_total{verdict="duplicate"}']
    assert 0 == asked['bloomdupe_verdicts_total{verdict="false_positive"}']
    assert 1_000_000 == asked["bloomdupe_capacity_keys"]
    assert 0 <= asked["bloomdupe_fill_ratio"] < 0.01
    assert 1_000_000 < asked["bloomdupe_disk_bytes"]
    assert jobdir == ("bloomdupe_pending_requests" in asked)
    # The port is free again.
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])), 5)


def test_with_a_port_that_is_taken_the_crawl_goes_on(tmp_path: Path, area: Area) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(tmp_path, {**FILTER, "BLOOMDUPE_METRICS_PORT": port}, start=[area.at(f"tree/{SIZE}/0")])
    assert (SIZE, "finished", 0) == (len(done.items), done.stats["finish_reason"], done.code)
    assert 1 == done.stats["bloomdupe/error/metrics"]
    (line,) = done.lines("WARNING", f"Port {port} of 127.0.0.1 cannot be had")
    assert "Address already in use" in line
    assert "Set BLOOMDUPE_METRICS_PORT to another one" in line


def test_without_prometheus_client_a_port_is_a_wrong_configuration(tmp_path: Path, area: Area) -> None:
    settings = {**FILTER, "JOBDIR": str(tmp_path / "job"), "BLOOMDUPE_METRICS_PORT": 9410}
    start = [area.at(f"tree/{SIZE}/0")]
    done = run(tmp_path, settings, prepare="test_metrics.no_client", start=start)
    assert (1, "bloomdupe_refused", []) == (done.code, done.stats["finish_reason"], done.items)
    (line,) = done.lines("ERROR", "The crawl does not start")
    assert "pip install scrapy-bloomdupe[metrics]" in line
    assert not (tmp_path / "job" / "bloomdupe" / "seen.bloom").exists()
    del settings["BLOOMDUPE_METRICS_PORT"]
    assert SIZE == len(run(tmp_path, settings, prepare="test_metrics.no_client", start=start).items)


def test_the_collector_stands_in_a_registry_of_the_projects_own(tmp_path: Path, area: Area) -> None:
    path = tmp_path / "metrics.txt"
    settings = {**FILTER, "EXTENSIONS": {"test_metrics.OwnRegistry": 1}, "OWN_REGISTRY": str(path)}
    done = run(tmp_path, settings, start=[area.at(f"tree/{SIZE}/0")])
    found = figures(path.read_text())
    assert SIZE == found["bloomdupe_keys"] == found['bloomdupe_verdicts_total{verdict="new"}']
    assert done.stats["response_received_count"] == found["bloomdupe_pages_total"]


@pytest.mark.parametrize(
    ("written", "expected"), [(9410, 9410), ("9410", 9410), (0, 0), (None, None), ("None", None), ("", None)]
)
def test_the_port_is_understood_as_people_write_it(written: Any, expected: int | None) -> None:
    assert expected == read({"BLOOMDUPE_METRICS_PORT": written}).metrics_port
