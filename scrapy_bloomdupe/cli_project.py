"""What need not be said on the command line inside a project? Its settings become the commands' defaults."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import scrapy_bloomdupe.settings as settings
from scrapy_bloomdupe.settingtable import SettingsSource

# Options of `import`, which makes a state, that are settings by another name.
_OPTIONS = ("capacity", "error_rate", "layout", "scheme")


def use_project(parser: argparse.ArgumentParser, project: SettingsSource) -> None:
    """Let *parser* go by the settings of *project* where its user says nothing.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    read = settings.read(project)
    parser.set_defaults(project=project)
    for name, command in _commands(parser):
        _default(command, "directory", read.directory and str(read.directory))
        if name == "forget" and read.directory is not None:
            command.set_defaults(own_directory=str(read.directory))
        if name == "import":
            jobdir = project.get("JOBDIR")
            if jobdir:
                _default(command, "source", str(jobdir))
            if "dir" in read.options.explicit:
                _default(command, "to", str(read.directory))
            if read.options.store is None and read.shared is None:
                _default(command, "no_store", True)
            for option in read.options.explicit.intersection(_OPTIONS):
                _default(command, option, getattr(read.options, option))


def _default(command: argparse.ArgumentParser, name: str, value: Any) -> None:
    for action in command._actions:
        if action.dest == name:
            action.default = value
            if action.option_strings:
                return
            if value is None:
                # As the error of who names none calls it.
                action.metavar = "DIR (or -s JOBDIR=DIR)"
            else:
                action.nargs = "?"
                action.required = False


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()
