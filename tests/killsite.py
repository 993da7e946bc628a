"""Which pages does a crawl that is killed have to fetch? A tree that forgives nothing.

Every page is linked exactly once: who loses a page loses what stands below it, and no second link heals
that. The site answers its paths with ``answer``; the tests ask ``Tree`` what must have been fetched. A
tree's name is part of every path, so that the site has to know nothing.

=========================== ======================================================================
``/AREA/job/TREE/N``        page N: its number as title, links to its children
``/AREA/job/TREE/N?meet=K`` the same, when K crawls have asked for such a page
``/AREA/hop/K/TREE/N``      redirects K times, then to page N
``/AREA/stamp/TREE/N``      gives the cookie that page N asks for and sends back to it
``/AREA/gone/TREE/N``       404, with a link to page N
``/AREA/desk/TREE``         POST ``id=N``: page N; in the log as ``desk/TREE#id=N``
=========================== ======================================================================

How page N is reached is told by the letter that it draws from the tree's ``kinds``:

``p`` plain · ``h`` by one to three redirects · ``o`` redirects to itself with its query in another order
· ``c`` redirects to itself and gives a cookie · ``v`` redirects to ``stamp`` for a cookie · ``f`` fails
once with 503 · ``s`` slow · ``d`` by POST · ``e`` behind a 404
"""

from __future__ import annotations

import html
import threading
import time
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, str, list[tuple[str, str]]]

#: The pages that a crawl starts with.
ROOTS = 3

_KINDS = ("job", "hop", "stamp", "gone", "desk")
_failed: set[str] = set()
_met: Counter[str] = Counter()
_meeting = threading.Condition()


@dataclass(frozen=True)
class Tree:
    """Pages 0 to ``size - 1``.

    Args:
        size: number of pages.
        seed: of another tree of the same size.
        kinds: the letters that a page draws from; one that stands there twice is drawn twice as often.
        spread: a page is linked from one of the first *spread* pages; few of them make a flat tree.
        extra: so many more links on every page, to any others but the first: then it is no tree, and crawls
            that begin at different pages meet.
    """

    size: int
    seed: int = 1
    kinds: str = "p"
    spread: int = 1_000_000
    extra: int = 0

    @property
    def name(self) -> str:
        return f"{self.size}-{self.seed}-{self.kinds}-{self.spread}-{self.extra}"

    @classmethod
    def named(cls, name: str) -> Tree:
        size, seed, kinds, *rest = name.split("-")
        return cls(int(size), int(seed), kinds, *map(int, rest))

    def kind(self, number: int) -> str:
        if number < ROOTS:
            return "p"
        return self.kinds[self.draw("kind", number) % len(self.kinds)]

    def children(self, number: int) -> list[int]:
        others = (self.draw(f"extra {which}", number) for which in range(self.extra))
        return _children(self)[number] + [ROOTS + other % (self.size - ROOTS) for other in others]

    def link(self, number: int) -> str:
        """The path that page *number* is linked by; without the area."""
        match self.kind(number):
            case "h":
                return f"hop/{1 + self.draw('hops', number) % 3}/{self.name}/{number}"
            case "o":
                return f"job/{self.name}/{number}?a=1&b=2"
            case "d":
                return f"desk/{self.name}"
            case "e":
                return f"gone/{self.name}/{number}"
        return f"job/{self.name}/{number}"

    def number(self, path: str, status: int) -> int | None:
        """Which page was answered, if it was one of this tree?"""
        kind, _, rest = path.partition("/")
        name, _, number = rest.replace("#id=", "/").partition("/")
        if status != 200 or kind not in ("job", "desk") or name != self.name:
            return None
        return int(number.partition("?")[0])

    def draw(self, what: str, number: int) -> int:
        """The same large number whenever it is asked for."""
        return int.from_bytes(sha1(f"{what} {self.seed} {number}".encode()).digest()[:4], "little")


@lru_cache(maxsize=64)
def _children(tree: Tree) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in range(tree.size)]
    for number in range(ROOTS, tree.size):
        children[tree.draw("parent", number) % min(number, tree.spread)].append(number)
    return children


def logged(target: str, body: str) -> str:
    """What the log calls a request."""
    return f"{target}#{body}" if target.split("/")[2:3] == ["desk"] else target


def answers(kind: str) -> bool:
    """Is a path of this kind (what follows the area) one of ours?"""
    return kind in _KINDS


def answer(target: str, body: str, cookies: set[str]) -> Answer:
    """Status, body and headers for a request."""
    url = urlsplit(target)
    _, area, kind, *rest = url.path.split("/")
    match kind:
        case "hop":
            hops, name, number = rest
            there = f"hop/{int(hops) - 1}/{name}/{number}" if int(hops) > 1 else f"job/{name}/{number}"
            return _redirect(f"/{area}/{there}")
        case "stamp":
            back = f"/{area}/job/{'/'.join(rest)}"
            return _redirect(back, [("Set-Cookie", f"stamp=1; Path={back}")])
        case "gone":
            return 404, _page("gone", [f'<a href="/{area}/job/{"/".join(rest)}">there</a>']), []
        case "desk":
            number = int(parse_qs(body)["id"][0])
            return 200, _page_of(area, Tree.named(rest[0]), number), []
    tree, number = Tree.named(rest[0]), int(rest[1])
    if meet := parse_qs(url.query).get("meet"):
        _meet(f"{area}/{rest[0]}", int(meet[0]))
    match tree.kind(number):
        case "o" if url.query == "a=1&b=2":
            return _redirect(f"{url.path}?b=2&a=1")
        case "c" if "here" not in cookies:
            return _redirect(target, [("Set-Cookie", f"here=1; Path={url.path}")])
        case "v" if "stamp" not in cookies:
            return _redirect(f"/{area}/stamp/{'/'.join(rest)}")
        case "f" if target not in _failed:
            _failed.add(target)
            return 503, "", []
        case "s":
            time.sleep(0.05 + tree.draw("slow", number) % 100 / 1000)
    return 200, _page_of(area, tree, number), []


def _meet(where: str, count: int) -> None:
    """Wait for others, so that crawls that do not start at once begin at once."""
    with _meeting:
        _met[where] += 1
        _meeting.notify_all()
        _meeting.wait_for(lambda: _met[where] >= count, timeout=20)


def _page_of(area: str, tree: Tree, number: int) -> str:
    parts = []
    for child in tree.children(number):
        there = html.escape(f"/{area}/{tree.link(child)}")
        if tree.kind(child) == "d":
            parts.append(f'<form action="{there}"><input name="id" value="{child}"></form>')
        else:
            parts.append(f'<a href="{there}">there</a>')
    return _page(str(number), parts)


def _page(title: str, parts: list[str]) -> str:
    return f"<!doctype html><title>{title}</title>{''.join(parts)}"


def _redirect(location: str, headers: list[tuple[str, str]] | None = None) -> Answer:
    return 302, "", [("Location", location), *(headers or [])]
