"""Does the filter say of every request what Scrapy's own filter says, whatever the false positives?"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from crawling import filtering
from scrapy import FormRequest, Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.http import JsonRequest

from scrapy_bloomdupe import BloomDupeFilter

COUNT = 20_000

#: The least array that there is, and the worst: see ``nearly_fill``.
BAD = {"BLOOMDUPE_CAPACITY": 24_000, "BLOOMDUPE_ERROR_RATE": 0.3}

HOSTS = ["shop.example", "SHOP.example", "shop.example:80", "www.shop.example", "m\u00fcnchen.example"]
WORDS = ["a", "A", "", "caf\u00e9", "caf%C3%A9", "caf%e9", "\u4f60", "x y", "x+y", "x%20y", "%7E", "~", "%2F"]
WORDS += ["..", "a;b", "a|b", "%zz", "%", "1=2", "\u0439"]
NAMES = ["id", "ID", "sort", "utm_source", "q", "%69d", "\u00e9"]
ENCODINGS = ["utf-8", "utf-8", "utf-8", "latin-1", "cp1251", "shift_jis", "utf-16"]
METHODS = ["GET", "GET", "GET", "GET", "get", "HEAD", "POST", "post", "PUT"]
BODIES: list[bytes | str] = [b"", b"", b"", "a=1", b"a=1", "\u00e9", b"\xff\x00", b"a=1&b=2", b"b=2&a=1"]
FRAGMENTS = ["", "", "", "#", "#top", "#!/route", "#\u00e9"]


def request_of(rng: random.Random, pages: int) -> Request:
    """One of *pages* pages in one of its spellings; some are the same page for Scrapy, some are not."""
    page = rng.randrange(pages)
    # What makes the page what it is, whatever the spelling.
    own = random.Random(page)
    path = "/".join(["", str(page), *own.choices(WORDS, k=own.randrange(3))])
    query = [f"{own.choice(NAMES)}={own.choice(WORDS)}" for _ in range(own.randrange(4))]
    method, body, encoding = own.choice(METHODS), own.choice(BODIES), own.choice(ENCODINGS)
    host = own.choice(["http", "https"]) + "://" + (own if page % 3 else rng).choice(HOSTS)
    rng.shuffle(query)
    url = host + path + rng.choice(["?", "?", "?&"]) + rng.choice(["&", "&", "&&"]).join(query)
    url += rng.choice(FRAGMENTS)
    if page % 19 == 0:
        return FormRequest(url, formdata={"a": str(page), "b": "\u00e9"}, method=rng.choice(["GET", "POST"]))
    if page % 23 == 0:
        return JsonRequest(url, data={"page": page % 7, "\u00e9": None})
    # What does not make a page what it is; a verbatim URL does.
    meta = {"verbatim_url": True} if rng.random() < 0.05 else {"depth": rng.randrange(9)}
    headers = {"Accept-Language": rng.choice(["de", "en"])}
    try:
        return Request(url, method=method, body=body, encoding=encoding, headers=headers, meta=meta)
    except UnicodeError:
        return Request(url, method=method, cookies={"session": str(rng.random())}, meta=meta)


@cache
def requests(count: int) -> list[Request]:
    """Always the same *count* requests, about half of which are seen for Scrapy."""
    rng = random.Random(count)
    return [request_of(rng, count // 2) for _ in range(count)]


def disagreements(ours: BloomDupeFilter, requests: Iterable[Request]) -> list[Request]:
    """The requests of which Scrapy's filter, asked side by side, says something else."""
    theirs = RFPDupeFilter()
    return [request for request in requests if theirs.request_seen(request) != ours.request_seen(request)]


def nearly_fill(ours: BloomDupeFilter) -> None:
    """Put in other keys until 2,000 are missing to the capacity: every third answer is wrong by then."""
    assert ours._state is not None
    rng = random.Random(7)
    while ours._state.filter.num_keys < ours._state.filter.capacity - 2_000:
        ours._state.seen.check_and_add(rng.randbytes(20))


