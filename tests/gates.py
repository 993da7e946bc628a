"""What do the tests of the gate share? Gates in a directory, and what goes wrong with them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.gate.building import build_gate
from scrapy_bloomdupe.gate.filling import Row
from scrapy_bloomdupe.gate.gate import Gate

#: A sample of what was never put in; see ``Told``.
UNKNOWN = [f"unknown {number}" for number in range(100)]


class Told:
    """Takes what a gate says of its trouble."""

    def __init__(self) -> None:
        self.problems: list[Exception] = []

    def __call__(self, exc: Exception) -> None:
        self.problems.append(exc)

    @property
    def messages(self) -> list[str]:
        return [str(exc.args[-1]) for exc in self.problems]


class Clock:
    """Seconds that go by when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def build(path: Path, rows: Iterable[Row] = ("alpha", "beta"), **options: Any) -> Path:
    build_gate(path, list(rows), **options)
    return path


def passes_everything(gate: Gate) -> bool:
    return all(gate.might_contain(text) for text in UNKNOWN)


def judges(gate: Gate) -> bool:
    """Return whether the gate rejects nearly all of what was never put in."""
    return sum(gate.might_contain(text) for text in UNKNOWN) < 20


def change_identity(path: Path, changes: Mapping[str, str | None]) -> None:
    """Rewrite what a gate says of itself; None takes an entry out."""
    bloom = BloomFilter.open(path)
    identity = {**bloom.identity, **{k: v for k, v in changes.items() if v is not None}}
    bloom.set_identity({k: v for k, v in identity.items() if changes.get(k, "") is not None})
    bloom.close()


def change_format(path: Path, version: int) -> None:
    """Make a file one of another format, with a right checksum."""
    data = bytearray(path.read_bytes())
    data[8:12] = version.to_bytes(4, "little")
    data[12:16] = bytes(4)
    data[12:16] = zlib.crc32(data[:4096]).to_bytes(4, "little")
    path.write_bytes(data)


def zero_block(path: Path, block: int) -> None:
    """Leave a hole of 4 KiB in the bits."""
    with path.open("r+b") as file:
        file.seek(4096 * (1 + block))
        file.write(bytes(4096))


def missing(path: Path) -> None:
    path.unlink()


def torn(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def other_version(path: Path) -> None:
    change_format(path, 2)


#: The three ways of the crawl tests, by name.
DAMAGES: dict[str, Callable[[Path], None]] = {
    "missing": missing,
    "torn": torn,
    "of another version": other_version,
}
