"""Does a short, coarse filter in front of a long, precise one pay? Check-and-add, one filter beside two.

A key that the coarse filter calls new is new: the precise one is not asked. But it has to be told, or it
would not know the key the next time, and telling touches the page that asking would have touched. Where
nothing is added, only asked, the coarse filter's "new" saves the second look: the last line of each table.

Compared are one filter of the precise rate, the cascade, and one filter with as many bits as the cascade: the
product of both rates takes as many bits as the two filters, so it has the cascade's error as well.

In the page cache, and with nothing of the precise filter (or of both) in it: before every slice the files are
written, their pages unmapped and dropped from the cache (``MADV_DONTNEED``, ``posix_fadvise``). The faults
that had to wait for the disk are counted: where they are 0 the system did not let go, and the times mean
nothing. Not measured: a disk slower than this one, and short memory, where writing back costs as well.

``python tests/benchmarks/cascade.py [--keys 1e6] [--rounds 3] [--json FILE]``
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from measure import arguments_of, frozen, machine, medians, table, write_json

from scrapy_bloomdupe.filters.bloom import BloomFilter

COARSE, PRECISE = 0.05, 1e-4
ALONE, CASCADE, SAME = f"one, {PRECISE:g}", f"cascade, {COARSE:g} + {PRECISE:g}", f"one, {COARSE * PRECISE:g}"
NAMES = (ALONE, CASCADE, SAME)
DUPLICATES = (0.0, 0.5, 0.9)
WARM, PRECISE_COLD, ALL_COLD = "in the page cache", "precise filter on the disk", "all on the disk"
SLICE = 500
# Of each share of duplicates: slices in the cache, and with a cold one, which takes 10 to 100 times as long.
SLICES = {WARM: 60, PRECISE_COLD: 8, ALL_COLD: 8}


class One:
    """A filter alone."""

    def __init__(self, folder: Path, name: str, capacity: int, rate: float) -> None:
        self.filters = [self.made(folder / name, capacity, rate)]
        self.add = self.filters[0].add
        self.has = self.filters[0].__contains__

    @staticmethod
    def made(path: Path, capacity: int, rate: float) -> BloomFilter:
        bloom = BloomFilter.create(path, capacity=capacity, error_rate=rate)
        bloom._limit = 10**12
        return bloom

    def drop(self, which: str) -> None:
        """Let the page cache have nothing of the filters that are to be cold."""
        for bloom in self.filters if which == ALL_COLD else self.filters[-1:]:
            bloom.flush()
            bloom.sync()
            file = bloom._file
            for area, _ in file._maps:
                area.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(file._fd, 0, 0, os.POSIX_FADV_DONTNEED)


class Cascade(One):
    def __init__(self, folder: Path, capacity: int) -> None:
        coarse, precise = (self.made(folder / f"{rate:g}", capacity, rate) for rate in (COARSE, PRECISE))
        self.filters = [coarse, precise]
        add_coarse, add_precise = coarse.add, precise.add

        def add(key: bytes) -> bool:
            if add_coarse(key):
                return add_precise(key)
            add_precise(key)
            return False

        def has(key: bytes) -> bool:
            return key in coarse and key in precise

        self.add, self.has = add, has


def timed(function: Callable[[bytes], bool], keys: Sequence[bytes]) -> tuple[float, float]:
    """Return microseconds, and faults that waited for the disk, per key."""
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    started = time.perf_counter()
    for key in keys:
        function(key)
    seconds = time.perf_counter() - started
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults
    return seconds / len(keys) * 1e6, faults / len(keys)


def round_of(num_keys: int, slices: dict[str, int], seed: int) -> dict[str, dict[str, float]]:
    """Fill the filters by half, and go on with a mix of new and known keys."""
    rng = random.Random(seed)
    known = [rng.randbytes(20) for _ in range(num_keys // 2)]
    found: dict[str, dict[str, float]] = {name: {} for name in NAMES}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        made: dict[str, One] = {
            ALONE: One(folder, "alone", num_keys, PRECISE),
            CASCADE: Cascade(folder, num_keys),
            SAME: One(folder, "same", num_keys, COARSE * PRECISE),
        }
        for one in made.values():
            for key in known:
                one.add(key)
        with frozen():
            for state, count in slices.items():
                for share in (*DUPLICATES, None):
                    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
                    for _ in range(count):
                        keys = [
                            rng.choice(known) if rng.random() < (share or 0) else rng.randbytes(20)
                            for _ in range(SLICE)
                        ]
                        for name in rng.sample(NAMES, len(NAMES)):
                            if state != WARM:
                                made[name].drop(state)
                            one = made[name]
                            taken[name].append(timed(one.has if share is None else one.add, keys))
                    for name in NAMES:
                        times, faults = zip(*taken[name], strict=True)
                        # In the cache the fastest tenth: what is slower is what else the machine did.
                        low, *_, middle = statistics.quantiles(times, n=10, method="inclusive")[:5]
                        found[name][f"{state}, {kind(share)}"] = low if state == WARM else middle
                        found[name][f"{state}, {kind(share)}: faults"] = statistics.mean(faults)
        for name, one in made.items():
            found[name]["bytes per key"] = sum(bloom.num_bytes() for bloom in one.filters) / num_keys
            for bloom in one.filters:
                bloom.close()
    return found


def kind(share: float | None) -> str:
    return "only asked, all new" if share is None else f"{share:.0%} duplicates"


def main() -> None:
    parser = arguments_of(__doc__, "20,000 keys, one round, few slices", rounds=3)
    parser.add_argument("--keys", type=float, default=1e6)
    arguments = parser.parse_args()
    num_keys, rounds, slices = int(arguments.keys), arguments.rounds, SLICES
    if arguments.quick:
        num_keys, rounds, slices = 20_000, 1, dict.fromkeys(SLICES, 2)
    done = [round_of(num_keys, slices, seed) for seed in range(rounds)]
    found = {name: medians([one[name] for one in done]) for name in NAMES}
    sizes = ", ".join(f"{name}: {found[name]['bytes per key']:.2f}" for name in NAMES)
    print(f"filters for {num_keys:,} keys, half full, {rounds} rounds, medians; bytes per key: {sizes}")
    for state in slices:
        rows = [[state, *(f"{name}: us (disk faults)" for name in NAMES), "cascade / one"]]
        for share in (*DUPLICATES, None):
            figure = f"{state}, {kind(share)}"
            row = [kind(share)]
            row += [f"{found[name][figure]:.2f} ({found[name][f'{figure}: faults']:.2f})" for name in NAMES]
            rows.append([*row, f"{found[CASCADE][figure] / found[ALONE][figure]:.2f}"])
        print(f"\n{table(rows)}")
    result = {"keys": num_keys, "rounds": rounds, "machine": machine(), "found": found}
    write_json(arguments.json, result)


if __name__ == "__main__":
    main()
