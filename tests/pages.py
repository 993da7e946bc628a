"""Which histories do the tests of the page show? One that is hostile, and small ones."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from scrapy_bloomdupe.advice import Facts
from scrapy_bloomdupe.history import History, RuleFigures, Sample, Top

NOW = 1_800_000_000.0

#: A word that only a script which runs puts into the page's title.
PWNED = "pw" + "ned"
_RUN = f"document.title='{PWNED}'"
HOSTILE = [
    f"https://evil.example/</script><script>{_RUN}</script>",
    f"http://x.example/\"'><img src=x onerror={_RUN}>",
    f"http://x.example/]]>--></title></style><svg onload={_RUN}>",
    f"javascript:{_RUN}",
    "http://x.example/\u202egnp.exe\u2066\u200f",
    "http://x.example/" + "a" * 3_000,
    "http://x.example/\ud800\x00\x1b[31m&lt;\ufffe\U0001f600",
    "http://x.example/سلام/שלום",
]

FACTS = Facts(
    directory="/job/bloomdupe",
    keys=330,
    capacity=1_000_000,
    layers=1,
    fill=0.01,
    error_rate=1e-20,
    num_bytes=2_000_000,
    asked=0.001,
    exact=True,
    pending=0,
    failed=0,
    in_order=True,
)

CALM = History(
    (
        Sample(time=NOW - 9, run=1, capacity=1_000_000, layers=1, pending=0),
        Sample(
            time=NOW - 4,
            run=1,
            seconds=5,
            keys=330,
            capacity=1_000_000,
            layers=1,
            pages=318,
            done=318,
            new=330,
            duplicate=4_398,
            cached=4_000,
            pending=0,
            num_bytes=2_000_000,
            anonymous_bytes=60_000_000,
        ),
    ),
    Top((("shop.example", 4_398),)),
)


def hostile_history(num_samples: int = 1_500) -> tuple[Facts, History]:
    """A bare filter, over-full, of 25 runs; hosts, rules and a directory with names from hell."""
    rng = random.Random(3)
    samples: list[Sample] = []
    now = Sample(time=NOW - 90_000, run=1, capacity=1_000_000, layers=1)
    for i in range(num_samples):
        capacity, layers = (now.capacity, now.layers) if now.keys < now.capacity else (now.capacity * 3, 9)
        now = replace(
            now,
            time=now.time + 60,
            run=1 + i // 60,
            seconds=now.seconds + 60,
            keys=now.keys + rng.randrange(9_000),
            capacity=capacity,
            layers=layers,
            fill=0.5 * min(now.keys / capacity, 1),
            error_rate=min(0.5, 1e-12 * 1.02**i),
            pages=now.pages + rng.randrange(3_000),
            new=now.keys,
            unconfirmed=now.unconfirmed + rng.randrange(90_000),
            pending=max(0, int(1e6 * math.sin(i / 500))),
            num_bytes=now.keys * 50 + 5_000_000,
            anonymous_bytes=60_000_000 + i * 1_000_000,
            commit_seconds=now.seconds / 5,
            errors={"commit": 3, "growth": 1, HOSTILE[0]: 1},
        )
        samples.append(now)
    rules = {
        name: RuleFigures(
            {"key": i, "missing": 999_999, "duplicates": 12_345_678, "merged": i, "dropped": 1},
            tuple((HOSTILE[(i + j) % 8], HOSTILE[(i + j + 1) % 8]) for j in range(3)),
        )
        for i, name in enumerate(HOSTILE)
    }
    hosts = tuple((f"{name[8:300]}{i}", 10**8 // (i + 1)) for i, name in enumerate(HOSTILE * 4))
    facts = Facts(
        directory="/very/long/" + "directory-name/" * 9 + HOSTILE[0],
        keys=now.keys,
        capacity=now.capacity,
        layers=now.layers,
        fill=now.fill,
        error_rate=0.033,
        num_bytes=now.num_bytes,
        asked=1e-6,
        exact=False,
        pending=12_345_678,
        failed=17,
        in_order=False,
    )
    return facts, History(tuple(samples), Top(hosts, 123, rules), damaged=3)
