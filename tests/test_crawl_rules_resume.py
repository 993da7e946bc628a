"""Are changed rules refused on a job directory, and wrong ones everywhere, before anything is crawled?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, Crawl, run, scrapy
from mocksite import Site, mock_site
from scrapy.dupefilters import RFPDupeFilter
from scrapy.http import Request

from scrapy_bloomdupe.cli import main

SPIDER = str(Path(__file__).with_name("crawling.py"))
ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}


def rule(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "match": {"path": f"*/{name}"}, "key": {"sources": ["query:id"]}, **more}


RULES = [rule("a"), rule("b"), rule("c")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def assert_refused(crawl: Crawl) -> None:
    assert "bloomdupe_refused" == crawl.stats["finish_reason"]
    assert 1 == crawl.stats["bloomdupe/error/open"]
    assert "downloader/request_count" not in crawl.stats
    assert "Traceback" not in crawl.log


class Job:
    """Runs on one job directory."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.area = site.area()
        self.folder = folder
        self.state = folder / "job" / "bloomdupe"

    def __call__(self, path: str = "a?id=1", **settings: Any) -> Crawl:
        settings = {**ADDON, "JOBDIR": str(self.folder / "job"), **settings}
        return run(self.folder, settings, start=[self.area.at(path)])


@pytest.fixture
def job(site: Site, tmp_path: Path) -> Job:
    return Job(site, tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            {"BLOOMDUPE_RULES": RULES},
            {"BLOOMDUPE_RULES": [rule("a"), rule("b", missing="drop"), rule("d")]},
            "than the project now has: 'b' changed, 'c' is gone, 'd' is new. The same request",
        ),
        ({"BLOOMDUPE_RULES": RULES}, {}, "than the project now has: it has none now. The same request"),
        ({}, {"BLOOMDUPE_RULES": RULES[:1]}, "than the project now has: 'a' is new. The same request"),
        (
            {"BLOOMDUPE_PRESET": "usual"},
            {"BLOOMDUPE_PRESET": "five"},
            "has: the preset, the order of the rules, or the version of the engine changed. The same",
        ),
        (
            {"BLOOMDUPE_RULES": RULES},
            {"BLOOMDUPE_RULES": RULES[::-1]},
            "has: the preset, the order of the rules, or the version of the engine changed. The same",
        ),
        (
            {"BLOOMDUPE_RULES": RULES, "BLOOMDUPE_FINGERPRINTER": True, "BLOOMDUPE_PRESET": "safe"},
            {"BLOOMDUPE_RULES": RULES[:2], "BLOOMDUPE_FINGERPRINTER": True, "BLOOMDUPE_PRESET": "five"},
            "than the project now has: 'c' is gone. The same request",
        ),
    ],
    ids=["changed, gone, new", "none now", "none before", "preset", "order", "as fingerprinter"],
)
def test_changed_rules_are_refused_by_name_and_the_former_ones_go_on(
    job: Job, before: dict[str, Any], after: dict[str, Any], said: str
) -> None:
    assert 1 == job(**before).stats["bloomdupe/new"]
    crawl = job(**after)
    assert_refused(crawl)
    assert [True] == [said in line for line in crawl.lines("ERROR", "The crawl does not start")]
    assert "BLOOMDUPE_ON_MISMATCH = 'new'" in crawl.log
    crawl = job(**before)
    assert 1 == crawl.stats["bloomdupe/duplicate"]
    assert [] == crawl.lines(" WARNING: ")
    assert {"a?id=1": 1} == job.area.fetched()


