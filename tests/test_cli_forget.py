"""Does ``bloomdupe forget`` make the keys that the crawl made, say what it did, and refuse what it cannot?"""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from crawling import Cli, filtering, make_state
from scrapy import Request
from test_opening_mismatch import files

PAGES = [f"http://shop.example/page/{number}?b=1&a={number}" for number in range(6)]
OTHERS = [f"http://www.other.example/{number}" for number in range(3)]
ITEM = {"name": "item", "match": {"path": "/item*"}, "key": {"sources": ["query:id"]}}


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that has seen ``PAGES`` and ``OTHERS``."""
    monkeypatch.chdir(tmp_path)
    crawl(tmp_path / "job", PAGES + OTHERS)
    return tmp_path / "job"


def crawl(job: Path, urls: list[str], **settings: object) -> list[str]:
    """Ask for *urls* as a crawl does, and return those that pass."""
    with filtering(job, **settings) as (ours, _):
        return [url for url in urls if not ours.request_seen(Request(url))]


def test_pages_are_forgotten_by_their_urls_in_any_spelling(bloomdupe: Cli, job: Path) -> None:
    other_spelling = "http://shop.example/page/2?a=2&b=1#top"
    code, out, err = bloomdupe("forget", job, PAGES[1], other_spelling, "http://shop.example/not/seen")
    where = f"{job}/bloomdupe"
    assert [
        f"2 keys forgotten in {where}: their pages are new to the next run",
        "1 of those asked for are not known there",
    ] == out.splitlines()
    assert (0, "") == (code, err)
    assert PAGES[1:3] == crawl(job, PAGES + OTHERS)
    assert [] == crawl(job, PAGES + OTHERS)


def test_a_host_is_forgotten(bloomdupe: Cli, job: Path) -> None:
    assert 0 == bloomdupe("forget", job, "--host", "WWW.other.example")[0]
    assert OTHERS == crawl(job, PAGES + OTHERS)


def test_a_dry_run_changes_nothing_and_says_how_many(bloomdupe: Cli, job: Path) -> None:
    before = files(job)
    code, out, _ = bloomdupe("forget", job, "--host", "shop.example", "--dry-run")
    assert f"6 keys would be forgotten in {job}/bloomdupe; nothing was changed\n" == out
    assert (0, before) == (code, files(job))
    assert [] == crawl(job, PAGES + OTHERS)


def test_keys_and_urls_come_from_a_file(bloomdupe: Cli, job: Path, tmp_path: Path) -> None:
    with filtering(None) as (ours, _):
        key = ours._keys.fingerprint(Request(PAGES[3]))
    path = tmp_path / "keys"
    path.write_text(f"{key.hex().upper()}\n\n  {OTHERS[0]}\n")
    assert 0 == bloomdupe("forget", job, "--keys", path)[0]
    assert [PAGES[3], OTHERS[0]] == crawl(job, PAGES + OTHERS)


def test_and_from_standard_input(bloomdupe: Cli, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PAGES[0]}\n"))
    assert 0 == bloomdupe("forget", job, PAGES[5], "--keys", "-")[0]
    assert [PAGES[0], PAGES[5]] == crawl(job, PAGES + OTHERS)


def test_nothing_found_is_exit_code_1(bloomdupe: Cli, job: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for words in (["http://shop.example/x"], ["--rule", "item"], ["--keys", tmp_path / "empty"]):
        code, out, err = bloomdupe("forget", job, *words)
        assert (1, "") == (code, err)
        assert out.startswith(f"0 keys forgotten in {job}/bloomdupe")


def test_keys_are_made_by_the_rules_of_the_project_that_stands_around(
    bloomdupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_settings.py").write_text(f"BLOOMDUPE_RULES = [{ITEM!r}]\n")
    items = [f"http://shop.example/item?id={number}&x=1" for number in range(4)]
    job, rules = tmp_path / "job", {"BLOOMDUPE_RULES": [ITEM]}
    crawl(job, items + PAGES, **rules)
    project = ["--settings", "shop_settings"]
    url = "http://shop.example/item?x=2&id=3"
    assert 0 == bloomdupe("forget", job, url, *project)[0]
    assert items[3:] == crawl(job, items + PAGES, **rules)
    assert 0 == bloomdupe("forget", job, "--rule", "item")[0]
    assert items == crawl(job, items + PAGES, **rules)
    before = files(job)
    code, out, err = bloomdupe("forget", job, url)
    assert (2, "", before) == (code, out, files(job))
    by = r"scrapy\.utils\.request\.RequestFingerprinter \(canary [0-9a-f]{12}, "
    assert re.fullmatch(
        f"bloomdupe: {job}/bloomdupe: its keys were made by {by}rules [0-9a-f]{{12}}\\); here a URL gets its "
        f"key by {by}no rules\\), which is another one. Run this inside the crawl's project, give its "
        "--settings and --spider, or give the keys themselves by --keys. Nothing was changed\n",
        err,
    )


SPIDERS = """
import scrapy

