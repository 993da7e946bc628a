"""Is the improved strategy of Shu, Liang and Wang more accurate and a little slower than a Bloom filter?

Product URLs in forms of Tmall's, with products repeated under many of them, are judged one after the other
by five filters: "was this product seen before?". Accuracy is the share of the n URLs that are judged
right, by the product that each URL was made of. All filters are sized for 50,000 keys at an error of 0.01,
and n goes far beyond, so that errors show: there are half as many products as URLs.

traditional, URLs   a Bloom filter on whole URLs
traditional, ids    the same on product ids, which one regular expression cuts from the URL
improved, ids       the same, and what it calls seen is searched by bisection in an ordered list of all ids
ours, bare          rules of the preset ``tmall`` and the filter in its file, which grows when it is full
ours, exact         the same, and what it calls seen is asked of the LMDB store

``python tests/benchmarks/tmall.py [--sizes 1e4 3e4 1e5 3e5 1e6] [--rounds 3] [--plots] [--json FILE]``
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import mmh3
import plots
from bitarray import bitarray
from measure import arguments_of, interleaved, machine, optional, table, write_json

from scrapy_bloomdupe.hashing import double_hash
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.rules.ruleset import RuleSet
from scrapy_bloomdupe.sizing import size_for

CAPACITY, RATE = 50_000, 0.01
#: Products per URL, and how often one is repeated in the same letters.
PRODUCTS, SAME_LETTERS = 0.5, 0.3
#: Random parts stand for what tells where on the site a link stood.
FORMS = (
    "https://detail.tmall.com/item.htm?id={id}",
    "https://detail.tmall.com/item.htm?spm=a230r.1.14.{a}.{b:08x}&id={id}",
    "https://detail.tmall.com/item.htm?id={id}&spm=a230r.7.{a}&abbucket={c}",
    "https://detail.tmall.com/item.htm?mi_id=6{b:011}&id={id}",
    "https://detail.tmall.com/item.htm?id={id}&skuId=5{b:012}",
    "https://item.taobao.com/item.htm?ft=t&id={id}&_u={b:08x}",
    "https://world.tmall.com/item.htm?scm=1007.{a}.{b}&id={id}#detail",
)
_ID = re.compile(r"[?&]id=(\d+)")


def product_urls(count: int, seed: int) -> tuple[list[str], list[bool]]:
    """Return URLs, and whether the product of each was there before."""
    rng = random.Random(seed)
    products = max(1, int(count * PRODUCTS))
    urls, truth, first = [], [], dict[int, str]()
    for _ in range(count):
        product = rng.randrange(products)
        truth.append(product in first)
        if product in first and rng.random() < SAME_LETTERS:
            urls.append(first[product])
            continue
        parts = {"id": 612_300_000_000 + product, "a": rng.randrange(100), "c": rng.randrange(20)}
        url = rng.choice(FORMS).format(b=rng.getrandbits(32), **parts)
        first.setdefault(product, url)
        urls.append(url)
    return urls, truth


class Traditional:
    """The textbook's Bloom filter, as fast as Python has it."""

    def __init__(self) -> None:
        size = size_for(CAPACITY, RATE)
        self._num_bits, self._num_hashes = size.num_bits, size.num_hashes
        self._bits = bitarray(size.num_bits)

    def add(self, key: bytes) -> bool:
        """Add *key*; whether it was possibly there."""
        h1, h2 = mmh3.mmh3_x64_128_utupledigest(key, 0)
        positions = double_hash(h1, h2, self._num_hashes, self._num_bits)
        if self._bits[positions].all():
            return True
        self._bits[positions] = 1
        return False


class Improved(Traditional):
    """The same with an ordered store of all keys, which has the last word on what it calls seen."""

    def __init__(self) -> None:
        super().__init__()
        self._store: list[bytes] = []

    def add(self, key: bytes) -> bool:
        possibly = super().add(key)
        where = bisect_left(self._store, key)
        if possibly and where < len(self._store) and self._store[where] == key:
            return True
        self._store.insert(where, key)
        return False


def by_url(urls: Sequence[str]) -> list[bool]:
    add = Traditional().add
    return [add(url.encode()) for url in urls]


def by_id(made: type[Traditional], urls: Sequence[str]) -> list[bool]:
    add, find = made().add, _ID.search
    verdicts = []
    for url in urls:
        found = find(url)
        verdicts.append(add((found[1] if found else url).encode()))
    return verdicts


