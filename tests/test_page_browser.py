"""Is the page good to look at in a real browser, on a phone and on a screen, by day and by night?

Only where there is a Chromium, see ``conftest``.
"""

from __future__ import annotations

import html
import json
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import CHROMIUM
from pages import CALM, FACTS, NOW, PWNED, hostile_history

from scrapy_bloomdupe.markup import POLICY
from scrapy_bloomdupe.page import make_page

PAGES = {"calm": (FACTS, CALM), "hostile": hostile_history()}
WIDTHS = [360, 1_280]
# Of Chromium: blink/public/mojom/css/preferred_color_scheme.mojom.
SCHEMES = {"dark": 0, "light": 1}

# What a person would see at a glance, measured; it becomes the title of the page around it.
_LOOK = """
const style = getComputedStyle(document.body);
const found = {wide: document.documentElement.scrollWidth, ground: style.backgroundColor,
  text: style.color, clipped: [], overlapping: [], small: [],
  charts: document.querySelectorAll('svg').length, title: document.title};
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  texts.forEach(([text, box], i) => {
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
        || box.bottom > frame.bottom + 1) found.clipped.push(text);
    if (box.height < 9) found.small.push([text, box.height]);
    for (const [other, b] of texts.slice(i + 1))
      if (box.left < b.right - 1 && b.left < box.right - 1
          && box.top < b.bottom - 4 && b.top < box.bottom - 4)
        found.overlapping.push([text, other]);
  });
}
parent.document.title = JSON.stringify(found);
"""


def chromium(folder: Path, page: Path, width: int, scheme: str, *more: str) -> str:
    """What the browser prints."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        # Tests run as root in containers; the page is ours.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-background-networking",
        f"--user-data-dir={folder / 'profile'}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--window-size={width},900",
        *more,
        page.as_uri(),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    return done.stdout


def look(folder: Path, page: str, width: int, scheme: str) -> dict[str, Any]:
    """Measure a copy of *page* that lets a script of ours in, in a frame: a window has a least width."""
    assert POLICY in page
    copy = page.replace(POLICY, "").replace("</body>", f"<script>{_LOOK}</script></body>")
    frame = f'<iframe srcdoc="{html.escape(copy)}" width="{width}" height="900" frameborder="0"></iframe>'
    path = folder / "looked-at.html"
    path.write_text(f"<!DOCTYPE html><title></title>{frame}", encoding="utf-8")
    title = re.search("<title>(.*?)</title>", chromium(folder, path, width, scheme, "--dump-dom"), re.DOTALL)
    assert title is not None
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_clipped_overlaps_or_runs_out_of_the_page(
    tmp_path: Path, name: str, scheme: str, width: int
) -> None:
    facts, history = PAGES[name]
    found = look(tmp_path, make_page(facts, history, NOW), width, scheme)
    assert 6 == found["charts"]
    assert found["wide"] <= width
    assert [] == found["clipped"]
    assert [] == found["overlapping"]
    assert [] == found["small"]
    light = [sum(map(int, re.findall(r"\d+", found[what]))) > 380 for what in ("ground", "text")]
    assert [scheme == "light", scheme == "dark"] == light


def test_no_script_of_a_site_runs_even_without_the_policy(tmp_path: Path) -> None:
    facts, history = PAGES["hostile"]
    page = make_page(facts, history, NOW)
    found = look(tmp_path, page, 1_280, "light")
    assert found["title"].startswith("Seen-set /very/long/")
    assert PWNED not in found["title"].partition("…")[0]


def test_the_policy_of_the_page_stops_scripts(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    page = make_page(FACTS, CALM, NOW)
    path.write_text(page.replace("</body>", f"<script>document.title = '{PWNED}'</script></body>"))
    assert f"<title>{PWNED}</title>" not in chromium(tmp_path, path, 1_280, "light", "--dump-dom")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_picture_can_be_taken_of_it(tmp_path: Path, width: int) -> None:
    path, picture = tmp_path / "page.html", tmp_path / "page.png"
    path.write_text(make_page(FACTS, CALM, NOW), encoding="utf-8")
    chromium(tmp_path, path, width, "dark", f"--screenshot={picture}")
    data = picture.read_bytes()
    assert b"\x89PNG" == data[:4]
    assert (width, 900) == struct.unpack(">II", data[16:24])
    # One colour all over would pack into less.
    assert len(data) > 10_000
