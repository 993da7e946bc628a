"""How much is there to crawl, and how often does a crawl ask for it?

The numbers come from walking the very site that the server serves, with a plain set in the place of
a duplicate filter. Nothing here knows Scrapy; tests/test_example_project.py checks that Scrapy's
own filter counts the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from shop.site import Ask, Page, Shop


@dataclass(frozen=True)
class Counts:
    """What a crawl that follows every link must come to.

    Attributes:
        addresses: distinct requests, in the sense of Scrapy's own filter, redirecting ones
            included.
        pages: those of them that end in a page (200).
        products: distinct products on these pages.
        items: pages that show a product; more than `products`, since a product has many addresses.
        asked: requests that the duplicate filter is asked about.
        duplicates: those of them that it must call seen.
        answers: how often the server answers each address.
    """

    addresses: int
    pages: int
    products: int
    items: int
    asked: int
    duplicates: int
    answers: Counter[Ask]


def follow(page: Page) -> Iterator[Ask]:
    """All that a crawler asks for after `page`: its links, and its form once for each word."""
    for link in page.links:
        yield Ask.of(link)
    for word in page.words:
        yield Ask.of("/search", "POST", urlencode({"word": word}))


def count(shop: Shop, *, self_redirect_lost: bool = False) -> Counts:
    """Walk the whole shop.

    Args:
        self_redirect_lost: count as Scrapy's own filter does, to which a page that redirects to
            itself is a duplicate of itself: its second answer, the real one, is never fetched.

    Raises:
        LookupError: a page of the shop links to an address where nothing is.
    """
    shown: dict[Ask, Page] = {}
    answers: Counter[Ask] = Counter()
    seen: set[Ask] = set()
    asked = duplicates = 0
    todo = [Ask.of("/")]
    while todo:
        ask = todo.pop()
        asked += 1
        if ask in seen:
            duplicates += 1
            continue
        seen.add(ask)
        page = shop.page(ask)
        if page is None:
            raise LookupError(f"the shop links to {ask} but shows nothing there")
        answers[ask] += 1
        if page.location is not None:
            todo.append(Ask.of(page.location))
            continue
        if page.fails_once:
            # A retry does not ask the filter.
            answers[ask] += 1
        if page.cookie is not None:
            asked += 1
            if self_redirect_lost:
                duplicates += 1
                continue
            answers[ask] += 1
        shown[ask] = page
        todo.extend(follow(page))
    items = [page.product for page in shown.values() if page.product is not None]
    return Counts(
        addresses=len(seen),
        pages=len(shown),
        products=len(set(items)),
        items=len(items),
        asked=asked,
        duplicates=duplicates,
        answers=answers,
    )
