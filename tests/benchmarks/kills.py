"""What a job loses and repeats whose processes are killed: trees of pages, ``kill -9`` at random moments.

``python tests/benchmarks/kills.py [--pages 2000] [--seeds 5] [--kills 20] [--variants NAME/NAME]``

Every tree is crawled once undisturbed, which says how many answers it takes. A page is linked once, so
nothing makes up for a loss.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from forking import wait_until  # noqa: E402
from killing import Job, jobs  # noqa: E402
from killsite import Tree  # noqa: E402
from measure import arguments_of, machine, table, targets_table, write_json  # noqa: E402

KINDS = "ppppphocvffsd"
ADDON = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}
LINE = {"DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter"}
BARE = {"BLOOMDUPE_STORE": None}
VARIANTS: dict[str, dict[str, Any]] = {
    "add-on, exact": ADDON,
    "add-on, bare": {**ADDON, **BARE},
    "one line, exact": LINE,
    "one line, bare": {**LINE, **BARE},
}
COMMON = {
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    # The processes of the crawls know the folder of the tests only.
    "ITEM_PIPELINES": {"benchmarks.kills.AtOnce": 1},
}
COUNTS = ("kills", "lost pages", "lost items", "extra answers", "twice in feed", "twice in pipeline")


class AtOnce:
    """A pipeline whose items are out of the process at once, as in a database without transactions."""

    def open_spider(self, spider: Any = None) -> None:
        self._file = Path("items").open("a")  # noqa: SIM115

    def process_item(self, item: Any, spider: Any = None) -> Any:
        self._file.write(json.dumps([item["page"], item["part"]]) + "\n")
        self._file.flush()
        return item


def num_answers(job: Job) -> int:
    with job.area.log.open("rb") as log:
        log.seek(job._from)
        return log.read().count(b"\n")


def kill_often(job: Job, kills: int, answers: int, seed: int) -> None:
    """Kill *job* at *kills* moments of the first nine tenths of its *answers*, and run it to its end."""
    rng = random.Random(seed)
    for goal in sorted(rng.sample(range(1, answers * 9 // 10), kills)):
        with job.going() as going:
            wait_until(lambda goal=goal: going.ended() or num_answers(job) >= goal, "answer")  # type: ignore[misc]
            time.sleep(rng.uniform(0, 0.02))
            job.kills += not going.ended()
    job.run()


def measured(
    make: Callable[..., Job], folder: Path, settings: dict[str, Any], args: Any, seed: int
) -> dict[str, int]:
    tree = Tree(args.pages, seed, KINDS)
    clean = make(folder / "clean", tree, {**COMMON, **settings})
    clean.run()
    clean.check()
    answers = num_answers(clean)
    job = make(folder / "killed", tree, {**COMMON, **settings})
    kill_often(job, args.kills, answers, seed)
    if job.last.code or job.reason != "finished":
        print(job.story(), file=sys.stderr)
    exported = list(job._exported())
    lines = (folder / "killed" / "items").read_text().splitlines()
    pages, items = job.lost()
    if pages or items:
        print(job.story(), file=sys.stderr)
    found = (
        job.kills,
        len(pages),
        len(items) + 2 * tree.size - len(set(lines)),
        num_answers(job) - answers,
        len(exported) - len(set(exported)),
        len(lines) - len(set(lines)),
    )
    return dict(zip(COUNTS, found, strict=True))


def main() -> None:
    parser = arguments_of(__doc__, "40 pages, one seed, two kills", rounds=1)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--variants", default="/".join(VARIANTS), help="separated by /")
    args = parser.parse_args()
    names = args.variants.split("/")
    if args.quick:
        args.pages, args.seeds, args.kills, names = 40, 1, 2, names[:1]
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as temporary, jobs(Path(temporary)) as make:
        for name, seed in itertools.product(names, range(1, args.seeds + 1)):
            folder = Path(temporary, f"{name}-{seed}".replace(" ", ""))
            folder.mkdir()
            one = measured(make, folder, VARIANTS[name], args, seed)
            print(f"{name}, seed {seed}: {one}", file=sys.stderr, flush=True)
            sums = found.setdefault(name, dict.fromkeys(COUNTS, 0))
            for what, count in one.items():
                sums[what] += count
    rows = [["variant", *COUNTS, "extra answers per kill", "twice in pipeline per kill"]]
    for name, sums in found.items():
        each = [f"{sums[what] / sums['kills']:.1f}" for what in ("extra answers", "twice in pipeline")]
        rows.append([name, *(str(count) for count in sums.values()), *each])
    print(f"{args.seeds} trees of {args.pages} pages, {args.kills} kills each, 16 requests at once")
    print(table(rows))
    addon = found.get("add-on, exact")
    lost = sum(sums["lost pages"] + sums["lost items"] for sums in found.values())
    twice = sum(sums["twice in feed"] for sums in found.values())
    targets = [("pages and items lost", lost, 0), ("items twice in the JSON lines feed", twice, 0)]
    for what, limit in (("extra answers", 20), ("twice in pipeline", 3)):
        targets.append((f"add-on, exact: {what}, per kill", addon and addon[what] / addon["kills"], limit))
    print(f"\n{targets_table(targets)}")
    write_json(args.json, {"machine": machine(), "pages": args.pages, "seeds": args.seeds, "found": found})


if __name__ == "__main__":
    main()
