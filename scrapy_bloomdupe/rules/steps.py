"""What can be made alike in two spellings of a URL? Pure steps, ``str -> str``, each with a name.

Those for queries are in ``query_steps``. Not here: which steps a crawl uses (``presets``), and what a key
is (``ruleset``). Every step leaves alone what it does not understand, raises on no input, and is
idempotent; so is every selection of them in their fixed order of phases.

Escapes are worked on as bytes, never through a charset: two GBK words stay two URLs. The standards:
WHATWG URL (https://url.spec.whatwg.org) by the library ada-url; RFC 3986 section 6.2.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from scrapy_bloomdupe.rules.urls import Parts, hostname, join, on_parts, split

_normalize: Callable[[str], str] | None
try:
    from ada_url import normalize_url as _normalize
except ImportError:
    _normalize = None


def can_parse() -> bool:
    """Return whether the library that ``parse`` needs is installed."""
    return _normalize is not None


_SURROGATE = re.compile("[\ud800-\udfff]")


def _escape_surrogate(match: re.Match[str]) -> str:
    # Half a character cannot be sent; escaped, two different ones stay two.
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def parsed(url: str) -> str | None:
    """Return *url* as a browser reads it, or None if it is no URL."""
    assert _normalize is not None
    try:
        return _normalize(url)
    except ValueError:
        escaped = _SURROGATE.sub(_escape_surrogate, url)
        return parsed(escaped) if escaped != url else None


def parse(url: str) -> str:
    """Return *url* as a browser reads it: case of scheme and host, IDNA, default port, dot segments, IP
    forms, backslashes, tabs and newlines. What is no URL stays as it is, in all steps."""
    normal = parsed(url)
    return url if normal is None else normal


# RFC 3986 section 2.3.
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_DECODED = {
    f"{high}{low}": chr(int(high + low, 16))
    for high in "0123456789ABCDEFabcdef"
    for low in "0123456789ABCDEFabcdef"
    if int(high + low, 16) in _UNRESERVED
}


def _unescape(match: re.Match[str]) -> str:
    digits = match[1]
    if digits is None:
        return "%25"  # a stray per cent sign; left alone it could begin an escape with what follows
    return _DECODED.get(digits) or f"%{digits.upper()}"


def percent(url: str) -> str:
    """Return *url* with its escapes in capitals, those of unreserved characters decoded, and a stray
    per cent sign escaped. The authority stays as it is."""
    if "%" not in url:
        return url
    parts = split(url)
    if parts is None:
        return url
    start = len(parts.scheme) + len(parts.authority)
    return url[:start] + _ESCAPE.sub(_unescape, url[start:])


def _decode_all(match: re.Match[str]) -> str:
    digits = match[1]
    if digits is None or digits == "25":
        return "%25"
    code = int(digits, 16)
    return chr(code) if 0x20 < code < 0x7F else f"%{digits.upper()}"


def decode_path(url: str) -> str:
    """Return *url* with every escape of its path decoded that is printable ASCII.

    Lossy: ``/a%2Fb`` becomes ``/a/b``, ``/a%3Fb`` a query, ``/a%23b`` a fragment: other pages.
    """
    parts = split(url)
    if parts is None or "%" not in parts.path:
        return url
    return percent(parse(join(parts._replace(path=_ESCAPE.sub(_decode_all, parts.path)))))


def _replace_host(parts: Parts, host: str) -> Parts:
    old = hostname(parts.authority)
    user, at, rest = parts.authority.rpartition("@")
    return parts._replace(authority=f"{user}{at}{host}{rest[len(old) :]}")


def _host_dot(parts: Parts) -> Parts:
    """A host without the dots at its end: the root of the DNS."""
    host = hostname(parts.authority)
    bare = host.rstrip(".")
    return _replace_host(parts, bare) if bare != host and _is_name(bare) else parts


def _strip_www(parts: Parts) -> Parts:
    """A host without a leading ``www.``. Lossy: some sites serve another page there."""
    host = hostname(parts.authority)
    bare = host
    while bare.startswith("www.") and "." in bare[4:].strip("."):
        bare = bare[4:]
    return _replace_host(parts, bare) if bare != host and _is_name(bare) else parts


def _is_name(host: str) -> bool:
    # A last label of digits makes an IP address of a host (WHATWG, "ends in a number").
    return bool(host) and not host.rpartition(".")[2][:1].isdigit()


def _collapse_slashes(parts: Parts) -> Parts:
    """A path with one slash where it had several, not after a colon (``/http://...``)."""
    return parts._replace(path=re.sub(r"(?<!:)/{2,}", "/", parts.path))


def _lower_path(parts: Parts) -> Parts:
    """A path in lower case, ASCII letters only, escapes left alone. Lossy: most Unix servers, object
    stores and base64 ids tell the case."""
    pieces = re.split(r"(%[0-9A-Fa-f]{2})", parts.path)
    lowered = (piece if i % 2 else _ascii_lower(piece) for i, piece in enumerate(pieces))
    return parts._replace(path="".join(lowered))


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _ascii_lower(text: str) -> str:
    return text.translate(_LOWER)


_INDEX = re.compile(r"/(?:(?:index\.[a-z]{2,5}|default\.aspx?)/*)+$", re.IGNORECASE)


def _drop_index(parts: Parts) -> Parts:
    """A path without ``index.html``, ``index.php``, ``default.aspx`` and their like at its end. Lossy:
    nothing says that a server gives the same page."""
    return parts._replace(path=_INDEX.sub("/", parts.path))


def _trailing_slash(parts: Parts) -> Parts:
    """A path without slashes at its end. Lossy: ``/a/`` and ``/a`` can be two pages."""
    return parts._replace(path=parts.path.rstrip("/") or "/") if parts.path else parts


def _drop_fragment(parts: Parts) -> Parts:
    """A URL without its fragment. Lossy for sites whose pages are told by ``#/`` or ``#!`` routes."""
    return parts._replace(fragment=None)


def _drop_plain_fragment(parts: Parts) -> Parts:
    """A URL without its fragment, unless it is a ``#/`` or ``#!`` route."""
    if parts.fragment is not None and not parts.fragment.startswith(("/", "!")):
        return parts._replace(fragment=None)
    return parts


def _https_to_http(parts: Parts) -> Parts:
    """``http`` for ``https``, unless a port is named. Lossy: they can be two sites."""
    if parts.scheme != "https://" or hostname(parts.authority) != parts.authority.rpartition("@")[2]:
        return parts
    return parts._replace(scheme="http://")


host_dot = on_parts(_host_dot)
strip_www = on_parts(_strip_www)
collapse_slashes = on_parts(_collapse_slashes)
lower_path = on_parts(_lower_path)
drop_index = on_parts(_drop_index)
trailing_slash = on_parts(_trailing_slash)
drop_fragment = on_parts(_drop_fragment)
drop_plain_fragment = on_parts(_drop_plain_fragment)
https_to_http = on_parts(_https_to_http)
