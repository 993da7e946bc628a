"""What does a fingerprint cost? Scrapy's function beside the fast way to the same bytes, by kind of link.

``python tests/benchmarks/fingerprints.py [--urls 20000] [--rounds 5] [--json FILE] [--quick]``
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from measure import interleaved, table, write_json
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter

from scrapy_bloomdupe.keys import RequestKeys


def links(kind: str, count: int) -> list[str]:
    """Return links of one kind, the same in every run; ``mix``: all kinds in turn."""
    rnd = random.Random(kind)
    words = ["news", "sport", "archive", "Some-Title-Words", "item_7", "2024"]
    foreign = ["caf\u00e9", "\u4f60\u597d", "m\u00fcller", "\u0441\u043f\u043e\u0440\u0442"]

    def make(kind: str, i: int) -> str:
        site = f"https://www.{kind}{i % 100}.example"
        path = "/".join(rnd.choice(words) for _ in range(3))
        number = rnd.randrange(10**12)
        if kind == "plain":
            return f"{site}/{path}/{number}.html"
        if kind == "shop":
            return f"{site}/item.htm?spm=a{i}.b&id={number}&cat={i}"
        if kind == "news":
            return f"{site}/{2000 + i % 26}/{path}/{i}.html#comments"
        if kind == "tracking":
            return f"{site}/p/{i}?utm_source=mail&utm_medium=x&b=2&a=1&q=a+b&gclid={number}"
        if kind == "escapes":
            return f"{site}/a%20b/%7Euser/{i}?next=%2Flogin%2f&u=https://b.example/{number}&f[x]=a%20b"
        return f"{site}/{rnd.choice(foreign)}/{i}?q={rnd.choice(foreign)}&page={number}"

    names = ("plain", "shop", "news", "tracking", "escapes", "foreign")
    return [make(names[i % len(names)] if kind == "mix" else kind, i) for i in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=float, default=2e4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="1,000 links of each kind, one round")
    arguments = parser.parse_args()
    count, rounds = (1_000, 1) if arguments.quick else (int(arguments.urls), arguments.rounds)
    rows = [["links", "Scrapy, us", "here, us", "of Scrapy"]]
    result = {}
    for kind in ("plain", "shop", "news", "tracking", "escapes", "foreign", "mix"):
        urls = links(kind, count)
        stock, keys = RequestFingerprinter(), RequestKeys(RequestFingerprinter())
        if [stock.fingerprint(Request(url)) for url in urls] != [keys.key(Request(url)) for url in urls]:
            raise SystemExit(f"{kind}: other keys than Scrapy's")

        def timed(function: Callable[[Request], bytes | None], urls: list[str] = urls) -> Mapping[str, float]:
            # New ones: Scrapy remembers the fingerprint of a request.
            requests = [Request(url) for url in urls]
            started = time.perf_counter()
            for request in requests:
                function(request)
            return {"us": (time.perf_counter() - started) / len(urls) * 1e6}

        found = interleaved(
            {
                "scrapy": lambda timed=timed, stock=stock: timed(stock.fingerprint),
                "here": lambda timed=timed, keys=keys: timed(keys.key),
            },
            rounds,
        )
        theirs, ours = found["scrapy"]["us"], found["here"]["us"]
        rows.append([kind, f"{theirs:.1f}", f"{ours:.2f}", f"{ours / theirs:.3f}"])
        result[kind] = {"scrapy": theirs, "here": ours, "ratio": ours / theirs}
    print(f"{count:,} links of each kind, {rounds} rounds, medians; keys compared: the same")
    print(table(rows))
    write_json(arguments.json, {"urls": count, "found": result})


if __name__ == "__main__":
    main()
