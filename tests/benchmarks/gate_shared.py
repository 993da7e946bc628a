"""What does a gate on a server cost to build and to ask, with and without RedisBloom?

``python tests/benchmarks/gate_shared.py [--keys 1000000] [--rounds 3] [--json FILE]``

The server is on this machine, on a loopback port, and takes its share of the processor: the time is that of a
clock on the wall. Questions are asked in batches of 100, as of a page with 100 links, and one by one.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from measure import arguments_of, machine, medians, table, write_json
from servers import valkey

from scrapy_bloomdupe.gate.building import build_gate
from scrapy_bloomdupe.gate.gate import Gate

PAGE = 100
SHARES = (0, 50, 100)


def measured(url: str, count: int, asked: int) -> dict[str, float]:
    started = time.perf_counter()
    report = build_gate(url, (f"item-{number}" for number in range(count)), capacity=count, key="gate")
    found = {
        "built_per_second": count / (time.perf_counter() - started),
        "bytes_per_key": report.num_bytes / count,
    }
    gate = Gate.open(url, key="gate")
    for share in SHARES:
        pages = [
            [f"item-{page + place}" if place < share else f"none-{page + place}" for place in range(PAGE)]
            for page in range(0, asked, PAGE)
        ]
        started = time.perf_counter()
        passed = sum(sum(gate.might_contain_many(page)) for page in pages)
        found[f"us_per_key_{share}"] = (time.perf_counter() - started) / asked * 1e6
        known = asked * share // 100
        if share == 0:
            found["unknown_passed"] = passed / asked
        elif passed < known:
            raise RuntimeError(f"{known - passed} of {known} known keys were rejected")
    started = time.perf_counter()
    for number in range(asked // PAGE):
        gate.might_contain(f"item-{number}")
    found["us_one_by_one"] = (time.perf_counter() - started) / (asked // PAGE) * 1e6
    gate.close()
    return found


def rows_of(found: dict[str, dict[str, float]]) -> list[list[str]]:
    head = ["server", "built, keys/s", *(f"us per key, {share} % known" for share in SHARES)]
    rows = [[*head, "one by one, us", "bytes per key", "pass"]]
    for name, figures in found.items():
        row = [name, f"{figures['built_per_second']:,.0f}"]
        row += [f"{figures[f'us_per_key_{share}']:.1f}" for share in SHARES]
        row += [f"{figures['us_one_by_one']:.0f}", f"{figures['bytes_per_key']:.2f}"]
        rows.append([*row, f"{figures['unknown_passed']:.4f}"])
    return rows


def main() -> None:
    parser = arguments_of(__doc__, "20,000 keys, one round", rounds=3)
    parser.add_argument("--keys", type=float, default=1e6)
    arguments = parser.parse_args()
    count, rounds = (20_000, 1) if arguments.quick else (int(arguments.keys), arguments.rounds)
    asked = min(count, 100_000)
    found: dict[str, dict[str, float]] = {}
    for name, bloom in (("bitmaps", False), ("RedisBloom", True)):
        with tempfile.TemporaryDirectory() as folder, valkey(Path(folder), bloom=bloom) as server:
            if server is not None and server.has_bloom == bloom:
                url = f"redis://127.0.0.1:{server.port}"
                found[name] = medians([measured(url, count, asked) for _ in range(rounds)])
    print(f"{count:,} keys, {rounds} rounds, medians")
    print(table(rows_of(found)))
    result: dict[str, Any] = {"num_keys": count, "found": found}
    write_json(arguments.json, {**result, "machine": machine()})


if __name__ == "__main__":
    main()
