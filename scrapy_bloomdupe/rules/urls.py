"""Which parts does a URL have, for a step that changes one of them? Cut and join, nothing else.

Parts are cut at the delimiters of RFC 3986, appendix B; nothing is decoded. A URL without an authority
(``mailto:``, ``data:``, ``javascript:``), or of a file, is opaque: no step changes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

Step = Callable[[str], str]
Change = Callable[["Parts"], "Parts"]


class Parts(NamedTuple):
    """A URL in pieces.

    Attributes:
        scheme: with ``://``.
        authority: user, host and port.
        path: empty, or with a leading slash.
        query: without ``?``; None: there is none (a lone ``?`` is the empty string).
        fragment: without ``#``; None: there is none.
    """

    scheme: str
    authority: str
    path: str
    query: str | None
    fragment: str | None


_PARTS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)([^/?#\\]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


def split(url: str) -> Parts | None:
    """Return the parts of *url*, or None if it is opaque."""
    # WHATWG has rules of its own for the paths of files (drive letters), which no step knows.
    match = _PARTS.fullmatch(url) if url[:5].lower() != "file:" else None
    return Parts(*match.groups()) if match is not None else None


def join(parts: Parts) -> str:
    """Return the URL of *parts*."""
    query = "" if parts.query is None else f"?{parts.query}"
    fragment = "" if parts.fragment is None else f"#{parts.fragment}"
    return f"{parts.scheme}{parts.authority}{parts.path}{query}{fragment}"


def hostname(authority: str) -> str:
    """Return the host of an authority, without user and port."""
    host = authority.rpartition("@")[2]
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def decode(text: str, encoding: str = "utf-8") -> str | None:
    """Return *text* with its escapes decoded, or None if the bytes are none of *encoding*."""
    try:
        return unquote_to_bytes(text).decode(encoding) if "%" in text else text
    except (UnicodeError, LookupError):
        return None


def decode_form(text: str, encoding: str = "utf-8") -> str | None:
    """Return a name or value of a query as a form means it, or None if it is none of *encoding*."""
    return decode(text.replace("+", " "), encoding)


def pairs(query: str) -> list[tuple[str, str]]:
    """Return the raw names and values of a query, empty pieces left out."""
    found = []
    for piece in query.split("&"):
        if piece:
            name, _, value = piece.partition("=")
            found.append((name, value))
    return found


class PartsStep:
    """A step that changes the parts of a URL, and leaves an opaque one alone.

    Attributes:
        change: what it does, for whoever has the parts already: of several in a row, only the first has
            to cut and the last to join.
    """

    def __init__(self, change: Change) -> None:
        self.change = change
        self.__name__ = change.__name__.strip("_")
        self.__doc__ = change.__doc__

    def __call__(self, url: str) -> str:
        parts = split(url)
        return url if parts is None else join(self.change(parts))


def on_parts(change: Change) -> Step:
    """Return the step that changes the parts of a URL, and leaves an opaque one alone."""
    return PartsStep(change)
