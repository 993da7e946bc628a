"""What does check-and-add take with 10^6, 10^7, 10^8 keys, and what would 10^9 and 10^10 need?

One filter after the other is filled to its capacity, in files, by the paths of a crawl (``SeenSet``), and
asked when it is full: for the last keys added, for keys that it has, for keys that it has with its file
out of the page cache, and for keys that it never got, to count its errors. What is said of 10^9 and 10^10
is arithmetic with these figures. Times are CPU time, but for those that read from the disk.

``python tests/benchmarks/scale.py [--sizes 1e6 1e7] [--huge] [--plots] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import plots
from measure import arguments_of, disk_bytes, in_child, machine, medians, table, targets_table, write_json
from scale_paper import paper

from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create
from scrapy_bloomdupe.state import State

RATE = 1e-3
CHUNK = 10_000
#: Keys that are asked for of a full filter, in each way.
ASKED = 200_000
COLD = 2_000
#: Keys that it never got, at the most.
OTHERS = 1_000_000
STORES = {"bare": None, "exact": "lmdb"}


def chunk(number: int, what: str = "added") -> list[bytes]:
    """Return keys like fingerprints; the same number gives the same ones."""
    noise = random.Random(f"{what} {number}").randbytes(20 * CHUNK)
    return [noise[i : i + 20] for i in range(0, 20 * CHUNK, 20)]


def sample(num_keys: int, count: int, seed: int) -> list[bytes]:
    """Return *count* of the keys that were put in, from everywhere, in any order."""
    rng = random.Random(seed)
    chunks = num_keys // CHUNK
    numbers = rng.sample(range(chunks), min(chunks, 40))
    keys = [key for number in numbers for key in rng.sample(chunk(number), count // len(numbers))]
    rng.shuffle(keys)
    return keys


def timed(state: State, keys: Sequence[bytes], clock: Callable[[], float] = time.process_time) -> float:
    """Return microseconds per check-and-add.

    Args:
        clock: CPU time, the system's work for the process included, where nothing is waited for.
    """
    check = state.seen.check_and_add
    started = clock()
    for key in keys:
        check(key)
    return (clock() - started) / len(keys) * 1e6


def drop_from_cache(folder: Path) -> None:
    """Ask the system to forget the pages of all files in *folder*; nothing may be mapped."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill_and_ask(folder: Path, num_keys: int, store: str | None) -> dict[str, float]:
    # One more than there will be, and those that are asked for errors: at its capacity it grows.
    state = open_or_create(folder, StateOptions(num_keys + 1, RATE, "paged", "murmur3", store))
    started = time.perf_counter()
    chunks = num_keys // CHUNK
    last: list[float] = []
    for number in range(chunks):
        spent = timed(state, chunk(number))
        if number >= min(chunks - 1, chunks * 0.95):
            last.append(spent)
    found = {"fill_s": time.perf_counter() - started, "new_us": sum(last) / len(last)}
    state.flush()
    asked = min(ASKED, num_keys // 2)
    timed(state, sample(num_keys, asked, 1))  # into the page cache and the caches of views
    before = resource.getrusage(resource.RUSAGE_SELF)
    found["seen_us"] = timed(state, sample(num_keys, asked, 2))
    after = resource.getrusage(resource.RUSAGE_SELF)
    found["faults"] = (after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt) / asked
    bloom = state.filter
    others = min(OTHERS, 10 * num_keys)
    wrong = sum(key in bloom for number in range(others // CHUNK) for key in chunk(number, "other"))
    found["error"] = wrong / others
    found["filter_bytes"] = bloom.num_bytes()
    state.close()
    found["disk"] = disk_bytes(folder)
    drop_from_cache(folder)
    started = time.perf_counter()
    state = open_existing(folder)
    found["open_s"] = time.perf_counter() - started
    before = resource.getrusage(resource.RUSAGE_SELF)
    found["cold_us"] = timed(state, sample(num_keys, COLD, 3), time.perf_counter)
    after = resource.getrusage(resource.RUSAGE_SELF)
    found["cold_reads"] = (after.ru_majflt - before.ru_majflt) / COLD
    found["read_us"] = (found["cold_us"] - found["seen_us"]) / max(found["cold_reads"], 1 / COLD)
    state.close()
    return found


def options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument(
        "--huge", action="store_true", help="10^8 keys as well: ten minutes bare, most of an hour exact"
    )
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=list(STORES))
    return parser.parse_args()


def report(found: dict[str, dict[str, dict[str, float]]]) -> None:
    rows = [["filter", "keys", "us per new key", "us per seen key", "us per seen key, cold", "reads, cold"]]
    rows[0] += ["error / promised", "filter, bytes/key", "disk, bytes/key", "open, s"]
    for store, sizes in found.items():
        for size, figures in sizes.items():
            num_keys = int(size)
            row = [store, f"{num_keys:.0e}", f"{figures['new_us']:.2f}", f"{figures['seen_us']:.2f}"]
            row += [f"{figures['cold_us']:.1f}", f"{figures['cold_reads']:.2f}"]
            row += [f"{figures['error'] / RATE:.2f}", f"{figures['filter_bytes'] / num_keys:.2f}"]
            rows.append([*row, f"{figures['disk'] / num_keys:.2f}", f"{figures['open_s']:.4f}"])
    print(table(rows))


def targets(found: dict[str, dict[str, dict[str, float]]]) -> list[tuple[str, float | None, float]]:
    bare = found.get("bare", {})
    first, last = bare.get("1000000"), bare.get("100000000")
    both = first is not None and last is not None
    return [
        ("10^8 keys, bare: measured / promised error", last["error"] / RATE if last else None, 1.1),
        ("bare, new key: 10^8 / 10^6", last["new_us"] / first["new_us"] if both else None, 2.0),  # type: ignore[index]
        ("bare, seen key: 10^8 / 10^6", last["seen_us"] / first["seen_us"] if both else None, 2.0),  # type: ignore[index]
    ]


def main() -> None:
    parser = arguments_of(__doc__, "20,000 keys", rounds=1, plots=True)
    arguments = options(parser)
    if arguments.child:
        folder, size, store = arguments.child
        print(json.dumps(fill_and_ask(Path(folder), int(size), STORES[store])))
        return
    sizes = [int(size) for size in arguments.sizes] + [10**8] * arguments.huge
    if arguments.quick:
        sizes = [20_000]
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {store: {} for store in arguments.stores}
    for size in sizes:
        for _ in range(1 if arguments.quick else arguments.rounds):
            for store, done in runs.items():
                with tempfile.TemporaryDirectory() as folder:
                    done.setdefault(str(size), []).append(in_child(__file__, folder, size, store))
    found = {store: {size: medians(runs_) for size, runs_ in done.items()} for store, done in runs.items()}
    print(
        f"promised error {RATE:g}, {arguments.rounds} rounds, medians; cold: the files out of the page cache"
    )
    report(found)
    print(f"\n{targets_table(targets(found))}\n")
    largest = {store: done[str(sizes[-1])] for store, done in found.items()}
    print(f"On paper, with the figures of {sizes[-1]:.0e} keys\n")
    rows = paper(largest, sizes[-1], RATE)
    print(table(rows))
    write_json(arguments.json, {"error_rate": RATE, "machine": machine(), "found": found, "paper": rows})
    if arguments.plots:
        plots.draw("scale", arguments.plots, found)


if __name__ == "__main__":
    main()
