"""Do the example project's lessons about rules come out as README says, and do their sites agree with it?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent / "example_project"
sys.path.insert(0, str(PROJECT))

from shop.tmall import FORMS, WITHOUT_ID, Tmall, form  # noqa: E402
from shop_crawl.ids import bilibili_video, doi, github_issue, wikipedia_page  # noqa: E402

from scrapy_bloomdupe.rules.ruleset import RuleSet  # noqa: E402


def run(tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Children leave nothing outside tmp_path, and find the package as this process does."""
    search = [str(PROJECT.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(tmp_path),
    }
    command = [sys.executable, *args]
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def numbers(output: str, start: str) -> list[int]:
    """The numbers that follow `start` in the one line of the output that begins with it."""
    (line,) = [line for line in output.splitlines() if line.startswith(start)]
    words = line.removeprefix(start).replace(",", "").split()
    return [int(word) for word in words if word.isdecimal()]


def test_the_shop_by_ids_fetches_each_product_once_and_loses_none(tmp_path: Path) -> None:
    done = run(tmp_path, "run.py", "s03_rules")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "All as it must be." in done.stdout
    assert [295, 473, 60] == numbers(done.stdout, "product pages fetched")
    assert [59, 60, 60] == numbers(done.stdout, "distinct products")
    assert [1, 0, 0] == numbers(done.stdout, "lost products")
    assert numbers(done.stdout, "bloomdupe/rule/shop_product/key")[0] > 60
    assert [] == list(tmp_path.iterdir())


def test_tmall_urls_by_the_preset_fetch_each_product_once_and_lose_none(tmp_path: Path) -> None:
    done = run(tmp_path, "run.py", "s04_tmall")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "All as it must be." in done.stdout
    assert [104, 104, 30] == numbers(done.stdout, "product pages fetched")
    assert [2, 0, 0] == numbers(done.stdout, "lost products")
    assert [len(WITHOUT_ID)] == numbers(done.stdout, "bloomdupe/rule/tmall_item/dropped")
    assert [0] == numbers(done.stdout, "bloomdupe/rule/tmall_item/missing")
    assert [] == list(tmp_path.iterdir())


def test_the_comparing_lessons_refuse_to_be_run_by_scrapys_filter_alone(tmp_path: Path) -> None:
    done = run(tmp_path, "run.py", "s04_tmall", "--stock")
    assert done.returncode == 2
    assert "leave --stock out" in done.stderr


def test_the_rule_file_passes_the_command_that_checks_it(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "scrapy_bloomdupe", "rules", "check", "--rules", "rules/sites.toml")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "all hold" in done.stdout


def test_the_preset_makes_one_key_of_fourteen_forms() -> None:
    rules = RuleSet.load(preset="tmall")
    forms = [form(number, 1) for number in range(len(FORMS))]
    assert 14 == len(set(forms))
    assert {("item", 1)} == {Tmall().identity(url) for url in forms}
    assert 1 == len({rules.decide(url).key for url in forms})
    assert {"drop"} == {rules.decide(url).action for url in WITHOUT_ID}


def test_the_spiders_own_rule_keeps_its_examples() -> None:
    from shop_crawl.spiders.s03_rules import RulesSpider

    from scrapy_bloomdupe.rules.checking import check

    settings = json.loads(json.dumps(RulesSpider.custom_settings))
    assert [] == list(check(RuleSet.load(rules=settings["BLOOMDUPE_RULES"])))


@pytest.mark.parametrize(
    ("expected", "url"),
    [
        ("en/Talk:Foo_bar", "https://en.wikipedia.org/wiki/Talk:Foo_bar"),
        ("en/Foo_bar", "https://en.wikipedia.org/wiki/Foo_bar?action=view&utm_source=x"),
        ("en/Foo_bar", "https://en.wikipedia.org/w/index.php/Foo__bar_"),
        ("zh/中国", "https://zh.wikipedia.org/zh-tw/%E4%B8%AD%E5%9B%BD"),
        ("en@678901234", "https://en.wikipedia.org/wiki/Special:PermanentLink/678901234"),
        (None, "https://en.wikipedia.org/wiki/Special:Random"),
        (None, "https://en.wikipedia.org/w/index.php?title=Foo_bar&action=history"),
        (None, "https://en.wikipedia.org/w/index.php?title=Foo_bar&diff=2&oldid=1"),
        (None, "https://en.wikipedia.org/w/index.php?title=Foo_bar&oldid=x"),
        (None, "https://en.wikipedia.org/w/api.php?titles=Foo_bar"),
        (None, "https://en.wikipedia.org/wiki/%FF"),
        (None, "https://en.wikipedia.org/"),
        (None, "https://www.wikipedia.org/wiki/Foo"),
        (None, "http://["),
    ],
)  # fmt: skip
def test_the_id_of_an_article(expected: str | None, url: str) -> None:
    assert expected == wikipedia_page(url)


@pytest.mark.parametrize(
    ("expected", "url"),
    [
        ("o-w.n/re_po#7", "https://github.com/O-w.n/Re_po/pull/7/"),
        (None, "https://github.com/owner/repo/pull/12/files"),
        (None, "https://github.com/owner/repo/issues"),
        (None, "https://github.com/owner/repo/issues/new"),
        (None, "https://github.com/owner/repo/blob/main/issues/12"),
        (None, "http://["),
    ],
)  # fmt: skip
def test_the_id_of_an_issue(expected: str | None, url: str) -> None:
    assert expected == github_issue(url)


@pytest.mark.parametrize(
    ("expected", "url"),
    [
        ("av123", "https://player.bilibili.com/player.html?aid=123"),
        ("av123", "https://www.bilibili.com/video/AV123/"),
        (None, "https://www.bilibili.com/video/123"),
        (None, "https://www.bilibili.com/video/online.html"),
        (None, "http://["),
    ],
)  # fmt: skip
def test_the_id_of_a_video(expected: str | None, url: str) -> None:
    assert expected == bilibili_video(url)


@pytest.mark.parametrize(
    ("expected", "url"),
    [
        ("10.1000/a;b", "https://dx.doi.org/10.1000%2FA%3Bb"),
        ("10.1000.10/a/b", "https://doi.org/doi:10.1000.10/a/b/"),
        ("10.1000/abc", "https://journals.example.org/doi/full/10.1000/ABC?journalCode=x"),
        (None, "https://doi.org/"),
        (None, "https://doi.org/10.1000"),
        (None, "https://doi.org/the-identifier/what-is-a-doi/"),
        (None, "https://journals.example.org/doi/suppl/10.1000/abc"),
        (None, "http://["),
    ],
)  # fmt: skip
def test_the_id_of_a_paper(expected: str | None, url: str) -> None:
    assert expected == doi(url)
