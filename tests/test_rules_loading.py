"""Are TOML and YAML files read alike, and what is wrong in one named with its path?"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.loading import load_file
from scrapy_bloomdupe.rules.ruleset import RuleSet

TOML = r"""
[[rules]]
name = "shop"
missing = "drop"
match = { domain = "ex.com", path = "/item/*" }
key = { sources = ['path:/item/(\d+)', "query:id"], namespace = "item" }
examples = { same = ["http://ex.com/item/7", "http://www.ex.com/item/x?id=7"] }
"""
YAML = r"""
rules:
  - name: shop
    missing: drop
    match: {domain: ex.com, path: /item/*}
    key:
      sources: ['path:/item/(\d+)', 'query:id']
      namespace: item
    examples:
      same: ["http://ex.com/item/7", "http://www.ex.com/item/x?id=7"]
"""


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.yaml", YAML), ("a.yml", YAML)])
def test_a_file_gives_its_rules(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, name, text)
    assert ["shop"] == [rule["name"] for rule in load_file(path)]
    rules = RuleSet.load(files=[path])
    assert "v1|item|1:7" == rules.decide("http://ex.com/item/7").key
    assert RuleSet.load(files=[str(path)]).digest() == rules.digest()


def test_both_forms_mean_the_same(tmp_path: Path) -> None:
    toml, yaml = written(tmp_path, "a.toml", TOML), written(tmp_path, "a.yaml", YAML)
    assert RuleSet.load(files=[toml]).rules == RuleSet.load(files=[yaml]).rules


def test_rules_of_several_files_come_one_after_the_other(tmp_path: Path) -> None:
    first = written(tmp_path, "1.toml", TOML.replace("shop", "b"))
    second = written(tmp_path, "2.yaml", YAML.replace("shop", "a"))
    assert ["b", "a"] == [rule.name for rule in RuleSet.load(files=[first, second]).rules]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "[[rules]\n", "is no TOML: "),
        ("a.toml", "", "has no list `rules` of tables"),
        ("a.toml", "rules = 5", "has no list `rules` of tables"),
        ("a.toml", "rules = [5]", "has no list `rules` of tables"),
        ("a.toml", "[[rule]]\nname = 'a'", "has no list `rules` of tables"),
        ("a.toml", f"colour = 1\n{TOML}", "has 'colour'; only `rules` is known"),
        ("a.yaml", "rules: [", "is no YAML: "),
        ("a.yaml", "- a\n- b", "has no list `rules` of tables"),
        ("a.yaml", "", "has no list `rules` of tables"),
        ("a.yaml", "1: x\nb: y\nrules: []", "has '1'; only `rules` is known"),
        ("a.yaml", "rules: !!python/object/apply:os.getcwd []", "is no YAML: "),
        ("a.json", "{}", "should end in .toml, .yaml or .yml"),
        ("rules", "", "should end in .toml, .yaml or .yml"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(ConfigurationError, match=re.escape(f"the rule file {path} {message}")):
        load_file(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    torn = tmp_path / "torn.toml"
    torn.write_bytes(b"name = '\xff'")
    for path in (tmp_path / "none.toml", tmp_path, torn):
        with pytest.raises(ConfigurationError, match=re.escape(f"the rule file {path} cannot be read: ")):
            load_file(path)


def test_a_wrong_rule_in_a_file_is_named_with_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "a.toml", TOML.replace("drop", "forget"))
    with pytest.raises(ConfigurationError, match=re.escape(f"{path}: rule 'shop': missing='forget' is not")):
        RuleSet.load(files=[path])


def test_without_the_yaml_library_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigurationError, match=r"PyYAML; run `pip install scrapy-bloomdupe\[yaml\]`"):
        load_file(written(tmp_path, "a.yaml", YAML))
