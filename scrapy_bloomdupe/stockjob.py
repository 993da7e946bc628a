"""Job directories of stock Scrapy, 2.13 to 2.19: ``requests.seen`` and ``requests.queue``.

``read_seen`` gives the fingerprints and ``StockQueue`` the pending requests; neither needs Scrapy, runs code
of a request, or changes a file. ``write_queue`` and ``write_seen`` write a job that Scrapy goes on with.

``requests.seen`` occurs in three forms, also one after the other in one file (Scrapy was upgraded in
mid-crawl): lines of hex digits (2.18 and before), binary records of a 2-byte big-endian length and as many
bytes (2.19), and a last entry that was cut off by an unclean end.

``requests.queue`` has ``<priority>[s]`` (``s``: start requests), in a directory per download slot if the
priority queue goes by slots. Each is, as queuelib writes it, a LIFO file (a count, then records with their
length behind them), a FIFO directory (chunks of records with their length before them, and ``info.json``) or
an SQLite database. Counts, ``info.json`` and ``active.json`` are written when a crawl ends in order, and tell
whether it did.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import mmap
import pickle
import re
import shutil
import sqlite3
import struct
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from scrapy_bloomdupe.errors import ConfigurationError, StateNotFound, StateUnusable
from scrapy_bloomdupe.frontier.lmdb import PendingRequest
from scrapy_bloomdupe.hashing import as_key

SEEN_NAME, QUEUE_NAME, STATE_NAME = "requests.seen", "requests.queue", "spider.state"
_INDEX_NAME = "active.json"

_BLOCK = 1 << 20
_LINE = re.compile(rb"([0-9a-fA-F]+)\r?\n")
# What is no line of digits ends with its own line, or where a record begins: 0 is the first byte of
# every record of under 256 bytes, and of no text.
_JUNK = re.compile(rb"[^\n\0]*(?:\n|(?=\0))")
_LONGEST_LINE = 1 << 16
# A record of under 12,336 bytes starts with a byte below "0", a line of hex digits never does.
_FIRST_DIGIT = 0x30

# queuelib's: the length of a record, and the count at the beginning of a LIFO file.
_SIZE = struct.Struct(">L")
_PRIORITY = re.compile(r"(-?\d+)(s?)")
_CHUNK = re.compile(r"q(\d+)")
_SQLITE = b"SQLite format 3\0"
_COMPANIONS = ("-journal", "-wal", "-shm")


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


@dataclass(frozen=True)
class StockBucket:
    """The pending requests of one slot, one priority and one kind (start requests or others).

    Attributes:
        slot: the download slot; empty where the priority queue does not go by slots.
        priority: as Scrapy's queues have it: the lower the sooner.
        start: whether it is the queue of start requests.
        count: requests that can be read.
        read: gives the requests, serialized, in the order in which they were pushed.
        problem: what shows that the crawl did not end in order; empty: nothing.
    """

    slot: str
    priority: int
    start: bool
    count: int
    read: Callable[[], Iterator[bytes]]
    problem: str


class StockQueue:
    """The pending requests of a stock job that is stopped.

    Attributes:
        path: the directory.
        buckets: the requests.
        count: requests in all of them.
        problem: what shows that the last crawl was killed, so that requests can be missing; empty: nothing. A
            wrong alarm is possible (a copy with other times), a missed one only if nothing was pushed or
            popped.
    """

    def __init__(self, path: Path, index: Any) -> None:
        self.path = path
        self.buckets: list[StockBucket] = []
        slots = index if isinstance(index, dict) else {}
        names = {path_safe(slot): slot for slot in slots}
        problems = [] if isinstance(index, (dict, list)) else [f"it has no whole {_INDEX_NAME}"]
        newest = path.stat().st_mtime_ns
        for entry in sorted(path.iterdir()):
            if entry.name == _INDEX_NAME:
                continue
            by_slot = entry.is_dir() and not _PRIORITY.fullmatch(entry.name)
            for file in sorted(entry.iterdir()) if by_slot else [entry]:
                if file.name.endswith(_COMPANIONS):
                    continue
                parts = _PRIORITY.fullmatch(file.name)
                if parts is None:
                    problems.append(f"{file.name} is no queue of Scrapy's own")
                    continue
                count, read, problem = _open(file)
                # Without the index a name is read off its directory: a wrong one only changes the order.
                slot = names.get(entry.name, entry.name.rpartition("-")[0]) if by_slot else ""
                self.buckets.append(StockBucket(slot, int(parts[1]), bool(parts[2]), count, read, problem))
                if problem:
                    problems.append(f"{file.relative_to(path)} {problem}")
                inside = file.iterdir() if file.is_dir() else ()
                newest = max(newest, *(one.stat().st_mtime_ns for one in (entry, file, *inside)))
        if not problems:
            if newest > (path / _INDEX_NAME).stat().st_mtime_ns:
                problems.append(f"it was changed after {_INDEX_NAME} was written")
            listed = slots.items() if isinstance(index, dict) else [("", index)]
            there = {(bucket.slot, bucket.priority) for bucket in self.buckets}
            problems += [
                f"{_INDEX_NAME} lists the priority {priority}{f' of {slot!r}' if slot else ''}, which has no "
                "file"
                for slot, priorities in listed
                for priority in priorities
                if (slot, priority) not in there
            ]
        self.count = sum(bucket.count for bucket in self.buckets)
        self.problem = problems[0] if problems else ""

    @classmethod
    def find(cls, jobdir: Path) -> StockQueue | None:
        """Return the queue of *jobdir*; None: nothing is pending in it, or it is a frontier of ours.

        Raises:
            StateUnusable: the system refused.
        """
        path = jobdir / QUEUE_NAME
        if not path.is_dir():
            return None
        try:
            index = json.loads((path / _INDEX_NAME).read_bytes())
        except (FileNotFoundError, ValueError):
            index = None
        try:
            queue = cls(path, index)
        except OSError as exc:
            raise StateUnusable(exc.errno, f"cannot read {exc.filename or path}: {exc.strerror}") from exc
        is_ours = isinstance(index, int)
        return queue if queue.buckets or (queue.problem and not is_ours) else None


def path_safe(slot: str) -> str:
    """Return the name of a slot's directory, as Scrapy has it."""
    readable = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in slot)
    return f"{readable}-{hashlib.md5(slot.encode()).hexdigest()}"


