"""Is the page whole, from nowhere else, proof against what stands in it, and does it say what is missing?"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import CALM, FACTS, HOSTILE, NOW, PWNED, hostile_history

from scrapy_bloomdupe.advice import Facts
from scrapy_bloomdupe.history import History, RuleFigures, Sample, Top
from scrapy_bloomdupe.markup import escape
from scrapy_bloomdupe.page import make_page
from scrapy_bloomdupe.timelines import pick, speeds

PAGES = {
    "none": (FACTS, History()),
    "one": (FACTS, History(CALM.samples[:1])),
    "calm": (FACTS, CALM),
    "hostile": hostile_history(),
}


def parsed(page: str) -> ElementTree.Element:
    """The page as XML; refuses what is not well-formed."""
    assert page.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n").encode())


def text_of(page: str) -> str:
    return " ".join(" ".join(parsed(page).itertext()).split())


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    facts, history = PAGES[request.param]
    return make_page(facts, history, NOW)


def test_it_is_well_formed_and_has_nothing_of_another_place(page: str) -> None:
    root = parsed(page)
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "a", "base", "form", "image", "use"}
    for element in root.iter():
        for name, value in element.attrib.items():
            assert name not in ("href", "src", "srcset", "action", "data"), (element.tag, name)
            assert not name.startswith("on"), (element.tag, name)
            assert "url(" not in value
    style = root.findtext("head/style") or ""
    assert "url(" not in style
    assert "@import" not in style
    policy = [meta.get("content") for meta in root.iter("meta") if meta.get("http-equiv")]
    assert ["default-src 'none'; style-src 'unsafe-inline'"] == policy


def test_the_page_of_a_long_history_stays_small() -> None:
    facts, history = PAGES["hostile"]
    assert len(make_page(facts, history, NOW)) < 300_000


def test_what_a_site_says_is_shown_as_it_is_and_becomes_no_markup() -> None:
    facts, history = PAGES["hostile"]
    page = make_page(facts, history, NOW)
    assert PWNED in page
    assert f"<script>document.title='{PWNED}'" in text_of(page)
    assert not re.search(r"<(script|img|svg onload)", page)
    for unseen in ("\u202e", "\u2066", "\u200f", "\ud800", "\x00", "\x1b", "\ufffe"):
        assert unseen not in page
    assert r"\u202egnp.exe\u2066\u200f" in page
    assert "a" * 500 not in page
    page.encode()


@given(st.text())
def test_any_text_becomes_text(text: str) -> None:
    found = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>'.encode())
    assert found.text in (None if not text else found.get("b"), found.text)
    if text.isprintable() and len(text) <= 400:
        assert text == (found.text or "") == found.get("b")


def test_without_a_history_it_says_how_to_get_one() -> None:
    text = text_of(make_page(FACTS, History(), NOW))
    assert "there is no history.jsonl" in text.lower()
    assert "BLOOMDUPE_HISTORY" in text
    assert "330 keys known" in text
    assert "<svg" not in make_page(FACTS, History(), NOW)


def test_one_moment_is_not_drawn_and_the_page_says_so() -> None:
    page = make_page(*PAGES["one"], NOW)
    assert "One moment is not enough" in page
    assert "<svg" not in page


def test_the_figures_of_a_calm_crawl_are_on_the_page() -> None:
    page = make_page(FACTS, CALM, NOW)
    text = text_of(page)
    for expected in (
        "330",
        "318",
        "4,398",
        "60 MB",
        "2 MB",
        "&lt; 1e-12",
        "Fine: Nothing is off",
        "1 run since",
    ):
        assert expected in (page if "&" in expected else text), expected
    assert 6 == page.count("<svg")
    assert "shop.example" in text


def advice(facts: Facts = FACTS, *, top: Top = CALM.top, **figures: object) -> str:
    last = replace(CALM.samples[-1], **figures)
    text = text_of(make_page(facts, History((CALM.samples[0], last), top), NOW))
    return text.partition("What to do next")[2].partition("Over time")[0]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            advice(replace(FACTS, error_rate=0.01)),
            "Have a look: The filter is over-full: its error rate is 0.01,",
        ),
        (advice(replace(FACTS, error_rate=0.01, exact=False)), "Do something: The filter is over-full"),
        (advice(replace(FACTS, keys=950_000)), "Fine: The filter holds 950,000 of 1,000,000 keys"),
        (
            advice(replace(FACTS, layers=6, keys=9_000_000, capacity=10**7)),
            "rebuild DIR --capacity 18_000_000`",
        ),
        (advice(replace(FACTS, layers=6, exact=False)), "a larger BLOOMDUPE_CAPACITY"),
        (advice(replace(FACTS, pending=12)), "12 requests are pending: the crawl was stopped"),
        (advice(replace(FACTS, pending=12, in_order=False)), "is under way or was killed"),
        (advice(replace(FACTS, failed=2)), "2 requests failed and are kept"),
        (advice(errors={"commit": 1}), "Do something: 1 error in bloomdupe/error/commit"),
        (advice(errors={"history": 7}), "Have a look: 7 errors in bloomdupe/error/history"),
        (
            advice(new=100_000, false_positive=900),
            "900 false positives among 100,900 new pages, some 101 were",
        ),
        (
            advice(replace(FACTS, exact=False), unconfirmed=7),
            "less than 1 page of 330 new ones was called seen and lost (among the 7",
        ),
        (advice(duplicate=10**6, cached=5), "0% of the duplicates were known by their exact URL"),
        (advice(seconds=100.0, commit_seconds=20.0), "Writing took 20% of the crawl's time"),
        (
            advice(top=Top(rules={"item": RuleFigures({"key": 10, "missing": 900})})),
            "The rule 'item' found no id in 900 of the 910 requests",
        ),
    ],
)
def test_what_is_off_is_said_with_what_to_do(found: str, expected: str) -> None:
    assert expected in found
    assert ("Nothing is off" in found) == ("Do something" not in found and "Have a look" not in found)


def test_memory_that_grows_is_told() -> None:
    first = replace(CALM.samples[0], anonymous_bytes=100_000_000)
    last = replace(CALM.samples[-1], anonymous_bytes=1_000_000_000)
    text = text_of(make_page(FACTS, History((first, last)), NOW))
    assert "grew from 100 to 1,000 MB of anonymous memory in run 1" in text


def test_at_most_three_blind_rules_are_named() -> None:
    facts, history = PAGES["hostile"]
    text = text_of(make_page(facts, history, NOW))
    assert 3 == text.count("found no id in 999,999 of")
    assert f"{len(HOSTILE) - 3} further rules found no id" in text


def test_moments_are_picked_evenly_with_both_ends() -> None:
    samples = [Sample(time=i, seconds=i**1.5) for i in range(1_000)]
    picked = pick(samples, 80)
    assert 60 <= len(picked) <= 80
    assert (samples[0], samples[-1]) == (picked[0], picked[-1])
    gaps = [after.seconds - before.seconds for before, after in pairwise(picked[:-1])]
    assert max(gaps) < 1.5 * min(gaps)
    assert samples[:5] == pick(samples[:5], 80)


def test_a_speed_is_what_was_counted_between_two_moments() -> None:
    samples = [Sample(seconds=s, new=n) for s, n in ((0, 0), (10, 50), (10, 50), (20, 150))]
    assert [5, 5, 5, 10] == speeds(samples, lambda s: s.new)
    # A moment's burst is no speed.
    burst = [Sample(seconds=s, new=n) for s, n in ((0, 0), (10, 10), (10.01, 30), (20, 40))]
    assert [1, 1, pytest.approx(2_000), pytest.approx(1.001001)] == speeds(burst, lambda s: s.new)
    assert [1, 1, pytest.approx(3, rel=0.01), pytest.approx(3)] == speeds(burst, lambda s: s.new, 9.995)
    assert [None] == speeds(samples[:1], lambda s: s.new)
