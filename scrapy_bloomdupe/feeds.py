"""Are the items of finished pages in their feeds? Scrapy's feed exports keep some in memory.

A page must not be done before its items are safe. Only local files can be made safe: what is stored at the
end of a crawl (S3, FTP, compressed feeds) is lost with the process, whatever a journal says.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage, ItemFilter

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

# Formats with an item per line.
_LINES = ("jsonlines", "jsonl", "jl", "csv")


class Feeds:
    """The feeds of one crawl; without any every call does nothing."""

    def __init__(self, crawler: Crawler) -> None:
        self._exporter: Any = crawler.get_extension(FeedExporter)
        #: Items that were to be exported since this was made.
        self.scraped = 0

    def flush(self, *, sync: bool = False) -> None:
        """Write what waits in the feeds' files.

        Args:
            sync: bring it to the disk, too.

        Raises:
            OSError: it could not be written.
        """
        for slot in self._slots():
            file = slot.file
            if file is None and self.scraped and _takes_all(slot):
                # Scrapy has logged why, and goes on.
                raise OSError(f"the feed {slot.uri} could not be opened; it has none of {self.scraped} items")
            if file is None or file.closed:
                continue
            file.flush()
            if sync and _is_safe(slot):
                os.fsync(file.fileno())

    def mend(self) -> list[str]:
        """End the last line of the local files that items will be appended to, if it was torn, and return
        their paths: else the first item would become part of it.

        Raises:
            OSError: a file could not be read or written.
        """
        mended = []
        for slot in self._slots():
            storage = slot.storage
            if slot.format not in _LINES or not _is_safe(slot) or storage.write_mode != "ab":
                continue
            for path in _files_of(slot):
                if path.stat().st_size and not _ends_a_line(path):
                    with path.open("ab") as file:
                        file.write(b"\n")
                    mended.append(str(path))
        return mended

    def unsafe(self) -> list[str]:
        """Return the URIs of feeds whose items are lost with the process."""
        return [slot.uri for slot in self._slots() if not _is_safe(slot)]

    def overwriting(self) -> list[str]:
        """Return the URIs of local files that were emptied when the crawl started."""
        return [
            slot.uri
            for slot in self._slots()
            if isinstance(slot.storage, FileFeedStorage) and slot.storage.write_mode == "wb"
        ]

    def _slots(self) -> list[Any]:
        return self._exporter.slots if self._exporter is not None else []


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
    return sorted(found for found in path.parent.glob(names) if found.is_file())


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _is_safe(slot: Any) -> bool:
    return isinstance(slot.storage, FileFeedStorage) and "postprocessing" not in slot.feed_options
