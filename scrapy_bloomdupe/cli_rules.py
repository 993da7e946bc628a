"""What does a person ask of the rules? ``bloomdupe explain`` and ``bloomdupe rules check | audit``.

It parses and prints; the answers come from ``rules``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import scrapy_bloomdupe.settings as settings
from scrapy_bloomdupe.errors import ConfigurationError, StateNotFound
from scrapy_bloomdupe.progress import Bar
from scrapy_bloomdupe.rules.auditing import Audit, audit, read_urls
from scrapy_bloomdupe.rules.checking import check
from scrapy_bloomdupe.rules.explaining import compare, explain
from scrapy_bloomdupe.rules.ruleset import RuleSet
from scrapy_bloomdupe.settingtable import PRESET_NAMES, SETTINGS

Command = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def add_commands(command: Command, commands: Any) -> None:
    """Add ``explain`` and ``rules``."""
    sub = command("explain", _explain, "Print each step, rule and the key of a URL, or compare two.")
    sub.add_argument("url", metavar="URL")
    sub.add_argument("other", metavar="URL2", nargs="?")
    _add_source(sub)

    text = "Check the rules of a project, or audit what they would merge."
    rules = commands.add_parser("rules", help=text, description=text)
    inner = rules.add_subparsers(required=True, metavar="check | audit")
    sub = inner.add_parser("check", help="run all examples; look for unstable and hidden rules")
    sub.set_defaults(run=_check)
    _add_source(sub)
    sub = inner.add_parser("audit", help="show what the rules merge among the URLs of a file")
    sub.set_defaults(run=_audit)
    sub.add_argument(
        "file", metavar="FILE", help="URLs, JSON lines with `url`, or a log; - for standard input"
    )
    sub.add_argument("--limit", type=int, default=10, help="groups to show (default: 10)")
    sub.add_argument("--json", action="store_true")
    _add_source(sub)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", help=f"one of {', '.join(PRESET_NAMES)}")
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE", help=".toml or .yaml, repeatable"
    )
    parser.add_argument(
        "--settings", metavar="MODULE", help="settings module; default: the project around us"
    )
    parser.add_argument("--spider", help="name of the spider that would ask")


def _rules(arguments: argparse.Namespace) -> RuleSet:
    """Return the rules that were named, or those of the project around us."""
    named: dict[str, Any] = {}
    if arguments.preset is not None:
        named["BLOOMDUPE_PRESET"] = arguments.preset
    if arguments.rules:
        named["BLOOMDUPE_RULE_FILES"] = arguments.rules
    # As `python -m` does: settings modules and what `call:` names lie where a person stands.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    source: Any = {}
    project = getattr(arguments, "project", None)
    if arguments.settings is None and project is not None:
        source = {} if named else project
    elif arguments.settings is not None or (not named and _is_inside_project(Path.cwd())):
        from scrapy_bloomdupe.project import project_settings

        source = project_settings(arguments.settings)
    elif not named:
        raise ConfigurationError(
            "there are no rules to ask: give --preset, --rules or --settings, or run this inside a Scrapy "
            "project"
        )
    given = {name: source.get(name) for name in SETTINGS if name in source}
    rules = settings.read_rules({**given, **named})
    return RuleSet.load() if rules is None else rules


def _is_inside_project(directory: Path) -> bool:
    return any((parent / "scrapy.cfg").is_file() for parent in (directory, *directory.parents))


def _explain(arguments: argparse.Namespace) -> int:
    rules = _rules(arguments)
    for url in filter(None, (arguments.url, arguments.other)):
        print("\n".join(explain(rules, url, arguments.spider)))
    if arguments.other:
        print("\n".join(compare(rules, arguments.url, arguments.other, arguments.spider)))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    rules = _rules(arguments)
    problems = list(check(rules))
    for problem in problems:
        print(problem)
    examples = sum(len(rule.examples) for rule in rules.rules)
    if not problems:
        print(f"{len(rules.rules)} rules, {examples} examples: all hold")
    for rule in rules.rules:
        if not rule.examples:
            print(f"rule {rule.name!r} has no examples: nothing shows that it tells pages apart")
    return 1 if problems else 0


def _audit(arguments: argparse.Namespace) -> int:
    rules = _rules(arguments)
    if arguments.file == "-":
        result = audit(rules, read_urls(sys.stdin), arguments.spider)
    else:
        path = Path(arguments.file)
        if not path.is_file():
            raise StateNotFound(2, f"there is no file {path}")
        with path.open(encoding="utf-8", errors="replace") as file:
            result = audit(rules, read_urls(_with_bar(file, path.stat().st_size)), arguments.spider)
    if arguments.json:
        # Not asdict of the whole: before Python 3.12 it makes nonsense of a Counter.
        print(json.dumps({**vars(result), "groups": [asdict(g) for g in result.groups[: arguments.limit]]}))
    else:
        _print_audit(result, arguments.limit)
    return 0


def _with_bar(file: TextIO, size: int) -> Iterator[str]:
    with Bar("auditing", size, "B") as bar:
        done = 0
        for line in file:
            yield line
            done += len(line)
            bar.reached(done)


def _print_audit(result: Audit, limit: int) -> None:
    merged = result.distinct - result.pages - result.dropped
    print(
        f"{result.urls:,} URLs, {result.distinct:,} different: {result.pages:,} pages, {merged:,} merged "
        f"into them, {result.dropped:,} dropped"
    )
    _print_counts("URLs by the rule that decided (-: none)", result.by_rule.most_common())
    _print_counts("URLs for a rule that found no id in them", result.missed.most_common())
    if result.groups:
        shown = min(limit, len(result.groups))
        print(f"the largest {shown} of {len(result.groups):,} groups of URLs that are one page:")
    for group in result.groups[:limit]:
        print(f"  {group.count:,} by {group.rule or 'the canonical URL'}: {group.key}")
        for sample in group.samples:
            print(f"    {sample}")


def _print_counts(title: str, counts: Iterable[tuple[str, int]]) -> None:
    rows = list(counts)
    if rows:
        print(f"{title}:")
        for name, count in rows:
            print(f"  {count:>9,}  {name}")
