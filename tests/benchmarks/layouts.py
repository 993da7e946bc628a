"""Which layout and scheme is the better one? Time per new and per seen key, measured error, size.

``python tests/benchmarks/layouts.py [--keys 1000000] [--error-rate 0.001] [--rounds 5] [--json FILE]``
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from measure import interleaved, table, write_json

from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.layouts import LAYOUTS
from scrapy_bloomdupe.hashing import SCHEMES
from scrapy_bloomdupe.sizing import optimal_num_bits


def keys_of(count: int) -> list[bytes]:
    noise = os.urandom(20 * count)
    return [noise[i : i + 20] for i in range(0, 20 * count, 20)]


def run_once(
    layout: str, scheme: str, keys: list[bytes], others: list[bytes], error_rate: float
) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        bloom = BloomFilter.create(
            Path(directory, "seen.bloom"),
            capacity=len(keys),
            error_rate=error_rate,
            layout=layout,
            scheme=scheme,
        )
        add = bloom.add
        # One short of the capacity: the last key would make it grow.
        t0 = time.perf_counter()
        for key in keys[:-1]:
            add(key)
        t1 = time.perf_counter()
        for key in keys[:-1]:
            add(key)
        t2 = time.perf_counter()
        wrong = sum(key in bloom for key in others)
        size = bloom.num_bytes()
        bloom.close()
    return {
        "new_us": (t1 - t0) / len(keys) * 1e6,
        "seen_us": (t2 - t1) / len(keys) * 1e6,
        "error": wrong / len(others),
        "bytes": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=float, default=1e6)
    parser.add_argument("--error-rate", type=float, default=0.001)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="20,000 keys, one round")
    arguments = parser.parse_args()
    num_keys, rounds = (20_000, 1) if arguments.quick else (int(arguments.keys), arguments.rounds)
    keys, others = keys_of(num_keys), keys_of(num_keys)
    found = interleaved(
        {
            f"{layout} {scheme}": (
                lambda layout=layout, scheme=scheme: run_once(
                    layout, scheme, keys, others, arguments.error_rate
                )
            )
            for scheme in SCHEMES
            for layout in LAYOUTS
        },
        rounds,
    )
    formula = optimal_num_bits(num_keys, arguments.error_rate) / 8
    rows = [
        ["layout, scheme", "us per new key", "us per seen key", "measured / asked error", "size / formula"]
    ]
    rows += [
        [
            name,
            f"{figures['new_us']:.2f}",
            f"{figures['seen_us']:.2f}",
            f"{figures['error'] / arguments.error_rate:.2f}",
            f"{figures['bytes'] / formula:.3f}",
        ]
        for name, figures in found.items()
    ]
    print(f"{num_keys:,} keys, error rate {arguments.error_rate:g}, {rounds} rounds, medians")
    print(table(rows))
    write_json(arguments.json, {"num_keys": num_keys, "error_rate": arguments.error_rate, "found": found})


if __name__ == "__main__":
    main()
