"""What do Bloom filters alone take per key? Ours beside rbloom, fastbloom-rs and pybloomfiltermmap3.

The same keys of 20 bytes, the same promised error, check-and-add as each offers it, in turns of slices in
one process. Ours and pybloomfiltermmap3 lie in mapped files and outlive the process. rbloom and
fastbloom-rs live in memory; with Python's own ``hash`` rbloom cannot be saved and used by another process,
so it is asked with two hash functions that can: the one of its documentation, and the first 16 bytes of the
key, which is a digest already.

``python tests/benchmarks/structures.py [--keys 1e6] [--error-rate 0.001] [--rounds 5] [--json FILE]``
"""

from __future__ import annotations

import hashlib
import pickle
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import plots
from measure import (
    NOT_INSTALLED,
    Turns,
    arguments_of,
    frozen,
    machine,
    medians,
    optional,
    table,
    targets_table,
    write_json,
)

from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.layouts import LAYOUTS
from scrapy_bloomdupe.hashing import SCHEMES
from scrapy_bloomdupe.sizing import optimal_num_bits

BASE = "pybloomfiltermmap3"
OURS = "ours, paged murmur3"
PERSISTABLE = ("rbloom, hash of its documentation", "rbloom, first bytes of the key")
SLICE, TURNS = 1_000, 5


class Structure:
    """One filter: ``check_and_add`` over keys, returning how many it called seen."""

    def __init__(self, add: Callable[[bytes], bool], has: Callable[[bytes], bool], num_bytes: int) -> None:
        self._add, self._has, self.num_bytes = add, has, num_bytes
        self.close: Callable[[], object] = lambda: None

    def run(self, keys: Sequence[bytes]) -> int:
        add = self._add
        return sum([add(key) for key in keys])

    def count(self, keys: Sequence[bytes]) -> int:
        """How many of *keys* it says to have."""
        return sum(map(self._has, keys))


class TwoCalls(Structure):
    """A filter that is asked first and told afterwards."""

    def run(self, keys: Sequence[bytes]) -> int:
        add, has, seen = self._add, self._has, 0
        for key in keys:
            if has(key):
                seen += 1
            else:
                add(key)
        return seen


def ours(layout: str, scheme: str, folder: Path, capacity: int, rate: float) -> Structure:
    # At its capacity it grows; here it shall be as full as the others.
    made = BloomFilter.create(
        folder / f"{layout}-{scheme}", capacity=capacity, error_rate=rate, layout=layout, scheme=scheme
    )
    made._limit = capacity + 1
    structure = Structure(made.add, made.__contains__, made.num_bytes())
    structure.close = made.close
    return structure


