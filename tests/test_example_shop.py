"""Does the example project's shop show what its counts say, no less and no more?"""

from __future__ import annotations

import http.client
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from w3lib.url import canonicalize_url

PROJECT = Path(__file__).resolve().parent.parent / "example_project"
sys.path.insert(0, str(PROJECT))

from shop.counts import count, follow  # noqa: E402
from shop.server import ShopServer, read_log  # noqa: E402
from shop.site import Ask, Page, Shop  # noqa: E402

SHOP = Shop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ShopServer]:
    with ShopServer(0, SHOP, log=tmp_path / "shop.log") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


def fetch(
    connection: http.client.HTTPConnection, ask: str, body: str | None = None, cookie: str = ""
) -> tuple[int, http.client.HTTPMessage, str]:
    headers = {"Cookie": cookie} if cookie else {}
    connection.request("GET" if body is None else "POST", ask, body, headers)
    response = connection.getresponse()
    return response.status, response.headers, response.read().decode()


def test_the_server_answers_every_page_that_the_site_counts(server: ShopServer, tmp_path: Path) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    counts = count(SHOP)
    # A target per address: the first spelling that a link uses, without its fragment.
    targets: dict[Ask, tuple[str, str | None]] = {Ask.of("/"): ("/", None)}
    todo = list(targets)
    statuses: Counter[int] = Counter()
    while todo:
        ask = todo.pop()
        target, body = targets[ask]
        cookie = ""
        for _ in range(counts.answers[ask]):
            status, headers, text = fetch(connection, target, body, cookie)
            statuses[status] += 1
            cookie = headers.get("Set-Cookie", "").partition(";")[0]
        page = SHOP.page(ask)
        assert page is not None
        found: list[tuple[Ask, tuple[str, str | None]]]
        found = [(Ask.of(link), (link.partition("#")[0], None)) for link in page.links]
        if page.location is not None:
            assert page.location == headers["Location"]
            found = [(Ask.of(page.location), (page.location, None))]
        else:
            assert page.title in text
            assert len(page.links) == text.count("<a href=")
        found += [(a, (a.path, a.body)) for a in follow(page) if a.method == "POST"]
        for other, where in found:
            if other not in targets:
                targets[other] = where
                todo.append(other)
    connection.close()
    assert counts.answers == Counter(read_log(tmp_path / "shop.log"))
    assert counts.addresses == len(targets)
    assert counts.pages == statuses[200]
    assert {200, 302, 503} == set(statuses)


def test_the_page_that_fails_does_so_once(server: ShopServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    assert [fetch(connection, "/stock")[0] for _ in range(3)] == [503, 200, 200]
    connection.close()


def test_the_members_page_redirects_to_itself_until_it_gets_its_cookie(server: ShopServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    for _ in range(2):
        status, headers, _text = fetch(connection, "/members")
        assert (status, headers["Location"]) == (302, "/members")
    assert fetch(connection, "/members", cookie="member=yes")[0] == 200
    connection.close()


@pytest.mark.parametrize(
    ("status", "target", "body"),
    [
        (404, "/nothing", None),
        (404, "/product?id=0", None),
        (404, "/product?id=60", None),
        (404, "/product?id=" + "9" * 5000, None),
        (404, "/p/tea-pot-2", None),
        (404, "/list?page=99&sort=name", None),
        (404, "/deal/99", None),
        (404, "/about?page=1", None),
        (404, "/search", "word=pink"),
        (400, "/search", "&".join(["word=black"] * 50)),
        (400, "/about?" + "&".join(["a=b"] * 50), None),
        (413, "/search", "word=" + "x" * 20_000),
    ],
)  # fmt: skip
def test_the_shop_ends_where_its_counts_end(
    server: ShopServer, status: int, target: str, body: str | None
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    assert status == fetch(connection, target, body)[0]
    connection.close()


def every_link(shop: Shop) -> set[str]:
    pages = (shop.page(ask) for ask in count(shop).answers)
    return {link for page in pages if page is not None for link in links(page)}


def links(page: Page) -> tuple[str, ...]:
    return page.links if page.location is None else (page.location,)


def test_the_shop_and_scrapy_agree_on_which_links_lead_to_the_same_page() -> None:
    spelled = every_link(SHOP)
    by_shop: dict[Ask, set[str]] = {}
    by_scrapy: dict[str, set[str]] = {}
    for link in spelled:
        by_shop.setdefault(Ask.of(link), set()).add(link)
        by_scrapy.setdefault(canonicalize_url("http://127.0.0.1" + link), set()).add(link)
    assert sorted(map(sorted, by_shop.values())) == sorted(map(sorted, by_scrapy.values()))
    assert len(by_shop) < len(spelled)


def test_each_product_has_addresses_that_only_a_rule_can_merge() -> None:
    asks = count(SHOP).answers
    shown = Counter(page.product for ask in asks if (page := SHOP.page(ask)) and page.product)
    assert set(range(1, SHOP.products + 1)) == set(shown)
    # All but the one for members.
    assert {1: 1, 5: SHOP.products - 1} == Counter(shown.values())


@pytest.mark.parametrize("shop", [Shop(2, 0, 1), Shop(5, 3, 10), Shop(23, 0, 7), Shop(61, 10, 10)])
def test_a_shop_of_any_size_is_whole(shop: Shop) -> None:
    assert shop.products == count(shop).products
    assert shop.products - 1 == count(shop, self_redirect_lost=True).products


def test_a_shop_too_small_for_its_hidden_products_is_refused() -> None:
    with pytest.raises(ValueError, match=r"products=4, hidden=3.*products >= hidden \+ 2"):
        Shop(products=4, hidden=3)


def test_the_lesson_names_the_numbers_that_the_shop_counts() -> None:
    counts = count(SHOP)
    lesson = (PROJECT / "shop_crawl" / "spiders" / "s01_default.py").read_text(encoding="utf-8")
    words = " ".join(lesson.split())
    assert f"{counts.items} items from {counts.products} products" in words
    assert f"some {round(counts.asked, -2):,} links" in words
