"""Local feeds, kept as old as the queue: a page is done when its items are in their files.

``Feeds`` knows which bytes of each file are of pages that are not acknowledged. Every commit says how long
each file is and where those bytes are, so that the run after a kill cuts them off, and a page that is crawled
again has its items in the file once. Local files of JSON lines and CSV that are appended to; what Scrapy
stores when a crawl ends (S3, FTP, compressed files) is lost with the process.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage, ItemFilter

from scrapy_bloomdupe.frontier.lmdb import LmdbFrontier
from scrapy_bloomdupe.frontier.queue import InFlight

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

# Formats with an item per line or row.
_LINES = ("jsonlines", "jsonl", "jl", "csv")
# Bytes behind the first item that has to go. More than a crawl writes while a page is under way.
_LONGEST_TAIL = 64 << 20
_BLOCK = 1 << 16  # bytes
# Seconds between the last commit of a run and the last item that it can have written.
_LATEST_S = 2.0


class Feeds:
    """The feeds of one crawl; without any every call does nothing.

    Args:
        store: where is written what is in the files.
    """

    def __init__(self, crawler: Crawler, store: LmdbFrontier) -> None:
        self._exporter: Any = crawler.get_extension(FeedExporter)
        self._store = store
        # Items that were to be exported since this was made.
        self._scraped = 0
        # By file: its length after the last item.
        self._lengths: dict[str, int] = {}
        # The bytes of pages that are not acknowledged: file, start and end.
        self._open: dict[InFlight, list[tuple[str, int, int]]] = {}
        self._changed = False

    def cut(self) -> list[str]:
        """Cut off what an earlier run wrote of pages that it had not acknowledged, a torn last line included,
        and return the files.

        Raises:
            OSError: a file could not be read or written.
            StoreError: what is done could not be noted.
        """
        cut = [] if self._store.was_in_order else self._cut_noted()
        for slot in self._slots():
            if slot.format not in _LINES or not _is_local(slot) or slot.storage.write_mode != "ab":
                continue
            for path in _files_of(slot):
                if self._store.was_in_order:
                    # Of another job, or written by hand: the first item must not become part of it.
                    _end_line(path)
                elif _cut_torn_line(path):
                    cut.append(str(path))
        return sorted(set(cut))

    def _cut_noted(self) -> list[str]:
        kept = self._store.note(b"feeds")
        run, noted = json.loads(kept) if kept is not None else (0, {})
        if run != self._store.run - 1:
            # The last run was killed before it had exported anything.
            return []
        files = {path: _File.parse(found) for path, found in noted.items() if not self._is_foreign(path)}
        plan = {path: tail for path, file in files.items() if (tail := file.tail(Path(path))) is not None}
        if not plan:
            return []
        # Noted first: if this process is killed in the middle the next one does the same again.
        again = {path: _File(inode, start, [], rest).dump() for path, (inode, start, rest) in plan.items()}
        self._store.set_note(b"feeds", json.dumps([self._store.run, again]).encode())
        self._store.environment.commit()
        for path, (_, start, rest) in plan.items():
            with Path(path).open("r+b") as file:
                file.truncate(start)
                file.seek(start)
                file.write(rest)
        return list(plan)

    def _is_foreign(self, path: str) -> bool:
        """Return whether somebody else has written to a file since the last run was killed: nothing is cut
        then, and some items may be there twice."""
        try:
            return Path(path).stat().st_mtime > self._store.environment.last_write + _LATEST_S
        except OSError:
            return True

    def go_on(self) -> None:
        """Write no second header into CSV files that a job goes on with."""
        for slot in self._slots():
            if slot.format != "csv" or not _is_tracked(slot):
                continue
            path = Path(slot.storage.path)
            if not path.is_file() or not path.stat().st_size:
                continue
            with path.open(encoding=slot.feed_options.get("encoding") or "utf-8", newline="") as file:
                header = next(csv.reader(file), [])
            options = {**slot.feed_options}
            options["item_export_kwargs"] = {
                **(options.get("item_export_kwargs") or {}),
                "include_headers_line": False,
            }
            # Without a header line Scrapy takes each item's own fields.
            options["fields"] = options.get("fields") or header
            slot.feed_options = options

    def watch(self) -> None:
        """Begin to look at the files: nothing was exported yet."""
        for slot in self._slots():
            if _is_tracked(slot):
                self._lengths[str(slot.storage.path)] = _size(slot.storage.path)
                self._changed = True

    def item_exported(self, entry: InFlight | None) -> None:
        """An item was scraped, after Scrapy has exported it.

        Args:
            entry: the request of its page; None: it is of no page that is in flight.
        """
        self._scraped += 1
        for slot in self._slots():
            if not _is_tracked(slot):
                continue
            path, file = str(slot.storage.path), slot.file
            before = self._lengths.get(path)
            if before is None:
                before = self._lengths[path] = _size(path)
            if file is None or file.closed or (after := file.tell()) <= before:
                continue
            self._lengths[path] = after
            self._changed = True
            if entry is not None:
                if not before and slot.format == "csv":
                    file.flush()
                    before = _first_line(path)
                self._open.setdefault(entry, []).append((path, before, after))

    def flush(self, *, sync: bool = False) -> None:
        """Write what waits in the files, and let the next commit say what is in them.

        Args:
            sync: bring it to the disk, too.

        Raises:
            OSError: it could not be written.
        """
        for slot in self._slots():
            file = slot.file
            if file is None and self._scraped and _takes_all(slot):
                # Scrapy has logged why, and goes on.
                raise OSError(
                    f"the feed {slot.uri} could not be opened; it has none of {self._scraped} items"
                )
            if file is None or file.closed:
                continue
            file.flush()
            if sync and _is_local(slot):
                os.fsync(file.fileno())
        done = [entry for entry in self._open if entry.done]
        for entry in done:
            ranges = self._open.pop(entry)
            # Of a request in memory only that is not seen by then: it comes again with the page that gave it.
            parent = next((one for one in entry.parents or () if not one.done), None)
            if parent is not None and not entry.keys:
                self._open.setdefault(parent, []).extend(ranges)
        if not (self._changed or done):
            return
        self._changed = False
        files = {path: _File(_inode(path), length, [], b"") for path, length in self._lengths.items()}
        for ranges in self._open.values():
            for path, start, end in ranges:
                files[path].ranges.append((start, end))
        note = {path: file.dump() for path, file in files.items() if file.inode}
        self._store.set_note(b"feeds", json.dumps([self._store.run, note]).encode())

    def unsafe(self) -> list[str]:
        """Return the URIs of feeds whose items are lost with the process."""
        return [slot.uri for slot in self._slots() if not _is_local(slot)]

    def overwriting(self) -> list[str]:
        """Return the URIs of local files that were emptied when the crawl started."""
        return [
            slot.uri
            for slot in self._slots()
            if isinstance(slot.storage, FileFeedStorage) and slot.storage.write_mode == "wb"
        ]

    def _slots(self) -> list[Any]:
        return self._exporter.slots if self._exporter is not None else []


class _File:
    """What a file has in it: its first *length* bytes count, but for *ranges*, and then come those of
    *rest*."""

    def __init__(self, inode: int, length: int, ranges: list[tuple[int, int]], rest: bytes) -> None:
        self.inode = inode
        self.length = length
        self.ranges = ranges
        self.rest = rest

    def dump(self) -> list[Any]:
        return [self.inode, self.length, self.ranges, b64encode(self.rest).decode()]

    @classmethod
    def parse(cls, found: list[Any]) -> _File:
        inode, length, ranges, rest = found
        return cls(inode, length, [tuple(one) for one in ranges], b64decode(rest))

    def tail(self, path: Path) -> tuple[int, int, bytes] | None:
        """Return the file's inode, the byte from which on it changes, and what stands there then.

        None: nothing has to go, or it is another file by now.
        """
        if not path.is_file() or (found := path.stat()).st_ino != self.inode or found.st_size < self.length:
            return None
        start = min((start for start, _ in self.ranges), default=self.length)
        if self.length - start > _LONGEST_TAIL:
            start, self.ranges = self.length, []
        rest = io.BytesIO()
        at = start
        with path.open("rb") as file:
            for begin, end in [*sorted(self.ranges), (self.length, self.length)]:
                file.seek(at)
                rest.write(file.read(max(begin - at, 0)))
                at = max(at, end)
        kept = rest.getvalue() + self.rest
        if start + len(kept) == found.st_size:
            return None
        return self.inode, start, kept


def _is_local(slot: Any) -> bool:
    return isinstance(slot.storage, FileFeedStorage) and "postprocessing" not in slot.feed_options


def _is_tracked(slot: Any) -> bool:
    # Of a batch that is full nobody knows when its last item was written.
    is_one_file = not slot.feed_options.get("batch_item_count")
    return is_one_file and slot.format in _LINES and _is_local(slot) and slot.storage.write_mode == "ab"


def _takes_all(slot: Any) -> bool:
    """Return whether every item goes into this feed, and all into one file."""
    every = type(slot.filter) is ItemFilter and not slot.filter.item_classes
    return every and not slot.feed_options.get("batch_item_count")


def _files_of(slot: Any) -> list[Path]:
    """Return the files of a feed that are there; a feed in batches has many."""
    path = Path(slot.storage.path)
    if not slot.feed_options.get("batch_item_count"):
        return [path] if path.is_file() else []
    template = slot.uri_template.removeprefix("file://")
    names = re.sub(r"%\([^)]*\)[0-9]*[sd]", "*", Path(template).name)
    return [found for found in path.parent.glob(names) if found.is_file()]


def _cut_torn_line(path: Path) -> bool:
    """Cut off a last line that has no end, and return whether there was one."""
    size = end = path.stat().st_size
    with path.open("r+b") as file:
        while end:
            start = max(end - _BLOCK, 0)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            file.truncate(end)
    return end < size


def _end_line(path: Path) -> None:
    """End a last line that has no end."""
    with path.open("r+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _inode(path: str) -> int:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def _first_line(path: str) -> int:
    """Return the length of a CSV file's header."""
    with Path(path).open("rb") as file:
        return len(file.readline())
