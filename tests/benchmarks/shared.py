"""What does it cost to share what has been seen? Beside scrapy-redis and Scrapy-Redis-BloomFilter.

Three parts, each in turns and with medians of several rounds: the wall time per link on a local server
(``shared_links``), whole crawls with a server whose answers take 5 ms longer (``shared_crawls``), and the
server's memory per URL (``shared_memory``). Servers are Valkey, with RedisBloom in it for some, and
PostgreSQL; what is not installed is left out, and the tables say so.

``python tests/benchmarks/shared.py [--parts links crawls memory] [--rounds 5] [--json FILE]``
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import shared_filters as filters
import shared_memory
from dupefilters import BASE
from latency import far_away
from linksite import link_site
from measure import arguments_of, in_child, machine, medians, table, targets_table, write_json
from shared_filters import REDIS_BLOOM, SCRAPY_REDIS, Places, places, variants

PARTS = ("links", "crawls", "memory")
SHARE = 0.9
LATENCY = 0.005
TITLES = {
    "same": "this crawl saw the duplicates, letter for letter",
    "other": "this crawl saw them, in other spellings",
    "foreign": "only other crawls saw them",
}
#: What goes through the proxy; a database does not.
FAR: tuple[str, ...] = (
    BASE,
    filters.BITMAP,
    filters.BLOOM,
    filters.SET,
    filters.BITMAP_SET,
    filters.JOBDIR,
    SCRAPY_REDIS,
)
Found = dict[str, dict[str, Any]]


def child(arguments: Sequence[str]) -> dict[str, Any]:
    """Do in this process what ``in_child`` asked for."""
    part, where, *rest = arguments
    found = Places(**json.loads(where))
    if part == "links":
        import shared_links

        kind, count, seed = rest
        server = SimpleNamespace(url=found.plain)
        return shared_links.in_reactor(kind, int(count), SHARE, int(seed), found, server)
    import shared_crawls

    name, start, pages, key = rest
    with tempfile.TemporaryDirectory() as folder:
        variant = variants(found)[0][name]
        return shared_crawls.crawl(variant, found.plain, start, int(pages), key, Path(folder))


def run_links(found: Places, kinds: Sequence[str], count: int, rounds: int) -> tuple[Found, Counter[str]]:
    """Return kind -> filter -> figures, and the verdicts."""
    runs: dict[str, dict[str, list[dict[str, float]]]] = {kind: {} for kind in kinds}
    judged: Counter[str] = Counter()
    for number in range(rounds):
        for kind, done in runs.items():
            result = in_child(_HERE, "links", json.dumps(found.as_dict()), kind, count, number)
            judged.update(result["judged"])
            for name, figures in result["figures"].items():
                done.setdefault(name, []).append(figures)
    return {kind: {name: medians(one) for name, one in done.items()} for kind, done in runs.items()}, judged


def run_crawls(found: Places, names: Sequence[str], pages: int, links: int, rounds: int) -> Found:
    """Return filter -> figures; the time is also given as a multiple of scrapy-redis' in the same round."""
    runs: dict[str, list[dict[str, float]]] = {}
    with link_site(links, SHARE) as start:
        for number in range(rounds):
            for name in (name for name in names if name in variants(found)[0]):
                asked = ("crawls", json.dumps(found.as_dict()), name, start, pages, f"crawl{number}-{name}")
                runs.setdefault(name, []).append(in_child(_HERE, *asked))
    result = {name: medians(done) for name, done in runs.items()}
    for name, done in runs.items() if SCRAPY_REDIS in runs else ():
        pairs = zip(done, runs[SCRAPY_REDIS], strict=True)
        result[name] |= medians([{"ratio": one["ms"] / other["ms"]} for one, other in pairs])
    return result


def run_memory(sizes: Sequence[int], sample: int) -> Found:
    """Return filter -> number of keys -> figures."""
    return {
        name: {
            str(size): figures
            for size in sizes
            if (figures := shared_memory.measure(name, size, sample)) is not None
        }
        for name in shared_memory.ALTERNATIVES
    }


def report_links(found: Found, judged: Mapping[str, int], missing: Mapping[str, str], rounds: int) -> None:
    print(f"A local server, pages of 100 links, 90 % duplicates; us per link, medians of {rounds} rounds")
    for kind, figures in found.items():
        print(f"\n{TITLES[kind]}\n")
        rows = [["filter", "us per link", *(f"of {base}" for base in OTHERS)]]
        rows[0] += ["CPU, us", *("CPU of that" for _ in OTHERS)]
        for name, one in figures.items():
            row = [name]
            for unit, of in (("us", "of"), ("cpu", "cpu of")):
                ratios = [one.get(f"{of} {base}") for base in OTHERS]
                row += [f"{one[unit]:.1f}", *("" if ratio is None else f"{ratio:.4f}" for ratio in ratios)]
            rows.append(row)
        print(table(rows + [[name, why, *[""] * 5] for name, why in missing.items()]))
    print("\nVerdicts that differ from Scrapy's: new pages called seen, seen ones called new\n")
    rows = [["filter", "links", "new called seen", "seen called new"]]
    for name in next(iter(found.values())):
        counts = [str(judged.get(f"{name}: {how}", 0)) for how in ("new called seen", "seen called new")]
        rows.append([name, f"{judged[f'{name}: links']:,}", *counts])
    print(table(rows))


