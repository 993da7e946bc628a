"""How is text from anywhere put into a page, and what does the page look like? Escaping, and its style.

URLs are what a site makes them: nothing of them may become markup, turn the line round, or be a link.
"""

from __future__ import annotations

import html

#: No script, no network, whatever the page might contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def escape(text: str, longest: int = 400) -> str:
    """Return *text* as it can stand between tags and in quoted attributes.

    Characters that are not seen (controls, marks that turn the direction, lone surrogates) are shown as
    their escapes. A longer text is cut in its middle.

    Args:
        longest: characters, 10 or more.
    """
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    return html.escape(text)


STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --card: #f6f7f9; --text: #1b1f24; --soft: #57606a;
  --rule: #d5dae0; --c1: #0064a8; --c2: #b34700; --c3: #00735a; --c4: #95377a;
  --act: #b42318; --watch: #8a5a00; --ok: #00735a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --card: #1d2127; --text: #e6e9ed;
  --soft: #a2abb6; --rule: #363d47; --c1: #6cb8f0; --c2: #f5a15a; --c3: #4ccba4; --c4: #e79acb;
  --act: #ff8f85; --watch: #f0c05a; --ok: #4ccba4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1280px; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 22px; margin: 8px 0 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 32px 0 8px; }
h3 { font-size: 14px; margin: 0; overflow-wrap: anywhere; }
p { margin: 4px 0; }
.soft, figcaption { color: var(--soft); font-size: 13px; max-width: 95ch; }
code { font: 13px/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(128px, 1fr)); gap: 10px;
  margin: 16px 0; }
.tile, figure, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.tile { padding: 8px 12px; }
.tile b { display: block; font-size: 20px; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; display: block; line-height: 1.35; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr));
  gap: 12px; }
figure { margin: 0; padding: 12px; display: flex; flex-direction: column; }
.none { color: var(--soft); margin: auto 0; padding: 24px 0; }
svg { display: block; width: 100%; height: auto; margin-top: auto; padding-top: 6px; }
svg text { font-size: 11px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .name { font-weight: 600; }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.break { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 1 3; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.dashed { stroke-width: 1.5; stroke-dasharray: 5 4; }
.c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); }
svg .t1 { fill: var(--c1); } svg .t2 { fill: var(--c2); }
svg .t3 { fill: var(--c3); } svg .t4 { fill: var(--c4); }
.band rect { fill: transparent; } .band path { stroke: none; }
.band:hover path { stroke: var(--soft); stroke-width: 1; }
.todo { list-style: none; margin: 0; padding: 0; }
.todo li { padding: 8px 12px; margin: 6px 0; border: 1px solid var(--rule);
  border-left: 4px solid var(--mark); border-radius: 6px; background: var(--card);
  max-width: 95ch; overflow-wrap: anywhere; }
.todo b { margin-right: 2px; color: var(--mark); }
.act { --mark: var(--act); } .watch { --mark: var(--watch); } .ok { --mark: var(--ok); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th, td { text-align: right; padding: 5px 8px; border-bottom: 1px solid var(--rule); vertical-align: top;
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; font-size: 13px; }
.wide th { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; min-width: 110px; }
td.bar { width: 45%; min-width: 80px; }
td.bar i { display: block; height: 14px; margin-top: 4px; background: var(--c1); border-radius: 2px;
  min-width: 1px; }
.card { padding: 10px 12px; margin: 8px 0; }
.card ol { margin: 6px 0 0; padding-left: 22px; } .card li { margin: 6px 0; } .card code { display: block; }
footer { margin: 36px 0 8px; }
"""
