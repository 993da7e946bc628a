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
# What is no line of digits ends with its own line, or where a record begins: 0 is the first byte of
# every record of under 256 bytes, and of no text.
_JUNK = re.compile(rb"[^\n\0]*(?:\n|(?=\0))")
_LONGEST_LINE = 1 << 16
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
                for fingerprint, end in _entries(data):
                    if fingerprint is None:
                        counts.bytes_skipped += end - used
                    else:
                        counts.keys += 1
                        yield as_key(fingerprint)
                    used = end
                rest = data[used:]
            counts.bytes_skipped += len(rest)
    except OSError as exc:
        raise StateUnusable(exc.errno, f"cannot read {path}: {exc.strerror}") from exc


def _entries(data: bytes) -> Iterator[tuple[bytes | None, int]]:
    """Give each whole entry, or None for bytes that are none, and where it ends; stop at the first one
    that is cut off."""
    at, size = 0, len(data)
    while at < size:
        if data[at] >= _FIRST_DIGIT:
            if line := _LINE.match(data, at):
                at = line.end()
                yield (bytes.fromhex(line[1].decode()) if len(line[1]) % 2 == 0 else None), at
            elif junk := _JUNK.match(data, at):
                at = junk.end()
                yield None, at
            elif size - at > _LONGEST_LINE:
                yield None, size
                return
            else:
                return
            continue
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > size or end > size:
            return
        yield (data[at + 2 : end] or None), end
        at = end