def read_state(jobdir: Path) -> tuple[bytes | None, bytes]:
    """Return ``spider.state`` (None: there is none), and its digest as ``frontier.group`` keeps it.

    Raises:
        StateUnusable: the system refused.
    """
    path = jobdir / STATE_NAME
    try:
        file = path.read_bytes() if path.is_file() else None
    except OSError as exc:
        raise StateUnusable(exc.errno, f"cannot read {path}: {exc.strerror}") from exc
    return file, bytes(16) if file is None else hashlib.blake2b(file, digest_size=16).digest()


def dated(path: Path) -> Path:
    """Return a free name beside *path* for what is moved aside."""
    stamp = time.strftime(f"{path.name}.old-%Y%m%d-%H%M%S")
    names = (stamp if number == 1 else f"{stamp}-{number}" for number in range(1, 1000))
    return next(aside for name in names if not (aside := path.with_name(name)).exists())


def _open(path: Path) -> tuple[int, Callable[[], Iterator[bytes]], str]:
    """Return how many requests a queue has, what reads them, and what shows that it was not closed."""
    if path.is_dir():
        return _open_fifo(path)
    with path.open("rb") as file:
        is_sqlite = file.read(len(_SQLITE)) == _SQLITE
    return _open_sqlite(path) if is_sqlite else _open_lifo(path)


def _open_lifo(path: Path) -> tuple[int, Callable[[], Iterator[bytes]], str]:
    bounds = array("Q")
    size = path.stat().st_size
    if size < _SIZE.size:
        return 0, lambda: iter(()), "is cut off"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (closed_with,) = _SIZE.unpack_from(data)
        # As Scrapy pops them. A torn end, which a later run may have pushed to, ends that.
        at, last = size, array("Q")
        while at > _SIZE.size:
            end = at - _SIZE.size
            start = end - _SIZE.unpack_from(data, end)[0]
            if start < _SIZE.size or not _is_request(data[start], data[end - 1]):
                break
            last.extend((end, start))
            at = start
        # What is before that is read from the beginning.
        start = _SIZE.size
        while start < at and (end := _end_of_record(data, start, at)):
            bounds.extend((start, end))
            start = end + _SIZE.size
    last.reverse()
    is_whole = start == at
    bounds.extend(last)

    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            for i in range(0, len(bounds), 2):
                file.seek(bounds[i])
                yield _as_pickle(file.read(bounds[i + 1] - bounds[i]))

    count = len(bounds) // 2
    problem = "" if is_whole else "is torn"
    if is_whole and count != closed_with:
        problem = f"says that it has {closed_with:,} requests, and has {count:,}"
    return count, read, problem


def _end_of_record(data: mmap.mmap, start: int, stop: int) -> int:
    """Return where the record that begins at *start* ends: its length follows it. 0: nowhere."""
    # Under 16 MB a length begins with this byte.
    at = data.find(b"\0", start + 1, stop)
    while 0 < at <= stop - _SIZE.size:
        if _SIZE.unpack_from(data, at)[0] == at - start and _is_request(data[start], data[at - 1]):
            return at
        at = data.find(b"\0", at + 1, stop)
    return 0


def _is_request(first: int, last: int) -> bool:
    """Return whether these bytes begin and end a pickle, or a dict of marshal's."""
    return (first == 0x80 and last == 0x2E) or (first in (0x7B, 0xFB) and last == 0x30)


def _as_pickle(data: bytes) -> bytes:
    if data[:1] != b"\x80":
        # What cannot be read stays pending as it is, and the crawl says so.
        with suppress(ValueError, EOFError, TypeError):
            return pickle.dumps(marshal.loads(data), protocol=4)
    return data


