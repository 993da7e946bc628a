"""Do the keys in a state mean what the keys that will be asked for mean?

It compares and says what to do; it changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from scrapy_bloomdupe.errors import StateMismatch
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.filters.counters import COUNTING
from scrapy_bloomdupe.statefiles import read_rules_file

#: In the identity of a crawl's own filter: what is seen lies on a server; the epoch that was found there.
SHARED_MARK = "shared"


@dataclass(frozen=True)
class StateOptions:
    """What a seen-set shall be like.

    Attributes:
        capacity: keys until the filter grows, 1 to 10^13.
        error_rate: false-positive rate of the filter, 1e-12 <= error_rate < 1.
        layout, scheme: frozen names, see ``filters.layouts`` and ``hashing``.
        store: ``lmdb``, ``memory``, or None: the filter alone.
        identity: what the keys mean: ``fingerprinter`` for people, ``canary`` and ``rules`` to compare.
        rules: digest of each rule by name, to name those that changed.
        on_mismatch: ``error``, or ``new``: move a state of another meaning aside and start anew.
        explicit: names of the attributes that somebody asked for; the others give way to the file.
        sync: bring every commit to the disk.
        policy: one of ``seen.POLICIES``.
        is_shared: what is seen lies on a server; here is what this crawl knows of it.
        frontier: whether to keep the pending requests; None: leave those that are there as they are.
        reset: seconds after which a state without pending requests is moved aside and begun anew; None:
            never.
        clock: gives seconds since 1970.
    """

    capacity: int
    error_rate: float
    layout: str
    scheme: str
    store: str | None
    identity: Mapping[str, str] = field(default_factory=dict)
    on_mismatch: str = "error"
    explicit: frozenset[str] = frozenset()
    rules: Mapping[str, str] = field(default_factory=dict)
    frontier: bool | None = None
    sync: bool = False
    policy: str = "positives"
    is_shared: bool = False
    reset: float | None = None
    clock: Callable[[], float] = time.time

    def with_identity(self, identity: Mapping[str, str], rules: Mapping[str, str]) -> StateOptions:
        """Return the same options for keys of this meaning."""
        return replace(self, identity=dict(identity), rules=dict(rules))


def compare(filter: BloomFilter, options: StateOptions) -> list[str]:  # noqa: A002
    """Return notices about what only tunes and differs: the file's own values stay in force.

    Raises:
        StateMismatch: what changes the meaning of a key differs; names both and the next step.
    """
    made, wanted = filter.identity, options.identity
    directory = filter.path.parent
    if "canary" not in made and "rules" in wanted:
        raise StateMismatch(
            f"{directory} was imported from Scrapy's own filter: its keys are fingerprints, and the "
            "project has rules that make other keys of the same requests. Crawl without rules, or set "
            "BLOOMDUPE_ON_MISMATCH = 'new' to move what was imported aside and start anew"
        )
    # Rules first: with BLOOMDUPE_FINGERPRINTER they change the canary too.
    if "canary" in wanted and "canary" in made and made.get("rules") != wanted.get("rules"):
        raise StateMismatch(
            f"{directory}: its keys were made by other rules than the project now has: "
            f"{_changes(read_rules_file(directory), options.rules)}. The same request can get another key: "
            "pages would be crawled again, and pages that the old rules told apart could be taken for "
            "one. Go back to the former rules, set BLOOMDUPE_ON_MISMATCH = 'new' to move the old state "
            "aside and start anew, or use another directory"
        )
    if "canary" in wanted and "canary" in made and made["canary"] != wanted["canary"]:
        raise StateMismatch(
            f"{directory}: its keys were made by {made.get('fingerprinter')} (canary "
            f"{made['canary'][:12]}), the project now uses {wanted.get('fingerprinter')} "
            f"(canary {wanted['canary'][:12]}): the same request gets another key, and every "
            "page would be crawled again. Go back to the former fingerprinter and versions, "
            "set BLOOMDUPE_ON_MISMATCH = 'new' to move the old state aside and start anew, or "
            "use another directory"
        )
    if "canary" in wanted and "importing" in made:
        raise StateMismatch(
            f"{directory}: `bloomdupe import` was cut short there, and part of what Scrapy's filter had seen "
            "is missing; run it again (what is in already is not added twice)"
        )
    if bool(made.get(SHARED_MARK)) != options.is_shared:
        here, there = ("on a server", "here") if options.is_shared else ("here", "on a server")
        raise StateMismatch(
            f"{directory} belongs to a crawl that kept what was seen {there}, this one keeps it {here}: most "
            "of it would not be known. Go back to the former BLOOMDUPE_FILTER and BLOOMDUPE_STORE, set "
            "BLOOMDUPE_ON_MISMATCH = 'new' to move the state aside and start anew, or use another directory"
        )
    store = options.store or "none"
    if made.get("store") != store:
        raise StateMismatch(
            f"{directory} was made with BLOOMDUPE_STORE = {_shown(made.get('store'))}, settings "
            f"ask for {_shown(store)}: keys that only one of the two knows would be judged wrong. "
            f"Set BLOOMDUPE_STORE = {_shown(made.get('store'))}, or BLOOMDUPE_ON_MISMATCH = 'new' to "
            "move the old state aside and start anew"
        )
    if "scheme" in options.explicit and filter.scheme != options.scheme:
        raise StateMismatch(
            f"{filter.path} was made with BLOOMDUPE_SCHEME = {filter.scheme!r}, settings ask for "
            f"{options.scheme!r}; set {filter.scheme!r}, run `bloomdupe rebuild {directory} "
            f"--scheme {options.scheme}`, or set BLOOMDUPE_ON_MISMATCH = 'new'"
        )
    notices = []
    if "spider" in made and "spider" in wanted and made["spider"] != wanted["spider"]:
        notices.append(
            f"{directory} was made by the spider {made['spider']!r}, this one is {wanted['spider']!r}: what "
            "the other one has crawled is not crawled here. Give each spider a directory of its own if that "
            "is not meant"
        )
    counts = filter.layout == COUNTING.name
    if "filter" in options.explicit and counts != (options.layout == COUNTING.name):
        kind, other = ("counting", "mapped") if counts else ("mapped", "counting")
        notices.append(
            f"{filter.path} was made with BLOOMDUPE_FILTER = {kind!r}, which stays in force; settings ask "
            f"for {other!r}. " + ("It can forget" if counts else "Nothing can be forgotten in it")
        )
    for name in ("capacity", "error_rate", "layout"):
        asked, found = getattr(options, name), getattr(filter, name)
        if name in options.explicit and asked != found:
            notices.append(
                f"{filter.path} was made with {name}={found}, which stays in force; settings "
                f"ask for {asked}. `bloomdupe rebuild` makes a filter with other values"
            )
    return notices


def _changes(made: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Say which rules differ; ``*`` stands for the whole."""
    names = [name for name in dict.fromkeys((*made, *wanted)) if name != "*"]
    said = [
        f"{name!r} {'is new' if name not in made else 'is gone' if name not in wanted else 'changed'}"
        for name in names
        if made.get(name) != wanted.get(name)
    ]
    if not wanted:
        said = ["it has none now"]
    return ", ".join(said) or "the preset, the order of the rules, or the version of the engine changed"


def _shown(store: str | None) -> str:
    return "None" if store in (None, "none") else repr(store)
