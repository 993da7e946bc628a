"""What does a crawl with a full filter and no store lose, and does its audit say so?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import pytest
from crawling import FILTER, Cli, filtering, run
from mocksite import Site, mock_site
from scrapy import Request
from scrapy.settings import Settings
from scrapy.utils.request import fingerprint

from scrapy_bloomdupe import settings
from scrapy_bloomdupe.auditing import sampler
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.estimating import estimate
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create

SHARE = 0.5
AUDITED = {**FILTER, "BLOOMDUPE_STORE": None, "BLOOMDUPE_AUDIT": SHARE}
PAGES = 300
DAILY = "test_dupefilter_crawls.Daily"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def make_full(directory: Path) -> None:
    """Make a state whose filter has three times its capacity in it, and calls two fifths of all keys seen."""
    state = open_or_create(directory, StateOptions(200, 0.01, "classic", "murmur3", None, audit=SHARE))
    state.filter._limit = 10**9
    for number in range(600):
        state.seen.check_and_add(sha1(b"%d" % number).digest())
    state.close()


@pytest.mark.parametrize("frontier", [True, False], ids=["frontier", "alone"])
def test_a_crawl_with_a_full_filter_loses_no_audited_page_and_says_what_it_loses(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], frontier: bool
) -> None:
    area, job = site.area(), tmp_path / "job"
    directory = job / "bloomdupe"
    make_full(directory)
    cli = Cli(capsys)
    before = cli.json("info", job)["audit"]
    project = {**AUDITED, "JOBDIR": str(job), "BLOOMDUPE_FRONTIER": frontier}
    crawl = run(tmp_path, project, spider=DAILY, start=[area.at(f"many/{PAGES}")])
    assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"])

    bloom = BloomFilter.open(directory / "seen.bloom", readonly=True)
    samples, share = sampler(bloom.secret, SHARE)
    bloom.abandon()
    pages = {area.at(f"page/{number}") for number in range(PAGES)}
    fetched = set(crawl.urls) & pages
    audited = {url for url in pages if samples(fingerprint(Request(url)))}
    assert audited <= fetched
    lost = pages - fetched
    assert len(lost) > 20

    found = crawl.stats["bloomdupe/false_positive"] + before["found"]
    counted = estimate(found, share)
    assert before["keys"] + len(audited) == crawl.stats["bloomdupe/audit/sampled"]
    assert round(counted.others, 1) == crawl.stats["bloomdupe/audit/lost_estimate"]
    assert counted.low == crawl.stats["bloomdupe/audit/lost_low"]
    assert counted.high == crawl.stats["bloomdupe/audit/lost_high"]
    # Of this crawl alone; wide enough to fail once in a billion runs.
    bounds = estimate(crawl.stats["bloomdupe/false_positive"], share, 1 - 1e-9)
    assert bounds.low <= len(lost) <= bounds.high
    (warning,) = crawl.lines("WARNING", "wrongly called seen")
    assert "Asked for was an error rate of 0.01" in warning
    assert crawl.lines("INFO", "Seen-set:", f"{found:,} were wrongly called seen, and saved")

    after = cli.json("info", job)["audit"]
    assert (counted.low, counted.high, found) == (after["lost_low"], after["lost_high"], after["found"])
    code, out, _ = cli("info", job)
    assert 0 == code
    assert f"audited              0.5 of the keys. Audit: of {after['keys']:,} keys {found}" in out

    assert 0 == cli("check", job)[0]
    # What was saved is seen now, and not counted again.
    again = run(tmp_path, project, spider=DAILY, start=[area.at(f"many/{PAGES}")])
    assert [area.at(f"many/{PAGES}")] == again.urls
    assert 0 == again.stats.get("bloomdupe/false_positive", 0)
    assert found == cli.json("info", job)["audit"]["found"]


def test_the_commands_know_an_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(capsys)
    make_full(tmp_path / "bloomdupe")
    before = cli.json("info", tmp_path)["audit"]
    hexes = "".join(f"{sha1(b'imported %d' % number).hexdigest()}\n" for number in range(5000))
    (tmp_path / "requests.seen").write_text(hexes)
    code, out, _ = cli("import", "--no-store", tmp_path)
    assert 0 == code
    after = cli.json("info", tmp_path)["audit"]
    assert before["keys"] + 2000 < after["keys"] < before["keys"] + 3000
    assert before["found"] + 100 < after["found"]
    code, again, _ = cli("import", "--no-store", tmp_path)
    assert (0, after) == (code, cli.json("info", tmp_path)["audit"])
    assert "5,000 fingerprints, 0 of them new" in again
    (tmp_path / "bloomdupe" / "frontier.lmdb").unlink()
    code, out, _ = cli("check", tmp_path)
    assert 1 == code
    assert "belongs to an audit frontier.lmdb, which is not there" in out


def test_a_filter_that_keeps_its_promise_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with filtering(None, BLOOMDUPE_STORE=None, BLOOMDUPE_AUDIT=0.5) as (ours, counted):
        assert [False] * 500 == [ours.request_seen(Request(f"http://a.example/{n}")) for n in range(500)]
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 200 < counted.get_value("bloomdupe/audit/sampled") < 300
    assert (0, 0) == tuple(counted.get_value(f"bloomdupe/audit/lost_{what}") for what in ("estimate", "low"))
    assert 5 == counted.get_value("bloomdupe/audit/lost_high")
    assert "none was wrongly called seen; of the others at most 5 pages were lost (95 %)" in caplog.text


def test_a_crawl_without_an_audit_has_none_of_its_stats() -> None:
    with filtering(None, BLOOMDUPE_STORE=None) as (_, counted):
        pass
    assert [] == [name for name in counted.get_stats() if "audit" in name]


def test_a_state_of_a_dry_run_is_audited_by_its_own_fingerprints() -> None:
    rules = {"BLOOMDUPE_PRESET": "usual", "BLOOMDUPE_DRY_RUN": True}
    with filtering(None, BLOOMDUPE_STORE=None, BLOOMDUPE_AUDIT=1.0, **rules) as (ours, counted):
        assert [False] * 9 == [ours.request_seen(Request(f"http://a.example/{n}")) for n in range(9)]
    assert 9 == counted.get_value("bloomdupe/audit/sampled")


@pytest.mark.parametrize("store", ["lmdb", "memory"])
def test_an_audit_of_an_exact_store_is_refused(store: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings.read(Settings({"BLOOMDUPE_AUDIT": 0.001, "BLOOMDUPE_STORE": store}))
    assert f"BLOOMDUPE_AUDIT = 0.001 with BLOOMDUPE_STORE = '{store}'" in str(caught.value)
    assert "set BLOOMDUPE_STORE = None" in str(caught.value)


@pytest.mark.parametrize(
    "shared",
    [
        {"BLOOMDUPE_FILTER": "redis://127.0.0.1:1/0", "BLOOMDUPE_STORE": None},
        {"BLOOMDUPE_STORE": "redis://127.0.0.1:1/0"},
    ],
)
def test_an_audit_of_what_several_crawls_share_is_refused(shared: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="several crawls share: leave BLOOMDUPE_AUDIT out"):
        settings.read({"BLOOMDUPE_AUDIT": 0.001, **shared})


@pytest.mark.parametrize("value", [0, -0.1, 1.01, "much", float("nan"), float("inf")])
def test_what_is_no_share_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="it takes a share, above 0 and up to 1, or None"):
        settings.read({"BLOOMDUPE_AUDIT": value, "BLOOMDUPE_STORE": None})


@pytest.mark.parametrize(("written", "share"), [("0.001", 0.001), (1, 1.0), ("None", None), ("", None)])
def test_what_people_write_as_a_share_is_understood(written: object, share: float | None) -> None:
    assert share == settings.read({"BLOOMDUPE_AUDIT": written, "BLOOMDUPE_STORE": None}).options.audit
