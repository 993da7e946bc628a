"""Does a crawl of the shop through a gate on a server send what it does through one in a file, and all of it
without the server?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kinds import name
from scrapy.http import Response
from servers import Valkey, free_port
from test_gate_crawls import ERROR_RATE, INVALID, VALID, Ids, crawled, gate_stats
from test_gate_crawls import shop as shop

from scrapy_bloomdupe.gate.building import build_gate
from scrapy_bloomdupe.gate.gate import Gate


class IdsFlushed(Ids):
    """Empties the server when half of the requests are scheduled."""

    name = "ids_flushed"

    def __init__(self, port: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.port = int(port)

    def parse_home(self, response: Response) -> Iterator[Any]:
        import redis

        with redis.Redis(port=self.port) as client:
            client.flushall()
        yield from super().parse_home(response)


def given(url: str, key: str) -> dict[str, Any]:
    return {"file": url, "key": key, "source": "query:id"}


@pytest.mark.parametrize("kind", ["valkey", "valkey_bloom"])
@pytest.mark.parametrize("spider", ["Ids", "IdsAsync"])
def test_of_thirty_per_cent_invalid_ids_none_is_sent_but_the_false_passes(
    shop: tuple[str, Path], tmp_path: Path, request: pytest.FixtureRequest, spider: str, kind: str
) -> None:
    url, key = request.getfixturevalue(kind).url, name()
    build_gate(url, VALID, capacity=len(VALID), error_rate=ERROR_RATE, key=key)
    gate = Gate.open(url, key=key)
    answers = gate.might_contain_many(INVALID)
    gate.close()
    false_passes = [number for number, passes in zip(INVALID, answers, strict=True) if passes]
    crawl, sent = crawled(shop, tmp_path, tmp_path, spider, BLOOMDUPE_GATE=given(url, key))
    assert Counter([*VALID, *false_passes]) == sent
    assert sorted(VALID) == sorted(item["id"] for item in crawl.items)
    rejected = len(INVALID) - len(false_passes)
    assert {"passed": len(sent), "rejected": rejected, "no_value": 1} == gate_stats(crawl)
    assert 1 == crawl.stats["bloomdupe/gate/version"]
    assert len(VALID) >= crawl.stats["bloomdupe/gate/keys"] > 0.8 * len(VALID)
    assert 0 < crawl.stats["bloomdupe/gate/lookup_us/p50"] <= crawl.stats["bloomdupe/gate/lookup_us/p99"]
    assert [] == crawl.lines("WARNING", "Gate")
    assert 1 == len(crawl.lines("INFO", "Gate: version 1 of"))


def test_without_asyncio_too(shop: tuple[str, Path], tmp_path: Path, valkey: Valkey) -> None:
    key = name()
    build_gate(valkey.url, VALID, error_rate=1e-9, key=key)
    reactor = "twisted.internet.selectreactor.SelectReactor"
    crawl, sent = crawled(
        shop, tmp_path, tmp_path, BLOOMDUPE_GATE=given(valkey.url, key), TWISTED_REACTOR=reactor
    )
    assert Counter(VALID) == sent
    assert {"passed": len(VALID), "rejected": len(INVALID), "no_value": 1} == gate_stats(crawl)


def absent(server: Valkey) -> tuple[str, str]:
    return f"redis://127.0.0.1:{free_port()}", "ids"


def never_built(server: Valkey) -> tuple[str, str]:
    return server.url, name()


def of_another_version(server: Valkey) -> tuple[str, str]:
    key = name()
    build_gate(server.url, VALID, key=key)
    with server.client() as client:
        client.set(f"{key}:{{gate}}:alias", b'{"format": 2}')
    return server.url, key


@pytest.mark.parametrize("trouble", [absent, never_built, of_another_version])
def test_with_a_gate_that_cannot_judge_everything_is_sent_and_one_warning_says_why(
    shop: tuple[str, Path], tmp_path: Path, valkey: Valkey, trouble: Callable[[Valkey], tuple[str, str]]
) -> None:
    crawl, sent = crawled(shop, tmp_path, tmp_path, BLOOMDUPE_GATE=given(*trouble(valkey)))
    assert Counter([*VALID, *INVALID]) == sent
    assert {"bypassed": len(VALID) + len(INVALID), "no_value": 1} == gate_stats(crawl)
    assert 1 == crawl.stats["bloomdupe/error/gate"]
    (warning,) = crawl.lines("[scrapy_bloomdupe", "WARNING")
    assert "until it can judge every request passes" in warning
    assert "finished" == crawl.stats["finish_reason"]


def test_a_server_that_is_emptied_meanwhile_costs_no_page(shop: tuple[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "valkey"
    folder.mkdir()
    with Valkey(folder) as server:
        build_gate(server.url, VALID, error_rate=1e-9, key="ids")
        gate = given(server.url, "ids")
        spider = f"{__name__}.IdsFlushed"
        crawl, sent = crawled(shop, tmp_path, tmp_path, spider, {"port": server.port}, BLOOMDUPE_GATE=gate)
    assert Counter(VALID) == Counter({number: count for number, count in sent.items() if number in VALID})
    stats = gate_stats(crawl)
    assert stats["bypassed"] > 0
    assert 1 == crawl.stats["bloomdupe/error/gate"]
    assert 1 == len(crawl.lines("[scrapy_bloomdupe", "WARNING"))
