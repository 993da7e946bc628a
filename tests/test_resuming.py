"""Which pending requests does a run ask again, in which order, and what does it say of the rest?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import Response

import scrapy_bloomdupe.requestbytes as requestbytes
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.records import Record, Seal
from scrapy_bloomdupe.resuming import Resumption
from scrapy_bloomdupe.unit import META_UNIT
from scrapy_bloomdupe.units import Units

OPTIONS = StateOptions(1000, 0.001, "classic", "murmur3", "lmdb", journal=True)


class Shop(Spider):
    name = "shop"

    def parse(self, response: Response, **kwargs: Any) -> None: ...

    def parse_item(self, response: Response) -> None: ...


class Run:
    """A run that goes on with ten pending requests: two of another spider, one damaged, one unknown."""

    def __init__(self, folder: Path, *, whole: bool = True, seal: Seal | None = None) -> None:
        self.state = open_or_create(folder, OPTIONS)
        assert self.state.journal is not None
        self.journal = self.state.journal
        self.spider = Shop()
        for number in range(1, 11):
            self.journal.next_number()
            request = Request(
                f"http://shop.example/{number}", callback=self.spider.parse, priority=number % 3
            )
            data = requestbytes.dump(request, self.spider)
            data = data.replace(b"parse", b"prase") if number == 7 else data
            name = "other" if number in (3, 4) else "shop"
            self.journal.add(Record(number, b"k%d" % number, name, data if number != 6 else b""))
        self.state.flush()
        self.journal.seal = seal
        self.journal.begin()
        self.state.flush()
        dump = partial(requestbytes.dump, spider=self.spider)
        self.units = Units(self.journal, self.state.seen, "shop", dump)
        load = partial(requestbytes.load, spider=self.spider)
        knows = self.state.seen.__contains__
        self.resumption = Resumption(self.units, self.journal, self.spider, load, knows=knows, whole=whole)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    found = Run(tmp_path)
    yield found
    found.state.close()


def names(requests: Iterator[Request]) -> list[int]:
    return [int(request.url.rpartition("/")[2]) for request in requests]


def test_all_that_can_be_restored_comes_in_its_order_with_its_priority(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    requests = list(run.resumption.requests())
    assert [1, 2, 5, 8, 9, 10] == names(iter(requests))
    assert [1, 2, 2, 2, 0, 1] == [request.priority for request in requests]
    assert [f"{run.journal.token}:{n}" for n in (1, 2, 5, 8, 9, 10)] == [
        request.meta[META_UNIT] for request in requests
    ]
    found = run.resumption
    assert (6, 2, 2, 2) == (found.num_replayed, found.num_foreign, found.num_unreadable, found.num_lost)
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert ["Pending request 6 cannot be restored", "Pending request 7 cannot be restored"] == [
        error.partition(":")[0] for error in errors
    ]
    assert 10 == len(run.journal), "all stay pending until they are done"


def test_after_an_orderly_end_only_what_the_seal_says_comes(tmp_path: Path) -> None:
    run = Run(tmp_path, whole=False, seal=Seal("digest", (2, 3, 8, 77)))
    assert [2, 8] == names(run.resumption.requests())
    run.state.close()


def finish(run: Run, request: Request) -> None:
    run.units.scheduled(request)
    run.units.judged(request, b"k" + request.url.rpartition("/")[2].encode(), seen=True)
    run.units.started(request)
    response = Response(request.url, request=request)
    run.units.delivered(response)
    unit = run.units.of(response)
    assert unit is not None
    run.units.exhausted(unit)
    run.units.settle()
    run.state.flush()


def test_when_idle_what_never_arrived_is_put_back_once_and_then_named(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    for request in run.resumption.requests():
        if not request.url.endswith(("/8", "/9")):
            finish(run, request)
    for request in run.resumption.stranded():
        # The last one is dropped again.
        if request.url.endswith("/8"):
            finish(run, request)
    assert (8, 2) == (run.resumption.num_replayed, run.resumption.num_foreign)
    assert [] == list(run.resumption.stranded())
    assert 3 == run.resumption.num_lost
    stuck = [record.message for record in caplog.records if "never reached" in record.message]
    assert 1 == len(stuck)
    assert "Pending request 9 " in stuck[0]
    assert [3, 4, 6, 7, 9] == [record.number for record in run.journal.records()]
    for _ in range(3):
        assert [] == list(run.resumption.stranded())
    assert (3, 2) == (run.resumption.num_lost, run.resumption.num_foreign)


def test_requests_of_another_spider_hide_none_of_our_own_that_are_stuck(tmp_path: Path) -> None:
    # Not given at the start, but met when idle, once for every time.
    run = Run(tmp_path, whole=False, seal=Seal("digest"))
    for _ in range(3):
        list(run.resumption.stranded())
    assert (2, 8) == (run.resumption.num_foreign, run.resumption.num_lost)
    run.state.close()


def test_what_was_sent_and_dropped_after_that_is_given_up(run: Run) -> None:
    list(run.resumption.requests())
    for request in run.resumption.stranded():
        run.units.scheduled(request)
        run.units.judged(request, b"k" + request.url.rpartition("/")[2].encode(), seen=True)
        run.units.started(request)
        # A redirect to where the crawl may not go.
        run.units.settle_all(closing=False)
        run.state.flush()
    assert [3, 4, 6, 7] == [record.number for record in run.journal.records()]
    assert 2 == run.resumption.num_lost


def test_start_requests_are_told_apart_by_all_that_they_are(run: Run) -> None:
    def name(**options: Any) -> bytes | None:
        return run.resumption.name_of_start(Request("http://shop.example/", **options))

    given = [
        name(),
        name(callback=run.spider.parse),
        name(callback=run.spider.parse_item),
        name(meta={"cookiejar": 1}),
        name(meta={"cookiejar": 2}),
        name(method="POST"),
        name(body=b"a"),
        name(headers={"A": "b"}),
        name(cb_kwargs={"a": 1}),
        name(priority=1),
        name(dont_filter=True),
    ]
    assert None not in given
    assert len(given) == len(set(given))
    assert name() == name(meta={META_UNIT: "another:1"})
    assert None is name(callback=lambda response: None)


@pytest.mark.parametrize("whole", [True, False])
def test_start_requests_are_done_if_the_run_that_goes_on_has_had_them(tmp_path: Path, whole: bool) -> None:
    run = Run(tmp_path, whole=whole)
    request = Request("http://shop.example/")
    assert not run.resumption.is_done(request)
    name = run.resumption.name_of_start(request)
    assert name is not None
    # Whatever is noted of this run: it may ask one URL twice.
    run.journal.note_start(name)
    run.state.flush()
    assert not run.resumption.is_done(request)
    run.journal.next_number()
    run.journal.begin()
    assert whole is run.resumption.is_done(request)
    assert not run.resumption.is_done(Request("http://shop.example/other"))
    assert not run.resumption.is_done(Request("http://shop.example/", callback=lambda response: None))
    run.state.close()


def failed(run: Run, name: str) -> Request:
    """A request that is scheduled under the key of all of these, and fails."""
    request = Request(f"http://shop.example/{name}?id=1", callback=run.spider.parse)
    run.units.scheduled(request)
    seen = run.state.seen.check_and_add(b"one key").seen
    if run.units.judged(request, b"one key", seen=seen):
        run.units.started(request)
        run.units.gave_up(request, failed=True)
    return request


def test_two_failed_requests_of_one_page_stay_until_one_of_them_has_had_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.units = Units(run.journal, run.state.seen, "shop", run.units._serialize, retry_failed=True)
    for record in list(run.journal.records()):
        run.journal.end(record.number)
    for name in "ab":
        failed(run, name)
        run.units.settle_all(closing=False)
        run.state.flush()
    assert 2 == run.journal.num_failed

    def again(*, succeeds: bool) -> list[str]:
        """What is asked by a run in which the first one fails, or not."""
        load = partial(requestbytes.load, spider=run.spider)
        knows = run.state.seen.__contains__
        resumption = Resumption(run.units, run.journal, run.spider, load, knows=knows, whole=True)
        asked = []
        for request in resumption.requests():
            run.units.scheduled(request)
            seen = run.state.seen.check_and_add(b"one key").seen
            if run.units.judged(request, b"one key", seen=seen):
                run.units.started(request)
                asked.append(request)
        for request in asked:
            if succeeds:
                response = Response(request.url, request=request)
                run.units.delivered(response)
                run.units.exhausted(run.units.of(response))  # type: ignore[arg-type]
            else:
                run.units.gave_up(request, failed=True)
        run.units.settle_all(closing=True)
        run.state.flush()
        resumption.finish()
        run.state.flush()
        return [request.url.rpartition("/")[2] for request in asked]

    assert ["a?id=1"] == again(succeeds=False)
    assert 2 == run.journal.num_failed
    assert ["b?id=1"] == again(succeeds=True)
    assert 0 == run.journal.num_failed
    assert [] == again(succeeds=True)
    run.state.close()
