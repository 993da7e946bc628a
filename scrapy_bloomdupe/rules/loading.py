"""Which rules does a file hold? TOML and YAML, a list ``rules`` of tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scrapy_bloomdupe.errors import ConfigurationError


def load_file(path: Path) -> list[Mapping[str, Any]]:
    """Return the rules of a file, not yet checked.

    Raises:
        ConfigurationError: it cannot be read, is no TOML or YAML, or has no list ``rules``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"the rule file {path} cannot be read: {exc}") from exc
    if path.suffix == ".toml":
        data = _toml(path, text)
    elif path.suffix in (".yaml", ".yml"):
        data = _yaml(path, text)
    else:
        raise ConfigurationError(f"the rule file {path} should end in .toml, .yaml or .yml")
    rules = data.get("rules") if isinstance(data, Mapping) else None
    if not isinstance(rules, list) or not all(isinstance(rule, Mapping) for rule in rules):
        raise ConfigurationError(f"the rule file {path} has no list `rules` of tables")
    if unknown := set(data) - {"rules"}:
        raise ConfigurationError(
            f"the rule file {path} has {sorted(map(str, unknown))[0]!r}; only `rules` is known"
        )
    return rules


def _toml(path: Path, text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError:
            raise ConfigurationError(
                f"{path}: TOML needs the library tomli on Python 3.10; run "
                "`pip install scrapy-bloomdupe[rules]`"
            ) from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigurationError(f"the rule file {path} is no TOML: {exc}") from exc


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigurationError(
            f"{path}: YAML needs the library PyYAML; run `pip install scrapy-bloomdupe[yaml]`"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise ConfigurationError(f"the rule file {path} is no YAML: {exc}") from exc
