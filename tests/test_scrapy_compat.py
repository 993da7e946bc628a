"""Can a crawl be refused and stopped under every engine, reactor and release that we support?"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crawling import ASYNCIO, FILTER, SELECT, idle_crawler, run, running
from mocksite import Site, mock_site

from scrapy_bloomdupe import LmdbStore, engine
from scrapy_bloomdupe.stores.environment import Environment


def as_before_scrapy_2_18() -> None:
    """For ``prepare``: a crawl cannot be refused by a handler of ``spider_opened``."""
    engine._REFUSABLE = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def test_a_crawler_without_an_engine_does_not_crawl() -> None:
    assert not scrapy_compat.is_crawling(idle_crawler())
    with_engine: Any = SimpleNamespace(engine=object())
    assert scrapy_compat.is_crawling(with_engine)


@pytest.mark.parametrize(
    ("reactor", "prepare"), [(ASYNCIO, None), (SELECT, None), (ASYNCIO, "as_before_scrapy_2_18")]
)
def test_a_refused_crawl_ends_before_its_first_download_under_every_reactor_and_release(
    site: Site, tmp_path: Path, reactor: str, prepare: str | None
) -> None:
    area = site.area()
    settings = {**FILTER, "TWISTED_REACTOR": reactor, "BLOOMDUPE_SCHEME": "md5"}
    crawl = run(tmp_path, settings, prepare=prepare and f"{__name__}.{prepare}", start=[area.at("tree/9/0")])
    assert (1, "bloomdupe_refused") == (crawl.code, crawl.stats["finish_reason"])
    assert [] == area.answers()
    assert {"bloomdupe/error/open": 1} == crawl.ours()
    assert "Traceback" not in crawl.log


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT])
def test_seen_keys_are_written_in_mid_crawl_under_every_reactor(
    site: Site, tmp_path: Path, reactor: str
) -> None:
    area = site.area()
    jobdir = tmp_path / "job"
    settings = {**FILTER, "TWISTED_REACTOR": reactor, "JOBDIR": str(jobdir), "DOWNLOAD_DELAY": 0.3}
    with running(tmp_path, settings, start=[area.at("tree/30/0")]) as crawl:
        crawl.wait_until((jobdir / "bloomdupe" / "seen.bloom").exists, "a state")
        crawl.wait_until(lambda: keys_on_the_disk(jobdir / "bloomdupe" / "seen.lmdb") >= 3, "three keys")
        crawl.process.send_signal(signal.SIGINT)
        ended = crawl.finish()
    assert "shutdown" == ended.stats["finish_reason"]
    assert len(area.answers()) < 30
    assert "Traceback" not in ended.log


def keys_on_the_disk(path: Path) -> int:
    environment = Environment.open(path, readonly=True)
    try:
        return LmdbStore(environment).count()
    finally:
        environment.close()


@pytest.mark.parametrize("newest", [True, False])
def test_a_crawl_that_is_refused_leaves_the_disk_queues_of_the_job_alone(newest: bool) -> None:
    # Another process may be at work on them: closing them would take its files away.
    scheduler = SimpleNamespace(dqs=object())
    found = (
        SimpleNamespace(scheduler=scheduler)
        if newest
        else SimpleNamespace(_slot=SimpleNamespace(scheduler=scheduler))
    )
    engine._leave_queues(SimpleNamespace(engine=found))  # type: ignore[arg-type]
    assert scheduler.dqs is None


def test_a_scheduler_without_disk_queues_is_no_trouble() -> None:
    engine._leave_queues(SimpleNamespace(engine=SimpleNamespace(scheduler=None)))  # type: ignore[arg-type]
