"""What does a site with URLs like those of Tmall show? Lists, a brand's shop, and products.

The hosts are Tmall's, the pages are not: the server answers for them as a proxy, offline. Product
numbers count from 1 here; in URLs they have twelve digits. Beside what links say, the site knows
which URLs are one page (`identity`), by its own reading and without any rule.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from shop.site import Page

START = "http://www.tmall.com/"
DETAIL = "http://detail.tmall.com/item.htm"
LIST = "http://list.tmall.com/search_product.htm"
BRAND = "http://starbrand.tmall.com/shop/view_shop.htm?user_number_id=2200000000001"

# Fourteen forms of one product. `mi_id` and `cm_id` end in `id` and stand before it.
FORMS = (
    "http://detail.tmall.com/item.htm?id={0}",
    "http://detail.tmall.com/item.htm?id={0}#detail",
    "http://detail.tmall.com/item.htm?spm=a230r.1.14.6.aaaa0001&id={0}",
    "http://detail.tmall.com/item.htm?id={0}&spm=a230r.1.14.7.aaaa0002",
    "http://detail.tmall.com/item.htm?mi_id=612345678999&id={0}",
    "http://detail.tmall.com/item.htm?spm=a230r.1&cm_id=140105335569ed55e27b&id={0}&abbucket=1",
    "http://detail.tmall.com/item.htm?%69d={0}",
    "http://detail.tmall.com/item.htm?id=%36%31{1}",
    "http://detail.tmall.com:80/item.htm?id={0}",
    "http://detail.tmall.com/ITEM.HTM?id={0}",
    "http://detail.tmall.com/item.htm?spm=a&amp;id={0}",
    "http://detail.tmall.com/item.htm?id={0}&skuId=5012345678902",
    "http://world.tmall.com/item/{0}.htm",
    "http://item.taobao.com/item.htm?id={0}&_u=aaaa0001",
)
WITHOUT_ID = (
    f"{DETAIL}?spm=a230r.1.14.8",
    f"{DETAIL}?id=",
    f"{DETAIL}?spm=a1.b2",
    f"{DETAIL}?mi_id=612345678999&skuId=5012345678902",
    "http://item.taobao.com/item.htm?user_id=725000000",
)
PRODUCT_HOSTS = ("detail.tmall.com", "world.tmall.com", "item.taobao.com")


def item_id(product: int) -> str:
    return str(612_345_678_900 + product)


def form(number: int, product: int) -> str:
    """One of the fourteen addresses of a product."""
    return FORMS[number].format(item_id(product), item_id(product)[2:])


@dataclass(frozen=True)
class Tmall:
    """The site: thirty products.

    Attributes:
        products: how many there are. The first has fourteen addresses in links; the next five are
            reached by redirects only, the last is linked by the brand's shop alone, the others stand
            in lists, in two or three forms each.
        per_list: products on one list page.
    """

    products: int = 30
    per_list: int = 8

    @property
    def listed(self) -> range:
        return range(7, self.products)

    def page(self, url: str) -> Page | None:
        """Answer a request; None: there is nothing at this address (404)."""
        kind, *rest = self.identity(url)
        host = urlsplit(url).hostname
        if kind == "item":
            product = rest[0] if isinstance(rest[0], int) else 0
            return self._product(product, host) if 1 <= product <= self.products else None
        if kind == "none":
            return Page("There is no such thing", (START,))
        path, query = rest[1], dict(parse_qsl(urlsplit(url).query))
        if (host, path) == ("www.tmall.com", "/"):
            return Page("Tmall", (*self._doors(), *(form(n, 1) for n in range(len(FORMS)))))
        if (host, path) == ("list.tmall.com", "/search_product.htm"):
            return self._list(int(query.get("s", "0")))
        if (host, path) == ("starbrand.tmall.com", "/shop/view_shop.htm"):
            return Page("Star brand", (START, form(0, self.products), form(4, 7)))
        if (host, path) == ("s.click.taobao.com", "/t"):
            return Page("Click", location=f"{DETAIL}?ali_trackid=2&id={item_id(5)}")
        if (host, path) == ("login.taobao.com", "/jump"):
            return Page("Login", location=form(0, 6))
        return None

    def identity(self, url: str) -> tuple[Hashable, ...]:
        """Which page a URL shows: `("item", number)`, `("none",)` for a product page without a
        product, or `("page", host, path, query)`, where what only tracks does not count."""
        parts = urlsplit(url)
        path = unquote(parts.path) or "/"
        query = [(name.removeprefix("amp;"), value) for name, value in parse_qsl(parts.query)]
        if parts.hostname in PRODUCT_HOSTS:
            found = path.removeprefix("/item/").removesuffix(".htm")
            if path.lower() == "/item.htm":
                found = dict(query).get("id", "")
            return ("item", int(found) - int(item_id(0))) if found.isdecimal() else ("none",)
        kept = sorted(pair for pair in query if pair[0] != "spm")
        return ("page", parts.hostname, path, tuple(kept))

    def _doors(self) -> tuple[str, ...]:
        """The links of the first page that lead to what it does not show itself."""
        # Two, three and five redirect to another form of the same id; four to itself, with a cookie;
        # six by way of the login page, with a cookie.
        redirected = (
            form(0, 2), form(2, 2), form(13, 3), form(0, 4), form(1, 4),
            "http://s.click.taobao.com/t?e=m5", form(0, 6), form(1, 6),
        )  # fmt: skip
        lists = (f"{LIST}?cat=1&s=0", f"{LIST}?spm=a220m.1&s=0&cat=1")
        return (*lists, BRAND, f"{BRAND}&spm=a220m.2", *redirected, *WITHOUT_ID)

    def _list(self, start: int) -> Page | None:
        shown = self.listed[start : start + self.per_list]
        if not shown:
            return None
        links = [START, BRAND]
        for product in shown:
            links += [form(product % 14, product), form(12, product), form(2, product)]
        if start + self.per_list < len(self.listed):
            links.append(f"{LIST}?cat=1&s={start + self.per_list}&spm=a220m.{start}")
        return Page(f"List from {start}", tuple(links))

    def _product(self, product: int, host: str | None) -> Page:
        title = f"Product {product}"
        if product == 2 and host != "world.tmall.com":
            return Page(title, location=form(12, 2))
        if product == 3 and host == "item.taobao.com":
            return Page(title, location=form(0, 3))
        links = (START, form(3, product)) if product in self.listed else (START,)
        cookie = f"seen{product}" if product in (4, 6) else None
        via = "http://login.taobao.com/jump?to=6" if product == 6 else None
        return Page(title, links, product=product, cookie=cookie, via=via)
