"""What can be made alike in two queries, and in the session ids of two URLs? Pure steps, ``str -> str``.

The same promises as in ``steps``: raises on no input, idempotent, escapes never through a charset.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.tracking import SESSION_NAMES, TRACKING
from scrapy_bloomdupe.rules.urls import Parts, Step, decode_form, on_parts

_PATH_SESSION = re.compile(r";(?:jsessionid|sid|phpsessid)=[0-9A-Za-z!.~_-]{16,}", re.IGNORECASE)
# 16 characters and more, with digits among them: an id of a session, not of a shop or a section.
_SESSION_VALUE = re.compile(r"(?=.*\d)[0-9A-Za-z!.,~_-]{16,}", re.DOTALL)


def _session_ids(parts: Parts) -> Parts:
    """A URL without session ids, known by name and shape: ``sid=7`` stays. Lossy: a site may mean
    something by them."""
    path = _PATH_SESSION.sub("", parts.path)
    if re.search(r"(?:^|/)\.{1,2}(?:/|$)", path):
        path = parts.path  # what is left must not turn into a dot segment

    def is_session(piece: str) -> bool:
        name, _, value = piece.partition("=")
        return name.lower() in SESSION_NAMES and _SESSION_VALUE.fullmatch(value) is not None

    return _filtered(parts._replace(path=path), lambda piece: not is_session(piece))


def _filtered(parts: Parts, keep: Callable[[str], bool]) -> Parts:
    if not parts.query:
        return parts
    pieces = parts.query.split("&")
    kept = [piece for piece in pieces if keep(piece)]
    if len(kept) == len(pieces):
        return parts
    return parts._replace(query="&".join(kept) if kept else None)


def _empty_pairs(parts: Parts) -> Parts:
    """A query without empty pieces: ``?&a=1`` becomes ``?a=1``."""
    query = parts.query
    if not query or not ("&&" in query or query[0] == "&" or query[-1] == "&"):
        return parts
    return _filtered(parts, bool)


def _drop_empty_params(parts: Parts) -> Parts:
    """A query without parameters that have no value. Lossy: ``?print`` or ``?a=`` may mean something."""
    return _filtered(parts, lambda piece: piece.partition("=")[2] != "")


def _equal_blanks(parts: Parts) -> Parts:
    """A query that writes ``a`` as ``a=``. Some frameworks tell them apart."""
    if not parts.query:
        return parts
    pieces = parts.query.split("&")
    return parts._replace(query="&".join(p if "=" in p or not p else f"{p}=" for p in pieces))


def _plus_space(parts: Parts) -> Parts:
    """A query that writes a space as ``%20``, not as ``+``. Signed URLs and OData tell them apart."""
    if not parts.query or "+" not in parts.query:
        return parts
    return parts._replace(query=parts.query.replace("+", "%20"))


# What a form need not escape and people write plain, without & = + ; # % and what WHATWG escapes anyway.
_FORM_PLAIN = {f"%{ord(char):02X}": char for char in "/:?@!$()*,[]"}
_FORM_ESCAPE = re.compile("|".join(_FORM_PLAIN))


def _form_escapes(parts: Parts) -> Parts:
    """A query without escapes that a form would not need: ``?u=http%3A%2F%2Fb`` becomes ``?u=http://b``."""
    if not parts.query or "%" not in parts.query:
        return parts
    return parts._replace(query=_FORM_ESCAPE.sub(lambda match: _FORM_PLAIN[match[0]], parts.query))


def _sort_params(parts: Parts) -> Parts:
    """A query sorted by name; repeated names keep their order. Signed URLs may break."""
    if not parts.query or "&" not in parts.query:
        return parts
    pieces = parts.query.split("&")
    ordered = sorted(pieces, key=lambda piece: piece.partition("=")[0])
    return parts if ordered == pieces else parts._replace(query="&".join(ordered))


def _lone_query(parts: Parts) -> Parts:
    """A URL without a ``?`` that nothing follows."""
    return parts._replace(query=None) if parts.query == "" else parts


session_ids = on_parts(_session_ids)
empty_pairs = on_parts(_empty_pairs)
drop_empty_params = on_parts(_drop_empty_params)
equal_blanks = on_parts(_equal_blanks)
plus_space = on_parts(_plus_space)
form_escapes = on_parts(_form_escapes)
sort_params = on_parts(_sort_params)
lone_query = on_parts(_lone_query)


def drop_params(names: str) -> Step:
    """Return a step that drops parameters.

    Args:
        names: comma-separated names and globs; ``tracking`` stands for the list of ``tracking``.
            Lossy by what is named.
    """
    matches = _name_matcher(names)
    return on_parts(lambda parts: _filtered(parts, lambda piece: not matches(piece)))


def keep_params(names: str) -> Step:
    """Return a step that drops all parameters but those named. Lossy."""
    matches = _name_matcher(names)
    return on_parts(lambda parts: _filtered(parts, matches))


def _name_matcher(names: str) -> Callable[[str], bool]:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise ConfigurationError("a step names no parameter; write for example 'drop_params:utm_*,gclid'")
    globs = [glob for name in wanted for glob in (TRACKING if name == "tracking" else (name,))]
    pattern = re.compile("|".join(translate(glob) for glob in globs))

    @lru_cache(maxsize=4096)
    def named(raw: str) -> bool:
        name = decode_form(raw)
        return pattern.match(raw if name is None else name) is not None

    def matches(piece: str) -> bool:
        return named(piece.partition("=")[0])

    return matches
