"""Do `bloomdupe explain` and `bloomdupe rules check | audit` answer right, and find the rules to ask?"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from conftest import Python
from crawling import Cli

RULES = """
[[rules]]
name = "item"
match = { host = "ex.com" }
key = { sources = "query:id" }
examples = { same = ["http://ex.com/?id=7", "http://ex.com/a?id=7"] }
"""
URLS = [
    "http://ex.com/?id=7",
    "http://ex.com/a?id=7",
    "http://ex.com/?id=7",
    "http://ex.org/",
    "http://ex.com/",
]
SETTINGS = 'BLOOMDUPE_RULES = [{"name": "own", "key": {"sources": "query:n"}}]\n'
MAIN = "from scrapy_bloomdupe.cli import main\nsys.exit(main(sys.argv[1:]))\n"


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("SCRAPY_SETTINGS_MODULE", raising=False)
    return Cli(capsys)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


@pytest.fixture
def urls(tmp_path: Path) -> Path:
    path = tmp_path / "urls.txt"
    path.write_text("\n".join(URLS))
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A Scrapy project around tmp_path."""
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = myproject.settings\n")
    (tmp_path / "myproject").mkdir()
    (tmp_path / "myproject" / "__init__.py").touch()
    (tmp_path / "myproject" / "settings.py").write_text(SETTINGS)
    return tmp_path


def test_explain_tells_of_one_url(bloomdupe: Cli) -> None:
    code, out, err = bloomdupe("explain", "--preset", "safe", "HTTP://ex.com/#a")
    assert (0, "") == (code, err)
    assert out.startswith("HTTP://ex.com/#a\n  parse                http://ex.com/#a\n")
    assert out.endswith("  key:     v1|url|14:http://ex.com/\n  fetched: HTTP://ex.com/#a\n")


def test_explain_compares_two(bloomdupe: Cli, rules: Path) -> None:
    code, out, err = bloomdupe("explain", URLS[0], URLS[1], "--rules", rules)
    assert (0, "") == (code, err)
    assert out.endswith("one page, by item\n")
    assert 2 == out.count("item: found the id by query:id")
    assert "two pages: " in bloomdupe("explain", URLS[0], URLS[3], "--rules", rules)[1]


def test_check_says_that_all_hold(bloomdupe: Cli, rules: Path) -> None:
    assert (0, "1 rules, 1 examples: all hold\n", "") == bloomdupe("rules", "check", "--rules", rules)
    code, out, err = bloomdupe("rules", "check", "--preset", "tmall")
    assert (0, "2 rules, 3 examples: all hold\n", "") == (code, out, err)


def test_check_says_what_does_not_hold_and_what_nothing_shows(bloomdupe: Cli, rules: Path) -> None:
    rules.write_text(RULES.replace("same =", "differ =") + '[[rules]]\nname = "bare"\nmissing = "keep"\n')
    code, out, err = bloomdupe("rules", "check", "--rules", rules)
    assert (1, "") == (code, err)
    first, second = out.splitlines()
    assert first.startswith("rule 'item': its example says that http://ex.com/?id=7 and")
    assert "rule 'bare' has no examples: nothing shows that it tells pages apart" == second


def test_audit_shows_the_groups_in_words(bloomdupe: Cli, rules: Path, urls: Path) -> None:
    code, out, err = bloomdupe("rules", "audit", urls, "--rules", rules)
    assert (0, "") == (code, err)
    assert [
        "5 URLs, 4 different: 3 pages, 1 merged into them, 0 dropped",
        "URLs by the rule that decided (-: none):",
        "          2  item",
        "          2  -",
        "URLs for a rule that found no id in them:",
        "          1  item",
        "the largest 1 of 1 groups of URLs that are one page:",
        "  2 by item: v1|item|1:7",
        "    http://ex.com/?id=7",
        "    http://ex.com/a?id=7",
    ] == out.splitlines()


