"""Which links does a crawl meet? Pages of shops, news sites, trackers, wikis and other scripts.

Always the same ones for the same numbers. A page has one address as it is first linked, and any number
of other spellings that Scrapy takes for the same page: parameters in another order, fragments, escapes
in small letters. Two pages are never the same for Scrapy. Not here: who is asked about them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Sites of each kind, by number.
SITES = 40
KINDS = ("shop", "news", "tracking", "escapes", "non-ASCII")
#: Pages that every page of a site links to: menus, footers. Half of all duplicates are these.
MENU = 100

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_NUMBER = re.compile(r"p(\d+)(?!\d)")
_WORDS = ("summer", "Report", "market", "archive", "two-parties", "Review", "long-read", "live")
_COLOURS = ("red", "green", "dark%20blue", "white")


@dataclass(frozen=True)
class Page:
    """The address of a page, in parts.

    Attributes:
        host: scheme and host.
        path: with its slash.
        query: parameters as they stand in the URL, in the order of the first link.
    """

    host: str
    path: str
    query: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return self.host + self.target

    @property
    def target(self) -> str:
        """The URL without scheme and host."""
        return self.path + ("?" + "&".join(self.query) if self.query else "")


def page(number: int) -> Page:
    """Return a page; the same number gives the same one."""
    rng = random.Random(number)
    site = number % SITES
    match KINDS[number % len(KINDS)]:
        case "shop":
            query = [f"spm=a{rng.randrange(10**6)}.b{rng.randrange(100)}", f"id=p{number}"]
            query += [f"colour={rng.choice(_COLOURS)}", f"cat={rng.randrange(500)}", "sort=price"]
            return Page(f"https://www.shop{site}.example", "/item.htm", tuple(query))
        case "news":
            day = f"/20{rng.randrange(10, 27)}/{rng.randrange(1, 13):02}/{rng.randrange(1, 29):02}"
            title = "-".join(rng.sample(_WORDS, 4))
            return Page(f"https://news{site}.example", f"{day}/{title}-p{number}.html")
        case "tracking":
            query = ["utm_source=newsletter", "utm_medium=e-mail", f"utm_campaign={rng.randrange(10**8)}"]
            query += ["b=2", "a=1", f"gclid={rng.getrandbits(80):x}"]
            return Page(f"http://www.site{site}.example", f"/offers/p{number}", tuple(query))
        case "escapes":
            query = [f"q=a%20b+c%2F{rng.randrange(1000)}", "lang=%C3%A9n", "mode=%7Efull"]
            return Page(
                f"https://wiki{site}.example", f"/wiki/Caf%C3%A9_%28Z%C3%BCrich%29_p{number}", tuple(query)
            )
        case _:
            query = (
                f"\u0446\u0432\u0435\u0442=\u043a\u0440\u0430\u0441\u043d\u044b\u0439{site}",
                "seite=\u00fc",
            )
            path = f"/\u30ab\u30bf\u30ed\u30b0/caf\u00e9/\u5546\u54c1-p{number}.html"
            return Page(f"https://m\u00fcnchen{site}.example", path, tuple(query))


def number_of(target: str) -> int | None:
    """Return the number of the page with this path and query; None: it is none of these."""
    found = _NUMBER.search(target)
    return int(found[1]) if found else None


class Spellings:
    """Other spellings of pages, none of which was given before, letter for letter."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._given: set[str] = set()

    def another(self, page: Page) -> str:
        """Return a spelling of *page*."""
        rng = self._rng
        url = page.url
        changes = ["fragment"] + ["order"] * (len(page.query) > 1) + ["case"] * ("%" in url)
        change = rng.choice(changes)
        if change == "order":
            query = list(page.query)
            rng.shuffle(query)
            url = page.host + page.path + "?" + "&".join(query)
        elif change == "case":
            url = _ESCAPE.sub(lambda escape: rng.choice((escape[0].lower(), escape[0])), url)
        while change == "fragment" or url == page.url or url in self._given:
            url = f"{url.partition('#')[0]}#c{rng.randrange(10**9)}"
            change = "done"
        self._given.add(url)
        return url


@dataclass(frozen=True)
class Links:
    """Links to ask about.

    Attributes:
        before: these are known already.
        urls: these are asked.
    """

    before: Sequence[str]
    urls: Sequence[str]


def links(count: int, duplicates: float, kind: str, *, seed: int = 5) -> Links:
    """Return *count* links, of which the share *duplicates* (0 to 1) was linked before.

    Half of the duplicates lead to the ``MENU``, half to any page known by then.

    Args:
        kind: ``same``: duplicates are letter for letter the first link. ``other``: they never are
            letter for letter any link before.
    """
    rng = random.Random(seed)
    spellings = Spellings(rng)
    known = max(MENU, count // 20)
    # In any order, and exactly as many as asked.
    is_known = [i < round(count * duplicates) for i in range(count)]
    rng.shuffle(is_known)

    def urls() -> Iterator[str]:
        pages = known
        for duplicate in is_known:
            if not duplicate:
                yield page(pages).url
                pages += 1
                continue
            again = page(rng.randrange(MENU if rng.random() < 0.5 else pages))
            yield again.url if kind == "same" else spellings.another(again)

    return Links([page(number).url for number in range(known)], list(urls()))
