"""Does README tell the truth? Its settings, commands and code against the package."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_bloomdupe import cli
from scrapy_bloomdupe.settingtable import SETTINGS
from scrapy_bloomdupe.stats import ALL

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _table_rows(heading: str) -> dict[str, list[str]]:
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row for row in rows}


def test_readme_has_at_most_350_lines() -> None:
    assert len(README.splitlines()) <= 350


def test_the_settings_table_has_every_setting_with_its_default_and_no_other() -> None:
    rows = _table_rows("Settings")
    assert {name: setting.default for name, setting in SETTINGS.items()} == {
        name: row[1].strip("`") for name, row in rows.items()
    }


def test_the_stats_table_has_every_stat_and_no_other() -> None:
    names = [name for names in _table_rows("Stats") for name in names.split("`, `")]
    assert sorted(ALL) == sorted(names)


def test_the_commands_table_has_every_command_and_no_other() -> None:
    parser = cli._parser()
    (commands,) = (
        action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    assert set(commands) == {name.split()[1] for name in _table_rows("Commands")}


def test_every_option_of_the_commands_table_exists() -> None:
    for name, row in _table_rows("Commands").items():
        # `bloomdupe rules audit FILE`: the words before what a user fills in.
        command = [word for word in name.split()[1:] if word.islower() and not word.startswith("-")]
        shown = subprocess.run(
            [sys.executable, "-m", "scrapy_bloomdupe", *command, "--help"],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        ).stdout
        for option in re.findall(r"--[a-z-]+", " ".join(row)):
            assert option in shown, f"{command} has no {option}"


def test_the_first_code_block_is_the_two_commands() -> None:
    first = re.search(r"```bash\n(.*?)```", README, re.DOTALL)
    assert first is not None
    install_and_crawl, install_and_test = first[1].splitlines()
    assert "example_project/run.py" in install_and_crawl
    assert "pytest" in install_and_test


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_code_in_readme_runs(code: str, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, env={"TMPDIR": str(tmp_path), "PATH": ""}
    )
