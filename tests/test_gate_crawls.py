"""Does a crawl of the example shop send nothing that its gate knows not to exist, and all without one?"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from crawling import Crawl, run
from gates import DAMAGES, build
from scrapy import Request, Spider
from scrapy.http import Response

from scrapy_bloomdupe.gate.gate import Gate

PROJECT = Path(__file__).resolve().parent.parent / "example_project"
sys.path.insert(0, str(PROJECT))

from processes import open_shop, server_log  # noqa: E402
from shop.server import read_targets  # noqa: E402
from shop.site import Shop  # noqa: E402

VALID = [str(number) for number in range(1, Shop().products)]
#: 30 % of all.
INVALID = [str(1000 + number) for number in range(round(len(VALID) * 3 / 7))]
#: Many false passes, so that there are some.
ERROR_RATE = 0.3


class Ids(Spider):
    """Asks for products by id: half of them at the start, half of them from a callback."""

    name = "ids"
    handle_httpstatus_list = [404]

    def __init__(self, shop: str, ids: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shop = shop
        self.ids = json.loads(ids)

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.shop, callback=self.parse_home)
        for number in self.ids[::2]:
            yield Request(f"{self.shop}product?id={number}", dont_filter=True)

    def parse_home(self, response: Response) -> Iterator[Request]:
        for number in self.ids[1::2]:
            yield response.follow(f"/product?from=home&id={number}")

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        if response.status == 200:
            yield {"id": response.url.rpartition("id=")[2]}


class IdsAsync(Ids):
    """The same, from asynchronous callbacks."""

    name = "ids_async"

    async def parse_home(self, response: Response) -> AsyncIterator[Request]:  # type: ignore[override]
        for request in super().parse_home(response):
            yield request


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("shop")
    with open_shop(folder) as url:
        yield url, server_log(folder)


def crawled(
    shop: tuple[str, Path],
    folder: Path,
    gate: Path,
    spider: str = "Ids",
    arguments: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[Crawl, Counter[str]]:
    """Return a crawl and the ids that the shop was asked for."""
    url, log = shop
    before = len(read_targets(log)) if log.exists() else 0
    settings = {
        "ADDONS": {"scrapy_bloomdupe.Addon": 500},
        "BLOOMDUPE_GATE": {"file": str(gate), "source": "query:id"},
        "BLOOMDUPE_GATE_SAMPLE": 0,
        "LOG_LEVEL": "DEBUG",
        **settings,
    }
    # Mixed: both halves have some of both.
    ids = [number for pair in zip_longest(VALID, INVALID) for number in pair if number is not None]
    place = spider if "." in spider else f"{__name__}.{spider}"
    crawl = run(folder, settings, spider=place, shop=url, ids=ids, **(arguments or {}))
    queries = [parse_qs(urlsplit(target).query) for target in read_targets(log)[before:]]
    return crawl, Counter(query["id"][0] for query in queries if "id" in query)


def gate_stats(crawl: Crawl) -> dict[str, int]:
    names = ("passed", "rejected", "sampled", "wrong", "no_value", "bypassed")
    found = {name: crawl.stats.get(f"bloomdupe/gate/{name}", 0) for name in names}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("spider", ["Ids", "IdsAsync"])
def test_of_thirty_per_cent_invalid_ids_none_is_sent_but_the_false_passes(
    shop: tuple[str, Path], tmp_path: Path, spider: str
) -> None:
    path = build(tmp_path / "ids.gate", VALID, capacity=len(VALID), error_rate=ERROR_RATE)
    gate = Gate.open(path)
    false_passes = [number for number in INVALID if gate.might_contain(number)]
    gate.close()
    crawl, sent = crawled(shop, tmp_path, path, spider)
    assert Counter([*VALID, *false_passes]) == sent
    assert sorted(VALID) == sorted(item["id"] for item in crawl.items)
    rejected = len(INVALID) - len(false_passes)
    # The home page has no id.
    assert {"passed": len(sent), "rejected": rejected, "no_value": 1} == gate_stats(crawl)
    assert 1 == crawl.stats["bloomdupe/gate/version"]
    assert len(VALID) >= crawl.stats["bloomdupe/gate/keys"] > 0.8 * len(VALID)
    assert 0 < crawl.stats["bloomdupe/gate/error_rate_estimate"] <= ERROR_RATE
    p50, p95, p99 = (crawl.stats[f"bloomdupe/gate/lookup_us/{p}"] for p in ("p50", "p95", "p99"))
    assert 0 < p50 <= p95 <= p99
    assert [] == crawl.lines("WARNING", "Gate")
    assert 1 == len(crawl.lines("INFO", "Gate: version 1 of"))
    assert min(1, rejected) == len(crawl.lines("is not in the gate - no more of these are shown"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_with_a_gate_that_cannot_judge_everything_is_sent_and_one_warning_says_why(
    shop: tuple[str, Path], tmp_path: Path, damage: str
) -> None:
    path = build(tmp_path / "ids.gate", VALID)
    DAMAGES[damage](path)
    crawl, sent = crawled(shop, tmp_path, path)
    assert Counter([*VALID, *INVALID]) == sent
    assert sorted(VALID) == sorted(item["id"] for item in crawl.items)
    assert {"bypassed": len(VALID) + len(INVALID), "no_value": 1} == gate_stats(crawl)
    assert 1 == crawl.stats["bloomdupe/error/gate"]
    (warning,) = crawl.lines("[scrapy_bloomdupe", "WARNING")
    assert "until it can judge every request passes" in warning
    assert "finished" == crawl.stats["finish_reason"]


def test_what_is_let_through_to_see_tells_that_the_list_is_not_complete(
    shop: tuple[str, Path], tmp_path: Path
) -> None:
    path = build(tmp_path / "ids.gate", VALID[:50], error_rate=1e-9)
    crawl, sent = crawled(shop, tmp_path, path, BLOOMDUPE_GATE_SAMPLE=1)
    assert Counter([*VALID, *INVALID]) == sent
    lacking = len(VALID) - 50
    assert {
        "passed": 50,
        "sampled": len(INVALID) + lacking,
        "wrong": lacking,
        "no_value": 1,
    } == gate_stats(crawl)
    assert 1 == len(crawl.lines("WARNING", "the list is not complete"))


def test_a_wrong_gate_setting_ends_the_crawl_before_its_first_request(
    shop: tuple[str, Path], tmp_path: Path
) -> None:
    crawl, sent = crawled(shop, tmp_path, tmp_path / "x", BLOOMDUPE_GATE={"file": "x", "source": "header:id"})
    assert not sent
    assert not crawl.items
    assert "source 'header:id' is not one of" in crawl.log