def test_the_generated_requests_are_a_good_mix_of_new_ones_and_repeated_ones() -> None:
    theirs = RFPDupeFilter()
    seen = sum(theirs.request_seen(request) for request in requests(2_000))
    assert 400 < seen < 1_200


def test_the_verdict_on_20000_requests_is_that_of_scrapys_filter(tmp_path: Path) -> None:
    with filtering(tmp_path) as (ours, stats):
        assert [] == disagreements(ours, requests(COUNT))
    assert COUNT == stats.get_value("bloomdupe/new") + stats.get_value("bloomdupe/duplicate")
    assert stats.get_value("bloomdupe/new") == stats.get_value("bloomdupe/keys")


def test_20000_requests_to_a_bad_filter_that_grows_change_no_verdict(tmp_path: Path) -> None:
    with filtering(tmp_path, **BAD) as (ours, stats):
        nearly_fill(ours)
        assert [] == disagreements(ours, requests(COUNT))
    assert 1_000 < stats.get_value("bloomdupe/false_positive")
    assert 2 == stats.get_value("bloomdupe/layers")
    new = stats.get_value("bloomdupe/new") + stats.get_value("bloomdupe/false_positive")
    assert COUNT == new + stats.get_value("bloomdupe/duplicate")


@pytest.mark.parametrize("layout", ["paged", "classic"])
@pytest.mark.parametrize("scheme", ["murmur3", "fnv1a", "blake2b"])
def test_every_layout_and_scheme_agrees(tmp_path: Path, layout: str, scheme: str) -> None:
    names = {"BLOOMDUPE_LAYOUT": layout, "BLOOMDUPE_SCHEME": scheme}
    with filtering(tmp_path, **BAD, **names) as (ours, stats):
        nearly_fill(ours)
        assert [] == disagreements(ours, requests(4_000))
    assert 100 < stats.get_value("bloomdupe/false_positive")


def test_a_filter_that_is_opened_again_goes_on_as_scrapys_filter_does(tmp_path: Path) -> None:
    every = requests(4_000)
    (tmp_path / "theirs").mkdir()
    verdicts: list[tuple[bool, bool]] = []
    for part in (every[:1500], every[1500:1501], every[1501:]):
        theirs = RFPDupeFilter(str(tmp_path / "theirs"))
        with filtering(tmp_path / "ours", **BAD) as (ours, stats):
            nearly_fill(ours)
            verdicts += [(theirs.request_seen(request), ours.request_seen(request)) for request in part]
        theirs.close("finished")
    assert [] == [pair for pair in verdicts if pair[0] != pair[1]]
    assert 0 < stats.get_value("bloomdupe/false_positive")


def test_a_bare_filter_errs_only_by_calling_a_new_request_seen(tmp_path: Path) -> None:
    theirs = RFPDupeFilter()
    with filtering(tmp_path, BLOOMDUPE_STORE=None, **BAD) as (ours, stats):
        nearly_fill(ours)
        pairs = [(theirs.request_seen(r), ours.request_seen(r)) for r in requests(4_000)]
    lost, new = pairs.count((False, True)), pairs.count((False, False))
    assert 0 == pairs.count((True, False))
    # The whole keeps the rate that was asked for, 0.3 of what is new, give or take 6 deviations.
    assert 0.2 < lost / (lost + new) < 0.36
    assert sum(ours for _, ours in pairs) == stats.get_value("bloomdupe/unconfirmed")
    assert new == stats.get_value("bloomdupe/new")
    assert stats.get_value("bloomdupe/duplicate") is None


def test_an_exact_store_in_memory_agrees_too() -> None:
    with filtering(None, BLOOMDUPE_STORE="memory", **BAD) as (ours, stats):
        nearly_fill(ours)
        assert [] == disagreements(ours, requests(4_000))
    assert 100 < stats.get_value("bloomdupe/false_positive")


def test_a_filter_without_a_crawler_takes_a_path_as_scrapys_filter_does(tmp_path: Path) -> None:
    for resumed in (False, True):
        ours = BloomDupeFilter(str(tmp_path))
        assert resumed == ours.request_seen(Request("http://shop.example/#a"))
        assert ours.request_seen(Request("http://shop.example/#b"))
        ours.close("finished")
