"""What does an audit of the bare filter cost per key, and how often do its bounds hold?

The cost: the same keys, new and then seen, through ``SeenSet.check_and_add`` of states without an audit, with
one that happens to choose none of them, and with shares of them, in turns of slices in one process. The tenth
percentiles are compared: what is slower is what else the machine did. A commit after each slice is on the
clock. The bounds: a filter at three times its capacity that did not grow; lost is a key that is not
audited and is called seen when it is asked for the first time.

``python tests/benchmarks/audit.py [--keys 2e5] [--runs 1000] [--share 0.1] [--rounds 5] [--json FILE]``
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Sequence

from measure import arguments_of, frozen, machine, medians, table, write_json

from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_temporary
from scrapy_bloomdupe.state import State

BASE = "no audit"
SHARES = {BASE: None, "audit, none of the keys in it": 1e-12, "audit of 0.001": 0.001, "audit of 0.01": 0.01}
SLICE = 500
CAPACITY = 400


def run(state: State, keys: Sequence[bytes]) -> float:
    """Return nanoseconds per key."""
    check = state.seen.check_and_add
    started = time.perf_counter()
    for key in keys:
        check(key)
    state.flush()
    return (time.perf_counter() - started) / len(keys) * 1e9


def round_of(num_keys: int, seed: int) -> dict[str, dict[str, float]]:
    rng = random.Random(seed)
    noise = rng.randbytes(20 * num_keys)
    keys = [noise[i : i + 20] for i in range(0, len(noise), 20)]
    taken: dict[str, dict[str, list[float]]] = {name: {"new_ns": [], "seen_ns": []} for name in SHARES}
    options = StateOptions(2 * num_keys, 1e-6, "paged", "murmur3", None)
    made = {
        name: open_temporary(StateOptions(**{**vars(options), "audit": share}))
        for name, share in SHARES.items()
    }
    with frozen():
        for which in ("new_ns", "seen_ns"):
            for start in range(0, num_keys, SLICE):
                part = keys[start : start + SLICE]
                for name in rng.sample(list(made), len(made)):
                    taken[name][which].append(run(made[name], part))
    for state in made.values():
        state.close()
    return {
        name: {
            which: statistics.quantiles(slices, n=10, method="inclusive")[0] for which, slices in both.items()
        }
        for name, both in taken.items()
    }


def covered(runs: int, share: float) -> dict[str, float]:
    """Return how often the bounds held, and the mean relative error of the estimate."""
    held, lost_in_all, error = 0, 0, 0.0
    token_bytes = secrets.token_bytes
    for seed in range(runs):
        rng = random.Random(seed)
        secrets.token_bytes = rng.randbytes
        state = open_temporary(StateOptions(CAPACITY, 0.01, "classic", "murmur3", None, audit=share))
        state.filter._limit = 10**9
        lost = 0
        while state.num_keys() < 3 * CAPACITY:
            lost += state.seen.check_and_add(rng.randbytes(20)).seen
            if state.num_keys() % 100 == 0:
                state.seen.settle()
        assert state.audit is not None
        found = state.audit.estimate()
        held += found.low <= lost <= found.high
        error += (found.others - lost) / lost
        lost_in_all += lost
        state.close()
    secrets.token_bytes = token_bytes
    return {"held": held / runs, "error": error / runs, "lost": lost_in_all / runs}


def main() -> None:
    parser = arguments_of(__doc__, "10,000 keys, one round, 20 runs", rounds=5)
    parser.add_argument("--keys", type=float, default=2e5)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.1, help="that is audited in the runs")
    arguments = parser.parse_args()
    num_keys, rounds, runs = int(arguments.keys), arguments.rounds, arguments.runs
    if arguments.quick:
        num_keys, rounds, runs = 10_000, 1, 20
    done = [round_of(num_keys, seed) for seed in range(rounds)]
    found = {name: medians([one[name] for one in done]) for name in SHARES}
    rows = [["state", "ns per new key", "ns per seen key", "more than without: new, seen"]]
    for name, figures in found.items():
        more = [figures[which] - found[BASE][which] for which in ("new_ns", "seen_ns")]
        row = [name, f"{figures['new_ns']:.0f}", f"{figures['seen_ns']:.0f}"]
        rows.append([*row, f"{more[0]:+.0f}, {more[1]:+.0f}"])
    print(f"{num_keys:,} keys, {rounds} rounds, medians")
    print(table(rows))
    bounds = covered(runs, arguments.share)
    print(
        f"\n{runs} filters at three times their capacity, {arguments.share:g} audited: the 95 % bounds "
        f"held in {bounds['held']:.1%}, {bounds['lost']:.0f} pages lost on the average, mean error of the "
        f"estimate {bounds['error']:+.1%}"
    )
    result = {"keys": num_keys, "rounds": rounds, "machine": machine(), "found": found, "bounds": bounds}
    write_json(arguments.json, result)


if __name__ == "__main__":
    main()
