"""What stands in the journal's databases, and how is it read? Records of requests, the last run's seal.

It writes nothing: ``journal`` does.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scrapy_bloomdupe.errors import StateCorrupt
from scrapy_bloomdupe.stores.environment import Environment

# Frozen. LMDB compares bytes, so numbers are big-endian to come in their order.
NUMBER = struct.Struct(">Q")
# CRC-32 of the number and all that follows; version; lengths of key and spider name, in bytes.
_HEAD = struct.Struct("<IBBB")
_VERSION = 1
_CHUNK = 500
_LONGEST_NAME = 255  # bytes

#: One name per database of the file.
DATABASES = (b"pending", b"failed", b"owned", b"starts", b"journal")


@dataclass(frozen=True)
class Record:
    """A pending request.

    Attributes:
        number: its place in the order of the program, from 1.
        key: the key it was judged by; None: the filter was not asked (``dont_filter``).
        spider: name of the spider whose callbacks it has.
        request: the serialized request; empty: the record is damaged.
    """

    number: int
    key: bytes | None
    spider: str
    request: bytes

    @property
    def damaged(self) -> bool:
        return not self.request


def name_of(spider: str) -> str:
    """Return the name of a spider as a record has it: a long one is cut."""
    return spider.encode()[:_LONGEST_NAME].decode(errors="ignore")


def pack(record: Record) -> bytes:
    """Return the bytes of *record*; its number is the key that they are kept under."""
    return pack_parts(record.number, record.key or b"", name_of(record.spider).encode(), record.request)


def pack_parts(number: int, key: bytes, spider: bytes, request: bytes) -> bytes:
    """As ``pack``, without the object; no key: empty, *spider* has at most 255 bytes."""
    rest = b"%c%c%c%b%b%b" % (_VERSION, len(key), len(spider), key, spider, request)
    return zlib.crc32(rest, zlib.crc32(NUMBER.pack(number))).to_bytes(4, "little") + rest


def unpack(number: int, data: bytes) -> Record:
    """Return the record that *data* holds; one that does not check out is ``damaged``."""
    damaged = Record(number, None, "", b"")
    if len(data) < _HEAD.size:
        return damaged
    crc, version, key_length, spider_length = _HEAD.unpack_from(data)
    if version != _VERSION or crc != zlib.crc32(NUMBER.pack(number) + data[4:]):
        return damaged
    spider_at = _HEAD.size + key_length
    request_at = spider_at + spider_length
    spider = data[spider_at:request_at].decode(errors="replace")
    return Record(number, data[_HEAD.size : spider_at] or None, spider, data[request_at:])


@dataclass(frozen=True)
class Seal:
    """What a run that ended in order says of what it left.

    Attributes:
        queue: digest of Scrapy's own queue, which holds the pending requests; None: it does not.
        again: numbers of pending requests that are not in that queue.
    """

    queue: str | None
    again: tuple[int, ...] = ()


class JournalView:
    """What was written to the journal of *environment*, for who only looks: nothing is made or changed.

    Another process may be at work in it. What is counted here is of the last commit before this was made.

    Attributes:
        num_pending, num_failed: requests that ``records`` gives.
        num_done: requests of this job that are done, those of earlier runs included.
        in_order: the last run ended in order; false: it was killed, or is under way.

    Raises:
        StateCorrupt: there is no journal, or it cannot be read.
        StoreError: the file could not be read.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._pending, self._failed, *_, meta = (
            environment.database(name, create=False) for name in DATABASES
        )
        # Not ``environment.read``: its transaction would stay open, and the file of a running crawl grow.
        with environment.reading() as txn:
            self.num_pending: int = txn.stat(self._pending)["entries"]
            self.num_failed: int = txn.stat(self._failed)["entries"]
            found = _parse_meta(environment, txn.get(b"meta", db=meta))
        self.num_done = int(found.get("done", 0))
        self.in_order = seal_of(found) is not None

    def records(self, *, failed: bool = False) -> Iterator[Record]:
        """Give what is pending (or failed) in order of their numbers, a chunk at a time.

        Raises:
            StoreError: the file could not be read.
        """
        database, after = self._failed if failed else self._pending, 0
        while chunk := chunk_after(self._environment, database, after):
            for number, data in chunk:
                yield unpack(number, data)
            after = chunk[-1][0]


def read_seal(environment: Environment) -> Seal | None:
    """Return what the last run left, without writing anything; None: it did not end in order.

    Raises:
        StateCorrupt: there is no journal, or it cannot be read.
    """
    return seal_of(read_meta(environment, environment.database(b"journal", create=False)))


def chunk_after(environment: Environment, database: Any, after: int) -> list[tuple[int, bytes]]:
    """Return the next records with a number above *after*."""
    # A transaction per chunk, see ``stores.lmdb``.
    found: list[tuple[int, bytes]] = []
    with environment.reading() as txn, txn.cursor(database) as cursor:
        if cursor.set_range(NUMBER.pack(after + 1)):
            for name, data in cursor.iternext():
                if len(name) == NUMBER.size:
                    found.append((NUMBER.unpack(name)[0], data))
                if len(found) == _CHUNK:
                    break
    return found


def seal_of(meta: Mapping[str, Any]) -> Seal | None:
    seal = meta.get("seal")
    return Seal(seal["queue"], tuple(seal["again"])) if seal else None


def with_crc(data: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(data)) + data


def read_meta(environment: Environment, database: Any) -> dict[str, Any]:
    return _parse_meta(environment, environment.read(database, b"meta"))


def _parse_meta(environment: Environment, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {}
    try:
        if with_crc(data[4:]) != data:
            raise ValueError("its checksum does not match")
        return dict(json.loads(data[4:]))
    except ValueError as exc:
        raise StateCorrupt(
            f"{environment.path}: the journal of pending requests cannot be read: {exc}; the file was left "
            "as it is. Restore it from a copy, or move its directory aside to start anew"
        ) from exc
