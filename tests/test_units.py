"""Is a request done when all that it gave has gone its way, not before, and not by somebody else?

The crawl is played by hand; the journal and the seen-set are real.
"""

from __future__ import annotations

import contextvars
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.utils.request import fingerprint

import scrapy_bloomdupe.requestbytes as requestbytes
from scrapy_bloomdupe.filters.counting import CountingFilter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.unit import META_UNIT
from scrapy_bloomdupe.units import Units, in_middlewares_of

EXACT = StateOptions(1000, 0.001, "classic", "murmur3", "lmdb", journal=True)
BARE = StateOptions(1000, 0.001, "classic", "murmur3", None, journal=True)
COUNTING = StateOptions(1000, 1e-6, "counting", "murmur3", None, journal=True)


class Shop(Spider):
    name = "shop"

    def parse(self, response: Response, **kwargs: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...


def of_the_spider(name: str, **options: Any) -> Request:
    return Request(f"http://shop.example/{name}", **options)


def lambdas(name: str, **options: Any) -> Request:
    return of_the_spider(name, callback=lambda response: None, **options)


class Crawl:
    """One run on a directory."""

    def __init__(self, folder: Path, options: StateOptions = EXACT, *, retry_failed: bool = False) -> None:
        self.folder, self.options, self.retry_failed = folder, options, retry_failed
        self.place = 0
        self._open()

    def _open(self) -> None:
        self.state = open_or_create(self.folder / str(self.place), self.options)
        assert self.state.journal is not None
        self.journal: Journal = self.state.journal
        self.spider = Shop()
        dump = partial(requestbytes.dump, spider=self.spider)
        self.units = Units(
            self.journal, self.state.seen, self.spider.name, dump, retry_failed=self.retry_failed
        )
        self.journal.begin()
        self.state.flush()

    def crash(self) -> None:
        """The next run is one after a ``kill -9``."""
        self.place += 1
        shutil.copytree(self.folder / str(self.place - 1), self.folder / str(self.place))
        self.state.close()
        self._open()

    def schedule(self, request: Request, *, passes: bool = False) -> bool:
        """As engine and duplicate filter do. *passes*: the filter lets a redirect pass."""
        self.units.scheduled(request)
        if request.dont_filter:
            return True
        key = fingerprint(request)
        seen = self.state.seen.check_and_add(key).seen
        return self.units.judged(request, key, seen=seen and not passes)

    def fetch(self, request: Request) -> Response:
        self.units.started(request)
        response = Response(request.url, request=request)
        self.units.delivered(response)
        return response

    def give(self, response: Response, *requests: Request, exhausted: bool = True) -> None:
        """The callback gives these; they are not scheduled yet."""
        unit = self.units.of(response)
        assert unit is not None
        for request in requests:
            self.units.gave_request(unit, request)
        if exhausted:
            self.units.exhausted(unit)

    def page(self, request: Request, *requests: Request) -> None:
        """All of it: it is scheduled, fetched, and its requests are scheduled."""
        assert self.schedule(request)
        self.give(self.fetch(request), *requests)
        for child in requests:
            self.schedule(child)

    def replayed(self) -> dict[int, Request]:
        """What the journal gives back."""
        found = {}
        for record in self.journal.records():
            request = requestbytes.load(record.request, self.spider)
            self.units.replay(request, record.number)
            found[record.number] = request
        return found

    def commit(self) -> bool:
        ended = self.units.settle()
        self.state.flush()
        return ended

    @property
    def pending(self) -> list[str]:
        """What is pending when it is all written: the ends of the URLs."""
        self.commit()
        records = [requestbytes.load(record.request, self.spider) for record in self.journal.records()]
        assert len(records) == len(self.journal)
        return [request.url.rpartition("/")[2] for request in records]

    def knows(self, name: str) -> bool:
        return fingerprint(of_the_spider(name)) in self.state.seen


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Crawl]:
    found = Crawl(tmp_path)
    yield found
    found.state.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Crawl]]:
    made: list[Crawl] = []

    def make(options: StateOptions, **more: Any) -> Crawl:
        made.append(Crawl(tmp_path, options, **more))
        return made[-1]

    yield make
    for crawl in made:
        crawl.state.close()