def report_crawls(found: Found, links: int, rounds: int) -> None:
    where = f"a server {LATENCY * 1e3:g} ms away"
    print(f"\nCrawls of pages with {links} links, 90 % duplicates, {where}; {rounds} rounds\n")
    rows = [["filter", "pages", "ms per page", f"of {SCRAPY_REDIS}", "round trips of batches", "asked twice"]]
    for name, one in found.items():
        ratio = f"{one['ratio']:.3f}" if "ratio" in one else ""
        counts = [f"{one[what]:,.0f}" for what in ("round trips", "twice")]
        rows.append([name, f"{one['pages']:.0f}", f"{one['ms']:.1f}", ratio, *counts])
    print(table(rows))


def report_memory(found: Found, sizes: Sequence[int]) -> None:
    print(f"\nMemory of the server at an error rate of {shared_memory.RATE:g}, filled to capacity\n")
    rows = [["filter", "URLs", "bytes per URL", f"of {SCRAPY_REDIS}", "used_memory", "error rate"]]
    for name, figures in found.items():
        for size in sizes:
            if (one := figures.get(str(size))) is None:
                rows.append([name, f"{size:,}", "not installed", "", "", ""])
                continue
            base = found[SCRAPY_REDIS][str(size)]["bytes"]
            error = f"{one['error']:.5f}" if "error" in one else "exact"
            rows.append([name, f"{size:,}", f"{one['bytes']:.2f}", f"1/{base / one['bytes']:.1f}"])
            rows[-1] += [f"{one['used']:.2f}", error]
    print(table(rows))


def targets(links: Found, crawls: Found, memory: Found) -> list[tuple[str, float | None, float]]:
    """Return what this was asked to show."""
    asked: list[tuple[str, float | None, float]] = []
    for name in (filters.BITMAP, filters.BLOOM, filters.BITMAP_SET):
        for base, limit in ((SCRAPY_REDIS, 0.1), (REDIS_BLOOM, 0.01)):
            measured = links.get("same", {}).get(name, {}).get(f"of {base}")
            asked.append((f"time per link: {name} / {base}", measured, limit))
    for name in (filters.BITMAP, filters.BITMAP_SET, filters.JOBDIR):
        ratio = crawls.get(name, {}).get("ratio")
        asked.append((f"a crawl, {LATENCY * 1e3:g} ms away: {name} / {SCRAPY_REDIS}", ratio, 0.2))
    base_figures = memory.get(SCRAPY_REDIS, {})
    for name in (filters.BITMAP, filters.BLOOM):
        for size, one in memory.get(name, {}).items():
            base_bytes = base_figures[size]["bytes"]
            asked.append(
                (f"memory at {int(size):,}: {name} / {SCRAPY_REDIS}", one["bytes"] / base_bytes, 0.05)
            )
    return asked


OTHERS = (SCRAPY_REDIS, REDIS_BLOOM)
_HERE = __file__


def main() -> None:
    parser = arguments_of(
        __doc__, "300 links of one kind, 2 pages of 20 links, 20,000 keys, one round", rounds=5
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--links", type=float, default=1e4, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=tuple(TITLES), default=tuple(TITLES))
    parser.add_argument("--pages", type=int, default=40, help="of each crawl")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e5, 1e6])
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(arguments.child)))
        return
    rounds, count, pages = arguments.rounds, int(arguments.links), arguments.pages
    sizes = [int(size) for size in arguments.sizes]
    kinds: Sequence[str] = arguments.kinds
    far_names = FAR
    crawl_links, sample = 100, shared_memory.SAMPLE
    if arguments.quick:
        rounds, count, pages, sizes = 1, 300, 2, [20_000]
        kinds, far_names = ("foreign",), (filters.BITMAP_SET, SCRAPY_REDIS)
        crawl_links, sample = 20, 20_000
    links: Found = {}
    crawls: Found = {}
    memory: Found = {}
    judged: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, places(Path(folder)) as found:
        made, missing = variants(found)
        if "links" in arguments.parts:
            links, judged = run_links(found, kinds, count, rounds)
            report_links(links, judged, missing, rounds)
        if "crawls" in arguments.parts and found.plain is not None:
            with (
                far_away(found.plain, LATENCY) as plain,
                far_away(found.bloom or found.plain, LATENCY) as bloom,
            ):
                far = Places(plain, bloom if found.bloom is not None else None, None)
                crawls = run_crawls(far, far_names, pages, crawl_links, rounds)
            report_crawls(crawls, crawl_links, rounds)
        if "memory" in arguments.parts and found.plain is not None:
            memory = run_memory(sizes, sample)
            report_memory(memory, sizes)
    print(f"\n{targets_table(targets(links, crawls, memory))}")
    result = {"links": links, "crawls": crawls, "memory": memory, "judged": judged, "missing": missing}
    write_json(arguments.json, {**result, "rounds": rounds, "machine": machine()})
    wrong = {
        how: count
        for how, count in judged.items()
        if how.endswith("seen called new")
        or (how.endswith("new called seen") and not made[how.partition(":")[0]].may_err)
    }
    if wrong:
        sys.exit(f"verdicts that are not Scrapy's: {wrong}")


if __name__ == "__main__":
    main()
