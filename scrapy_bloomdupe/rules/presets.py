"""Which steps go together, in which order do they run, and which are dangerous?

A selection of steps is a set: it always runs in the order of phases below, since in the order of a list
idempotence would depend on luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import takewhile
from typing import Any

import scrapy_bloomdupe.rules.query_steps as query_steps
import scrapy_bloomdupe.rules.steps as steps
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.urls import Change, Parts, PartsStep, Step, join

SAFE, USUAL, LOSSY = "safe", "usual", "lossy"


@dataclass(frozen=True)
class StepKind:
    """A step that can be named.

    Attributes:
        name: as in settings.
        make: argument (None: none given) -> step.
        kind: ``safe``: the standards call both spellings one. ``usual``: nearly every site does.
            ``lossy``: on some sites only; on others pages are lost.
        fetchable: whether the changed URL can be sent in place of the other without a doubt.
    """

    name: str
    make: Callable[[str | None], Step]
    kind: str
    fetchable: bool = False


def _plain(step: Step) -> Callable[[str | None], Step]:
    def make(argument: str | None) -> Step:
        if argument is not None:
            raise ConfigurationError(f"it takes no argument, {argument!r} was given")
        return step

    return make


def _named(factory: Callable[[str], Step], example: str) -> Callable[[str | None], Step]:
    def make(argument: str | None) -> Step:
        if not argument:
            raise ConfigurationError(f"it needs an argument, for example {example!r}")
        return factory(argument)

    return make


def load_callable(path: str) -> Callable[..., Any]:
    """Return what ``pkg.mod:func`` names.

    Raises:
        ConfigurationError: there is nothing callable of that name.
    """
    module, colon, name = path.partition(":")
    try:
        found = getattr(import_module(module), name) if colon and name else None
    except (ImportError, AttributeError, ValueError) as exc:
        raise ConfigurationError(f"{path!r} cannot be imported: {exc}; write 'pkg.mod:func'") from exc
    if not callable(found):
        raise ConfigurationError(f"{path!r} names nothing that can be called; write 'pkg.mod:func'")
    result: Callable[..., Any] = found
    return result


#: All steps, in the order of phases in which they run: parse, escapes, host, path, parameters, sort,
#: fragment, scheme, and last what a project brings itself.
KINDS: dict[str, StepKind] = {
    kind.name: kind
    for kind in (
        StepKind("parse", _plain(steps.parse), SAFE, True),
        StepKind("percent", _plain(steps.percent), SAFE, True),
        StepKind("decode_path", _plain(steps.decode_path), LOSSY),
        StepKind("host_dot", _plain(steps.host_dot), USUAL),
        StepKind("strip_www", _plain(steps.strip_www), LOSSY),
        StepKind("session_ids", _plain(query_steps.session_ids), LOSSY),
        StepKind("collapse_slashes", _plain(steps.collapse_slashes), LOSSY),
        StepKind("lower_path", _plain(steps.lower_path), LOSSY),
        StepKind("drop_index", _plain(steps.drop_index), LOSSY),
        StepKind("trailing_slash", _plain(steps.trailing_slash), LOSSY),
        StepKind("drop_params", _named(query_steps.drop_params, "drop_params:tracking"), LOSSY, True),
        StepKind("keep_params", _named(query_steps.keep_params, "keep_params:id,page"), LOSSY),
        StepKind("empty_pairs", _plain(query_steps.empty_pairs), USUAL, True),
        StepKind("drop_empty_params", _plain(query_steps.drop_empty_params), LOSSY),
        StepKind("equal_blanks", _plain(query_steps.equal_blanks), USUAL),
        StepKind("plus_space", _plain(query_steps.plus_space), USUAL),
        StepKind("form_escapes", _plain(query_steps.form_escapes), USUAL),
        StepKind("sort_params", _plain(query_steps.sort_params), USUAL),
        StepKind("lone_query", _plain(query_steps.lone_query), USUAL, True),
        StepKind("drop_plain_fragment", _plain(steps.drop_plain_fragment), USUAL, True),
        StepKind("drop_fragment", _plain(steps.drop_fragment), LOSSY, True),
        StepKind("https_to_http", _plain(steps.https_to_http), LOSSY),
        StepKind("call", _named(load_callable, "call:pkg.mod:func"), LOSSY),
    )
}

_SAFE = ("parse", "percent", "lone_query", "drop_plain_fragment")
_USUAL = (*_SAFE, "host_dot", "empty_pairs", "plus_space", "form_escapes", "sort_params")
_FIVE = ("parse", "percent", "drop_fragment", "lower_path", "collapse_slashes")

#: Named selections. ``five``: the rules that search engines' guides give for URLs; ``baidu`` adds what
#: their example needs.
PRESETS: dict[str, tuple[str, ...]] = {
    "safe": _SAFE,
    "usual": _USUAL,
    "five": _FIVE,
    "baidu": (*_FIVE, "https_to_http"),
    "aggressive": (
        *_USUAL,
        "drop_fragment",
        "drop_params:tracking",
        "session_ids",
        "equal_blanks",
        "drop_empty_params",
        "strip_www",
        "collapse_slashes",
        "lower_path",
        "drop_index",
        "trailing_slash",
        "https_to_http",
    ),
    "tmall": (*_USUAL, "drop_params:tracking"),
}


@dataclass(frozen=True)
class Pipeline:
    """Steps in the order in which they run.

    Attributes:
        names: with their arguments.
        steps: what they do.
    """

    names: tuple[str, ...]
    steps: tuple[Step, ...]
    # What follows `parse` and `percent`, if both are there: changes of parts, and what comes after them.
    _changes: tuple[Change, ...] | None = field(init=False, repr=False, compare=False)
    _rest: tuple[Step, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        changes: tuple[Change, ...] | None = None
        rest = self.steps
        if rest[:2] == (steps.parse, steps.percent):
            rest = rest[2:]
            ahead = tuple(takewhile(lambda step: isinstance(step, PartsStep), rest))
            changes = tuple(step.change for step in ahead if isinstance(step, PartsStep))
            rest = rest[len(ahead) :]
        object.__setattr__(self, "_changes", changes)
        object.__setattr__(self, "_rest", rest)

    def __call__(self, url: str) -> str:
        """Return the canonical form of *url*; what is no URL stays as it is."""
        if self._changes is not None:
            return self.of_parsed(url, *steps.normal_parts(url))
        rest = self.steps
        if rest and rest[0] is steps.parse:
            normal = steps.parsed(url)
            if normal is None:
                return url
            url, rest = normal, rest[1:]
        for step in rest:
            url = step(url)
        return url

    def of_parsed(self, url: str, normal: str | None, parts: Parts | None) -> str:
        """Return the canonical form of a URL of which ``parse`` and ``percent`` are done.

        Args:
            url: as it came.
            normal, parts: see ``steps.normal_parts``.
        """
        if self._changes is None:
            return self(url)
        if normal is None:
            return url
        if parts is None:
            text = normal
        else:
            for change in self._changes:
                parts = change(parts)
            text = join(parts)
        for step in self._rest:
            text = step(text)
        return text

    def trace(self, url: str) -> list[tuple[str, str]]:
        """Return the output of each step, with its name."""
        found = []
        if steps.parse in self.steps and steps.parsed(url) is None:
            return [("parse", url)]
        for name, step in zip(self.names, self.steps, strict=True):
            url = step(url)
            found.append((name, url))
        return found

    def not_fetchable(self) -> list[str]:
        """Return the names of steps whose output cannot be fetched in place of the input."""
        return [name for name in self.names if not KINDS[name.partition(":")[0]].fetchable]


def pipeline(selection: str | Sequence[str]) -> Pipeline:
    """Return the pipeline of a preset or of names of steps (presets among them count as their steps).

    Raises:
        ConfigurationError: a name is not known, or an argument is missing or wrong.
    """
    names = [selection] if isinstance(selection, str) else list(selection)
    wanted: dict[str, None] = {}
    for name in names:
        wanted.update(dict.fromkeys(PRESETS.get(name, (name,))))
    order = list(KINDS)
    made = []
    for name in wanted:
        kind_name, colon, argument = name.partition(":")
        kind = KINDS.get(kind_name)
        if kind is None:
            raise ConfigurationError(
                f"step {name!r} is not known; there are the presets {', '.join(PRESETS)} and the steps "
                f"{', '.join(KINDS)}"
            )
        if kind_name == "parse" and not steps.can_parse():
            raise ConfigurationError(
                "the step 'parse' needs the library ada-url; run `pip install scrapy-bloomdupe[rules]`"
            )
        try:
            made.append((order.index(kind_name), name, kind.make(argument if colon else None)))
        except ConfigurationError as exc:
            raise ConfigurationError(f"step {name!r}: {exc}") from exc
    made.sort(key=lambda entry: entry[0])  # stable: two of a kind keep their order
    return Pipeline(tuple(name for _, name, _ in made), tuple(step for _, _, step in made))
