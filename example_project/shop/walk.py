"""What does a crawl of a site come to, if these requests are duplicates of each other?

It walks the very pages that the server serves, with a plain set in the place of a duplicate filter and
any function as the key. It knows neither Scrapy nor rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode, urljoin

from shop.site import Page


class Link(NamedTuple):
    url: str
    method: str = "GET"
    body: str = ""

    def to(self, url: str) -> Link:
        return Link(urljoin(self.url, url))


@dataclass(frozen=True)
class Walked:
    """What came of it.

    Attributes:
        requests: sent, redirects and the second try of a page that fails once included.
        product_pages: pages that showed a product.
        products: different products on them.
        duplicates: requests not sent since their key was known.
        dropped: links not followed since they have no key.
        asked: how often each key was asked for.
    """

    requests: int
    product_pages: int
    products: int
    duplicates: int
    dropped: int
    asked: Counter[Hashable]


def walk(
    start: str,
    show: Callable[[Link], Page | None],
    key: Callable[[Link], Hashable | None],
    *,
    own_redirects_pass: bool,
) -> Walked:
    """Follow every link.

    Args:
        show: what the site answers.
        key: requests with one key are one page; None: it is not sent.
        own_redirects_pass: a redirect to the page that was asked for is no duplicate; to Scrapy's own
            filter it is one.

    Raises:
        LookupError: the site links to an address where nothing is.
    """
    asked: Counter[Hashable] = Counter()
    shown: list[int] = []
    cookies: set[str] = set()
    requests = duplicates = dropped = 0
    nowhere: frozenset[Hashable] = frozenset()
    todo = [(Link(start), nowhere)]
    while todo:
        link, hops = todo.pop()
        found = key(link)
        if found is None:
            dropped += 1
            continue
        asked[found] += 1
        if asked[found] > 1 and not (own_redirects_pass and found in hops):
            duplicates += 1
            continue
        page = show(link)
        if page is None:
            raise LookupError(f"the site links to {link.url} but shows nothing there")
        requests += 1 + page.fails_once
        location = page.location
        if page.cookie is not None and page.cookie not in cookies:
            cookies.add(page.cookie)
            location = page.via or link.url
        if location is not None:
            todo.append((link.to(location), hops | {found}))
            continue
        shown += [] if page.product is None else [page.product]
        todo += [(link.to(href), nowhere) for href in page.links]
        search = urljoin(link.url, "/search")
        todo += [(Link(search, "POST", urlencode({"word": w})), nowhere) for w in page.words]
    return Walked(requests, len(shown), len(set(shown)), duplicates, dropped, asked)