def _open_fifo(path: Path) -> tuple[int, Callable[[], Iterator[bytes]], str]:
    try:
        info = json.loads((path / "info.json").read_bytes())
        (first, _, offset), closed_with = info["tail"], int(info["size"])
    except (OSError, ValueError, KeyError, TypeError):
        first, offset, closed_with = -1, 0, 0
    chunks = sorted(
        (int(found[1]), chunk) for chunk in path.iterdir() if (found := _CHUNK.fullmatch(chunk.name))
    )
    torn = 0

    def read_or_skip(*, skip: bool = False) -> Iterator[bytes]:
        nonlocal torn
        for number, chunk in chunks:
            with chunk.open("rb") as file:
                size = chunk.stat().st_size
                # What was popped before the last crawl that ended in order.
                file.seek(offset if number == first else size if number < first else 0)
                while header := file.read(_SIZE.size):
                    length = _SIZE.unpack(header)[0] if len(header) == _SIZE.size else size
                    if file.tell() + length > size:
                        torn += 1
                        break
                    if skip:
                        file.seek(length, 1)
                        yield b""
                    else:
                        yield _as_pickle(file.read(length))

    count = sum(1 for _ in read_or_skip(skip=True))
    problem = "is torn" if torn else ""
    if not torn and count != closed_with:
        problem = f"says that it has {closed_with:,} requests, and has {count:,}"
    return count, read_or_skip, problem


def _open_sqlite(path: Path) -> tuple[int, Callable[[], Iterator[bytes]], str]:
    def read(what: str = "item") -> Iterator[Any]:
        with tempfile.TemporaryDirectory() as folder:
            place, mode = path, "ro"
            companions = [path.with_name(path.name + suffix) for suffix in _COMPANIONS]
            if any(companion.exists() for companion in companions):
                # SQLite would roll back in the file itself what a killed process has left.
                for one in (path, *filter(Path.exists, companions)):
                    shutil.copy(one, folder)
                place, mode = Path(folder, path.name), "rw"
            with closing(sqlite3.connect(f"{place.absolute().as_uri()}?mode={mode}", uri=True)) as database:
                for (found,) in database.execute(f"SELECT {what} FROM queue ORDER BY id"):
                    yield _as_pickle(found) if what == "item" else found

    try:
        (count,) = read("COUNT(*)")
    except sqlite3.Error as exc:
        return 0, lambda: iter(()), f"cannot be read: {exc}"
    return count, read, ""


class _Stored:
    """A pending request as Scrapy's queues take one."""

    def __init__(self, pending: PendingRequest) -> None:
        self._fields = pickle.loads(pending.request)
        self.priority = pending.priority
        self.meta = self._fields.get("meta") or {}

    def to_dict(self, *, spider: Any = None) -> dict[str, Any]:
        return self._fields  # type: ignore[no-any-return]

    def slot(self) -> str:
        """Return what ``Downloader.get_slot_key`` does."""
        slot = self.meta.get("download_slot")
        return urlsplit(self._fields["url"]).hostname or "" if slot is None else slot


def write_queue(path: Path, requests: Iterable[PendingRequest], settings: Any) -> int:
    """Write *requests* with Scrapy's own queues, and return how many there were.

    Args:
        path: a new ``requests.queue``.
        requests: in the order in which they were scheduled.
        settings: Scrapy's, of the queues.

    Raises:
        ConfigurationError: the queues cannot keep a request, or it cannot be restored here.
        OSError: the system refused.
    """
    # Not at the top: reading does without Scrapy.
    from scrapy.utils.misc import build_from_crawler, load_object

    names = [f"SCHEDULER_{which}_QUEUE" for which in ("PRIORITY", "DISK", "START_DISK")]
    kind, disk, start = (load_object(settings[name]) if settings[name] else None for name in names)
    downloader = SimpleNamespace(slots={}, get_slot_key=_Stored.slot)
    crawler: Any = SimpleNamespace(
        settings=settings, spider=None, engine=SimpleNamespace(downloader=downloader)
    )
    path.mkdir()
    options = {"downstream_queue_cls": disk, "key": str(path), "start_queue_cls": start}
    make: Any = build_from_crawler
    queue = make(kind, crawler, **options)
    count = 0
    try:
        for count, pending in enumerate(requests, 1):  # noqa: B007
            try:
                queue.push(_Stored(pending))
            except OSError:
                raise
            except Exception as exc:
                # Whatever pickle, marshal and a request's own classes raise.
                raise ConfigurationError(
                    f"the pending request {pending.number} cannot be written by {settings[names[1]]}: "
                    f"{exc!r}. Run `scrapy bloomdupe export` in the crawl's project, or choose another "
                    "--disk-queue. Nothing was changed"
                ) from exc
    finally:
        index = queue.close()
    (path / _INDEX_NAME).write_text(json.dumps(index))
    return count


def write_seen(path: Path, keys: Iterable[bytes]) -> int:
    """Write *keys* as the Scrapy that is installed does its fingerprints, and return how many there were.

    Raises:
        OSError: the system refused.
    """
    import scrapy

    is_binary = scrapy.version_info >= (2, 19)
    count = 0
    with path.open("wb") as file:
        for count, key in enumerate(keys, 1):  # noqa: B007
            file.write(len(key).to_bytes(2, "big") + key if is_binary else key.hex().encode() + b"\n")
    return count
