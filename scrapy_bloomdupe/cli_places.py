"""Is it a directory, a server or a database that a person means? For all commands that take a place."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import scrapy_bloomdupe.remote.address as addresses
from scrapy_bloomdupe.building import Progress
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.progress import Bar
from scrapy_bloomdupe.remote.client import Server

# Seconds. A person at a terminal waits longer for an answer than a crawl does.
_TIMEOUT = 10.0
_CONNECT_TIMEOUT = 3.0


def is_url(place: str) -> bool:
    """Return whether *place* is a server or a database, right or wrong; else it is a directory."""
    return addresses.scheme_of(place) != ""


def is_server(place: str) -> bool:
    """Return whether *place* is a Redis or Valkey server; else it is a database or a directory."""
    return addresses.is_address(place)


def refuse_url(place: str, what: str) -> None:
    """Make sure that *place* is a directory.

    Raises:
        ConfigurationError: it is a URL; the message shows no password.
    """
    if is_url(place):
        raise ConfigurationError(f"{addresses.hidden(place)} is a URL, and {what}")


@contextmanager
def open_server(url: str) -> Iterator[Server]:
    """Give the server of *url*.

    Raises:
        ConfigurationError: the URL is wrong, or the package ``redis`` is missing.
    """
    address = addresses.parse(url)
    address = replace(
        address,
        timeout=max(address.timeout, _TIMEOUT),
        connect_timeout=max(address.connect_timeout, _CONNECT_TIMEOUT),
    )
    server = Server(address)
    try:
        yield server
    finally:
        server.close()


def progress(what: str) -> Progress:
    """Return what shows a bar around an iteration over keys."""

    def shown(keys: Iterable[bytes], total: int) -> Iterator[bytes]:
        with Bar(what, total, "keys") as bar:
            for done, key in enumerate(keys, 1):
                yield key
                if not done % 1000:
                    bar.reached(done)

    return shown


def one_key(arguments: argparse.Namespace) -> str:
    if not arguments.key:
        raise ConfigurationError("say what: --key NAME; `bloomdupe info` lists the names")
    return str(arguments.key)


def is_wanted(arguments: argparse.Namespace) -> bool:
    """Return whether a person wants to remove what was shown.

    Raises:
        ConfigurationError: there is nobody to ask.
    """
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "nothing was removed: there is no terminal to ask at; add --yes to remove it without a question"
        )
    print(
        "What was seen is forgotten, and crawls that use it crawl it again. Remove? [y/N] ",
        end="",
        flush=True,
    )
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was removed")
    return False


def date(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def maker(identity: Mapping[str, str]) -> str:
    cut = " (an import was cut short: run it again)" if "importing" in identity else ""
    return plain(identity.get("fingerprinter", "not known yet (imported)")) + cut


def plain(text: str) -> str:
    """Keep what a site, a server or a damaged file can have put there from a terminal."""
    return text if text.isprintable() else ascii(text)[1:-1]