def by_rules(store: str | None, urls: Sequence[str]) -> list[bool]:
    rules = RuleSet.load("tmall", [], [])
    with tempfile.TemporaryDirectory() as folder:
        state = open_or_create(Path(folder), StateOptions(CAPACITY, RATE, "paged", "murmur3", store))
        check, decide = state.seen.check_and_add, rules.decide
        verdicts = [check(decide(url).digest()).seen for url in urls]
        state.flush()
        state.close()
    return verdicts


STRATEGIES: dict[str, Callable[[Sequence[str]], list[bool]]] = {
    "traditional, URLs": by_url,
    "traditional, ids": partial(by_id, Traditional),
    "improved, ids": partial(by_id, Improved),
    "ours, bare": partial(by_rules, None),
    "ours, exact": partial(by_rules, "lmdb"),
}


def judged(strategy: Callable[[Sequence[str]], list[bool]], size: int, seed: list[int]) -> dict[str, float]:
    urls, truth = product_urls(size, seed[0])
    started = time.perf_counter()
    verdicts = strategy(urls)
    seconds = time.perf_counter() - started
    pairs = list(zip(verdicts, truth, strict=True))
    lost = sum(verdict and not seen for verdict, seen in pairs)
    again = sum(seen and not verdict for verdict, seen in pairs)
    return {"seconds": seconds, "accuracy": 1 - (lost + again) / size, "lost": lost, "again": again}


def rules_alone(size: int) -> float:
    """Return microseconds per URL from the URL to its key, without a filter."""
    decide = RuleSet.load("tmall", [], []).decide
    urls, _ = product_urls(min(size, 50_000), 5)
    started = time.perf_counter()
    for url in urls:
        decide(url).digest()
    return (time.perf_counter() - started) / len(urls) * 1e6


def finding(found: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Say what became of the paper's finding, at each n."""
    lines = []
    for size, figures in found.items():
        if "ours, exact" not in figures:
            return ["ada-url is not installed: nothing is said of rules"]
        base, better, ours = (figures[name] for name in ("traditional, ids", "improved, ids", "ours, exact"))
        more = better["accuracy"] - base["accuracy"]
        line = f"n = {int(size):,}: improved is {more:.2%} more accurate than traditional on ids and takes "
        line += f"{better['seconds'] / base['seconds']:.2f} times as long; ours, exact, is "
        line += f"{ours['accuracy'] - better['accuracy']:+.2%} to improved and takes "
        lines.append(line + f"{ours['seconds'] / better['seconds']:.2f} times as long as that")
    return lines


def main() -> None:
    parser = arguments_of(__doc__, "3,000 URLs, one round", rounds=3, plots=True)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 3e4, 1e5, 3e5, 1e6])
    arguments = parser.parse_args()
    sizes, rounds = [int(size) for size in arguments.sizes], arguments.rounds
    if arguments.quick:
        sizes, rounds = [3_000], 1
    strategies = dict(STRATEGIES)
    if optional("ada_url") is None:
        strategies = {name: one for name, one in strategies.items() if not name.startswith("ours")}
    found = {}
    for size in sizes:
        found[str(size)] = interleaved(
            {name: partial(judged, one, size, [5]) for name, one in strategies.items()}, rounds
        )
    rows = [["strategy", "n", "us per URL", "accuracy", "new called seen", "seen called new"]]
    for name in strategies:
        for size in sizes:
            figures = found[str(size)][name]
            row = [name, f"{size:,}", f"{figures['seconds'] / size * 1e6:.2f}", f"{figures['accuracy']:.4%}"]
            rows.append([*row, f"{figures['lost']:,.0f}", f"{figures['again']:,.0f}"])
    bits = size_for(CAPACITY, RATE)
    print(f"{bits.num_bits:,} bits, {bits.num_hashes} hashes; {rounds} rounds, medians")
    print("accuracy: share of the URLs judged right as to whether their product was seen before")
    print(table(rows))
    print()
    print("\n".join(finding(found)))
    if "ours, exact" in strategies:
        print(f"of ours the rules alone take {rules_alone(sizes[-1]):.1f} us per URL")
    write_json(arguments.json, {"rounds": rounds, "machine": machine(), "found": found})
    if arguments.plots:
        plots.draw("tmall", arguments.plots, found)


if __name__ == "__main__":
    main()
