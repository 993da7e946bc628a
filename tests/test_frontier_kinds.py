"""Does a killed job lose nothing in whichever way its spider finds, asks for and exports its pages?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import SELECT
from killing import EXACT, LONG, SEEDS, Job, jobs
from killsite import Tree

SIZE = 300 if LONG else 40
KILLS = 10 if LONG else 2

# Copied meta counts the redirects and retries of the pages before.
PATIENT = {"RETRY_TIMES": 1000, "REDIRECT_MAX_TIMES": 10_000}

ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}

KINDS: list[Any] = [
    pytest.param("Plain", "p", {}, id="plain pages"),
    pytest.param("Plain", "p", ADDON, id="switched on by the add-on"),
    pytest.param("Plain", "h", {}, id="redirects in chains"),
    pytest.param("Plain", "oc", {}, id="redirects to the same key"),
    pytest.param("Plain", "v", {}, id="redirects through a page that gives a cookie"),
    pytest.param("Plain", "f", {}, id="retries"),
    pytest.param("Plain", "s", {}, id="slow pages"),
    pytest.param("Plain", "d", {}, id="POST with bodies"),
    pytest.param("Filtered", "ph", {}, id="start requests that are filtered"),
    pytest.param("Async", "ps", {}, id="async callbacks"),
    pytest.param("Errback", "pe", {}, id="errbacks that yield requests"),
    pytest.param("Lambdas", "p", {}, id="lambdas in lambdas"),
    pytest.param("SomeLambdas", "phd", {}, id="lambdas now and then"),
    pytest.param("CopiedMeta", "phocvfd", PATIENT, id="copied meta"),
    pytest.param("Replaced", "phocvfd", PATIENT, id="replaced requests"),
    pytest.param("Follow", "phd", {}, id="response.follow"),
    pytest.param("Unfiltered", "phf", {}, id="dont_filter"),
    pytest.param("Priorities", "phd", {}, id="priorities"),
    pytest.param("Arguments", "phd", {}, id="cb_kwargs"),
    pytest.param("Ruled", "phocvfs", {}, id="rules of a CrawlSpider"),
    pytest.param("Plain", "ph", {"ITEM_PIPELINES": {"killspiders.SlowPipeline": 1}}, id="items leave late"),
]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    with jobs(tmp_path_factory.mktemp("jobs")) as make:
        yield make


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
@pytest.mark.parametrize(("spider", "kinds", "settings"), KINDS)
def test_a_killed_job_fetches_every_page_and_exports_every_item(
    make: Callable[..., Job], tmp_path: Path, spider: str, kinds: str, settings: dict[str, Any], seed: int
) -> None:
    job = make(tmp_path, Tree(SIZE, seed, kinds), {**EXACT, **settings}, spider=spider)
    job.kill_often(KILLS, seed)
    job.check()
    assert KILLS == job.kills


def test_a_killed_job_exports_every_row_of_a_csv_file(make: Callable[..., Job], tmp_path: Path) -> None:
    job = make(tmp_path, Tree(SIZE), EXACT, feed="csv")
    job.kill_often(KILLS, 1)
    job.check()


def test_a_killed_job_without_asyncio_loses_nothing(make: Callable[..., Job], tmp_path: Path) -> None:
    job = make(tmp_path, Tree(SIZE, 1, "phf"), {**EXACT, "TWISTED_REACTOR": SELECT})
    job.kill_often(KILLS, 1)
    job.check()
