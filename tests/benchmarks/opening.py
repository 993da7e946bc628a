"""How long does it take to open the seen-set of a crawl, and what memory does it hold?

Scrapy's own filter and ours on the same fingerprints, each opened in a process of its own, in turns:
``python tests/benchmarks/opening.py [--keys 10000000] [--rounds 5] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from measure import anonymous_bytes, interleaved, table, write_json


def write_seen(path: Path, num_keys: int) -> None:
    """Write a ``requests.seen`` of random fingerprints as Scrapy 2.19 does."""
    with path.open("wb") as file:
        left = num_keys
        while left:
            count = min(left, 100_000)
            noise = os.urandom(20 * count)
            file.write(b"".join(b"\0\x14" + noise[i : i + 20] for i in range(0, 20 * count, 20)))
            left -= count


def open_once(which: str, jobdir: str) -> dict[str, float]:
    """Open one filter in this process; return seconds, bytes of anonymous memory, and keys found."""
    from scrapy import Request
    from scrapy.settings import Settings
    from scrapy.utils.test import get_crawler

    from scrapy_bloomdupe import BloomDupeFilter

    crawler = get_crawler(settings_dict={"JOBDIR": jobdir})
    assert isinstance(crawler.settings, Settings)
    before = anonymous_bytes()
    started = time.perf_counter()
    if which == "scrapy":
        from scrapy.dupefilters import RFPDupeFilter

        dupefilter = RFPDupeFilter.from_crawler(crawler)
    else:
        dupefilter = BloomDupeFilter.from_crawler(crawler)
    dupefilter.open()
    seconds = time.perf_counter() - started
    # Both have to work after this: one question is asked outside the clock.
    assert not dupefilter.request_seen(Request(f"http://example.com/{os.urandom(8).hex()}"))
    held = anonymous_bytes() - before
    # Now every page of ours is touched: what it holds when it is warm.
    with Path(jobdir, "requests.seen").open("rb") as file:
        sample = file.read(22 * 20_000)
    warm = held
    if which == "ours":
        state = dupefilter._state
        assert state is not None
        assert all(sample[i + 2 : i + 22] in state.seen for i in range(0, len(sample), 22))
        warm = anonymous_bytes() - before
    dupefilter.close("finished")
    return {"seconds": seconds, "bytes": held, "warm_bytes": warm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=float, default=1e7)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="20,000 keys, one round")
    parser.add_argument("--child", nargs=2, metavar=("WHICH", "JOBDIR"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(open_once(*arguments.child)))
        return
    num_keys, rounds = (20_000, 1) if arguments.quick else (int(arguments.keys), arguments.rounds)
    with tempfile.TemporaryDirectory() as jobdir:
        write_seen(Path(jobdir, "requests.seen"), num_keys)
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "scrapy_bloomdupe", "import", jobdir], check=True, stdout=sys.stderr
        )
        imported = time.perf_counter() - started

        def run(which: str) -> Mapping[str, float]:
            command = [sys.executable, __file__, "--child", which, jobdir]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            figures: dict[str, float] = json.loads(output.splitlines()[-1])
            return figures

        found = interleaved({"scrapy": lambda: run("scrapy"), "ours": lambda: run("ours")}, rounds)
        state = Path(jobdir, "bloomdupe")
        disk = {
            "scrapy": Path(jobdir, "requests.seen").stat().st_size,
            "ours": sum(path.stat().st_size for path in state.iterdir()),
        }
    rows = [["filter", "open, s", "anonymous memory, bytes/key", "disk, bytes/key"]]
    rows += [
        [
            name,
            f"{figures['seconds']:.4f}",
            f"{figures['warm_bytes'] / num_keys:.3f}",
            f"{disk[name] / num_keys:.1f}",
        ]
        for name, figures in found.items()
    ]
    ratio = found["scrapy"]["seconds"] / found["ours"]["seconds"]
    print(f"{num_keys:,} keys, {rounds} rounds, medians; the import took {imported:.0f} s")
    print(table(rows))
    print(f"opening: ours takes 1/{ratio:.0f} of the time")
    write_json(arguments.json, {"num_keys": num_keys, "found": found, "disk": disk, "ratio": ratio})


if __name__ == "__main__":
    main()