def test_the_old_state_is_moved_aside_with_its_rules_if_asked(job: Job) -> None:
    job(BLOOMDUPE_RULES=RULES)
    old = (job.state / "seen.rules.json").read_bytes()
    settings = {"BLOOMDUPE_RULES": RULES[:2], "BLOOMDUPE_ON_MISMATCH": "new"}
    crawl = job(**settings)
    assert 1 == crawl.stats["bloomdupe/new"]
    (aside,) = job.state.glob("old-*")
    assert old == (aside / "seen.rules.json").read_bytes()
    assert {"seen.bloom", "seen.lmdb", "seen.rules.json"} <= {path.name for path in aside.iterdir()}
    assert old != (job.state / "seen.rules.json").read_bytes()
    assert 1 == len(crawl.lines(" WARNING: ", "'c' is gone", str(aside)))
    assert 1 == job(**settings).stats["bloomdupe/duplicate"]
    assert [aside] == list(job.state.glob("old-*"))
    crawl = job(BLOOMDUPE_ON_MISMATCH="new")
    assert 1 == crawl.stats["bloomdupe/new"]
    assert not (job.state / "seen.rules.json").exists()


def test_unchanged_rules_resume_and_changed_examples_are_no_change(job: Job) -> None:
    job(BLOOMDUPE_RULES=RULES)
    url = "http://shop.example/a?id="
    examples = rule("a", examples=[{"differ": [f"{url}1", f"{url}2"]}])
    for rules in (RULES, [examples, *RULES[1:]]):
        crawl = job("a?id=1&again=1", BLOOMDUPE_RULES=rules)
        assert 1 == crawl.stats["bloomdupe/duplicate"]
        assert "bloomdupe/new" not in crawl.stats
    assert {"a?id=1": 1} == job.area.fetched()


def test_a_dry_run_keeps_off_a_state_that_was_made_with_rules(job: Job) -> None:
    job(BLOOMDUPE_RULES=RULES)
    assert_refused(job(BLOOMDUPE_RULES=RULES, BLOOMDUPE_DRY_RUN=True))


def test_what_was_imported_is_refused_with_rules_and_stays_as_it_was(job: Job) -> None:
    jobdir = job.folder / "job"
    jobdir.mkdir()
    theirs = RFPDupeFilter(str(jobdir))
    theirs.request_seen(Request(job.area.at("a?id=1")))
    theirs.close("finished")
    assert 0 == main(["import", str(jobdir)])
    crawl = job(BLOOMDUPE_RULES=RULES)
    assert_refused(crawl)
    assert 1 == len(crawl.lines("ERROR", "was imported from Scrapy's own filter", "Crawl without rules, or"))
    crawl = job()
    assert 1 == crawl.stats["bloomdupe/duplicate"]
    # It was not opened: nothing says that it was not closed.
    assert [] == crawl.lines(" WARNING: ", "clos")


WRONG: dict[str, dict[str, Any]] = {
    "BLOOMDUPE_PRESET = 'fast' is not valid": {"BLOOMDUPE_PRESET": "fast"},
    "rules: rule 'a': 'kee' is not known": {"BLOOMDUPE_RULES": '[{"name": "a", "kee": {}}]'},
    "rules: rule 'a': source 'id' is not one of": {
        "BLOOMDUPE_RULES": '[{"name": "a", "key": {"sources": "id"}}]'
    },
    "rule 'a': step 'polish' is not known": {"BLOOMDUPE_RULES": '[{"name": "a", "steps": "polish"}]'},
    "BLOOMDUPE_RULES = '[' is not valid": {"BLOOMDUPE_RULES": "["},
    "nowhere.toml": {"BLOOMDUPE_RULE_FILES": "nowhere.toml"},
}


@pytest.mark.parametrize("addon", [True, False], ids=["add-on", "filter alone"])
@pytest.mark.parametrize("said", list(WRONG))
def test_wrong_rules_end_the_crawl_at_its_start(site: Site, tmp_path: Path, said: str, addon: bool) -> None:
    settings = {"ADDONS": '{"scrapy_bloomdupe.Addon": 500}'} if addon else FILTER
    start = f'start=["{site.area().at("a")}"]'
    crawl = scrapy(tmp_path, ["runspider", SPIDER, "-a", start], {**settings, **WRONG[said]})
    assert 1 == crawl.code
    assert 1 == len(crawl.lines("ERROR", "The crawl does not start", said))
    assert crawl.lines("'finish_reason': 'bloomdupe_refused'")
    assert [] == crawl.lines("downloader/request_count")
    assert "Traceback" not in crawl.log
