"""How are the figures of ``links`` shown? One table per kind of duplicates, and what was asked for."""

from __future__ import annotations

from collections.abc import Mapping

from dupefilters import BASE, VARIANTS
from measure import table, targets_table

NEW_AS_SEEN, SEEN_AS_NEW = "new called seen", "seen called new"
TITLES = {"same": "Duplicates in the same letters", "other": "Duplicates in other spellings"}
#: kind -> share of duplicates -> filter -> figure.
Found = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]

_STOCK_JOBDIR = "Scrapy, JOBDIR"
_BARE, _EXACT = "ours, bare", "ours, exact, JOBDIR"


def report(found: Found, missing: Mapping[str, str], judged: Mapping[str, int]) -> None:
    """Print everything."""
    for kind, shares in found.items():
        print(f"\n{TITLES[kind]}: us per link (and as a multiple of Scrapy's), by share of duplicates\n")
        rows = [["filter", *(f"{float(share):.0%}" for share in shares)]]
        for name in next(iter(shares.values())):
            cells = [
                f"{figures[name]['us']:.1f} ({figures[name]['ratio']:.2f})" for figures in shares.values()
            ]
            rows.append([name, *cells])
        rows += [[name, why, *[""] * (len(shares) - 1)] for name, why in missing.items()]
        print(table(rows))
    print("\nVerdicts that differ from Scrapy's\n")
    rows = [["filter", "links", NEW_AS_SEEN, SEEN_AS_NEW]]
    for name in VARIANTS:
        if links := judged.get(f"{name}: links"):
            counts = [str(judged.get(f"{name}: {how}", 0)) for how in (NEW_AS_SEEN, SEEN_AS_NEW)]
            rows.append([name, f"{links:,}", *counts])
    print(table(rows))
    print(f"\n{targets_table(targets(found))}")


def targets(found: Found) -> list[tuple[str, float | None, float]]:
    """Return what this benchmark was asked to show, as multiples of times in the same turns."""

    def ratio(kind: str, share: str, name: str, base: str) -> float | None:
        figures = found[kind].get(share, {})
        if name not in figures or base not in figures:
            return None
        return figures[name]["ratio"] / figures[base]["ratio"]

    return [
        (
            "all new: exact, JOBDIR / Scrapy, JOBDIR",
            ratio("same", "0", _EXACT, _STOCK_JOBDIR),
            0.35,
        ),
        ("all new: bare / Scrapy, JOBDIR", ratio("same", "0", _BARE, _STOCK_JOBDIR), 0.25),
        ("90 % duplicates, same letters: exact, JOBDIR / Scrapy", ratio("same", "0.9", _EXACT, BASE), 0.15),
        (
            "90 % duplicates, other spellings: exact, JOBDIR / Scrapy",
            ratio("other", "0.9", _EXACT, BASE),
            0.35,
        ),
    ]
