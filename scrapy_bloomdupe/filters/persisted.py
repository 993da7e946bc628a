"""Which file is a filter, what does its header say, and how does it live: flush, sync, close?

What every filter in a mapped file has in common; the bits are the business of the subclass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bitarray import bitarray

from scrapy_bloomdupe.errors import FilterError, StateExists
from scrapy_bloomdupe.filters.header import HEADER_SIZE, IDENTITY, MARK, Header, LayerHeader, unpack
from scrapy_bloomdupe.filters.mapped import MappedFile

_CHUNK = 1 << 20
_EMPTY = bytes(4096)


class PersistedFilter:
    """A mapped file with a header. A subclass gives ``_layers`` and ``_release``."""

    def __init__(self, file: MappedFile, header: Header, *, writable: bool) -> None:
        self._file = file
        self._header = header
        self._writable = writable
        self._was_clean = header.clean
        self._closed = False
        self._mark = memoryview(b"")
        self._marked = b""

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def filter_id(self) -> bytes:
        """16 bytes that this filter shares with its store."""
        return self._header.filter_id

    @property
    def identity(self) -> Mapping[str, str]:
        """What the keys mean; without ``canary``: not known yet."""
        return self._header.identity

    @property
    def created(self) -> int:
        """When the seen-set was made, in seconds since 1970; a filter that is made anew keeps it."""
        return self._header.created

    @property
    def capacity(self) -> int:
        """Keys the first layer was made for."""
        return self._header.capacity

    @property
    def error_rate(self) -> float:
        """Asked rate of the whole, 0 < error_rate < 1."""
        return self._header.error_rate

    @property
    def layout(self) -> str:
        return self._header.layout

    @property
    def scheme(self) -> str:
        return self._header.scheme

    @property
    def num_layers(self) -> int:
        return len(self._header.layers)

    @property
    def was_clean(self) -> bool:
        """Whether the file was closed in order before it was opened here."""
        return self._was_clean

    def num_bytes(self) -> int:
        """Return the size of the file in bytes."""
        return self._file.size()

    def place(self) -> tuple[int, int]:
        """Return what tells this file from every other one as long as it is open: device and number there."""
        return self._file.place()

    def watch(self) -> None:
        """From now on ``is_current`` can tell."""
        self._mark = self._file.map(0, HEADER_SIZE)
        packed = self._header.pack()
        self._marked, self._marked_identity = packed[MARK], packed[IDENTITY]

    def is_current(self) -> bool:
        """Return whether the file still has the layers and the secret that it was opened with.

        Another process that grows the file writes its header before the first key of the new layer: a
        "no" that was given before this says true holds. Costs a look at mapped memory, no call of the
        system.
        """
        return bytes(self._mark[MARK]) == self._marked

    def changed_identity(self) -> tuple[Mapping[str, str], bytes] | None:
        """Return the identity that another process has written since ``watch``, and its bytes for
        ``accept_identity``; None: it is as it was. Costs a look at mapped memory.

        Raises:
            StateCorrupt: it is being written.
        """
        if bytes(self._mark[IDENTITY]) == self._marked_identity:
            return None
        data = bytes(self._mark)
        return unpack(data, str(self.path), self._file.size()).identity, data[IDENTITY]

    def accept_identity(self, data: bytes) -> None:
        """Take what ``changed_identity`` gave for what it was: any thread may call it."""
        self._marked_identity = data

    def count_bits(self) -> tuple[int, int]:
        """Read the whole file.

        Returns:
            How many bits are set, and how many blocks of 4 KiB are empty that cannot be: holes.
        """
        num_set = holes = 0
        for layer in self._layers():
            expected = -math.expm1(-layer.num_hashes * layer.num_keys / layer.num_bits)
            for offset in range(layer.offset, layer.end, _CHUNK):
                chunk = self._file.read(min(_CHUNK, layer.end - offset), offset)
                num_set += bitarray(buffer=chunk).count()
                # 2 % of a block are 655 bits: never none of them by chance.
                if expected >= 0.02:
                    holes += sum(chunk.startswith(_EMPTY, at) for at in range(0, len(chunk), len(_EMPTY)))
        return num_set, holes

    def rename(self, path: Path, *, replace: bool = False) -> None:
        """Give the file another name, in one step.

        Args:
            path: the name.
            replace: whether a file of that name gives way. The caller holds the directory's lock.

        Raises:
            StateExists: something is at *path*.
            FilterError: the system refused.
        """
        if not replace and path.exists():
            raise StateExists(17, f"{path} exists and is not overwritten; move it aside first")
        try:
            self._file.rename(path)
        except OSError as exc:
            raise FilterError(exc.errno, f"cannot rename {self.path} to {path}: {exc}") from exc

    def set_identity(self, identity: Mapping[str, str]) -> None:
        """Write what the keys mean into the header.

        Raises:
            ConfigurationError: it is too long.
            FilterError: it could not be written.
        """
        self._put_header(replace(self._header, identity=dict(identity), layers=self._layers(), clean=False))

    def begin(self) -> None:
        """Mark the file as in use: until ``close`` it counts as unclean.

        Raises:
            FilterError: the header could not be written.
        """
        self._write_header(clean=False)

    def flush(self) -> None:
        """Write counts into the header, if they have changed.

        Raises:
            FilterError: the system could not.
        """
        if self._writable and not self._closed and self._layers() != self._header.layers:
            self._write_header(clean=False)

    def sync(self) -> None:
        """Bring bits and counts to the disk, for the case of a power loss.

        May take seconds (scattered pages); any thread may call it while another one adds.

        Raises:
            FilterError: the system could not.
        """
        try:
            self._file.sync()
        except OSError as exc:
            raise FilterError(exc.errno, f"cannot sync {self.path}: {exc}") from exc

    def close(self) -> None:
        """Write the header, mark the file as clean and let go of it. A second call does nothing.

        Raises:
            FilterError: the header could not be written; the file is let go of nevertheless.
        """
        if self._closed:
            return
        try:
            if self._writable:
                self._write_header(clean=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the file without calling it clean: its count or its store may not be whole."""
        if not self._closed:
            self._closed = True
            self._release()
            self._file.close()

    def _layers(self) -> tuple[LayerHeader, ...]:
        """Return the layers with their present counts."""
        return self._header.layers

    def _release(self) -> None:
        """Let go of all memory of the file."""

    def _write_header(self, *, clean: bool) -> None:
        self._put_header(replace(self._header, layers=self._layers(), clean=clean))

    def _put_header(self, header: Header) -> None:
        try:
            self._file.write(header.pack())
        except OSError as exc:
            raise FilterError(exc.errno, f"cannot write the header of {self.path}: {exc}") from exc
        self._header = header
