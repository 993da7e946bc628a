"""What does a person see of a crawl that was stopped, killed and resumed? The page of `bloomdupe report`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from processes import crawl, open_shop
from report import Check, print_checks, print_remarks, print_text, print_title


def s06_report(folder: Path, page: Path | None) -> bool:
    """Crawl the shop in three runs and make the page; *page*: where it stays, None: it does not."""
    # Here, so that the other lessons run without the package.
    from scrapy_bloomdupe.history import read_history

    print_title("s06_report: a page to look at")
    job, made = folder / "job", page or folder / "report.html"
    settings = [f"JOBDIR={job}"]
    with open_shop(folder, delay=0.02) as url:
        first = crawl("s06_report", url, folder, settings=settings, stop_after=90)
        crawl("s06_report", url, folder, settings=settings, kill_after=200)
        last = crawl("s06_report", url, folder, settings=settings)
    print_text("The shop again, stopped, killed, and resumed. What the filter kept of its figures:")
    print_remarks({"": last.remarks})
    command = [sys.executable, "-m", "scrapy_bloomdupe", "report", str(job), "-o", str(made)]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    history = read_history(job / "bloomdupe")
    sample, text = history.samples[-1], made.read_text(encoding="utf-8")
    stats = last.stats
    return print_checks(
        [
            Check("the first run was stopped", "shutdown", first.stats.get("finish_reason")),
            Check("the last run ended by itself", "finished", stats.get("finish_reason")),
            Check("runs in the history", 3, sample.run),
            Check("keys in its last line", stats.get("bloomdupe/keys"), sample.keys),
            Check("layers in it, since the filter was full", 2, sample.layers),
            Check("requests pending in it", 0, sample.pending),
            Check("pairs of URLs that the preset took for one", 3, len(history.top.rules["usual"].pairs)),
            Check("charts on the page", 6, text.count("<svg")),
            Check("errors of the filter", {}, dict(sample.errors)),
        ]
    )
