"""How do the figures of the benchmarks look? PNG and SVG, by matplotlib, of the extra ``bench``.

One function per benchmark, called with the figures that it also writes as JSON; without matplotlib it says
so and draws nothing. The same alternative has the same colour in every picture.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import optional

#: filter -> (colour, line style, marker); whoever is not named gets grey.
STYLES = {
    "Scrapy": ("#222222", "-", "o"),
    "Scrapy's set": ("#222222", "-", "o"),
    "Scrapy, JOBDIR": ("#777777", "--", "o"),
    "ours, bare": ("#2ca02c", "-", "s"),
    "ours, bare, 0.001": ("#2ca02c", "-", "s"),
    "ours, bare, 0.000001 (default)": ("#98d594", "-", "s"),
    "ours, exact": ("#1f77b4", "-", "D"),
    "ours, exact, JOBDIR": ("#1f77b4", "--", "D"),
    "ours, exact, rules": ("#9467bd", "-", "^"),
    "scrapy-redis": ("#d62728", "-", "x"),
    "scrapy-redis (set)": ("#d62728", "-", "x"),
    "Scrapy-Redis-BloomFilter": ("#ff7f0e", "-", "x"),
    "RedisBloom, 0.001": ("#ff7f0e", "-", "x"),
    "traditional, URLs": ("#d62728", "-", "x"),
    "traditional, ids": ("#ff7f0e", "-", "o"),
    "improved, ids": ("#222222", "--", "^"),
}
_SIZE = 10.5


def draw(name: str, folder: Path, found: Mapping[str, Any]) -> None:
    """Draw the figures of the benchmark *name* into *folder*."""
    if optional("matplotlib") is None:
        print(f"matplotlib is not installed: {name} is not drawn")
    else:
        {"links": links, "memory": memory, "structures": structures, "scale": scale, "tmall": tmall}[name](
            folder, found
        )


def links(folder: Path, found: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]) -> None:
    """Draw the time per link as a multiple of Scrapy's, which was asked in the same turns, over the share
    of duplicates; one panel per kind."""
    titles = {"same": "duplicates in the same letters", "other": "duplicates in other spellings"}
    with _picture(
        folder,
        "links",
        "request_seen: time per link, as a multiple of Scrapy's filter",
        panels=2,
        sharey=True,
    ) as axes:
        for ax, (kind, shares) in zip(axes, found.items(), strict=True):
            x = [float(share) * 100 for share in shares]
            for name in next(iter(shares.values())):
                if name in STYLES:
                    _line(ax, name, x, [figures[name]["ratio"] for figures in shares.values()])
            ax.set(title=titles[kind], xlabel="links that are duplicates, %", yscale="log")
        axes[0].set_ylabel("times Scrapy's filter (log scale; 1: as fast)")


def memory(folder: Path, found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Draw memory, disk and time to open over the number of URLs."""
    panels = {
        "memory": ("memory", "bytes per URL (log scale)"),
        "disk": ("disk", "bytes per URL (log scale)"),
        "open": ("time to open", "seconds (log scale)"),
    }
    with _picture(folder, "memory", "What n seen URLs take", panels=3) as axes:
        for ax, (what, (title, unit)) in zip(axes, panels.items(), strict=True):
            for name, sizes in found.items():
                x = [int(size) for size in sizes]
                y = [one[what] / (1 if what == "open" else int(size)) for size, one in sizes.items()]
                if x:
                    _line(ax, name, x, y)
            ax.set(title=title, xlabel="n, seen URLs", ylabel=unit, xscale="log", yscale="log")


def structures(folder: Path, found: Mapping[str, Mapping[str, float]]) -> None:
    """Draw nanoseconds per new and per seen key as bars."""
    names = sorted(found, key=lambda name: -found[name]["new_ns"])
    with _picture(folder, "structures", "Bloom filters alone: check-and-add of one key", panels=1) as axes:
        ax = axes[0]
        for shift, what, colour in ((0.2, "new", "#1f77b4"), (-0.2, "seen", "#a6cbe8")):
            values = [found[name][f"{what}_ns"] for name in names]
            bars = ax.barh(
                [i + shift for i in range(len(names))], values, 0.4, color=colour, label=f"{what} key"
            )
            ax.bar_label(bars, fmt="%.0f", padding=3, fontsize=8)
        ax.set_yticks(range(len(names)), names)
        ax.set(xlabel="nanoseconds per key (log scale)", xscale="log")
        ax.margins(x=0.12)
        _plain_numbers(ax.xaxis)


