"""Do the presets merge what is one page, and keep apart what is two?"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.presets import KINDS, LOSSY, PRESETS, pipeline
from scrapy_bloomdupe.rules.steps import parse

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "url_pairs.jsonl").read_text(encoding="utf-8").splitlines()
]
BASE = "http://ex.com"
_MORE = {
    "same": [
        ("http://[2001:0db8::0:1]/", "http://[2001:DB8::1]/"),
        ("http://[::127.0.0.1]/", "http://[::7f00:1]/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0177.0.0.1/", "http://127.0.0.1/"),
        ("http://\uff11\uff127.0.0.1/", "http://127.0.0.1/"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("https://ex.com:0443/", "https://ex.com/"),
        ("ftp://ex.com:21/a", "ftp://ex.com/a"),
        ("http://@ex.com/", "http://ex.com/"),
        ("http://u:@ex.com/", "http://u@ex.com/"),
        ("http://BÜCHER.de/", "http://xn--bcher-kva.de/"),
        ("http://例子.中国/", "http://例子｡中国/"),
        (f"{BASE}/a/%2E/b", f"{BASE}/a/b"),
        (f"{BASE}/a/.%2e/b", f"{BASE}/b"),
        (f"{BASE}/a/b/.", f"{BASE}/a/b/"),
        (f"{BASE}/../../a", f"{BASE}/a"),
        (f"{BASE}\\a\\..\\b", f"{BASE}/b"),
        (f"{BASE}/a\tb\r\nc", f"{BASE}/abc"),
        (f"\t {BASE}/a \n", f"{BASE}/a"),
        (f"{BASE}/é", f"{BASE}/%c3%A9"),
        (f"{BASE}/?q=你", f"{BASE}/?q=%e4%bd%a0"),
        (f"{BASE}/%C4%e3", f"{BASE}/%c4%E3"),
        (f"{BASE}/?%61%2D=%5f", f"{BASE}/?a-=_"),
        (f"{BASE}/a b", f"{BASE}/a%20b"),
        ("http:///ex.com/a", f"{BASE}/a"),
    ],
    "differ": [
        ("http://[::1]/", "http://[::2]/"),
        ("http://ex.com:8080/", "http://ex.com:8081/"),
        ("http://u:p@ex.com/", "http://u:P@ex.com/"),
        ("http://bücher.de/", "http://bucher.de/"),
        (f"{BASE}/a/%252e%252e/b", f"{BASE}/b"),
        (f"{BASE}/a/...;/b", f"{BASE}/a/b"),
        (f"{BASE}/a%5Cb", f"{BASE}/a/b"),
        (f"{BASE}/a%09b", f"{BASE}/ab"),
        (f"{BASE}/a%0Ab", f"{BASE}/a%0Db"),
        (f"{BASE}/%B0%A2", f"{BASE}/%B0%A1"),
        (f"{BASE}/?q=%B0%A2", f"{BASE}/?q=%EF%BF%BD"),
        (f"{BASE}/\ud800", f"{BASE}/\ud801"),
        (f"{BASE}/?q=%00", f"{BASE}/?q="),
        (f"{BASE}/a%2Fb", f"{BASE}/a/b"),
        (f"{BASE}/a%252Fb", f"{BASE}/a%2Fb"),
        (f"{BASE}/?q=%%32F", f"{BASE}/?q=%2F"),
        (f"{BASE}/a%3Bb", f"{BASE}/a;b"),
        (f"{BASE}/?a=1%2B1", f"{BASE}/?a=1+1"),
        (f"{BASE}/a%2Bb", f"{BASE}/a%20b"),
        (f"{BASE}/?a=b%3Bc", f"{BASE}/?a=b;c"),
        (f"{BASE}/?a=1&a=2&a=3", f"{BASE}/?a=1&a=2"),
        (f"{BASE}/a;v=1", f"{BASE}/a;v=2"),
        (f"{BASE}/?sid=12345", f"{BASE}/?sid=12346"),
        (f"{BASE}/?session_id=news", f"{BASE}/"),
        ("javascript:go(1)", "javascript:go(2)"),
        ("javascript:a#b", "javascript:a#c"),
        ("mailto:a@ex.com?subject=A", "mailto:a@ex.com?subject=a"),
        ("data:text/html,A", "data:text/html,a"),
        ("data:,a//b", "data:,a/b"),
        (f"{BASE}/é", f"{BASE}/e\u0301"),
        (f"{BASE}/?a=%26b=1", f"{BASE}/?a=&b=1"),
        ("no url", "no  url"),
    ],
    "usual": [
        (f"{BASE}/?a=x%2Cy", f"{BASE}/?a=x,y"),
        (f"{BASE}/?a%5B%5D=1", f"{BASE}/?a[]=1"),
        (f"{BASE}/?a=1&&b=2&", f"{BASE}/?a=1&b=2"),
        (f"{BASE}/?a+b=1", f"{BASE}/?a%20b=1"),
        ("http://ex.com.:8080/", "http://ex.com:8080/"),
        (f"{BASE}/?c&b=1&a", f"{BASE}/?a&b=1&c"),
    ],
    "lossy": [
        (f"{BASE}/a%21b", f"{BASE}/a!b"),
        (f"{BASE}/a%24", f"{BASE}/a$"),
        (f"{BASE}//a", f"{BASE}/a"),
        (f"{BASE}/?b=2&a=1&b=1", f"{BASE}/?a=1&b=1&b=2"),
        (f"{BASE}/#!/item/1", f"{BASE}/#!/item/2"),
        (f"{BASE}/#/a", f"{BASE}/"),
        (f"{BASE}/a;jsessionid=0123456789ABCDEF0123", f"{BASE}/a"),
        ("http://www.ex.com/", "http://ex.com/"),
        ("https://ex.com/", "http://ex.com/"),
        (f"{BASE}/default.aspx", f"{BASE}/"),
    ],
}
PAIRS += [
    {"id": "own", "rule": "own", "a": a, "b": b, "want": want} for want in _MORE for a, b in _MORE[want]
]
# What `safe` does of the usual ones.
SAFE_RULES = ("fragment", "empty-query", "pct-invalid")


def pairs(*wants: str) -> list[tuple[str, str, str, str]]:
    return [(p["id"], p["rule"], p["a"], p["b"]) for p in PAIRS if p["want"] in wants]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_merges_what_the_standards_call_one(preset: str) -> None:
    canonical = pipeline(preset)
    assert [] == [pair for pair in pairs("same") if canonical(pair[2]) != canonical(pair[3])]


@pytest.mark.parametrize("preset", PRESETS)
def test_no_preset_merges_different_pages(preset: str) -> None:
    canonical = pipeline(preset)
    assert [] == [pair for pair in pairs("differ") if canonical(pair[2]) == canonical(pair[3])]


def test_safe_merges_of_the_usual_ones_only_three_kinds() -> None:
    canonical = pipeline("safe")
    found = {pair[1] for pair in pairs("usual") if canonical(pair[2]) == canonical(pair[3])}
    assert set(SAFE_RULES) == found
    apart = [pair for pair in pairs("usual") if canonical(pair[2]) != canonical(pair[3])]
    assert not set(SAFE_RULES) & {pair[1] for pair in apart}


@pytest.mark.parametrize("preset", ["usual", "tmall"])
def test_usual_merges_all_usual_ones_but_the_blank_one(preset: str) -> None:
    canonical = pipeline(preset)
    apart = [pair[0] for pair in pairs("usual") if canonical(pair[2]) != canonical(pair[3])]
    assert ["e103"] == apart
    with_blanks = pipeline([preset, "equal_blanks"])
    assert [] == [pair for pair in pairs("usual") if with_blanks(pair[2]) != with_blanks(pair[3])]


@pytest.mark.parametrize("preset", ["safe", "usual", "tmall"])
def test_what_is_one_page_on_some_sites_only_stays_apart(preset: str) -> None:
    canonical = pipeline(preset)
    assert [] == [pair for pair in pairs("lossy") if canonical(pair[2]) == canonical(pair[3])]


def test_safe_and_usual_have_no_lossy_step() -> None:
    for preset in ("safe", "usual"):
        assert not [name for name in PRESETS[preset] if KINDS[name].kind == LOSSY]


def test_baidu_does_what_its_guide_shows() -> None:
    url = "https://Example.com/SEO//page?Name=Blog#section"
    assert "http://example.com/seo/page?Name=Blog" == pipeline("baidu")(url)
    assert "https://example.com/seo/page?Name=Blog" == pipeline("five")(url)


def test_the_order_in_which_steps_are_named_does_not_matter() -> None:
    names = list(PRESETS["aggressive"])
    expected = pipeline(names).names
    for seed in range(20):
        random.Random(seed).shuffle(names)
        assert expected == pipeline(names).names


def test_a_preset_among_steps_stands_for_its_steps() -> None:
    assert pipeline([*PRESETS["safe"], "sort_params"]) == pipeline(["sort_params", "safe", "parse"])


def test_a_project_brings_steps_of_its_own_and_they_run_last() -> None:
    canonical = pipeline(["call:scrapy_bloomdupe.rules.steps:drop_fragment", "parse"])
    assert ("parse", "call:scrapy_bloomdupe.rules.steps:drop_fragment") == canonical.names
    assert "http://ex.com/" == canonical("HTTP://EX.COM/#!a")


def test_a_trace_has_the_output_of_each_step() -> None:
    assert [("parse", "http://ex.com/%7ea#b"), ("percent", "http://ex.com/~a#b")] == pipeline("safe").trace(
        "HTTP://ex.com/%7ea#b"
    )[:2]
    assert [("parse", "no url")] == pipeline("safe").trace("no url")


def test_steps_whose_output_cannot_be_fetched_are_known() -> None:
    assert [] == pipeline("safe").not_fetchable()
    assert ["strip_www", "https_to_http"] == pipeline(["https_to_http", "safe", "strip_www"]).not_fetchable()
    assert parse is pipeline("safe").steps[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shiny", r"step 'shiny' is not known; there are the presets safe, usual, .* and the steps parse"),
        ("parse:x", r"step 'parse:x': it takes no argument, 'x' was given"),
        ("drop_params", r"step 'drop_params': it needs an argument, for example 'drop_params:tracking'"),
        ("keep_params:", r"step 'keep_params:': it needs an argument"),
        ("drop_params: ,", r"step 'drop_params: ,': a step names no parameter"),
        ("call:nowhere.at_all:f", r"'nowhere.at_all:f' cannot be imported: .*; write 'pkg.mod:func'"),
        ("call:json:nothing", r"'json:nothing' cannot be imported"),
        ("call:json", r"'json' names nothing that can be called"),
        ("call:json:__name__", r"'json:__name__' names nothing that can be called"),
    ],
)
def test_a_wrong_step_is_named_with_what_would_be_right(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        pipeline(["safe", name])