def pybloom(folder: Path, capacity: int, rate: float) -> Structure:
    made = optional("pybloomfilter").BloomFilter(capacity, rate, str(folder / "pybloom"))
    structure = Structure(made.add, made.__contains__, made.num_bits // 8)
    structure.close = made.close
    return structure


def documented(key: object) -> int:
    """The hash function that rbloom's documentation gives for filters that are saved."""
    return int.from_bytes(hashlib.sha256(pickle.dumps(key)).digest()[:16], "big", signed=True)


def cut(key: bytes) -> int:
    return int.from_bytes(key[:16], "big", signed=True)


def rbloom(hash_function: Callable[[Any], int] | None, folder: Path, capacity: int, rate: float) -> Structure:
    more = [hash_function] if hash_function else []
    made = optional("rbloom").Bloom(capacity, rate, *more)
    return TwoCalls(made.add, made.__contains__, made.size_in_bits // 8)


def fastbloom(folder: Path, capacity: int, rate: float) -> Structure:
    made = optional("fastbloom_rs").FilterBuilder(capacity, rate).build_bloom_filter()
    return Structure(made.add_if_not_contains, made.contains_bytes, len(made.get_bytes()))


MAKERS: dict[str, Callable[[Path, int, float], Structure]] = {
    **{
        f"ours, {layout} {scheme}": partial(ours, layout, scheme)
        for layout in reversed(LAYOUTS)
        for scheme in SCHEMES
    },
    BASE: pybloom,
    "rbloom, Python's hash (not persistable)": partial(rbloom, None),
    "rbloom, hash of its documentation": partial(rbloom, documented),
    "rbloom, first bytes of the key": partial(rbloom, cut),
    "fastbloom-rs": fastbloom,
}
MODULES = {"pybloomfiltermmap3": "pybloomfilter", "rbloom": "rbloom", "fastbloom-rs": "fastbloom_rs"}


def is_missing(name: str) -> bool:
    module = MODULES.get(name.partition(",")[0])
    return module is not None and optional(module) is None


def round_of(names: Sequence[str], num_keys: int, rate: float, seed: int) -> dict[str, dict[str, float]]:
    """Fill every structure, ask it again, and count its errors."""
    rng = random.Random(seed)
    noise = rng.randbytes(40 * num_keys)
    every = [noise[i : i + 20] for i in range(0, len(noise), 20)]
    keys, others = every[:num_keys], every[num_keys:]
    parts = [keys[start : start + SLICE] for start in range(0, num_keys, SLICE)]
    new, seen = Turns(), Turns()
    with tempfile.TemporaryDirectory() as folder:
        made = {name: MAKERS[name](Path(folder), num_keys, rate) for name in names}
        lost = dict.fromkeys(names, 0)
        with frozen():
            for clock in (new, seen):
                for turn, part in enumerate(parts):
                    for name in rng.sample(names, len(names)):
                        called_seen = clock.take(
                            name, turn // TURNS, partial(made[name].run, part), len(part)
                        )
                        lost[name] += len(part) - called_seen if clock is seen else 0
        errors = {name: structure.count(others) / len(others) for name, structure in made.items()}
        for structure in made.values():
            structure.close()
    if forgotten := [name for name, count in lost.items() if count]:
        raise SystemExit(f"these forgot keys: {', '.join(forgotten)}")
    base = BASE if BASE in names else OURS
    return {
        name: {
            "new_ns": new.per_unit(name, 1e9),
            "seen_ns": seen.per_unit(name, 1e9),
            "new_ratio": new.ratio(name, base),
            "seen_ratio": seen.ratio(name, base),
            "error": errors[name],
            "bytes": made[name].num_bytes / num_keys,
        }
        for name in names
    }


def targets(found: dict[str, dict[str, float]]) -> list[tuple[str, float | None, float]]:
    """Return what this benchmark was asked to show, for half new and half seen keys."""

    def ratio(base: str) -> float | None:
        if base not in found:
            return None
        both = [found[name]["new_ns"] + found[name]["seen_ns"] for name in (OURS, base)]
        return both[0] / both[1]

    return [
        (f"{OURS} / pybloomfiltermmap3", ratio(BASE), 2.0),
        *((f"{OURS} / {name}", ratio(name), 1.0) for name in PERSISTABLE),
    ]


def main() -> None:
    parser = arguments_of(__doc__, "10,000 keys, one round", rounds=5, plots=True)
    parser.add_argument("--keys", type=float, default=1e6)
    parser.add_argument("--error-rate", type=float, default=0.001)
    arguments = parser.parse_args()
    rate, num_keys, rounds = arguments.error_rate, int(arguments.keys), arguments.rounds
    if arguments.quick:
        num_keys, rounds = 10_000, 1
    names = [name for name in MAKERS if not is_missing(name)]
    done = [round_of(names, num_keys, rate, seed) for seed in range(rounds)]
    found = {name: medians([one[name] for one in done]) for name in names}
    base = BASE if BASE in names else OURS
    rows = [["filter", "ns per new key", "ns per seen key", f"new, seen / {base}"]]
    rows[0] += ["measured / promised error", "bytes/key"]
    for name in MAKERS:
        if name not in found:
            rows.append([name, NOT_INSTALLED, "", "", "", ""])
            continue
        figures = found[name]
        row = [name, f"{figures['new_ns']:.0f}", f"{figures['seen_ns']:.0f}"]
        row += [f"{figures['new_ratio']:.2f}, {figures['seen_ratio']:.2f}", f"{figures['error'] / rate:.2f}"]
        rows.append([*row, f"{figures['bytes']:.3f}"])
    formula = optimal_num_bits(num_keys, rate) / 8 / num_keys
    print(f"{num_keys:,} keys, promised error {rate:g} (the formula: {formula:.3f} bytes per key), ", end="")
    print(f"{rounds} rounds, medians")
    print(table(rows))
    print(f"\n{targets_table(targets(found))}")
    result = {"keys": num_keys, "error_rate": rate, "rounds": rounds, "machine": machine(), "found": found}
    write_json(arguments.json, result)
    if arguments.plots:
        plots.draw("structures", arguments.plots, found)


if __name__ == "__main__":
    main()
