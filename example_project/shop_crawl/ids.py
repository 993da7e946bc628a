"""Which id does a URL have, where no regular expression can say it?

These are the `call:` sources of `rules/sites.toml`. Each takes a URL as the rules see it (host in lower
case, escapes in their normal form) and returns the id, or None if the page has none. They fetch nothing
and raise on no input.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_GITHUB = re.compile(r"/([\w.-]+)/([\w.-]+)/(?:issues|pull)/([1-9][0-9]*)/?")
_BV = re.compile(r"BV[0-9A-Za-z]{10}")
_AV = re.compile(r"(?:av)?([1-9][0-9]*)", re.IGNORECASE)
_VIDEO = re.compile(r"/(?:s/)?video/([0-9A-Za-z]+)/?")
_DOI = re.compile(r"10\.[0-9]{4,9}(?:\.[0-9]+)*/.+", re.DOTALL)
_DOI_PATH = re.compile(
    r"/(?:doi:|doi/(?:(?:abs|abstract|full|pdf|epdf|pdfdirect|epub)/)?)?(10\..+?)/?",
    re.DOTALL | re.IGNORECASE,
)
_WIKI_HOST = re.compile(r"([a-z][a-z-]+)(?:\.m)?\.wikipedia\.org\.?")
# The same article in another script: /zh-tw/Title.
_WIKI_PATH = re.compile(r"/(?:wiki|w/index\.php|(?:zh|sr|uz)-[a-z]+)/(.+)", re.DOTALL)
_REVISION = re.compile(r"special:perma(?:nent)?link/([1-9][0-9]*)", re.IGNORECASE)
# Pages made on the spot, in some of the languages in which their name is written.
_MADE_UP = re.compile(
    r"(?:special|media|spezial|spécial|especial|speciale|speciaal|служебная|特殊|特別|특수):", re.IGNORECASE
)
# With one of these a title shows something else than its article as it is today.
_NOT_THE_ARTICLE = frozenset(
    ("action", "curid", "diff", "direction", "search", "veaction", "redirect", "pagefrom", "pageuntil",
     "subcatfrom", "subcatuntil", "filefrom", "fileuntil", "from", "until")
)  # fmt: skip
_NO_LANGUAGE = frozenset(("www", "test", "login", "wikipedia"))


def github_issue(url: str) -> str | None:
    """`owner/repo#12`: issues and pull requests share their numbers, and the case of names is nothing.

    Tabs of a pull request (`/files`, `/commits`) are other pages and have no id.
    """
    parts = _split(url)
    match = _GITHUB.fullmatch(parts.path) if parts is not None else None
    return f"{match[1]}/{match[2]}#{match[3]}".lower() if match is not None else None


def doi(url: str) -> str | None:
    """`10.1000/abc`: at doi.org, or at a publisher behind `/doi/`, `/doi/full/` and the like.

    The name is the path decoded, `%2F` included, and its case is nothing.
    """
    parts = _split(url)
    path = unquote(parts.path) if parts is not None else ""
    match = _DOI_PATH.fullmatch(path)
    return match[1].lower() if match is not None and _DOI.fullmatch(match[1]) else None


def bilibili_video(url: str) -> str | None:
    """`BV...` or `av...`: two numberings of the same videos, which are left apart here."""
    parts = _split(url)
    if parts is None:
        return None
    if parts.path == "/player.html":
        query = _query(parts)
        bvid, aid = query.get("bvid", ""), query.get("aid", "")
        return bvid if _BV.fullmatch(bvid) else _av(aid)
    match = _VIDEO.fullmatch(parts.path)
    if match is None:
        return None
    if _BV.fullmatch(match[1]):
        return match[1]
    return _av(match[1]) if match[1][:2].lower() == "av" else None


def wikipedia_page(url: str) -> str | None:
    """`en/Foo_bar` for an article as it is today, `en@678901234` for one of its revisions.

    A space is an underscore, the first letter is a capital, and `%2F` is a slash: the opposite of what
    holds for URLs in general, so it stands here and in no step. Histories, comparisons, editors and
    pages made on the spot (`Special:`) have no id.
    """
    parts = _split(url)
    host = _WIKI_HOST.fullmatch(parts.hostname or "") if parts is not None else None
    if parts is None or host is None or host[1] in _NO_LANGUAGE:
        return None
    query = _query(parts)
    if query.get("action") == "view":
        del query["action"]
    in_path = _WIKI_PATH.fullmatch(parts.path)
    if in_path is None and parts.path not in ("/w/index.php", "/"):
        return None
    if not _NOT_THE_ARTICLE.isdisjoint(query):
        return None
    if "oldid" in query:
        revision = query["oldid"]
        return f"{host[1]}@{revision}" if revision.isdecimal() and int(revision[:20]) else None
    try:
        title = unquote(in_path[1], errors="strict") if in_path is not None else query.get("title", "")
    except UnicodeDecodeError:
        return None
    title = re.sub(r"[ _]+", "_", title).strip("_")
    if (permanent := _REVISION.fullmatch(title)) is not None:
        return f"{host[1]}@{permanent[1]}"
    if not title or _MADE_UP.match(title):
        return None
    first = title[0].upper()
    return f"{host[1]}/{first if len(first) == 1 else title[0]}{title[1:]}"


def _av(text: str) -> str | None:
    match = _AV.fullmatch(text)
    return f"av{match[1]}" if match is not None else None


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _query(parts: SplitResult) -> dict[str, str]:
    """The parameters; of one that is there twice the first that is not empty."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(parts.query):
        found.setdefault(name.removeprefix("amp;"), value)
    return found