stores = pytest.mark.parametrize("options", [EXACT, BARE], ids=["exact", "bare"])


def test_what_waits_in_the_scheduler_is_in_the_journal_and_nowhere_else(crawl: Crawl) -> None:
    assert crawl.schedule(of_the_spider("a"))
    assert crawl.schedule(of_the_spider("b", dont_filter=True))
    assert 0 == crawl.units.num_active
    assert ["a", "b"] == crawl.pending
    assert [True, False] == [record.key is not None for record in crawl.journal.records()]
    assert ["shop", "shop"] == [record.spider for record in crawl.journal.records()]


def test_a_request_is_done_when_its_output_is_exhausted_and_scheduled(crawl: Crawl) -> None:
    request, first, second = of_the_spider("a"), of_the_spider("b"), of_the_spider("c")
    crawl.schedule(request)
    response = crawl.fetch(request)
    crawl.give(response, first, second, exhausted=False)
    crawl.schedule(first)
    crawl.schedule(second)
    assert ["a", "b", "c"] == crawl.pending, "not exhausted"
    crawl.give(response)
    assert ["b", "c"] == crawl.pending
    assert 1 == crawl.journal.num_done


def test_a_request_is_not_done_before_what_it_gave_is_scheduled(crawl: Crawl) -> None:
    request, first, second = of_the_spider("a"), of_the_spider("b"), of_the_spider("c", dont_filter=True)
    crawl.schedule(request)
    crawl.give(crawl.fetch(request), first, second)
    assert ["a"] == crawl.pending
    crawl.schedule(first)
    assert ["a", "b"] == crawl.pending
    crawl.schedule(second)
    assert ["b", "c"] == crawl.pending


def test_done_is_not_said_in_the_turn_of_what_it_depends_on(crawl: Crawl) -> None:
    request, child = of_the_spider("a"), of_the_spider("b")
    woken: list[bool] = []
    crawl.units.on_complete = lambda: woken.append(crawl.journal.has_ended)
    crawl.schedule(request)
    crawl.give(crawl.fetch(request), child)
    assert [] == woken
    crawl.schedule(child)
    assert [False] == woken
    # A commit of so many waiting keys comes now, see Committer.relieve.
    crawl.state.flush()
    assert [1, 2] == [record.number for record in crawl.journal.records()]
    assert crawl.units.settle()
    assert crawl.journal.has_ended
    assert not crawl.units.settle()
    assert ["b"] == crawl.pending


