"""What does the shop show when it is asked for a URL?

Everything is computed from the few numbers of `Shop`: no files, no state, no clock, the same answer
every time. What needs state (the page that fails once) is only marked here; `shop.server` does it.
The site is finite: whatever a crawler follows, it meets no address that `shop.counts` does not
know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

COLOURS = ("dark red", "sky blue", "moss green", "off white", "black")
GOODS = ("café cup", "tea pot", "milk jug", "honey spoon", "bread knife", "crème bowl", "egg timer")
EVERYWHERE = ("/", "/about", "/list?page=1&sort=name")


class Ask(NamedTuple):
    """One request, spelled in the one way in which the shop understands it.

    Two URLs with the same `Ask` are the same page, for the shop and for Scrapy's own duplicate
    filter: fragments, the order of parameters and the case of percent-escapes do not count. Unknown
    parameters do: `?id=7` and `?id=7&spm=a` are two asks, though both show product 7.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: str = ""

    @classmethod
    def of(cls, target: str, method: str = "GET", body: str = "") -> Ask:
        """Read the target of a request line (`/path?query`) or a link to it.

        Raises:
            ValueError: `target` is no URL, or its query is unreasonably long.
        """
        parts = urlsplit(target)
        query = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=20)
        return cls(method, unquote(parts.path) or "/", tuple(sorted(query)), body)


@dataclass(frozen=True)
class Page:
    """What the shop answers to one `Ask`.

    Attributes:
        product: the number of the product that the page shows, if it shows one.
        links: hrefs, in several spellings; a crawler that follows them all sees the whole shop.
        words: the words that the search form on the page offers; each is one POST.
        location: where a redirect (302) leads; a page with a location shows nothing else.
        fails_once: the first answer is 503.
        cookie: the cookie without which the page redirects to itself (302), setting it.
        via: where that redirect goes first, if not to the page itself; it leads back from there.
    """

    title: str
    links: tuple[str, ...] = ()
    product: int | None = None
    words: tuple[str, ...] = ()
    location: str | None = None
    fails_once: bool = False
    cookie: str | None = None
    via: str | None = None


@dataclass(frozen=True)
class Shop:
    """The shop's size.

    Attributes:
        products: how many products there are, at least `hidden + 2`. The last one is for members:
            it needs a cookie.
        hidden: how many of them no page links to: only a chain of redirects leads there.
        per_list: products on one list page, at least 1.
    """

    products: int = 60
    hidden: int = 3
    per_list: int = 10

    def __post_init__(self) -> None:
        if self.hidden < 0 or self.per_list < 1 or self.products < self.hidden + 2:
            raise ValueError(f"{self}: needs hidden >= 0, per_list >= 1, products >= hidden + 2")

    @property
    def listed(self) -> range:
        """The products that stand on list pages."""
        return range(1, self.products - self.hidden)

    @property
    def deals(self) -> dict[int, int]:
        """Deal number -> product that its redirects end at: the hidden ones, and as many listed."""
        hidden = range(self.products - self.hidden, self.products)
        return dict(enumerate([*hidden, *self.listed[: self.hidden]], start=1))

    @property
    def last_list(self) -> int:
        """The number of the last list page; the first is 1."""
        return -(-len(self.listed) // self.per_list)

    def page(self, ask: Ask) -> Page | None:
        """Answer a request.

        Returns:
            The page, or None if there is nothing at this address (404).
        """
        query = dict(ask.query)
        if ask.method == "POST":
            return self._found(ask.body) if ask.path == "/search" and not query else None
        if ask.path == "/product":
            return self._product(number(query.get("id", "")))
        if ask.path.startswith("/p/"):
            product = number(ask.path.rpartition("-")[2])
            return self._product(product) if ask.path == unquote(pretty(product)) else None
        if ask.path == "/list":
            return self._list(number(query.get("page", "")), query.get("sort", ""))
        if ask.path.startswith("/deal/"):
            return self._deal(ask.path.removeprefix("/deal/"))
        return self._single(ask.path) if not query else None

    def _single(self, path: str) -> Page | None:
        """The pages of which there is one each."""
        if path == "/":
            links = ("/list?sort=price&page=1", "/letter", "/deals", "/stock", "/members")
            return Page("The shop", EVERYWHERE + links, words=COLOURS)
        if path == "/about":
            return Page("About this shop", (*EVERYWHERE, "/about#contact"))
        if path == "/letter":
            products = tuple(f"/product?id={n}&utm_source=letter" for n in self.listed)
            return Page("Our newsletter", EVERYWHERE + products)
        if path == "/deals":
            deals = tuple(f"/deal/{n}" for n in self.deals)
            return Page("Deals of the day", EVERYWHERE + deals)
        if path == "/stock":
            return Page("What is in stock", EVERYWHERE, fails_once=True)
        if path == "/members":
            return Page("For members only", EVERYWHERE, product=self.products, cookie="member")
        return None

    def _product(self, product: int) -> Page | None:
        """A product, whatever its address: it links to all its addresses, each in two spellings."""
        if not 1 <= product < self.products:
            return None
        id_, colour = f"id={product}", COLOURS[product % len(COLOURS)]
        own = (
            f"/product?{id_}", f"/product?{id_}#reviews",
            f"/product?{id_}&utm_source=letter", f"/product?utm_source=letter&{id_}",
            f"/product?{id_}&spm=list.{product}", f"/product?spm=list.{product}&{id_}",
            f"/product?colour={quote_plus(colour)}&{id_}", f"/product?{id_}&colour={quote(colour)}",
            pretty(product), pretty(product).lower() + "#photo",
        )  # fmt: skip
        neighbours = (n for n in (product - 1, product + 1) if n in self.listed)
        links = EVERYWHERE + own + tuple(f"/product?id={n}" for n in neighbours)
        return Page(f"{name(product)} no. {product}", links, product=product)

    def _list(self, page: int, sort: str) -> Page | None:
        if not 1 <= page <= self.last_list or sort not in ("name", "price"):
            return None
        others = (n for n in (page - 1, page + 1) if 1 <= n <= self.last_list)
        paging = tuple(f"/list?page={n}&sort={sort}" for n in others)
        # Every second link is written the other way round, as on sites that several people write.
        order = ("/product?id={0}&spm=list.{0}", "/product?spm=list.{0}&id={0}")
        shown = self.listed[(page - 1) * self.per_list : page * self.per_list]
        links = tuple(order[n % 2].format(n) for n in shown)
        return Page(f"Products by {sort}, page {page}", EVERYWHERE + paging + links)

    def _deal(self, rest: str) -> Page | None:
        deal, _, step = rest.partition("/")
        product = self.deals.get(number(deal))
        if product is None or step not in ("", "go"):
            return None
        title = f"Deal {number(deal)}"
        return Page(title, location=f"/product?id={product}" if step else f"/deal/{deal}/go")

    def _found(self, body: str) -> Page | None:
        """The result of the search form: the first list page's worth of products in one colour."""
        word = dict(parse_qsl(body, max_num_fields=20)).get("word", "")
        if word not in COLOURS:
            return None
        hits = [n for n in self.listed if COLOURS[n % len(COLOURS)] == word][: self.per_list]
        return Page(f"In {word}", EVERYWHERE + tuple(f"/product?id={n}" for n in hits))


def name(product: int) -> str:
    return GOODS[product % len(GOODS)]


def pretty(product: int) -> str:
    """The address of a product that carries its name, with upper-case percent-escapes."""
    return f"/p/{quote(name(product).replace(' ', '-'))}-{product}"


def number(text: str) -> int:
    """The number that a URL holds at some place, or 0, which is the number of nothing."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0
