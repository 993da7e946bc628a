"""What do rules change? The same site crawled three times, and the counts side by side.

Once by Scrapy's own filter, once by the preset `five` alone (the five rules that search engines' guides
give for any URL), once by ids. What each must come to is known from walking the site.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

from processes import Crawl, crawl, open_shop, server_log
from report import Check, print_checks, print_remarks, print_text, print_title
from shop.server import read_targets
from shop.site import Ask, Page, Shop
from shop.tmall import FORMS, START, WITHOUT_ID, Tmall
from shop.walk import Link, Walked, walk
from w3lib.url import canonicalize_url

STOCK = "DUPEFILTER_CLASS=scrapy.dupefilters.RFPDupeFilter"
VARIANTS = {
    "Scrapy": ("ADDONS={}", STOCK),
    "five": ("BLOOMDUPE_RULES=[]", "BLOOMDUPE_PRESET=five"),
    "ids": (),
}
RULE_STATS = {
    "key": "requests whose id the rule found: the id is their key",
    "missing": "requests that the rule is for, without an id: their URL is their key",
    "dropped": "links to product pages without an id: not followed",
    "rewritten": "requests sent to another URL; a rule does that with apply='url' only",
}


@dataclass(frozen=True)
class Lesson:
    """A spider, what its site shows, and how the site itself tells one page from another.

    Attributes:
        start: where the crawl starts; the host does not matter if the site has one only.
        products: how many there are.
        key: the site's own reading of a request: `("item", number)` for a product; None: a product
            page without a product, not to be asked for.
        rule: the name of the rule that finds the ids.
    """

    spider: str
    start: str
    products: int
    show: Callable[[Link], Page | None]
    key: Callable[[Link], Hashable | None]
    rule: str


def s03_rules(folder: Path) -> bool:
    print_title("s03_rules: products by their id")
    shop = Shop()

    def show(link: Link) -> Page | None:
        return shop.page(Ask.of(link.url, link.method, link.body))

    def key(link: Link) -> Hashable:
        ask = Ask.of(link.url, link.method, link.body)
        page = shop.page(ask)
        by_id = ask.path.startswith(("/product", "/p/"))
        return ("item", page.product) if by_id and page is not None else ask

    print_text(
        f"The shop of lesson 1: {shop.products} products, all but one with many addresses. The rule "
        "says where the id stands in a product's URL."
    )
    lesson = Lesson("s03_rules", "http://shop/", shop.products, show, key, "shop_product")
    return _run(folder, lesson)


def s04_tmall(folder: Path) -> bool:
    print_title("s04_tmall: fourteen forms of one product")
    site = Tmall()

    def show(link: Link) -> Page | None:
        return site.page(link.url)

    def key(link: Link) -> Hashable | None:
        found = site.identity(link.url)
        return None if found == ("none",) else found

    print_text(
        f"{site.products} products behind URLs like those of Tmall. One is linked in {len(FORMS)} forms, "
        "five are reached by redirects only, from one form of an id to another or back to itself, and "
        f"one by a shop page only. {len(WITHOUT_ID)} links lead to product pages without an id."
    )
    return _run(folder, Lesson("s04_tmall", START, site.products, show, key, "tmall_item"))


def _run(folder: Path, lesson: Lesson) -> bool:
    crawls: dict[str, Crawl] = {}
    found: dict[str, list[int]] = {}
    answers: dict[str, int] = {}
    for name, settings in VARIANTS.items():
        own = folder / name
        own.mkdir()
        with open_shop(own) as url:
            crawls[name] = crawl(lesson.spider, url, own, settings=settings)
        answers[name] = len(read_targets(server_log(own)))
        lines = (own / "items.jsonl").read_text(encoding="utf-8").splitlines()
        found[name] = [json.loads(line)["product"] for line in lines]
    _print_columns(lesson, crawls, found)
    _print_rule(lesson, crawls["ids"])
    print_remarks({"": crawls["ids"].remarks})
    expected = _expected(lesson)
    checks = [Check("products lost by ids", 0, lesson.products - len(set(found["ids"])))]
    checks.append(Check("product pages fetched by ids", lesson.products, len(found["ids"])))
    for name, want in expected.items():
        stats = crawls[name].stats
        checks += [
            Check(f"{name}: the crawl ended by itself", "finished", stats.get("finish_reason")),
            Check(f"{name}: requests sent", want.requests, stats.get("downloader/request_count")),
            Check(f"{name}: answers by the server's own log", want.requests, answers[name]),
            Check(f"{name}: product pages", want.product_pages, len(found[name])),
            Check(f"{name}: different products", want.products, len(set(found[name]))),
            Check(f"{name}: duplicates", want.duplicates, stats.get("dupefilter/filtered", 0)),
            Check(f"{name}: errors of the filter", 0, _errors(crawls[name])),
        ]
    want, stats = expected["ids"], crawls["ids"].stats
    by_id = sum(n for key, n in want.asked.items() if isinstance(key, tuple) and key[0] == "item")
    prefix = f"bloomdupe/rule/{lesson.rule}"
    checks += [
        Check("ids: keys that the filter keeps", len(want.asked), stats.get("bloomdupe/keys")),
        Check("ids: requests whose id was found", by_id, stats.get(f"{prefix}/key", 0)),
        Check("ids: links dropped", want.dropped, stats.get(f"{prefix}/dropped", 0)),
    ]
    return print_checks(checks)


def _expected(lesson: Lesson) -> dict[str, Walked]:
    # Here, so that the other lessons run without the package.
    from scrapy_bloomdupe.rules.ruleset import RuleSet

    five = RuleSet.load(preset="five")
    keys: dict[str, Callable[[Link], Hashable | None]] = {
        "Scrapy": lambda link: (canonicalize_url(link.url), link.method, link.body),
        "five": lambda link: five.decide(link.url, link.method, link.body.encode()).key,
        "ids": lesson.key,
    }
    return {
        name: walk(lesson.start, lesson.show, key, own_redirects_pass=name != "Scrapy")
        for name, key in keys.items()
    }


def _errors(done: Crawl) -> int:
    return sum(name.startswith("bloomdupe/error/") for name in done.stats)


def _print_columns(lesson: Lesson, crawls: Mapping[str, Crawl], found: Mapping[str, list[int]]) -> None:
    rows = {
        "requests": [done.stats.get("downloader/request_count", 0) for done in crawls.values()],
        "product pages fetched": [len(items) for items in found.values()],
        "distinct products": [len(set(items)) for items in found.values()],
        "lost products": [lesson.products - len(set(items)) for items in found.values()],
        "redirects let pass": [done.stats.get("bloomdupe/redirect_pass", 0) for done in crawls.values()],
    }
    print(" " * 26 + "".join(f"{name:>12}" for name in crawls))
    for what, numbers in rows.items():
        print(f"{what:<26}" + "".join(f"{number:>12,}" for number in numbers))
    print()


def _print_rule(lesson: Lesson, done: Crawl) -> None:
    for what, meaning in RULE_STATS.items():
        name = f"bloomdupe/rule/{lesson.rule}/{what}"
        lines = textwrap.wrap(meaning, 98 - 48)
        print(f"{name:<40}{done.stats.get(name, 0):>6,}  {lines[0]}")
        for line in lines[1:]:
            print(" " * 48 + line)
    print()


RULE_LESSONS = {"s03_rules": s03_rules, "s04_tmall": s04_tmall}