def test_audit_gives_the_same_as_json(bloomdupe: Cli, rules: Path, urls: Path) -> None:
    expected = {
        "urls": 5,
        "distinct": 4,
        "pages": 3,
        "dropped": 0,
        "by_rule": {"item": 2, "-": 2},
        "missed": {"item": 1},
        "groups": [{"key": "v1|item|1:7", "rule": "item", "count": 2, "samples": URLS[:2]}],
    }
    assert expected == bloomdupe.json("rules", "audit", urls, "--rules", rules)
    limited = bloomdupe.json("rules", "audit", urls, "--rules", rules, "--limit", "0")
    assert {**expected, "groups": []} == limited


def test_audit_reads_the_standard_input(bloomdupe: Cli, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(json.dumps({"url": url}) for url in URLS)
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert 3 == bloomdupe.json("rules", "audit", "-", "--rules", rules)["pages"]


def test_rules_and_preset_are_taken_together(bloomdupe: Cli, rules: Path) -> None:
    _, out, _ = bloomdupe("explain", "--rules", rules, "--preset", "usual", "http://ex.com/?b=1&a=2")
    assert "  key:     v1|url|22:http://ex.com/?a=2&b=1\n" in out
    assert "item: found no id it can trust" in out


def test_a_spider_can_be_named(bloomdupe: Cli, rules: Path) -> None:
    rules.write_text(RULES.replace('host = "ex.com"', 'spider = "a"'))
    assert "found the id" in bloomdupe("explain", "--rules", rules, "--spider", "a", URLS[0])[1]
    assert "it is for the spiders a" in bloomdupe("explain", "--rules", rules, URLS[0])[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explain", "http://ex.com/"], "there are no rules to ask: give --preset, --rules or --settings"),
        (["rules", "check"], "there are no rules to ask: give --preset, --rules or --settings, or run this"),
        (["rules", "audit", "urls.txt"], "there are no rules to ask"),
        (["rules", "audit", "none.txt", "--preset", "safe"], "there is no file none.txt"),
        (
            ["rules", "check", "--preset", "shiny"],
            "BLOOMDUPE_PRESET = 'shiny' is not valid; it takes None, or",
        ),
        (["rules", "check", "--rules", "none.toml"], "the rule file none.toml cannot be read"),
        (["rules", "check", "--settings", "no.such"], "the settings module 'no.such' cannot be imported"),
    ],
)
def test_what_cannot_be_done_is_said(bloomdupe: Cli, words: list[str], message: str) -> None:
    code, out, err = bloomdupe(*words)
    assert (2, "") == (code, out)
    assert err.startswith(f"bloomdupe: {message}")


def test_rules_has_to_be_told_what_to_do(bloomdupe: Cli) -> None:
    code, _, err = bloomdupe("rules")
    assert 2 == code
    assert "check | audit" in err


def test_inside_a_project_its_settings_are_asked(python: Python, project: Path) -> None:
    found = python(MAIN, "explain", "http://ex.com/?n=7")
    assert (0, "") == (found.returncode, found.stderr)
    assert "own: found the id by query:n" in found.stdout
    assert "1 rules, 0 examples: all hold\n" in python(MAIN, "rules", "check").stdout


def test_what_is_named_goes_before_the_project(python: Python, project: Path, rules: Path) -> None:
    found = python(MAIN, "explain", "--rules", rules, "http://ex.com/?n=7&id=8")
    assert "v1|item|1:8" in found.stdout
    assert "own" not in found.stdout


def test_a_settings_module_beside_us_can_be_named(bloomdupe: Cli, tmp_path: Path) -> None:
    (tmp_path / "settings_of_test_cli_rules.py").write_text(SETTINGS)
    words = ("--settings", "settings_of_test_cli_rules", "http://ex.com/?n=1&n=1&b=1&a=1")
    assert "v1|own|1:1" in bloomdupe("explain", *words)[1]
    # What is named beside it replaces only that.
    assert "  sort_params " in bloomdupe("explain", "--preset", "usual", *words)[1]
    assert "v1|own|1:1" in bloomdupe("explain", "--preset", "usual", *words)[1]


def test_a_project_without_rules_is_asked_about_plain_urls(bloomdupe: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty_settings_of_test_cli_rules.py").write_text("BOT_NAME = 'x'\n")
    code, out, _ = bloomdupe("explain", "--settings", "empty_settings_of_test_cli_rules", "http://ex.com/#a")
    assert 0 == code
    assert "  key:     v1|url|14:http://ex.com/\n" in out