def test_a_request_is_done_when_its_items_have_left(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    response = crawl.fetch(request)
    unit = crawl.units.of(response)
    assert unit is not None
    crawl.units.gave_item(unit)
    crawl.units.gave_item(unit)
    crawl.units.item_left(response)
    crawl.give(response)
    assert ["a"] == crawl.pending
    # Of others, of none, of a response that a callback made.
    for other in (None, Response(request.url), Response(request.url, request=request)):
        crawl.units.item_left(other)
    assert ["a"] == crawl.pending
    crawl.units.item_left(response)
    assert [] == crawl.pending
    crawl.units.item_left(response)
    assert 1 == crawl.journal.num_done


def test_items_of_a_pipeline_of_its_own_end_nothing_early(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    response = crawl.fetch(request)
    unit = crawl.units.of(response)
    assert unit is not None
    crawl.units.item_left(response)
    crawl.units.gave_item(unit)
    crawl.give(response)
    assert ["a"] == crawl.pending


def test_what_is_filtered_is_not_pending_and_its_page_is_done(crawl: Crawl) -> None:
    crawl.page(of_the_spider("a"), of_the_spider("b"), of_the_spider("b"), of_the_spider("a"))
    assert ["b"] == crawl.pending


def test_what_a_handler_drops_is_not_pending_and_its_page_is_done(crawl: Crawl) -> None:
    request, offsite = of_the_spider("a"), of_the_spider("b")
    crawl.schedule(request)
    crawl.give(crawl.fetch(request), offsite)
    # The signal alone: the duplicate filter is not asked.
    crawl.units.scheduled(offsite)
    assert [] == crawl.pending
    assert not crawl.knows("b")


def test_one_object_that_is_given_twice_is_two_requests(crawl: Crawl) -> None:
    request, child = of_the_spider("a"), of_the_spider("b", dont_filter=True)
    crawl.schedule(request)
    crawl.give(crawl.fetch(request), child, child)
    crawl.schedule(child)
    assert ["a", "b"] == crawl.pending
    crawl.schedule(child)
    assert ["b", "b"] == crawl.pending


def test_a_retry_is_the_same_request(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    number = request.meta[META_UNIT]
    for times in range(3):
        crawl.units.started(request)
        request = request.replace(dont_filter=True)
        request.meta["retry_times"] = times
        assert crawl.schedule(request)
        assert number == request.meta[META_UNIT]
        assert 0 == crawl.units.num_active
    assert ["a"] == crawl.pending
    crawl.give(crawl.fetch(request))
    assert [] == crawl.pending


def test_a_redirect_is_the_same_request_and_owns_its_targets(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    for name in ("b", "c"):
        crawl.units.started(request)
        request = request.replace(url=f"http://shop.example/{name}")
        assert crawl.schedule(request)
    assert ["a"] == crawl.pending
    expected = sorted(fingerprint(of_the_spider(name)) for name in "abc")
    assert expected == crawl.journal.keys_of(1)
    crawl.give(crawl.fetch(request))
    assert [] == crawl.pending
    assert all(crawl.knows(name) for name in "abc")


def test_a_redirect_to_a_page_that_is_known_ends_there(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.schedule(of_the_spider("b"))
    crawl.units.started(request)
    assert not crawl.schedule(request.replace(url="http://shop.example/b"))
    assert ["b"] == crawl.pending
    assert not crawl.journal.owns(1, fingerprint(of_the_spider("b")))


def test_a_request_of_this_run_does_not_pass_its_own_mark(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.state.flush()
    crawl.units.started(request)
    # A redirect to itself: ``redirects`` says whether it passes.
    assert not crawl.schedule(request.copy())
    assert [] == crawl.pending


def test_a_redirect_to_itself_that_the_filter_lets_pass_goes_on(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.units.started(request)
    again = request.copy()
    assert crawl.schedule(again, passes=True)
    assert ["a"] == crawl.pending
    crawl.give(crawl.fetch(again))
    assert [] == crawl.pending


def test_a_copy_of_the_meta_is_another_request(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    response = crawl.fetch(request)
    child = of_the_spider("b", meta=response.meta)
    again = request.replace(dont_filter=True)
    crawl.give(response, child, again)
    crawl.schedule(child)
    crawl.schedule(again)
    marks = [each.meta[META_UNIT] for each in (request, child, again)]
    assert [f"{crawl.journal.token}:{number}" for number in (1, 2, 3)] == marks
    assert ["b", "a"] == crawl.pending


def test_the_second_one_that_goes_on_with_a_request_is_another_one(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.units.started(request)
    first, second = request.replace(dont_filter=True), request.replace(dont_filter=True)
    crawl.schedule(first)
    crawl.schedule(second)
    assert first.meta[META_UNIT] == request.meta[META_UNIT] != second.meta[META_UNIT]
    assert ["a", "a"] == crawl.pending


@pytest.mark.parametrize("mark", ["deadbeef:1", "1", 1, None, ("a", 1)])
def test_a_mark_of_somewhere_else_is_taken_off(crawl: Crawl, mark: Any) -> None:
    crawl.schedule(of_the_spider("a"))
    stranger = of_the_spider("b", meta={META_UNIT: mark})
    assert crawl.schedule(stranger)
    assert f"{crawl.journal.token}:2" == stranger.meta[META_UNIT]
    assert ["a", "b"] == crawl.pending


def test_a_failure_without_an_errback_is_done(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.units.gave_up(request, failed=True)
    assert ["a"] == crawl.pending, "it was not sent"
    crawl.units.started(request)
    crawl.units.gave_up(request.copy(), failed=True)
    assert ["a"] == crawl.pending, "a copy, which a middleware has downloaded"
    crawl.units.gave_up(request, failed=True)
    assert [] == crawl.pending


def test_a_failure_with_an_errback_is_done_when_the_crawl_is_idle(crawl: Crawl) -> None:
    request = of_the_spider("a", errback=crawl.spider.failed)
    crawl.schedule(request)
    crawl.units.started(request)
    crawl.units.gave_up(request, failed=True)
    assert ["a"] == crawl.pending
    # Its errback tries again, with the meta of the request.
    again = request.replace(dont_filter=True)
    crawl.schedule(again)
    assert request.meta[META_UNIT] != again.meta[META_UNIT]
    assert ["a", "a"] == crawl.pending
    crawl.give(crawl.fetch(again))
    crawl.units.settle_all(closing=False)
    assert [] == crawl.pending


def test_what_no_hook_reports_is_done_when_the_crawl_is_idle(crawl: Crawl) -> None:
    downloading, delivered, dropped = of_the_spider("a"), of_the_spider("b"), of_the_spider("c")
    for request in (downloading, delivered, dropped):
        crawl.schedule(request)
        crawl.units.started(request)
    response = Response(delivered.url, request=delivered)
    crawl.units.delivered(response)
    crawl.give(response, of_the_spider("x"), exhausted=False)
    # A redirect, and a handler of request_scheduled that drops it.
    crawl.units.scheduled(dropped.replace(url="http://other.example/"))
    assert 3 == crawl.units.num_active
    crawl.units.settle_all(closing=False)
    # But for a callback that was cut off: the next run asks again.
    assert (1, 1) == (crawl.units.num_active, crawl.units.num_cut)
    assert ["b"] == crawl.pending


def test_what_waits_in_the_scheduler_is_not_done_when_the_crawl_is_idle(crawl: Crawl) -> None:
    crawl.schedule(of_the_spider("a"))
    crawl.units.settle_all(closing=False)
    crawl.units.settle_all(closing=True)
    assert ["a"] == crawl.pending
    assert [] == crawl.units.again()


def test_a_callback_that_a_stop_cut_short_is_asked_again(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.give(crawl.fetch(request), of_the_spider("b"), exhausted=False)
    crawl.units.settle_all(closing=True)
    assert ["a"] == crawl.pending
    assert [1] == crawl.units.again()
    assert crawl.units.is_active(1)


def test_what_is_to_be_asked_again_is_never_done_in_this_run(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    response = crawl.fetch(request)
    unit = crawl.units.of(response)
    assert unit is not None
    unit.again = True
    crawl.give(response)
    crawl.units.settle_all(closing=False)
    crawl.units.settle_all(closing=True)
    assert ["a"] == crawl.pending
    assert [1] == crawl.units.again()


@stores
def test_a_held_request_and_the_page_that_gave_it_are_gone_together(
    make: Callable[..., Crawl], options: StateOptions
) -> None:
    crawl = make(options)
    child = lambdas("b")
    crawl.page(of_the_spider("a"), child)
    assert ["a"] == crawl.pending
    assert crawl.knows("b")
    assert not crawl.schedule(of_the_spider("b")), "it is seen"
    assert ([child], 1) == (crawl.units.in_memory(), crawl.units.num_unserializable)
    response = crawl.fetch(child)
    assert [] == crawl.units.in_memory()
    assert ["a"] == crawl.pending
    crawl.give(response, grandchild := of_the_spider("c"))
    assert ["a"] == crawl.pending
    crawl.schedule(grandchild)
    assert ["c"] == crawl.pending
    crawl.crash()
    assert ["c"] == crawl.pending
    assert all(crawl.knows(name) for name in "abc")


@stores
def test_after_a_crash_nobody_has_seen_a_held_request(
    make: Callable[..., Crawl], options: StateOptions
) -> None:
    crawl = make(options)
    crawl.page(of_the_spider("a"), lambdas("b"))
    crawl.commit()
    crawl.crash()
    assert ["a"] == crawl.pending
    assert not crawl.knows("b")
    request = crawl.replayed()[1]
    child = lambdas("b")
    crawl.page(request, child)
    crawl.give(crawl.fetch(child))
    assert [] == crawl.pending


@stores
def test_a_held_request_that_was_redirected_holds_the_target_too(
    make: Callable[..., Crawl], options: StateOptions
) -> None:
    crawl = make(options)
    child = lambdas("b")
    crawl.page(of_the_spider("a"), child)
    crawl.units.started(child)
    target = child.replace(url="http://shop.example/c")
    assert crawl.schedule(target)
    assert [target] == crawl.units.in_memory()
    crawl.commit()
    assert crawl.knows("b")
    assert crawl.knows("c")
    crawl.crash()
    assert not crawl.knows("b")
    assert not crawl.knows("c")
    child = lambdas("b")
    crawl.page(crawl.replayed()[1], child)
    crawl.units.started(child)
    target = child.replace(url="http://shop.example/c")
    assert crawl.schedule(target)
    crawl.give(crawl.fetch(target))
    assert [] == crawl.pending
    crawl.crash()
    assert crawl.knows("b")
    assert crawl.knows("c")


def test_a_page_waits_for_held_requests_of_held_requests(crawl: Crawl) -> None:
    child, grandchild = lambdas("b"), lambdas("c", dont_filter=True)
    crawl.page(of_the_spider("a"), child)
    crawl.give(crawl.fetch(child), grandchild)
    crawl.schedule(grandchild)
    assert ["a"] == crawl.pending
    assert 2 == crawl.units.num_unserializable
    crawl.give(crawl.fetch(grandchild))
    assert [] == crawl.pending
    crawl.crash()
    assert crawl.knows("b")


def test_a_held_request_that_failed_lets_its_page_go_when_the_crawl_is_idle(crawl: Crawl) -> None:
    child = lambdas("b")
    crawl.page(of_the_spider("a"), child)
    crawl.units.started(child)
    crawl.units.settle_all(closing=False)
    assert [] == crawl.pending


def test_at_a_stop_the_page_of_a_held_request_is_asked_again(crawl: Crawl) -> None:
    child, grandchild = lambdas("b"), lambdas("c")
    crawl.page(of_the_spider("a"), child)
    crawl.give(crawl.fetch(child), grandchild)
    crawl.schedule(grandchild)
    crawl.units.settle_all(closing=True)
    assert ["a"] == crawl.pending
    assert [1] == crawl.units.again()
    assert [grandchild] == crawl.units.in_memory()


def test_a_held_start_request_is_in_nobodys_journal(crawl: Crawl) -> None:
    request = lambdas("a")
    assert crawl.schedule(request)
    assert [] == crawl.pending
    assert 0 == crawl.units.num_active, "of the journal"
    crawl.give(crawl.fetch(request), child := of_the_spider("b"))
    crawl.schedule(child)
    assert ["b"] == crawl.pending
    crawl.crash()
    assert crawl.knows("a")


@stores
def test_a_replay_passes_its_own_marks_and_no_others(
    make: Callable[..., Crawl], options: StateOptions
) -> None:
    crawl = make(options)
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.units.started(request)
    crawl.schedule(request.replace(url="http://shop.example/b"))
    crawl.schedule(of_the_spider("c"))
    crawl.commit()
    crawl.crash()
    assert all(crawl.knows(name) for name in "abc")
    again = crawl.replayed()[1]
    assert not crawl.schedule(of_the_spider("a")), "found again"
    assert not crawl.schedule(of_the_spider("b")), "found again"
    assert crawl.schedule(again)
    assert f"{crawl.journal.token}:1" == again.meta[META_UNIT]
    crawl.units.started(again)
    target = again.replace(url="http://shop.example/b")
    assert crawl.schedule(target)
    crawl.units.started(target)
    assert not crawl.schedule(target.replace(url="http://shop.example/c")), "another one's"
    assert ["c"] == crawl.pending


def test_a_replay_owns_what_it_is_redirected_to_in_this_run(crawl: Crawl) -> None:
    crawl.schedule(of_the_spider("a"))
    for name in ("b", "c"):
        crawl.commit()
        crawl.crash()
        again = crawl.replayed()[1]
        assert crawl.schedule(again)
        for target in "bc"[: "bc".index(name) + 1]:
            crawl.units.started(again)
            again = again.replace(url=f"http://shop.example/{target}")
            assert crawl.schedule(again), (name, target)
    expected = sorted(fingerprint(of_the_spider(name)) for name in "abc")
    assert expected == crawl.journal.keys_of(1)


def test_a_second_claim_to_a_replay_is_another_request(crawl: Crawl) -> None:
    crawl.schedule(of_the_spider("a"))
    crawl.commit()
    crawl.crash()
    again = crawl.replayed()[1]
    copied = of_the_spider("b", meta=again.meta)
    assert crawl.schedule(again)
    assert crawl.schedule(copied)
    assert again.meta[META_UNIT] != copied.meta[META_UNIT]
    assert ["a", "b"] == crawl.pending


def test_a_target_that_waits_in_scrapys_own_queue_is_not_pending_by_itself(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.units.started(request)
    target = request.replace(url="http://shop.example/b")
    crawl.schedule(target)
    crawl.commit()
    crawl.crash()
    # As after an end in order: the queue gives what was left in it.
    crawl.units.marks.whole = False
    crawl.units.started(target)
    crawl.give(crawl.fetch(target))
    assert [] == crawl.pending


def test_a_request_given_again_that_has_not_come_as_far_as_before_does_not_stay_in_scrapys_queue(
    crawl: Crawl,
) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.units.started(request)
    crawl.schedule(request.replace(url="http://shop.example/b"))
    crawl.commit()
    assert not crawl.units.marks.has_targets_left()
    crawl.crash()
    # Stopped before it was sent: as it is in the queue, the mark of "b" would end its way.
    (again,) = crawl.replayed().values()
    assert crawl.schedule(again)
    assert crawl.units.marks.has_targets_left()
    crawl.units.started(again)
    assert crawl.schedule(again.replace(url="http://shop.example/b"))
    assert not crawl.units.marks.has_targets_left()


def test_a_request_that_two_pages_give_is_awaited_by_both(crawl: Crawl) -> None:
    shared = of_the_spider("x")
    units = []
    for name in ("a", "b"):
        page = of_the_spider(name)
        crawl.schedule(page)
        crawl.units.started(page)
        response = Response(page.url, request=page)
        crawl.units.delivered(response)
        units.append(crawl.units.of(response))
        crawl.units.gave_request(units[-1], shared)
        crawl.units.exhausted(units[-1])
    crawl.units.settle()
    assert ["a", "b"] == crawl.pending
    crawl.schedule(shared)
    crawl.units.settle()
    assert ["b", "x"] == crawl.pending
    crawl.schedule(shared)
    crawl.units.settle()
    assert ["x"] == crawl.pending


def test_a_request_that_was_put_back_and_dropped_is_given_up(crawl: Crawl) -> None:
    crawl.schedule(of_the_spider("a"))
    crawl.schedule(of_the_spider("b"))
    crawl.commit()
    crawl.crash()
    record = next(crawl.journal.records())
    crawl.units.replay_stranded(requestbytes.load(record.request, crawl.spider), record.number)
    crawl.units.give_up(record.number)
    crawl.units.give_up(record.number)
    assert ["b"] == crawl.pending


def test_a_request_of_this_run_that_is_put_back_passes_its_own_mark(crawl: Crawl) -> None:
    crawl.schedule(of_the_spider("a"))
    crawl.commit()
    (record,) = crawl.journal.records()
    request = requestbytes.load(record.request, crawl.spider)
    assert not crawl.schedule(request.replace(meta={}))
    crawl.units.replay_stranded(request, record.number)
    assert crawl.schedule(request)
    assert ["a"] == crawl.pending


def test_a_copy_that_a_middleware_schedules_itself_is_another_request(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.units.started(request)

    def in_a_middleware() -> None:
        in_middlewares_of.set(crawl.units.number_of(request))
        crawl.schedule(request.replace(url="http://shop.example/b"))

    contextvars.copy_context().run(in_a_middleware)
    assert ["a", "b"] == crawl.pending
    assert crawl.schedule(request.replace(url="http://shop.example/c"))
    assert ["a", "b"] == crawl.pending, "a redirect goes on with its request"


def test_what_a_replay_is_not_redirected_to_any_more_is_pending_by_itself(crawl: Crawl) -> None:
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.units.started(request)
    crawl.schedule(request.replace(url="http://shop.example/b"))
    crawl.commit()
    crawl.crash()
    (record,) = crawl.journal.records()
    again = requestbytes.load(record.request, crawl.spider)
    crawl.units.replay(again, record.number)
    assert crawl.schedule(again)
    crawl.units.started(again)
    elsewhere = again.replace(url="http://shop.example/c")
    assert crawl.schedule(elsewhere)
    crawl.give(crawl.fetch(elsewhere))
    assert ["b"] == crawl.pending


def test_what_scrapys_own_queue_gives_back_goes_on(crawl: Crawl) -> None:
    # After a run that ended in order: it has its mark in its meta.
    crawl.schedule(of_the_spider("a"))
    crawl.commit()
    data = next(crawl.journal.records()).request
    crawl.crash()
    request = requestbytes.load(data, crawl.spider)
    response = crawl.fetch(request)
    assert 1 == crawl.units.num_active
    crawl.give(response)
    assert [] == crawl.pending


def test_a_request_that_is_not_of_the_journal_does_no_harm(crawl: Crawl) -> None:
    crawl.schedule(of_the_spider("a"))
    for request in (
        of_the_spider("x"),
        of_the_spider("x", meta={META_UNIT: f"{crawl.journal.token}:77"}),
        of_the_spider("x", meta={META_UNIT: "other:1"}),
    ):
        response = crawl.fetch(request)
        assert None is crawl.units.of(response)
        crawl.units.item_left(response)
        crawl.units.gave_up(request, failed=True)
    crawl.units.delivered(Response("http://shop.example/none"))
    assert ["a"] == crawl.pending


def fail(crawl: Crawl, name: str, *targets: str) -> None:
    request = of_the_spider(name)
    crawl.schedule(request)
    crawl.units.started(request)
    for target in targets:
        request = request.replace(url=f"http://shop.example/{target}")
        crawl.schedule(request)
        crawl.units.started(request)
    crawl.units.gave_up(request, failed=True)


@pytest.mark.parametrize("options", [EXACT, COUNTING], ids=["exact", "counting"])
def test_what_failed_is_forgotten_and_kept_if_that_is_wanted(
    make: Callable[..., Crawl], options: StateOptions
) -> None:
    crawl = make(options, retry_failed=True)
    fail(crawl, "a", "b")
    ignored = of_the_spider("c")
    crawl.schedule(ignored)
    crawl.units.started(ignored)
    crawl.units.gave_up(ignored, failed=False)
    assert [] == crawl.pending
    assert (1, 1) == (crawl.journal.num_failed, crawl.journal.num_done)
    for _ in range(2):
        assert [False, False, True] == [crawl.knows(name) for name in "abc"]
        assert [1] == [record.number for record in crawl.journal.records(failed=True)]
        crawl.crash()
    # In another run a link to it is new.
    assert crawl.schedule(of_the_spider("a"))
    assert crawl.schedule(of_the_spider("b"))


def test_what_has_failed_and_is_kept_is_not_asked_again_in_this_run_under_its_own_url(
    make: Callable[..., Crawl],
) -> None:
    crawl = make(EXACT, retry_failed=True)
    fail(crawl, "a")
    fail(crawl, "b", "c")
    crawl.units.settle_all(closing=False)
    again = {name: of_the_spider(name) for name in "abc"}
    key = {name: fingerprint(request) for name, request in again.items()}
    assert crawl.units.is_kept(again["a"], key["a"])
    # The next time it may be redirected to another page.
    assert [False, False] == [crawl.units.is_kept(again[name], key[name]) for name in "bc"]
    # Another URL of the same product may do, and another kind of request.
    other = again["a"].replace(url="http://shop.example/other")
    posted = again["a"].replace(method="POST", body=b"x")
    assert [False, False] == [crawl.units.is_kept(request, key["a"]) for request in (other, posted)]


def test_what_failed_stays_pending_without_a_store(make: Callable[..., Crawl]) -> None:
    crawl = make(BARE, retry_failed=True)
    fail(crawl, "a", "b")
    for _ in range(2):
        crawl.units.settle_all(closing=False)
        assert ["a"] == crawl.pending
        assert (0, 1) == (crawl.journal.num_failed, crawl.units.num_active)
    crawl.units.settle_all(closing=True)
    assert [1] == crawl.units.again()
    crawl.crash()
    again = crawl.replayed()[1]
    assert crawl.schedule(again)
    crawl.units.started(again)
    target = again.replace(url="http://shop.example/b")
    assert crawl.schedule(target)
    crawl.give(crawl.fetch(target))
    assert [] == crawl.pending


def test_what_failed_and_could_not_be_forgotten_stays_pending(
    make: Callable[..., Crawl], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two layers of the filter say that they have the key.
    monkeypatch.setattr(CountingFilter, "remove", lambda self, key: False)
    crawl = make(COUNTING, retry_failed=True)
    request = of_the_spider("a")
    crawl.schedule(request)
    crawl.state.flush()
    crawl.units.started(request)
    crawl.units.gave_up(request, failed=True)
    crawl.units.settle_all(closing=False)
    assert ["a"] == crawl.pending
    assert (0, 1) == (crawl.journal.num_failed, crawl.units.num_active)


def test_a_request_that_was_given_again_and_dropped_leaves_its_page_to_others(crawl: Crawl) -> None:
    crawl.schedule(of_the_spider("a"))
    crawl.schedule(of_the_spider("b"))
    crawl.commit()
    crawl.crash()
    replayed = crawl.replayed()
    # A handler of the signal drops it: the filter is not asked.
    crawl.units.scheduled(replayed[1])
    assert crawl.schedule(replayed[2])
    assert [False, True] == [crawl.knows(name) for name in "ab"]
    assert ["a", "b"] == crawl.pending
    link = of_the_spider("a")
    assert crawl.schedule(link)
    crawl.give(crawl.fetch(link))
    # It is put back when the crawl is idle, and is no more than a duplicate.
    crawl.units.replay_stranded(replayed[1], 1)
    assert not crawl.schedule(replayed[1])
    assert ["b"] == crawl.pending
    assert [True, True] == [crawl.knows(name) for name in "ab"]


def test_what_is_put_back_and_dropped_again_is_given_up_and_its_page_is_new(crawl: Crawl) -> None:
    crawl.schedule(of_the_spider("a"))
    crawl.commit()
    crawl.crash()
    replayed = crawl.replayed()[1]
    for _ in range(2):
        crawl.units.replay_stranded(replayed, 1)
        crawl.units.scheduled(replayed)
    crawl.units.give_up(1)
    assert ([], False) == (crawl.pending, crawl.knows("a"))
    assert crawl.schedule(of_the_spider("a"))


def test_what_failed_is_done_if_nothing_else_is_wanted(crawl: Crawl) -> None:
    fail(crawl, "a")
    assert [] == crawl.pending
    assert (0, 1, True) == (crawl.journal.num_failed, crawl.journal.num_done, crawl.knows("a"))


def test_a_request_is_found_by_its_response_alone(crawl: Crawl) -> None:
    assert None is crawl.units.of(None)
    assert None is crawl.units.of(Response("http://shop.example/"))
    request = of_the_spider("a")
    crawl.schedule(request)
    response = crawl.fetch(request)
    unit = crawl.units.of(response)
    assert unit is not None
    assert 1 == unit.number
    # A second response to it is nobody's.
    crawl.units.delivered(other := Response(request.url, request=request))
    assert None is crawl.units.of(other)


def test_what_can_be_written_is_what_is_not_held(crawl: Crawl) -> None:
    assert crawl.units.can_write(of_the_spider("a"))
    assert not crawl.units.can_write(lambdas("a"))
    assert not crawl.units.can_write(of_the_spider("a", meta={"file": crawl}))
    assert [] == crawl.pending
