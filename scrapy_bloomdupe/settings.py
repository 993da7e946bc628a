"""What do the settings default to and why, and what do they mean together?

It reads a mapping with ``get`` (Scrapy's settings, or a dict) and imports nothing of Scrapy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scrapy_bloomdupe.remote.naming as naming
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.counters import COUNTING
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.rules.ruleset import RuleSet
from scrapy_bloomdupe.settingtable import SETTINGS, Setting, SettingsSource
from scrapy_bloomdupe.shared.options import SharedOptions
from scrapy_bloomdupe.shared.options import check as check_shared

# A filter file of 1.9 MB, and a dozen doublings to 10^9 keys; a crawl of a few thousand pages does not
# notice it.
DEFAULT_CAPACITY = 1_000_000
# With a store a false positive costs one look-up of some microseconds: 1 in 1,000 is not felt, and the
# filter has under 2 bytes per key.
DEFAULT_ERROR_RATE = 0.001
# Without a store a false positive is a lost page: nobody should lose one in 1,000 for not having read
# this. 1 in 10^6 doubles the bits.
DEFAULT_BARE_ERROR_RATE = 1e-6
# Measured about twice as fast as `classic`, and it touches one memory page per check.
DEFAULT_LAYOUT = "paged"
# Of a crawl's own filter, where a shared one is asked.
_NO_CAPACITY = 1_000
# The fastest; the secret seed over digests keeps a site from aiming at another one's keys.
DEFAULT_SCHEME = "murmur3"
# Exact, opens at once, survives `kill -9`, and needs no memory of its own.
DEFAULT_STORE = "lmdb"
# Whoever changes what a key means should know it; an old state is never thrown away in silence.
DEFAULT_ON_MISMATCH = "error"
# A mark as seen without its pending request is a lost page when the process is killed.
DEFAULT_FRONTIER = True
# `kill -9` needs no sync; the disk's cache is written by the system within seconds.
DEFAULT_SYNC = "normal"
# Some 80,000 URLs: the links that the pages of a site have in common, many times over.
DEFAULT_CACHE_SIZE = 16_000_000
# A layer costs a microsecond per look, making the filter anew 3 us per key: with four layers that has been
# earned when every key has been asked for once more.
DEFAULT_REBUILD_LAYERS = 4
# What is forgotten leaves its bits, which cost a question to the store each: most crawls forget little.
DEFAULT_REBUILD_EVERY = None
# The filter saves the store nine questions in ten.
DEFAULT_POLICY = "positives"
# A page crawled twice is a cost; a crawl that stands still is one, too.
DEFAULT_ON_EMPTY = "pass"
# A line a minute: a day of them to the minute in half a megabyte, for a millisecond of work each.
DEFAULT_HISTORY = 60.0
# What was seen stays seen: Scrapy's own filter knows nothing else.
DEFAULT_EXPIRE = None
DEFAULT_RESET = None
# Scrapy's start requests are not for the filter.
DEFAULT_RECORD_START = False
# Without rules the key is the project's own fingerprint: nothing changes about what a duplicate is.
DEFAULT_PRESET = None
# One request in a thousand that the gate would have spared tells whether its list is complete.
DEFAULT_GATE_SAMPLE = 0.001


@dataclass(frozen=True)
class GateSettings:
    """The settings of a gate, checked but for its sources.

    Attributes:
        file: of the gate, or the URL of the server that has it.
        key: its name on a server; None: it is a file.
        sources: where its text is in a request, tried in order.
        match: which URLs it is for, as in a rule; empty: all.
        sample: share of the rejected that is let through, 0 to 1.
    """

    file: Path | str
    key: str | None
    sources: Sequence[str]
    match: Mapping[str, Any]
    sample: float


@dataclass(frozen=True)
class BloomdupeSettings:
    """The settings of a crawl, checked.

    Attributes:
        directory: where the state lies; None: temporary files.
        options: what the seen-set shall be like, without the meaning of its keys.
        dry_run: rules only count what they would have merged.
        retry_failed: requests that ended in failure are kept for the next run.
        cache_size: bytes for URLs that were seen last.
        shared: what is shared with other crawls; None: nothing.
        history: seconds between two samples of the figures; 0: none are kept.
        metrics_port: where Prometheus finds them; 0: any free port; None: nowhere.
        expire: seconds after which a key is crawled again, where no rule says otherwise; None: never.
        record_start: start requests are remembered, though the filter is not asked about them.
    """

    directory: Path | None
    options: StateOptions
    dry_run: bool
    retry_failed: bool
    cache_size: int
    shared: SharedOptions | None = None
    history: float = DEFAULT_HISTORY
    metrics_port: int | None = None
    expire: float | None = DEFAULT_EXPIRE
    record_start: bool = DEFAULT_RECORD_START

    @property
    def keeps_times(self) -> bool:
        """Whether it is known when a key was seen."""
        return self.options.store is not None and self.shared is None


def read(source: SettingsSource, *, queue: str | None = None, key: str | None = None) -> BloomdupeSettings:
    """Return the checked settings.

    Args:
        source: ``BLOOMDUPE_*`` and ``JOBDIR``.
        queue: URL of the server that has the queue of all crawls, as with scrapy-redis: what is seen is
            shared there, and the requests that are pending are not ours to keep.
        key: the template for names that goes with it.

    Raises:
        ConfigurationError: a value is not what the setting expects, or a name is not known.
    """
    values = _values(source)
    explicit = {name.removeprefix("BLOOMDUPE_").lower() for name in values}
    counts = values.get("BLOOMDUPE_FILTER") == COUNTING.name
    if counts:
        del values["BLOOMDUPE_FILTER"]  # a file as any other, not a server
    shared = _shared(values, queue, key)
    store = values.get("BLOOMDUPE_STORE", DEFAULT_STORE if shared is None else None)
    capacity = values.get("BLOOMDUPE_CAPACITY", DEFAULT_CAPACITY)
    if shared is not None:
        store = "lmdb" if store == "lmdb" else None
        check_shared(shared, local_store=store)
        if shared.filter is not None:
            # Here is only what this crawl knows for itself: nothing, or what its own store holds.
            capacity = DEFAULT_CAPACITY if store else _NO_CAPACITY
            explicit -= {"capacity", "error_rate"}
    jobdir = source.get("JOBDIR")
    # What another scheduler keeps does not stop and go on with a JOBDIR.
    of_job = Path(jobdir) / "bloomdupe" if jobdir and queue is None else None
    directory = values.get("BLOOMDUPE_DIR") or of_job
    frontier = directory is not None and queue is None and values.get("BLOOMDUPE_FRONTIER", DEFAULT_FRONTIER)
    options = StateOptions(
        capacity=capacity,
        error_rate=shared.error_rate if shared is not None else _rate(values, exact=store is not None),
        layout=_layout(values, store if shared is None else "shared", counts=counts),
        scheme=values.get("BLOOMDUPE_SCHEME", DEFAULT_SCHEME),
        store=store,
        on_mismatch=values.get("BLOOMDUPE_ON_MISMATCH", DEFAULT_ON_MISMATCH),
        explicit=frozenset(explicit),
        sync=values.get("BLOOMDUPE_SYNC", DEFAULT_SYNC) == "full",
        frontier=frontier,
        reset=values.get("BLOOMDUPE_RESET", DEFAULT_RESET),
        policy=values.get("BLOOMDUPE_POLICY", DEFAULT_POLICY) if shared is None else DEFAULT_POLICY,
        is_shared=shared is not None,
    )
    expire = values.get("BLOOMDUPE_EXPIRE", DEFAULT_EXPIRE)
    if expire is not None and (store is None or shared is not None):
        raise ConfigurationError(no_times(f"BLOOMDUPE_EXPIRE = {source.get('BLOOMDUPE_EXPIRE')!r}"))
    return BloomdupeSettings(
        directory,
        options,
        dry_run=values.get("BLOOMDUPE_DRY_RUN", False),
        retry_failed=values.get("BLOOMDUPE_RETRY_FAILED", False),
        cache_size=values.get("BLOOMDUPE_CACHE_SIZE", DEFAULT_CACHE_SIZE),
        shared=shared,
        history=values.get("BLOOMDUPE_HISTORY", DEFAULT_HISTORY),
        metrics_port=values.get("BLOOMDUPE_METRICS_PORT"),
        expire=expire,
        record_start=values.get("BLOOMDUPE_RECORD_START", DEFAULT_RECORD_START),
    )


def no_times(what: str) -> str:
    """Return the message for *what* asks when a key was seen where nobody knows."""
    return (
        f"{what} needs an exact store of this crawl's own, which keeps the time of each key: set "
        "BLOOMDUPE_STORE = 'lmdb' (in a directory of its own, nothing on a server), or "
        "BLOOMDUPE_RESET to forget everything from time to time"
    )


def _layout(values: Mapping[str, Any], store: str | None, *, counts: bool) -> str:
    if not counts:
        return str(values.get("BLOOMDUPE_LAYOUT", DEFAULT_LAYOUT))
    if store is not None:
        raise ConfigurationError(
            "BLOOMDUPE_FILTER = 'counting' is for BLOOMDUPE_STORE = None: what is deleted in a store is new, "
            "whatever the filter says, and counters take four times the memory for nothing"
        )
    if "BLOOMDUPE_LAYOUT" in values:
        raise ConfigurationError(
            "BLOOMDUPE_LAYOUT is for BLOOMDUPE_FILTER = 'mapped': counters have one layout only; leave it out"
        )
    return COUNTING.name


def _rebuild(values: Mapping[str, Any], *, possible: bool) -> tuple[int, float | None]:
    """Return the layers and the age at which a shared filter is made anew; 0 and None: never.

    Raises:
        ConfigurationError: it is asked for, and is not possible.
    """
    names = "BLOOMDUPE_REBUILD_LAYERS", "BLOOMDUPE_REBUILD_EVERY"
    if possible:
        return values.get(names[0], DEFAULT_REBUILD_LAYERS), values.get(names[1], DEFAULT_REBUILD_EVERY)
    for name in names:
        if value := values.get(name):
            raise ConfigurationError(
                f"{name} = {value:g} needs a filter and an exact store that are both shared: leave it out. A "
                "filter of this crawl's own is made anew between two runs, by `bloomdupe rebuild JOBDIR`"
            )
    return 0, None


def _shared(values: Mapping[str, Any], queue: str | None, key: str | None) -> SharedOptions | None:
    """Return what is shared with other crawls.

    Raises:
        ConfigurationError: the settings do not go together.
    """
    url = values.get("BLOOMDUPE_FILTER")
    named = values.get("BLOOMDUPE_STORE", "redis" if url or queue else None)
    policy = values.get("BLOOMDUPE_POLICY", DEFAULT_POLICY)
    if named == "redis" and url is None and queue is None:
        raise ConfigurationError(
            "BLOOMDUPE_STORE = 'redis' is on the server of BLOOMDUPE_FILTER, which names none: write the "
            "server's URL in BLOOMDUPE_STORE"
        )
    store = (url or queue) if named == "redis" else named if named and "://" in named else None
    if queue is not None and store is None:
        url = url or queue
    # Without a store there is nothing to make it anew from.
    layers, every = _rebuild(values, possible=url is not None and store is not None)
    if url is None and store is None:
        if policy == "negatives":
            raise ConfigurationError(
                "BLOOMDUPE_POLICY = 'negatives' is for an exact store that several crawls share: give its "
                "URL in BLOOMDUPE_STORE, or take 'positives' or 'always'"
            )
        return None
    if named == "memory":
        raise ConfigurationError(
            "BLOOMDUPE_STORE = 'memory' confirms nothing about other crawls: take 'redis' or the URL of a "
            "database, 'lmdb' for an exact copy of this crawl's own keys, or None"
        )
    return SharedOptions(
        filter=url,
        store=store,
        policy=policy,
        key=values.get("BLOOMDUPE_KEY", key or naming.TEMPLATE),
        on_empty=values.get("BLOOMDUPE_ON_EMPTY", DEFAULT_ON_EMPTY),
        capacity=values.get("BLOOMDUPE_CAPACITY", DEFAULT_CAPACITY),
        error_rate=_rate(values, exact=store is not None and policy != "negatives"),
        rebuild_layers=layers,
        rebuild_every=every,
    )


def _rate(values: Mapping[str, Any], *, exact: bool) -> float:
    default = DEFAULT_ERROR_RATE if exact else DEFAULT_BARE_ERROR_RATE
    rate: float = values.get("BLOOMDUPE_ERROR_RATE", default)
    return rate


def read_rules(source: SettingsSource, first: Iterable[Any] = ()) -> RuleSet | None:
    """Return the rules of a project, or None if it has none.

    Args:
        source: the settings.
        first: rules of the spider, asked before all others.

    Raises:
        ConfigurationError: a value, a file or a rule is wrong.
    """
    values = _values(source)
    preset = values.get("BLOOMDUPE_PRESET", DEFAULT_PRESET)
    rules = values.get("BLOOMDUPE_RULES", [])
    files = values.get("BLOOMDUPE_RULE_FILES", [])
    first = list(first or ())
    if preset is None and not rules and not files and not first:
        return None
    return RuleSet.load(preset, rules, files, first=first)


def read_gate(source: SettingsSource) -> GateSettings | None:
    """Return what a project says of its gate, or None if it has none.

    Raises:
        ConfigurationError: a value is not what the setting expects.
    """
    values = _values(source)
    gate = values.get("BLOOMDUPE_GATE")
    if gate is None:
        return None
    sample = values.get("BLOOMDUPE_GATE_SAMPLE", DEFAULT_GATE_SAMPLE)
    return GateSettings(gate["file"], gate["key"], gate["source"], gate["match"], sample)


def _values(source: SettingsSource) -> dict[str, Any]:
    _refuse_unknown(source)
    return {
        name: _parsed(setting, source.get(name))
        for name, setting in SETTINGS.items()
        if name in source and (source.get(name) is not None or name == "BLOOMDUPE_STORE")
    }


def _parsed(setting: Setting, value: Any) -> Any:
    try:
        return setting.parse(value)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{setting.name}: {exc}") from exc
    except (ValueError, TypeError, OverflowError, KeyError) as exc:
        raise ConfigurationError(
            f"{setting.name} = {value!r} is not valid; it takes {setting.expects}"
        ) from exc


def _refuse_unknown(source: SettingsSource) -> None:
    # A misspelled setting that is silently ignored is found when the crawl is over.
    names = source if isinstance(source, Mapping) else ()
    for name in names:
        if isinstance(name, str) and name.startswith("BLOOMDUPE_") and name not in SETTINGS:
            raise ConfigurationError(
                f"{name} is not a setting of this release; there are {', '.join(SETTINGS)}"
            )
