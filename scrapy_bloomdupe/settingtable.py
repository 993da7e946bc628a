"""Which settings are there, of what type, and what does a right value look like? The one list of them.

What they default to, and what they mean together, stands in ``settings``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import scrapy_bloomdupe.durations as durations
import scrapy_bloomdupe.hashing as hashing
import scrapy_bloomdupe.remote.address as addresses
import scrapy_bloomdupe.remote.naming as naming
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.filters.counters import COUNTING
from scrapy_bloomdupe.filters.layouts import LAYOUTS
from scrapy_bloomdupe.rules.catalogue import RULES
from scrapy_bloomdupe.rules.presets import PRESETS
from scrapy_bloomdupe.seen import POLICIES
from scrapy_bloomdupe.shared.options import ON_EMPTY

PRESET_NAMES = tuple({**PRESETS, **RULES})


class SettingsSource(Protocol):
    """What is read of Scrapy's ``BaseSettings``; a dict has it as well."""

    def get(self, name: Any, default: Any = None, /) -> Any: ...

    def __contains__(self, name: Any, /) -> bool: ...


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: as in a project's settings.
        default: what holds when it is not set, as README shows it.
        parse: raw value -> value; raises ValueError or TypeError.
        expects: what a right value looks like, for messages.
    """

    name: str
    default: str
    parse: Callable[[Any], Any]
    expects: str


def _choice(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return parse


def _store(value: Any) -> str | None:
    # The command line can only say it as a word.
    if value is None or str(value).lower() in ("none", ""):
        return None
    if addresses.is_address(value):
        addresses.parse(value)
    # What is no server is a database: SQLAlchemy knows which there are.
    return str(value) if "://" in str(value) else _choice("lmdb", "memory", "redis")(value)


def _filter(value: Any) -> str | None:
    if not addresses.is_address(value):
        return COUNTING.name if _choice("mapped", COUNTING.name)(value) == COUNTING.name else None
    addresses.parse(value)
    return str(value)


def _key(value: Any) -> str:
    naming.prefix(value, spider="spider")
    return str(value)


def _directory(value: Any) -> Path | None:
    return Path(value) if value and str(value).lower() != "none" else None


def _capacity(value: Any) -> int:
    # "1e6" is how people write it on a command line.
    return sizing.check_capacity(value if isinstance(value, int) else float(value))


def _size(value: Any) -> int:
    size = int(value if isinstance(value, int) else float(value))
    if size < 0:
        raise ValueError
    return size


def _layers(value: Any) -> int:
    layers = int(value)
    if layers < 0 or layers == 1:
        raise ValueError
    return layers


def _error_rate(value: Any) -> float:
    return sizing.check_error_rate(float(value))


def _preset(value: Any) -> str | None:
    if value is None or str(value).lower() in ("none", ""):
        return None
    return _choice(*PRESET_NAMES)(value)


def _rules(value: Any) -> list[Any]:
    # The command line can only give JSON.
    found = json.loads(value) if isinstance(value, str) else value
    if isinstance(found, Mapping) or not isinstance(found, Sequence):
        raise TypeError
    return list(found)


def _files(value: Any) -> list[Path]:
    names = value.split(",") if isinstance(value, str) else [value] if isinstance(value, Path) else value
    return [Path(name) for name in names if name]


def _interval(value: Any) -> float:
    interval = float(value)
    if interval and not 0.1 <= interval <= 1e6:
        raise ValueError
    return interval


def _port(value: Any) -> int | None:
    if value is None or str(value).lower() in ("none", ""):
        return None
    if isinstance(value, bool) or not 0 <= int(value) <= 65_535:
        raise ValueError
    return int(value)


def _gate(value: Any) -> Mapping[str, Any] | None:
    # The command line can only give JSON.
    found = json.loads(value) if isinstance(value, str) and value.lower() not in ("none", "") else value
    if not found or isinstance(found, str):
        return None
    given = dict(found)
    if not {"file", "source"} <= set(given) <= {"file", "source", "match", "key"}:
        raise ValueError
    sources = [given["source"]] if isinstance(given["source"], str) else list(given["source"])
    if not sources or not all(isinstance(source, str) for source in sources):
        raise TypeError
    key = given.get("key")
    on_server = addresses.is_address(given["file"])
    if on_server != bool(key) or not isinstance(key, str | None):
        raise ConfigurationError(
            "a gate on a server needs `key`, its name there, and `file` is then its URL (redis://host/0); a "
            "gate in a file has no `key`"
        )
    return {
        "file": given["file"] if on_server else Path(given["file"]),
        "key": key,
        "source": sources,
        "match": dict(given.get("match") or {}),
    }


def _share(value: Any) -> float:
    share = float(value)
    if not 0 <= share <= 1:
        raise ValueError
    return share


def _length(value: Any) -> float | None:
    return None if value is None or str(value).lower() in ("none", "") else durations.parse(value)


def _flag(value: Any) -> bool:
    # As Scrapy's getbool.
    if value in (True, False, 1, 0):
        return bool(value)
    return {"true": True, "1": True, "false": False, "0": False}[str(value).lower()]


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("BLOOMDUPE_DIR", "None", _directory, "a path, or None for JOBDIR/bloomdupe"),
        Setting(
            "BLOOMDUPE_FILTER",
            '"mapped"',
            _filter,
            "'mapped' for a file, 'counting' for one that can forget, or the URL of a server such as "
            "'redis://127.0.0.1:6379/0'",
        ),
        Setting(
            "BLOOMDUPE_STORE",
            '"lmdb"',
            _store,
            "'lmdb', 'memory', 'redis' (the server of BLOOMDUPE_FILTER), the URL of a Redis server or of a "
            "database, or None for no store",
        ),
        Setting("BLOOMDUPE_POLICY", '"positives"', _choice(*POLICIES), f"one of {', '.join(POLICIES)}"),
        Setting("BLOOMDUPE_KEY", f'"{naming.TEMPLATE}"', _key, f"a template such as {naming.TEMPLATE!r}"),
        Setting("BLOOMDUPE_ON_EMPTY", '"pass"', _choice(*ON_EMPTY), f"one of {', '.join(ON_EMPTY)}"),
        Setting("BLOOMDUPE_CAPACITY", "1_000_000", _capacity, "a number of keys, 1 to 1e13"),
        Setting(
            "BLOOMDUPE_ERROR_RATE",
            "0.001, without a store 1e-6",
            _error_rate,
            "a share, 1e-12 up to, not including, 1",
        ),
        Setting(
            "BLOOMDUPE_LAYOUT",
            '"paged"',
            _choice(*LAYOUTS),
            f"one of {', '.join(LAYOUTS)}",
        ),
        Setting(
            "BLOOMDUPE_SCHEME",
            '"murmur3"',
            _choice(*hashing.SCHEMES),
            f"one of {', '.join(hashing.SCHEMES)}",
        ),
        Setting("BLOOMDUPE_REBUILD_LAYERS", "4", _layers, "a number of layers, 2 or more, or 0 for never"),
        Setting("BLOOMDUPE_REBUILD_EVERY", "None", _length, f"None, or {durations.EXPECTS}"),
        Setting("BLOOMDUPE_CACHE_SIZE", "16_000_000", _size, "a number of bytes, 0 for none"),
        Setting("BLOOMDUPE_FRONTIER", "True", _flag, "True or False"),
        Setting("BLOOMDUPE_RETRY_FAILED", "False", _flag, "True or False"),
        Setting("BLOOMDUPE_EXPIRE", "None", _length, f"None, or {durations.EXPECTS}"),
        Setting("BLOOMDUPE_RESET", "None", _length, f"None, or {durations.EXPECTS}"),
        Setting("BLOOMDUPE_RECORD_START", "False", _flag, "True or False"),
        Setting("BLOOMDUPE_SYNC", '"normal"', _choice("normal", "full"), "'normal' or 'full'"),
        Setting("BLOOMDUPE_PRESET", "None", _preset, f"None, or one of {', '.join(PRESET_NAMES)}"),
        Setting("BLOOMDUPE_RULES", "[]", _rules, "a list of rules (dicts or Rule objects)"),
        Setting("BLOOMDUPE_RULE_FILES", "[]", _files, "a list of paths of .toml or .yaml files"),
        Setting("BLOOMDUPE_DRY_RUN", "False", _flag, "True or False"),
        Setting("BLOOMDUPE_FINGERPRINTER", "False", _flag, "True or False"),
        Setting("BLOOMDUPE_HISTORY", "60", _interval, "a number of seconds, 0.1 or more, 0 for none"),
        Setting("BLOOMDUPE_METRICS_PORT", "None", _port, "a port, 0 to 65535 (0: any free one), or None"),
        Setting(
            "BLOOMDUPE_GATE",
            "None",
            _gate,
            "None, or a dict of `file`, `source` (one of query:NAME, path:REGEX, fragment:REGEX, url, "
            "url:REGEX, meta:NAME, call:pkg.mod:func, or a list of them) and, if need be, `match`; with "
            "the URL of a server as `file` also `key`, the gate's name there",
        ),
        Setting("BLOOMDUPE_GATE_SAMPLE", "0.001", _share, "a share, 0 to 1"),
        Setting("BLOOMDUPE_ON_MISMATCH", '"error"', _choice("error", "new"), "'error' or 'new'"),
    )
}
