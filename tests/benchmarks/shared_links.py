"""What does a link take where several crawls share what they have seen? A page at a time, as a crawl asks.

Ours is asked as Scrapy does it: the page's requests come out of the spider middleware, which asks the
server for all keys at once in a thread while the reactor runs, and each of them is then judged by
``request_seen``. The others are asked link by link. Wall time, the round trips included, and beside it the
CPU time of this process, all threads: what is left on a machine with more to do than cores, where each
change from one process to another waits its turn. All of them take turns page by page in one process,
which has a reactor. Every verdict is compared with Scrapy's.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dupefilters import BASE, OURS, Opened, Variant
from links_mix import Links, links, page
from measure import Turns, frozen
from scrapy import Request
from scrapy.http import Response
from shared_filters import Places, variants

from scrapy_bloomdupe.sharedmiddleware import SharedMiddleware

#: Three kinds of duplicates: of links that this crawl saw letter for letter, in other spellings, and of
#: links that only other crawls saw.
KINDS = ("same", "other", "foreign")
PAGE, COMMIT = 100, 5
_FOREIGN = 10**7


class Asked:
    """A filter of a crawler that does not crawl, asked as a crawl asks it."""

    def __init__(self, variant: Variant, folder: Path, server: Any) -> None:
        self._opened = Opened(variant, folder, server)
        self._ours = variant.dupefilter == OURS
        self._middleware = SharedMiddleware(self._opened.crawler)
        self._page = Response("http://page.example/")
        self.commit = self._opened.commit
        self.close = self._opened.close

    async def ask(self, requests: list[Request]) -> list[bool]:
        """Return a verdict for each of the *requests* of a page."""
        if not self._ours:
            return self._opened.ask(requests, commit=False)
        seen = self._opened.dupefilter.request_seen
        outputs = self._middleware.process_spider_output(self._page, _outputs(requests))
        return [seen(request) async for request in outputs]


async def _outputs(requests: Sequence[Request]) -> AsyncIterator[Request]:
    for request in requests:
        yield request


def mix(kind: str, count: int, share: float, seed: int) -> tuple[Links, list[str]]:
    """Return the links, and those of them that another crawl saw before."""
    if kind != "foreign":
        return links(count, share, kind, seed=seed), []
    asked = links(count, 0.0, "same", seed=seed)
    rng = random.Random(seed)
    urls = list(asked.urls)
    foreign = rng.sample(range(count), round(count * share))
    for place in foreign:
        urls[place] = page(_FOREIGN + seed * count + place).url
    return Links(asked.before, urls), [urls[place] for place in foreign]


def requests_of(urls: Sequence[str]) -> list[Request]:
    return [Request(url, meta={"depth": 1}) for url in urls]


async def run(
    kind: str, count: int, share: float, seed: int, found: Places, server: Any
) -> tuple[Turns, Turns, Counter[str]]:
    """Ask every variant; return the clocks, those of CPU time, and how many verdicts were right and wrong."""
    made, _ = variants(found)
    asked, foreign = mix(kind, count, share, seed)
    parts = [asked.urls[start : start + PAGE] for start in range(0, len(asked.urls), PAGE)]
    turns = {name: -(-len(parts) // variant.share) for name, variant in made.items()}
    order, clocks, cpu, judged = random.Random(seed), Turns(), Turns(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        opened: dict[str, Asked] = {}
        for number, (name, variant) in enumerate(made.items()):
            # Names on a server are this run's own.
            key = {"BLOOMDUPE_KEY": f"{kind}{seed}-{number}"} if variant.dupefilter == OURS else {}
            ours = Variant(**{**vars(variant), "settings": {**variant.settings, **key}})
            known = set(foreign).intersection(*[{url for part in parts[: turns[name]] for url in part}])
            known_urls = [url for url in foreign if url in known]
            if known_urls and key and name != BASE:
                await _other_crawl(ours, Path(folder, f"{number}-other"), server, known_urls)
            place = Path(folder, str(number))
            place.mkdir()
            opened[name] = Asked(ours, place, server)
            stack.callback(opened[name].close)
            before = list(asked.before) + (known_urls if not key else [])
            for start in range(0, len(before), PAGE):
                await opened[name].ask(requests_of(before[start : start + PAGE]))
            opened[name].commit()
        stack.enter_context(frozen())
        for turn, part in enumerate(parts):
            verdicts: dict[str, list[bool]] = {}
            names = [name for name in made if turn < turns[name]]
            for name in order.sample(names, len(names)):
                requests = requests_of(part)
                started, used = time.perf_counter(), time.process_time()
                verdicts[name] = await opened[name].ask(requests)
                if turn % COMMIT == COMMIT - 1:
                    opened[name].commit()
                clocks.note(name, turn // COMMIT, time.perf_counter() - started, len(part))
                cpu.note(name, turn // COMMIT, time.process_time() - used, len(part))
            _compare(verdicts, judged)
    return clocks, cpu, judged


async def _other_crawl(variant: Variant, folder: Path, server: Any, urls: Sequence[str]) -> None:
    folder.mkdir()
    other = Asked(variant, folder, server)
    for start in range(0, len(urls), PAGE):
        await other.ask(requests_of(urls[start : start + PAGE]))
    other.commit()
    other.close()


def _compare(verdicts: Mapping[str, Sequence[bool]], judged: Counter[str]) -> None:
    for name, found in verdicts.items():
        judged[f"{name}: links"] += len(found)
        for expected, verdict in zip(verdicts[BASE], found, strict=True):
            if expected != verdict:
                judged[f"{name}: {'new called seen' if verdict else 'seen called new'}"] += 1


def in_reactor(kind: str, count: int, share: float, seed: int, found: Places, server: Any) -> dict[str, Any]:
    """Install a reactor in this process, run in it, and return the figures of every variant."""
    from scrapy.utils.reactor import install_reactor
    from twisted.internet.defer import Deferred

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor

    results: list[Any] = []

    def begin() -> None:
        running = Deferred.fromCoroutine(_as_deferred(run(kind, count, share, seed, found, server)))
        running.addBoth(results.append)
        running.addBoth(lambda _: reactor.stop())  # type: ignore[attr-defined]

    reactor.callWhenRunning(begin)  # type: ignore[attr-defined]
    reactor.run()  # type: ignore[attr-defined]
    if not isinstance(results[0], tuple):
        results[0].raiseException()
    clocks, cpu, judged = results[0]
    names = [name for name in variants(found)[0] if judged[f"{name}: links"]]
    figures = {
        name: {
            "us": clocks.per_unit(name),
            "cpu": cpu.per_unit(name),
            **{f"of {base}": clocks.ratio(name, base) for base in names},
            **{f"cpu of {base}": cpu.ratio(name, base) for base in names},
        }
        for name in names
    }
    return {"figures": figures, "judged": judged}


async def _as_deferred(work: Any) -> Any:
    import asyncio

    from twisted.internet.defer import Deferred

    return await Deferred.fromFuture(asyncio.ensure_future(work))
