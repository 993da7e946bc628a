"""What does w3lib's ``canonicalize_url`` make of this URL? Its very bytes, for the URLs where that is easy.

It knows ``http`` and ``https``, plain hosts and ports, ASCII, and no dot segments; for the rest it says None,
and w3lib is asked. Whether the installed w3lib is one that this agrees with is not asked here.

Linear in the length of the URL: every part is gone through a fixed number of times, and no pattern has a
repeat in another one. Sorting the parameters is the usual n log n.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from string import ascii_letters, digits

# RFC 3986, section 2.3; w3lib.url.RFC3986_UNRESERVED.
_UNRESERVED = f"{ascii_letters}{digits}-._~"
# What stands for itself in a path: w3lib's safe characters, but for `;`, which starts parameters. A dot does
# if it makes no dot segment.
_PATH_PLAIN = f"{_UNRESERVED}!$&'()*+,=:@/[]|"
# In a query w3lib leaves only the unreserved ones; `+` is a space, and comes out as it went in.
_QUERY_PLAIN = f"{_UNRESERVED}+"

_IN_PATH = f"{_PATH_PLAIN}%".encode()
_IN_QUERY = f"{_QUERY_PLAIN}%".encode()
_ODD_IN_QUERY = b"!$'()*,/:?@[]|"
_QUERY_FORMS: Mapping[int, tuple[str, str]] = {
    **{code: (chr(code), f"%{code:02X}") for code in _ODD_IN_QUERY},
    **{code: (chr(code), chr(code)) for code in b"&="},
}


def _escapes(decoded: str, unknown: str, space: str) -> Mapping[str, str]:
    """Return what becomes of an escape, by its two digits in each of their spellings."""
    found = {}
    for high in f"{digits}ABCDEFabcdef":
        for low in f"{digits}ABCDEFabcdef":
            char = chr(int(high + low, 16))
            if char not in unknown:
                escape = f"%{high}{low}".upper()
                found[high + low] = char if char in decoded else space if char == " " else escape
    return found


# An escaped slash stays one. `.`: a dot segment, perhaps; releases of w3lib differ in what they make of an
# escaped `;` and `%`.
_PATH_ESCAPES = _escapes(_PATH_PLAIN.replace("/", ""), unknown=".;%", space="%20")
_QUERY_ESCAPES = _escapes(_UNRESERVED, unknown="", space="+")
_PATH_CANONICAL = frozenset(digits for digits, form in _PATH_ESCAPES.items() if form == f"%{digits}")
_QUERY_CANONICAL = frozenset(digits for digits, form in _QUERY_ESCAPES.items() if form == f"%{digits}")
_DECODED = {f"{byte:02X}": chr(byte) for byte in range(0x20, 0x100)}


def _finder(canonical: Set[str]) -> Callable[[str], list[str]]:
    """Return text -> what follows each `%` of it that begins none of these escapes, two digits or less."""
    ends = {
        high: "".join(sorted(pair[1] for pair in canonical if pair[0] == high)) for high in f"{digits}ABCDEF"
    }
    known = "|".join(f"{high}[{low}]" for high, low in ends.items() if low)
    return re.compile(f"%(?!{known})(.{{0,2}})", re.DOTALL).findall


# Most URLs have none: Scrapy has escaped what a page's link has not, and in capitals.
_odd_in_path = _finder(_PATH_CANONICAL)
_odd_in_query = _finder(_QUERY_CANONICAL)
_find_ascii = re.compile("%[0-7]").search

# The `=` and `&` of a query with one `=` in each of its parameters.
_MANY = 64
_REGULAR = frozenset(b"&".join([b"="] * count) for count in range(1, _MANY + 1))
# Scheme, host and port that w3lib leaves alone: no user, no capital, no port with a zero before it.
_plain_origin = re.compile(r"https?://[a-z0-9._-]+(?::([1-9][0-9]{0,4}))?").fullmatch
_MAX_PORT = 65_535
_MAX_ORIGINS = 4096
_MAX_ORIGIN = 300  # characters; a host has 253 at the most
# Those that were looked at: a crawl sees the same few again, a hostile one must not fill the memory.
_origins: dict[str, bool] = {}


def canonical(url: str) -> bytes | None:
    """Return what ``canonicalize_url`` returns for *url*, encoded.

    There is no ``"``, ``\\`` or control character in it.

    Args:
        url: any string; one that ``safe_url_string`` has seen, as in ``scrapy.Request``, is easy more often.

    Returns:
        None: not easy, nothing is said of the URL.
    """
    if not url.isascii():
        return None
    if "#" in url:
        url = url.partition("#")[0]
    base, mark, query = url.partition("?")
    slash = base.find("/", 8)  # past the `//` of either scheme
    if slash < 0:
        slash = len(base)
        base += "/"
    origin = base[:slash]
    if not (_origins.get(origin) or _is_plain(origin)) or "/." in base:
        return None
    if base.encode().translate(None, _IN_PATH):
        return None
    try:
        if "%" in base and (odd := _odd_in_path(base)):
            base = origin + _with_escapes(base[slash:], odd, _PATH_ESCAPES)
        if mark and (query := _canonical_query(query)):
            return f"{base}?{query}".encode()
    except KeyError:
        return None
    return base.encode()


def _is_plain(origin: str) -> bool:
    found = _plain_origin(origin)
    plain = found is not None and int(found[1] or 0) <= _MAX_PORT
    if len(origin) <= _MAX_ORIGIN:
        if len(_origins) >= _MAX_ORIGINS:
            _origins.clear()
        _origins[origin] = plain
    return plain


def _with_escapes(text: str, odd: Iterable[str], forms: Mapping[str, str]) -> str:
    """Return *text* with its escapes in their canonical form; *odd* are those that are not.

    Raises:
        KeyError: not easy.
    """
    for pair in set(odd):
        # Every `%` begins an escape, so nothing else looks like this one, before or after.
        text = text.replace(f"%{pair}", forms[pair])
    return text


def _escapes_in(text: str) -> set[str]:
    return {piece[:2] for piece in text.split("%")[1:]}


def _canonical_query(query: str) -> str:
    """Return a query sorted by decoded name and value, each with one ``=``.

    Raises:
        KeyError: not easy.
    """
    marks = query.encode().translate(None, _IN_QUERY)
    if "%" in query and (odd := _odd_in_query(query)):
        query = _with_escapes(query, odd, _QUERY_ESCAPES)
    if marks not in _REGULAR:
        for code in set(marks):
            query = query.replace(*_QUERY_FORMS[code])
        if marks.translate(None, _ODD_IN_QUERY) not in _REGULAR:
            query = "&".join([_regular(field) for field in query.split("&") if field])
    if "&" not in query:
        return query
    # With a mark that is below every other character for the `=`, texts compare as their pairs do: no need
    # to cut them.
    if "%" not in query:
        fields = query.replace("=", "!").split("&")
        fields.sort()
        return "&".join(fields).replace("!", "=")
    if _find_ascii(query) and _needs_decoding(query):
        return _sorted_decoded(query)
    # Names differ and none has an escape, so none is compared; or they are of bytes above ASCII, and with a
    # mark above every other character for the `%` they compare as those do.
    fields = query.replace("=", "!").replace("%", "\x7f").split("&")
    fields.sort()
    return "&".join(fields).replace("!", "=").replace("\x7f", "%")


def _regular(field: str) -> str:
    name, _, value = field.partition("=")
    return f"{name}={value.replace('=', '%3D')}"


def _needs_decoding(query: str) -> bool:
    """Return whether an escape decides the order: one in a name, or, where names are the same, in a value.

    Each parameter has one ``=``.
    """
    names = query.replace("&", "=").split("=")[::2]
    return len(set(names)) < len(names) or "%" in "".join(names)


def _sorted_decoded(query: str) -> str:
    """Return a query sorted as its decoded bytes are.

    Raises:
        KeyError: not easy, a control character is escaped.
    """
    # The marks are below every byte that is left, a space included, and `&` is none of them: what is escaped
    # comes out as itself and can be no mark.
    decoded = query.replace("+", " ").replace("=", "\x1f").replace("&", "\x1e")
    for pair in _escapes_in(query) - {"25"}:
        decoded = decoded.replace(f"%{pair}", _DECODED[pair])
    # Last: until here every `%` begins an escape.
    decoded = decoded.replace("%25", "%")
    fields = sorted(zip(decoded.split("\x1e"), query.split("&"), strict=True))
    return "&".join([field for _, field in fields])
