"""What do rules cost? The preset `safe` beside w3lib's canonicalize_url, and many rules beside one.

The one rule is for a hundred sites; the hundred are for one of them each, so that both find the same ids.

``python tests/benchmarks/rules.py [--urls 100000] [--rounds 5] [--json FILE]``
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from measure import interleaved, table, write_json
from w3lib.url import canonicalize_url

from scrapy_bloomdupe.rules.presets import pipeline
from scrapy_bloomdupe.rules.ruleset import RuleSet


def mix(count: int) -> list[str]:
    """Return URLs as shops, news sites and trackers write them; the same in every run."""
    rnd = random.Random(20)
    words = ["news", "sport", "caf%C3%A9", "\u4f60\u597d", "Some-Title-Words", "a%20b", "%7Euser", "archive"]
    urls = []
    for i in range(count):
        site = i % 100
        kind = i % 4
        if kind == 0:
            urls.append(
                f"https://www.shop{site}.example/item.htm?spm=a{i}.b&id={rnd.randrange(10**12)}&cat={i}"
            )
        elif kind == 1:
            path = "/".join(rnd.choice(words) for _ in range(3))
            urls.append(f"https://news{site}.example/{2000 + i % 26}/{path}/{i}.html#comments")
        elif kind == 2:
            urls.append(
                f"http://www.site{site}.example/p/{i}?utm_source=mail&utm_medium=x&b=2&a=1&q=a+b&gclid={rnd.random()}"
            )
        else:
            urls.append(f"https://shop{site}.example:443/dp/B{i:09d}/ref=sr_1_{i % 50}?keywords=foo&qid={i}")
    return urls


def rules(count: int) -> list[dict[str, Any]]:
    """Return id rules: one for a hundred sites, or one for each of them and of others that nobody links."""
    sites = [f"shop{i}.example" for i in range(max(count, 100))]
    named = [sites] if count == 1 else [[site] for site in sites]
    return [
        {"name": f"rule{i}", "match": {"domain": domains}, "key": {"sources": ["query:id"]}}
        for i, domains in enumerate(named)
    ]


def timed(function: Callable[[str], Any], urls: Iterable[str]) -> Callable[[], Mapping[str, float]]:
    def run() -> Mapping[str, float]:
        started = time.perf_counter()
        count = 0
        for url in urls:
            function(url)
            count += 1
        return {"us": (time.perf_counter() - started) / count * 1e6}

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=float, default=1e5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="2,000 URLs, one round")
    arguments = parser.parse_args()
    count, rounds = (2_000, 1) if arguments.quick else (int(arguments.urls), arguments.rounds)
    urls = mix(count)
    one, hundred, thousand = (RuleSet.load("safe", rules(count)) for count in (1, 100, 1000))
    usual = RuleSet.load("usual")
    found = interleaved(
        {
            "w3lib canonicalize_url": timed(canonicalize_url, urls),
            "steps of `safe`": timed(pipeline("safe"), urls),
            "decide, 1 rule": timed(one.decide, urls),
            "decide, 100 rules": timed(hundred.decide, urls),
            "decide, 1,000 rules": timed(thousand.decide, urls),
            "decide, `usual`, no rules": timed(usual.decide, urls),
        },
        rounds,
    )
    base = found["w3lib canonicalize_url"]["us"]
    rows = [["work per URL", "us", "of w3lib"]]
    rows += [[name, f"{figures['us']:.1f}", f"{figures['us'] / base:.2f}"] for name, figures in found.items()]
    ratios = {
        count: found[f"decide, {count} rules"]["us"] / found["decide, 1 rule"]["us"]
        for count in ("100", "1,000")
    }
    print(f"{count:,} URLs, {rounds} rounds, medians")
    print(table(rows))
    for number, ratio in ratios.items():
        print(f"{number} rules cost {ratio:.2f} times what one costs")
    write_json(arguments.json, {"urls": count, "found": found, "ratios": ratios})


if __name__ == "__main__":
    main()
