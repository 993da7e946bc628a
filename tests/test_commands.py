"""Does ``scrapy bloomdupe ...`` do what ``bloomdupe ...`` does, with the project's settings and directory?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from crawling import make_state
from scrapy.settings import Settings

from scrapy_bloomdupe import cli
from scrapy_bloomdupe.commands import BloomdupeCommand
from scrapy_bloomdupe.stockjob import SEEN_NAME

PROJECT = Path(__file__).resolve().parent.parent / "example_project"

Scrapy = Callable[..., tuple[int, str, str]]


@pytest.fixture
def scrapy(tmp_path: Path) -> Scrapy:
    """Run ``scrapy bloomdupe`` inside the example project."""

    def run(*words: object, cwd: Path = PROJECT) -> tuple[int, str, str]:
        search = os.pathsep.join(filter(None, [str(PROJECT.parent), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, "-m", "scrapy", "bloomdupe", *map(str, words)],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_the_command_is_an_entry_point_of_scrapys() -> None:
    (found,) = entry_points(group="scrapy.commands", name="bloomdupe")
    assert BloomdupeCommand is found.load()


def test_the_directory_comes_from_the_settings(scrapy: Scrapy, tmp_path: Path) -> None:
    job = make_state(tmp_path / "job", 50)
    code, out, err = scrapy("info", "--json", "-s", f"JOBDIR={job}")
    assert (0, "") == (code, err)
    assert 50 == json.loads(out)["store"]["keys"]
    code, out, err = scrapy("-s", f"BLOOMDUPE_DIR={job / 'bloomdupe'}", "check")
    assert (0, "") == (code, err)
    assert f"{job / 'bloomdupe'}: whole" in out
    other = make_state(tmp_path / "other", 7)
    code, out, err = scrapy("info", other, "--json", "-s", f"JOBDIR={job}")
    assert 7 == json.loads(out)["store"]["keys"]
    page = tmp_path / "page.html"
    code, out, err = scrapy("report", "-o", page, "-s", f"JOBDIR={job}")
    assert (0, "", True) == (code, err, page.exists())


def test_pages_to_forget_may_come_first_where_the_directory_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_state(tmp_path / "job", 1)
    project = Settings({"JOBDIR": str(job)})
    for words in (["http://shop.example/1"], [str(job), "http://shop.example/1"]):
        assert 1 == cli.main(["forget", *words, "--settings", "scrapy.settings.default_settings"], project)
        out, err = capsys.readouterr()
        assert ("", f"0 keys forgotten in {job / 'bloomdupe'}") == (err, out.partition(":")[0])
        assert "1 of those asked for are not known there" in out


def test_without_a_directory_it_says_how_to_name_one(scrapy: Scrapy) -> None:
    code, out, err = scrapy("info")
    assert (2, "") == (code, out)
    assert "arguments are required: DIR (or -s JOBDIR=DIR)" in err


def test_a_wrong_setting_is_told(scrapy: Scrapy) -> None:
    code, out, err = scrapy("info", "-s", "BLOOMDUPE_CAPACITY=many", "-s", "JOBDIR=job")
    assert (2, "") == (code, out)
    assert "bloomdupe: BLOOMDUPE_CAPACITY = 'many' is not valid" in err


def test_rules_are_the_projects(scrapy: Scrapy) -> None:
    code, out, err = scrapy("explain", "http://a.example/?b=2&a=1", "-s", "BLOOMDUPE_PRESET=usual")
    assert (0, "") == (code, err)
    assert "sort_params" in out
    assert "http://a.example/?a=1&b=2" in out


def test_help_is_that_of_the_command(scrapy: Scrapy) -> None:
    code, out, _ = scrapy("pending", "--help")
    assert (0, True) == (code, out.startswith("usage: scrapy bloomdupe pending"))
    assert "--failed" in out


def test_outside_a_project_it_works_as_well(scrapy: Scrapy, tmp_path: Path) -> None:
    job = make_state(tmp_path / "job", 50)
    code, out, err = scrapy("info", job, cwd=tmp_path)
    assert (0, "") == (code, err)
    assert "exact store          50 keys" in out


def test_an_import_makes_what_the_project_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / SEEN_NAME).write_text("".join(f"{number:040x}\n" for number in range(9)))
    project = Settings(
        {
            "JOBDIR": str(job),
            "BLOOMDUPE_DIR": str(tmp_path / "seen"),
            "BLOOMDUPE_STORE": None,
            "BLOOMDUPE_CAPACITY": 5_000,
            "BLOOMDUPE_LAYOUT": "classic",
        }
    )
    assert 0 == cli.main(["import"], project)
    assert "9 fingerprints, 9 of them new" in capsys.readouterr().out
    assert 0 == cli.main(["info", "--json"], project)
    found = json.loads(capsys.readouterr().out)
    assert (5_000, "classic", None) == (found["capacity"], found["layout"], found["store"])
    assert found["path"].startswith(str(tmp_path / "seen"))
