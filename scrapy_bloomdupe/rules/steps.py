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
from functools import lru_cache

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


# What the parser leaves as it is in every place of a URL: neither in a percent-encode set (WHATWG URL,
# section 1.3) nor a tab, newline or backslash. `?` and `#` begin the next part.
_LEFT_ALONE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&()*+,;=:@/?#%"
_ORIGIN = re.compile(r"https?://[A-Za-z0-9._:-]+")
_MAX_ORIGIN = 300  # characters


@lru_cache(maxsize=4096)
def _is_normal_origin(origin: str) -> bool:
    # Asked of the parser itself: scheme, host and port do not depend on what follows them.
    return _ORIGIN.fullmatch(origin) is not None and _asked(f"{origin}/") == f"{origin}/"


def _is_normal(url: str) -> bool:
    """Return whether *url* certainly is as a browser reads it; False says nothing."""
    if not url.isascii():
        return False
    slash = url.find("/", 8)
    if not 8 <= slash <= _MAX_ORIGIN or url[slash:].encode().translate(None, _LEFT_ALONE):
        return False
    # A dot segment, perhaps, or an escaped one.
    if "/." in url or ("%2" in url and ("%2e" in url or "%2E" in url)):
        return False
    return _is_normal_origin(url[:slash])


def parsed(url: str) -> str | None:
    """Return *url* as a browser reads it, or None if it is no URL."""
    return url if _is_normal(url) else _asked(url)


def _asked(url: str) -> str | None:
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
_FORMS = {
    f"{high}{low}": chr(code) if (code := int(high + low, 16)) in _UNRESERVED else f"%{code:02X}"
    for high in "0123456789ABCDEFabcdef"
    for low in "0123456789ABCDEFabcdef"
}
_NORMAL_ENDS = {
    high: "".join(low for low in "0123456789ABCDEF" if _FORMS[f"{high}{low}"] == f"%{high}{low}")
    for high in "0123456789ABCDEF"
}
_find_odd = re.compile(
    f"%(?!{'|'.join(f'{high}[{low}]' for high, low in _NORMAL_ENDS.items() if low)})"
).search


def _unescape(match: re.Match[str]) -> str:
    # A stray per cent sign, left alone, could begin an escape with what follows.
    return _FORMS[match[1]] if match[1] is not None else "%25"


def _unescaped(text: str) -> str:
    if "%" not in text or not _find_odd(text):
        return text
    return _ESCAPE.sub(_unescape, text)


def _percent_parts(parts: Parts) -> Parts:
    """Return *parts* with their escapes as in ``percent``."""
    scheme, authority, path, query, fragment = parts
    return Parts(
        scheme,
        authority,
        _unescaped(path),
        _unescaped(query) if query is not None else None,
        _unescaped(fragment) if fragment is not None else None,
    )


def percent(url: str) -> str:
    """Return *url* with its escapes in capitals, those of unreserved characters decoded, and a stray
    per cent sign escaped. The authority stays as it is."""
    if "%" not in url:
        return url
    parts = split(url)
    return url if parts is None else join(_percent_parts(parts))


def normal_parts(url: str) -> tuple[str | None, Parts | None]:
    """Return *url* after ``parse`` and ``percent``, and its parts; None: it is no URL, or has none."""
    normal = parsed(url)
    if normal is None:
        return None, None
    parts = split(normal)
    if "%" in normal and parts is not None:
        parts = _percent_parts(parts)
        normal = join(parts)
    return normal, parts


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
    if not parts.authority.endswith(".") and ".:" not in parts.authority:
        return parts
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
