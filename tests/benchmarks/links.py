"""What does ``request_seen`` take per link? Scrapy's filter, ours, and those on a Valkey server.

All of them are asked the same links in slices, in turns, in one process; requests are built off the clock,
each filter gets its own. Every 500 links ours writes what waits, as its clock does in a crawl. Every verdict
is compared with Scrapy's: one that differs ends the benchmark with an error; for Bloom filters that may
err it is counted and printed.

``python tests/benchmarks/links.py [--links 10000] [--rounds 3] [--plots] [--json FILE]``
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import plots
from dupefilters import BASE, VARIANTS, Opened, Variant
from links_mix import Links, links
from links_report import NEW_AS_SEEN, SEEN_AS_NEW, report
from measure import Turns, arguments_of, frozen, machine, medians, write_json
from scrapy import Request
from servers import Server, valkey

DUPLICATES: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
#: Two kinds of duplicates, see ``links_mix.links``.
KINDS = ("same", "other")
#: Links of one turn, and turns after which what waits is written.
SLICE, COMMIT = 100, 5


def requests_of(urls: Sequence[str]) -> list[Request]:
    # Scrapy's own middleware has put the depth into the meta by then.
    return [Request(url, meta={"depth": 1}) for url in urls]


def run(
    asked: Links, variants: Mapping[str, Variant], server: Server | None, order: random.Random
) -> tuple[Turns, Counter[str]]:
    """Ask every variant; return the clocks, and how many verdicts of which variant were right and wrong."""
    clocks, judged = Turns(), Counter[str]()
    parts = [asked.urls[start : start + SLICE] for start in range(0, len(asked.urls), SLICE)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        opened: dict[str, Opened] = {}
        for number, (name, variant) in enumerate(variants.items()):
            jobdir = Path(folder, str(number))
            jobdir.mkdir()
            opened[name] = Opened(variant, jobdir, server)
            stack.callback(opened[name].close)
            opened[name].ask(requests_of(asked.before), commit=True)
        stack.enter_context(frozen())
        for turn, part in enumerate(parts):
            names = [name for name in variants if turn < -(-len(parts) // variants[name].share)]
            verdicts: dict[str, list[bool]] = {}
            for name in order.sample(names, len(names)):
                ask = partial(opened[name].ask, requests_of(part), commit=turn % COMMIT == COMMIT - 1)
                verdicts[name] = clocks.take(name, turn // COMMIT, ask, len(part))
            compare(verdicts, judged)
    return clocks, judged


def compare(verdicts: Mapping[str, Sequence[bool]], judged: Counter[str]) -> None:
    """Count what agrees with Scrapy's verdicts and what does not."""
    for name, found in verdicts.items():
        judged[f"{name}: links"] += len(found)
        for expected, verdict in zip(verdicts[BASE], found, strict=True):
            if expected != verdict:
                judged[f"{name}: {NEW_AS_SEEN if verdict else SEEN_AS_NEW}"] += 1


def errors(judged: Counter[str], variants: Mapping[str, Variant]) -> list[str]:
    """Return the wrong verdicts that none may give: a Bloom filter calls new pages seen, never the
    other way round."""
    counts = {
        f"{name}: {how}": judged[f"{name}: {how}"]
        for name, variant in variants.items()
        for how in (NEW_AS_SEEN, SEEN_AS_NEW)
        if not (variant.may_err and how == NEW_AS_SEEN)
    }
    return [f"{how} ({count})" for how, count in counts.items() if count]


def main() -> None:
    parser = arguments_of(__doc__, "200 links, one round, two shares", rounds=3, plots=True)
    parser.add_argument("--links", type=float, default=1e4, help="per share of duplicates")
    arguments = parser.parse_args()
    count, rounds, shares = int(arguments.links), arguments.rounds, DUPLICATES
    if arguments.quick:
        count, rounds, shares = 200, 1, (0.0, 0.9)
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {kind: {} for kind in KINDS}
    judged = Counter[str]()
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as server:
        missing = {name: why for name, variant in VARIANTS.items() if (why := variant.missing(server))}
        variants = {name: variant for name, variant in VARIANTS.items() if name not in missing}
        for kind in KINDS:
            for share in shares:
                runs: dict[str, list[dict[str, float]]] = {}
                for number in range(rounds):
                    asked = links(count, share, kind, seed=number)
                    clocks, counts = run(asked, variants, server, random.Random(number))
                    judged += counts
                    for name in variants:
                        figures = {"us": clocks.per_unit(name), "ratio": clocks.ratio(name, BASE)}
                        runs.setdefault(name, []).append(figures)
                found[kind][f"{share:g}"] = {name: medians(figures) for name, figures in runs.items()}
    print(f"{count:,} links per share of duplicates, {rounds} rounds, medians; in turns of {SLICE} links")
    report(found, missing, judged)
    result = {"links": count, "rounds": rounds, "machine": machine(), "found": found, "judged": judged}
    write_json(arguments.json, {**result, "missing": missing})
    if arguments.plots:
        plots.draw("links", arguments.plots, found)
    if problems := errors(judged, variants):
        sys.exit(f"verdicts that are not Scrapy's: {'; '.join(problems)}")
    print("\nNo verdict differs from Scrapy's but those of Bloom filters above.")


if __name__ == "__main__":
    main()