def scale(folder: Path, found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Draw microseconds per key over the number of keys in the filter."""
    lines = {"new_us": ("new key", "-", "o"), "seen_us": ("seen key", "--", "s")}
    lines["cold_us"] = ("seen key, files out of the page cache", ":", "^")
    with _picture(folder, "scale", "Check-and-add in a filter that holds n keys", panels=1) as axes:
        for store, sizes in found.items():
            for what, (title, line, marker) in lines.items():
                colour = STYLES[f"ours, {store}"][0]
                x, y = [int(size) for size in sizes], [one[what] for one in sizes.values()]
                axes[0].plot(x, y, line, marker=marker, color=colour, label=f"{store}, {title}")
        axes[0].set(xlabel="n, keys in the filter", ylabel="microseconds per key (log scale)")
        axes[0].set(xscale="log", yscale="log")


def tmall(folder: Path, found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Draw time and accuracy over the number of URLs."""
    x = [int(size) for size in found]
    panels: dict[str, tuple[str, dict[str, Any]]] = {
        "seconds": ("time", {"ylabel": "seconds for n URLs (log scale)", "yscale": "log"}),
        "accuracy": ("accuracy", {"ylabel": "URLs judged right, % (scale stretched towards 100)"}),
    }
    title = "Seen this product before? n product URLs, filters sized for 50,000 keys at 1 %"
    for what, (name, labels) in panels.items():
        with _picture(folder, f"tmall_{name}", title, panels=1) as axes:
            ax = axes[0]
            for strategy in next(iter(found.values())):
                y = [figures[strategy][what] for figures in found.values()]
                _line(ax, strategy, x, [100 * (1 - value) for value in y] if what == "accuracy" else y)
            ax.set(xlabel="n, URLs", xscale="log", **labels)
            if what == "accuracy":
                _stretch(ax)


def _stretch(ax: Any) -> None:
    """Turn an axis of errors in per cent into one of accuracy: 100 on top, its neighbourhood wide."""
    ax.set_yscale("symlog", linthresh=0.1, linscale=0.5)
    ticks = [0, 0.1, 1, 5, 20, 50]
    ax.set_yticks(ticks, [f"{100 - tick:g}" for tick in ticks])
    ax.set_ylim(50, -0.02)
    ax.minorticks_off()


def _line(ax: Any, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    colour, line, marker = STYLES.get(name, ("#999999", "-", "."))
    ax.plot(
        x,
        y,
        line,
        marker=marker,
        color=colour,
        label=name,
        linewidth=1.8,
        markersize=5,
        zorder=3 if line == "--" else 2,
    )


def _plain_numbers(axis: Any) -> None:
    """Write 0.5 and 2,000 at a logarithmic axis, not powers of ten alone."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    # Where the axis spans many powers of ten, 2 and 5 between them would be a crowd.
    steps = (1.0, 2.0, 5.0) if high / low < 2_000 else (1.0,)
    axis.set_major_locator(LogLocator(base=10, subs=steps, numticks=30))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


@contextlib.contextmanager
def _picture(
    folder: Path, name: str, title: str, *, panels: int, sharey: bool = False
) -> Iterator[Sequence[Any]]:
    """Give the panels of a picture, and write it as PNG and SVG when they are drawn."""
    import matplotlib

    matplotlib.use("Agg")
    # The same figures give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "scrapy-bloomdupe"
    import matplotlib.pyplot as plt

    width = 8.5 if panels == 1 else 4.6 * panels
    figure, grid = plt.subplots(1, panels, figsize=(width, 5), sharey=sharey, squeeze=False)
    figure.patch.set_facecolor("white")
    yield grid[0]
    labels: dict[str, Any] = {}
    for ax in grid[0]:
        ax.grid(True, which="major", color="#dddddd", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        if ax.get_yscale() == "log":
            _plain_numbers(ax.yaxis)
        handles, names = ax.get_legend_handles_labels()
        labels |= dict(zip(names, handles, strict=True))
    figure.suptitle(title, fontsize=_SIZE + 2)
    columns = min(len(labels), 3 if panels < 3 else 6)
    under: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    figure.legend(list(labels.values()), list(labels), ncols=columns, frameon=False, **under)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, more in (("png", {"dpi": 130}), ("svg", {"metadata": {"Date": None}})):
        figure.savefig(folder / f"{name}.{suffix}", bbox_inches="tight", facecolor="white", **more)
    plt.close(figure)
    print(f"drawn: {folder / name}.png and .svg")
