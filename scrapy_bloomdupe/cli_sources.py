"""Sources of an import: ``requests.seen`` of stock Scrapy and a set of scrapy-redis, as one form.

A ``Source`` is only read, and says at the end what of it was no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from scrapy_bloomdupe.redisset import SetCounts, find_set, read_set, size_of
from scrapy_bloomdupe.remote.client import Server
from scrapy_bloomdupe.stockjob import ImportCounts, open_seen, read_seen


class Source(Protocol):
    """Where keys come from.

    Attributes:
        shown: its name, for people.
        total, unit: what the bar counts.
        room: keys that it can have at the most.
        reached: how far it is, in *unit*.
        num_keys: read so far.
    """

    @property
    def shown(self) -> str: ...
    @property
    def total(self) -> int: ...
    @property
    def unit(self) -> str: ...
    @property
    def room(self) -> int: ...
    @property
    def reached(self) -> int: ...
    @property
    def num_keys(self) -> int: ...
    def read(self) -> Iterator[bytes]: ...
    def rest(self) -> Iterator[str]:
        """Give sentences on what was no key, and on what the keys mean."""
        ...


class SeenFile:
    """``requests.seen``."""

    unit = "B"

    def __init__(self, jobdir: Path) -> None:
        self._path = open_seen(jobdir)
        self._counts = ImportCounts()
        self.shown = str(self._path)
        self.total = self._path.stat().st_size
        self.room = self.total // 22  # an entry takes 22 bytes at the least

    @property
    def reached(self) -> int:
        return self._counts.bytes_read

    @property
    def num_keys(self) -> int:
        return self._counts.keys

    def read(self) -> Iterator[bytes]:
        return read_seen(self._path, self._counts)

    def rest(self) -> Iterator[str]:
        if self._counts.bytes_skipped:
            yield (
                f"{self._counts.bytes_skipped:,} bytes were no whole entry (an unclean end cuts the last one "
                "off): their pages will be crawled again"
            )


class RedisSet:
    """A set of scrapy-redis."""

    unit = "keys"

    def __init__(self, server: Server, name: str | None) -> None:
        self._server = server
        self._name = find_set(server, name)
        self._counts = SetCounts()
        self.shown = f"{server.address} {self._name}"
        self.total = self.room = size_of(server, self._name)

    @property
    def reached(self) -> int:
        return self._counts.keys + self._counts.malformed

    @property
    def num_keys(self) -> int:
        return self._counts.keys

    def read(self) -> Iterator[bytes]:
        return read_set(self._server, self._name, self._counts)

    def rest(self) -> Iterator[str]:
        counts = self._counts
        if counts.malformed:
            more = ", ..." if counts.malformed > len(counts.samples) else ""
            samples = ", ".join(f"{sample!r:.60}" for sample in counts.samples)
            yield (
                f"{counts.malformed:,} members are no fingerprint of 40 hexadecimal letters and were left "
                f"out: {samples}{more}"
            )
        if counts.keys:
            yield (
                "their pages count as seen where the project makes the same fingerprints. scrapy-redis 0.8 "
                "and later make others than Scrapy: to go on with theirs, set REQUEST_FINGERPRINTER_CLASS = "
                '"scrapy_bloomdupe.ScrapyRedisFingerprinter"'
            )