class Shop(scrapy.Spider):
    name = "follow"
    bloomdupe_rules = [{"name": "item", "key": {"sources": ["query:id"]}, "match": {"spider": "follow"}}]
    custom_settings = {"BLOOMDUPE_PRESET": "usual"}

class Other(scrapy.Spider):
    name = "other"
"""


def test_keys_are_made_by_the_rules_and_settings_of_the_spider_that_made_the_state(
    bloomdupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "life_spiders.py").write_text(SPIDERS)
    (tmp_path / "life_settings.py").write_text("SPIDER_MODULES = ['life_spiders']\n")
    job, url = tmp_path / "job", "http://shop.example/item?id=3"
    rules = [{"name": "item", "key": {"sources": ["query:id"]}, "match": {"spider": "follow"}}]
    settings = {"BLOOMDUPE_PRESET": "usual", "BLOOMDUPE_RULES": rules}
    crawl(job, [url], **settings)
    project = ["--settings", "life_settings"]
    assert 2 == bloomdupe("forget", job, url, *project, "--spider", "other")[0]
    code, _, err = bloomdupe("forget", job, url, *project, "--spider", "shoo")
    assert (2, "bloomdupe: there is no spider 'shoo' in the project; it has follow, other\n") == (code, err)
    assert 0 == bloomdupe("forget", job, f"{url}&x=1", *project)[0]
    assert [url] == crawl(job, [url], **settings)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "forget takes either URLs and --keys, or --host and --rule; see --help"),
        (["http://x.example/", "--host", "x"], "forget takes either URLs and --keys, or --host and --rule"),
        (["--host", " "], "argument --host: it is empty"),
        (["page"], "'page' is no URL: Missing scheme in request url: page. Nothing was changed"),
        (["--keys", "none"], "there is no file none"),
        (
            ["--keys", "wrong"],
            "wrong, line 2: 'c0ffee' is neither a URL nor the 40 hex digits of a key. Nothing",
        ),
        (["http://x.example/", "--settings", "nowhere"], "the settings module 'nowhere' cannot be imported"),
        (["--host", "x", "--settings"], "argument --settings: expected one argument"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_changed(
    bloomdupe: Cli, job: Path, words: list[str], message: str
) -> None:
    Path("wrong").write_text(f"{PAGES[0]}\nc0ffee\n")
    before = files(job)
    code, out, err = bloomdupe("forget", job, *words)
    assert (2, "", before) == (code, out, files(job))
    assert message in err


def test_a_filter_alone_and_a_place_without_a_state_are_refused(
    bloomdupe: Cli, job: Path, tmp_path: Path
) -> None:
    bare = make_state(tmp_path / "bare", 10, store=None)
    code, _, err = bloomdupe("forget", bare, "--host", "x.example")
    assert 2 == code
    assert f"bloomdupe: {bare}/bloomdupe has no exact store (BLOOMDUPE_STORE = None): a Bloom filter" in err
    code, _, err = bloomdupe("forget", tmp_path, "--host", "x.example")
    assert 2 == code
    assert f"there is no state in {tmp_path}" in err


def test_info_says_when_the_state_was_made_and_its_pages_were_seen(bloomdupe: Cli, job: Path) -> None:
    found = bloomdupe.json("info", job)
    store = found["store"]
    assert found["created"] <= store["oldest_visit"] <= store["newest_visit"]
    assert 0 == store["sample_without_time"] < store["sample"]
    out = bloomdupe("info", job)[1]
    day = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.search(rf"^made                 {day} \([\d.]+[smh] ago\)$", out, re.M)
    assert re.search(rf"^last visits          {day} to {day} \(of \d+ keys\)$", out, re.M)
