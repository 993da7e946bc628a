"""Which fingerprints has Scrapy's own filter written? Reads ``requests.seen`` of a job directory.

Three forms occur, also one after the other in one file (Scrapy was upgraded in mid-crawl): lines of hex
digits (2.18 and before), binary records of a 2-byte big-endian length and as many bytes (2.19), and a
last entry that was cut off by an unclean end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scrapy_bloomdupe.errors import StateNotFound, StateUnusable
from scrapy_bloomdupe.hashing import as_key

SEEN_NAME = "requests.seen"

_BLOCK = 1 << 20
_LINE = re.compile(rb"([0-9a-fA-F]+)\r?\n")
# A record of under 12,336 bytes starts with a byte below "0", a line of hex digits never does.
_FIRST_DIGIT = 0x30


@dataclass
class ImportCounts:
    """What was found.

    Attributes:
        keys: entries read.
        bytes_read: of the file.
        bytes_skipped: at its end, or between entries, that are no whole entry.
    """

    keys: int = 0
    bytes_read: int = 0
    bytes_skipped: int = 0


def open_seen(jobdir: Path) -> Path:
    """Return the path of ``requests.seen`` in *jobdir*.

    Raises:
        StateNotFound: there is none.
    """
    path = jobdir / SEEN_NAME
    if not path.is_file():
        raise StateNotFound(
            2, f"there is no {SEEN_NAME} in {jobdir}; give the JOBDIR of a crawl with Scrapy's own filter"
        )
    return path


def read_seen(path: Path, counts: ImportCounts) -> Iterator[bytes]:
    """Give the key of every entry, and keep *counts*.

    Args:
        path: the file; read in blocks, never as a whole.
        counts: updated as it goes.

    Raises:
        StateUnusable: the system refused.
    """
    try:
        with path.open("rb") as file:
            rest = b""
            while block := file.read(_BLOCK):
                counts.bytes_read += len(block)
                data = rest + block
                used = 0
                for fingerprint, end in _entries(data, counts):
                    counts.keys += 1
                    used = end
                    yield as_key(fingerprint)
                rest = data[used:]
            counts.bytes_skipped += len(rest)
    except OSError as exc:
        raise StateUnusable(exc.errno, f"cannot read {path}: {exc.strerror}") from exc


def _entries(data: bytes, counts: ImportCounts) -> Iterator[tuple[bytes, int]]:
    """Give whole entries and where they end; stop at the first that is cut off."""
    at, size = 0, len(data)
    while at < size:
        if data[at] >= _FIRST_DIGIT:
            line = _LINE.match(data, at)
            if line is not None:
                digits = line[1]
                at = line.end()
                if len(digits) % 2:
                    counts.bytes_skipped += len(line[0])
                else:
                    yield bytes.fromhex(digits.decode()), at
                continue
            end = data.find(b"\n", at)
            if end < 0:
                return
            counts.bytes_skipped += end + 1 - at
            at = end + 1
            continue
        if at + 2 > size:
            return
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if end > size:
            return
        if end > at + 2:
            yield data[at + 2 : end], end
        at = end
