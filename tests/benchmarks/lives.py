"""What does a filter cost that can forget, and what one of several layers, before and after it is made anew?

``python tests/benchmarks/lives.py [--keys 200000] [--rounds 3] [--json FILE]``

CPU time; memory is the size of the files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha1
from pathlib import Path

from measure import interleaved, table, write_json

from scrapy_bloomdupe.building import FilterValues, roomy
from scrapy_bloomdupe.filters.base import Filter
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counting import CountingFilter
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create
from scrapy_bloomdupe.rebuilding import FilterPlan, rebuild

#: Keys per layer of the first one that make so many of them.
LAYERS = {1: 1.0, 2: 2.0, 4: 8.0, 6: 32.0}


def keys_of(kind: str, count: int) -> list[bytes]:
    return [sha1(f"{kind} {number}".encode()).digest() for number in range(count)]


def us(work: Callable[[bytes], object], keys: Iterable[bytes]) -> float:
    keys = list(keys)
    started = time.process_time()
    for key in keys:
        work(key)
    return (time.process_time() - started) / len(keys) * 1e6


def kinds(path: Path, count: int, error_rate: float) -> Mapping[str, Callable[[], Filter]]:
    values = {"capacity": count + 1, "error_rate": error_rate}
    return {
        "plain": lambda: BloomFilter.create(path, **values),
        "counting": lambda: CountingFilter.create(path, **values),
    }


def one_kind(name: str, error_rate: float, keys: list[bytes], others: list[bytes]) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        found = kinds(Path(directory, "it"), len(keys), error_rate)[name]()
        figures = {"add": us(found.add, keys), "new": us(found.__contains__, others)}
        wrong = sum(key in found for key in others)
        figures |= {"error": wrong / len(others), "bytes": found.info().num_bytes / len(others)}
        if isinstance(found, CountingFilter):
            figures["remove"] = us(found.remove, keys)
        found.close()
    return figures


def layered(num_layers: int, keys: list[bytes], others: list[bytes]) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        capacity = int(len(keys) / LAYERS[num_layers]) + 1
        state = open_or_create(Path(directory), StateOptions(capacity, 0.001, "paged", "murmur3", "lmdb"))
        for at in range(0, len(keys), 1000):
            state.seen.check_and_add_many(keys[at : at + 1000])
            state.flush()
        assert num_layers == state.filter.num_layers
        figures = {"before": us(state.filter.__contains__, others), "bytes": state.filter.num_bytes()}
        capacity = roomy(state.filter, state.num_keys()).capacity
        state.close()
        started = time.process_time()
        plan = FilterPlan(capacity)
        rebuild(
            Path(directory), plan, FilterValues(capacity, 0.001, "paged", "murmur3"), lambda keys, _: keys
        )
        figures["rebuild"] = (time.process_time() - started) / len(keys) * 1e6
        state = open_existing(Path(directory))
        figures |= {"after": us(state.filter.__contains__, others), "bytes after": state.filter.num_bytes()}
        state.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=float, default=2e5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="20,000 keys, one round")
    arguments = parser.parse_args()
    count, rounds = (20_000, 1) if arguments.quick else (int(arguments.keys), arguments.rounds)
    keys, others = keys_of("key", count), keys_of("other", count)
    found = interleaved(
        {
            f"{name}, {rate:g}": (lambda name=name, rate=rate: one_kind(name, rate, keys, others))
            for rate in (1e-3, 1e-6)
            for name in kinds(Path(), count, rate)
        },
        rounds,
    )
    rows = [
        (
            name,
            f"{one['add']:.1f} us",
            f"{one['new']:.1f} us",
            f"{one['remove']:.1f} us" if "remove" in one else "",
            f"{one['bytes']:.1f}",
            f"{one['error']:.2g}",
        )
        for name, one in found.items()
    ]
    head = (f"{count:,} keys", "add", "a new key asked", "remove", "bytes per key", "measured error")
    print(table([head, *rows]))
    layers = interleaved({f"{n} layers": (lambda n=n: layered(n, keys, others)) for n in LAYERS}, rounds)
    rows = [
        (
            name,
            f"{one['before']:.1f} us",
            f"{one['after']:.1f} us",
            f"{one['bytes'] / 1e6:.2f} MB",
            f"{one['bytes after'] / 1e6:.2f} MB",
            f"{one['rebuild']:.1f} us",
        )
        for name, one in layers.items()
    ]
    head = ("", "a new key", "after", "size", "after", "made anew, per key")
    print("\n" + table([head, *rows]))
    if arguments.json:
        write_json(arguments.json, {"found": found, "layers": layers})


if __name__ == "__main__":
    main()
