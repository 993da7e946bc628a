"""Do the short ways give what the long ones give? One parse per URL, parts cut once, URLs known as normal."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import scrapy_bloomdupe.rules.steps as steps
from scrapy_bloomdupe.rules.presets import KINDS, PRESETS, Pipeline, pipeline
from scrapy_bloomdupe.rules.ruleset import RuleSet
from scrapy_bloomdupe.rules.urls import hostname, pairs, split

DATA = Path(__file__).parent / "data"

ORIGINS = [
    "http://a.example", "https://www.shop.example", "http://a", "http://a.example:80", "https://a.example:8443",
    "https://a.example:443", "http://a.example:", "http://a.example:08", "HTTP://A.Example", "http://u:p@a.example",
    "http://a.example.", "http://a..b", "http://1.2.3", "http://0x7f", "http://a.0x7f", "http://1.2.3.4.5",
    "http://xn--a", "http://xn--mnchen-3ya.example", "http://m\u00fcnchen.example", "http://[::1]", "http://a_b",
    "http://-", "http://%61.example", "http://", "http:/", "http:a", "ftp://a.example", "file://a", "foo://a",
    "mailto:a", "http:\\\\a.example", "//a.example", "", " http://a.example", "http://a.example:65536",
]  # fmt: skip
PIECES = [
    *map(chr, range(0x21, 0x7F)),
    *[f"%{byte:02X}" for byte in range(0x20, 0x80)],
    *[f"%{byte:02x}" for byte in range(0x20, 0x80)],
    *["a", "A", "0", "/", "-", ".", "_", "~", "&", "=", "+"] * 20,
    *["/./", "/../", "/%2e/", "/.%2E/", "/..", "/.a", "//", "\u4f60", " ", "\t", "\n"],
    *["\x00", "%", "%4", "\ud800", "&&", "?", "#", "#!"],
    *["index.html", ";jsessionid=0123456789abcdef", "utm_source=x", "sid=0123456789abcdef0"],
]  # fmt: skip


def text(rnd: random.Random, longest: int) -> str:
    return "".join(rnd.choices(PIECES, k=rnd.randrange(longest + 1)))


def urls(seed: int, count: int) -> Iterator[str]:
    rnd = random.Random(seed)
    for _ in range(count):
        origin = rnd.choice(ORIGINS) if rnd.random() < 0.4 else ORIGINS[rnd.randrange(2)]
        path = rnd.choice(["", "/", "/"]) + text(rnd, 5)
        query = "?" + text(rnd, 5) if rnd.random() < 0.6 else ""
        yield origin + path + query + ("#" + text(rnd, 3) if rnd.random() < 0.3 else "")


def stored() -> list[str]:
    found = [json.loads(line)["url"] for line in (DATA / "product_ids.jsonl").read_text().splitlines()]
    for line in (DATA / "url_pairs.jsonl").read_text().splitlines():
        found += [json.loads(line)[side] for side in ("a", "b")]
    return found


def test_a_url_that_is_known_as_normal_is_what_the_parser_makes_of_it() -> None:
    tried = [*stored(), *urls(1, 60_000)]
    normal = [url for url in tried if steps._is_normal(url)]
    assert [] == [url for url in normal if steps._asked(url) != url]
    assert len(normal) > 10_000


@pytest.mark.parametrize("char", [chr(code) for code in range(128)])
def test_every_character_at_every_place_of_a_normal_url_is_left_alone_by_the_parser(char: str) -> None:
    for form in (
        "{}",
        "a{}",
        "{}a",
        "a{}a",
        "/{}",
        "/a{}/b",
        "?{}",
        "?a{}b",
        "#{}",
        "#a{}b",
        "/{0}{0}?{0}#{0}",
    ):
        url = f"http://a.example/{form.format(char)}"
        assert not steps._is_normal(url) or steps._asked(url) == url


def long(canonical: Pipeline, url: str) -> str:
    """Return what the steps make of a URL, one by one."""
    trace = canonical.trace(url)
    return trace[-1][1] if trace else url


def long_page(rules: RuleSet, url: str) -> tuple[object, ...]:
    """Return a page by whole steps, string by string."""
    normal = long(pipeline(("parse", "percent")), url)
    parts = split(normal)
    host = hostname(parts.authority).rstrip(".") if parts is not None else ""
    params = pairs(parts.query) if parts is not None and parts.query else []
    bare = long(pipeline(("lone_query", "drop_plain_fragment")), normal)
    return bare, parts, host, tuple((name.removeprefix("amp;"), value) for name, value in params)


def test_a_page_is_what_the_steps_one_by_one_make_of_it() -> None:
    rules = RuleSet.load("safe")
    for url in (*stored(), *urls(2, 20_000)):
        page = rules.page(url)
        assert long_page(rules, url) == (page.url, page.parts, page.host, page.params), url


def short(canonical: Pipeline, rules: RuleSet, url: str) -> str:
    page = rules.page(url)
    return canonical.of_parsed(url, page.normal, page.parts)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_makes_of_parts_what_it_makes_of_the_url(preset: str) -> None:
    rules, canonical = RuleSet.load("safe"), pipeline(preset)
    for url in (*stored(), *urls(3, 5_000)):
        assert long(canonical, url) == short(canonical, rules, url) == canonical(url), url


def test_any_selection_of_steps_makes_of_parts_what_it_makes_of_the_url() -> None:
    rnd = random.Random(4)
    arguments = {
        "drop_params": "tracking,a",
        "keep_params": "a,id",
        "call": "scrapy_bloomdupe.rules.steps:lower_path",
    }
    names = [f"{name}:{arguments[name]}" if name in arguments else name for name in KINDS]
    rules = RuleSet.load("safe")
    tried = list(urls(5, 100))
    for _ in range(300):
        chosen = rnd.sample(names, rnd.randrange(len(names)))
        canonical = pipeline([*chosen, "parse", "percent"] if rnd.random() < 0.8 else chosen)
        for url in tried:
            found = (short(canonical, rules, url), canonical(url))
            assert (long(canonical, url),) * 2 == found, (canonical.names, url)
