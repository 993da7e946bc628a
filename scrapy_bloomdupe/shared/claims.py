"""Which keys has this process asked a server for, and not yet written down what became of them?

A server that grants a key takes it from all other crawls at once. If this process is killed before the
request is in its frontier nobody crawls that page. So what will be asked is noted here first, in a file that
survives the death of the process; what stands in it when a job is resumed may be ours, and passes once.

A log: each record is a sign, a length, a checksum and keys; what is torn at its end was never asked. It is
written anew when most of it is settled. Without a frontier there is nothing to resume, and no such file.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from scrapy_bloomdupe.errors import StateCorrupt, StateUnusable, StoreError

_MAGIC = b"bloomdupe claims 1\n"
_RECORD = struct.Struct("<cII")
_LENGTH = struct.Struct("<H")
_BEGIN, _END = b"+", b"-"
# Bytes. Written anew when it is so long, and at least so many times what is still open.
_COMPACT_AT = 1 << 20
_COMPACT_RATIO = 4


class Claims:
    """The log of one directory; made by ``open``."""

    def __init__(self, path: Path, descriptor: int, keys: set[bytes], *, sync: bool) -> None:
        self.path = path
        self._descriptor = descriptor
        self._sync = sync
        self._torn = False
        self._size = os.fstat(descriptor).st_size
        #: What was begun and has not ended.
        self.keys = keys

    @classmethod
    def open(cls, path: Path, *, sync: bool = False) -> Claims:
        """Open the log, or make it.

        Args:
            sync: bring every record to the disk.

        Raises:
            StateCorrupt: it is none. It was left as it is.
            StateUnusable: the system refused.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise StateUnusable(exc.errno, f"cannot open {path}: {exc.strerror}") from exc
        try:
            data = path.read_bytes()
            if not _MAGIC.startswith(data[: len(_MAGIC)]):
                raise StateCorrupt(
                    f"{path} is no log of claims: it begins with {data[:20]!r}. Restore it from a copy, or "
                    "move it aside: pages that were asked for when the last run ended may then be lost"
                )
            keys, whole = _read(data)
            if whole < len(data) or not data:
                os.ftruncate(descriptor, whole)
                if whole == 0 and os.write(descriptor, _MAGIC) < len(_MAGIC):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            os.close(descriptor)
            raise StateUnusable(exc.errno, f"cannot read {path}: {exc.strerror}") from exc
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, keys, sync=sync)

    def begin(self, keys: Iterable[bytes]) -> None:
        """Note *keys*, before they are asked for.

        Raises:
            StoreError: not noted; they must not be asked for.
        """
        new = [key for key in keys if key not in self.keys]
        if new:
            self._append(_BEGIN, new)
            self.keys.update(new)

    def end(self, keys: Iterable[bytes]) -> None:
        """Note that what became of *keys* is written elsewhere.

        Raises:
            StoreError: not noted: their pages can be crawled once more.
        """
        old = [key for key in keys if key in self.keys]
        if not old:
            return
        self.keys.difference_update(old)
        if self._size > _COMPACT_AT and self._size > _COMPACT_RATIO * sum(len(key) + 2 for key in self.keys):
            self._compact()
        else:
            self._append(_END, old)

    def sync(self) -> None:
        """Bring the log to the disk; any thread may call it.

        Raises:
            StoreError: the system could not.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as exc:
            raise _error(self.path, exc) from exc

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, sign: bytes, keys: list[bytes]) -> None:
        try:
            record = _record(sign, keys)
        except struct.error as exc:
            raise StoreError(errno.EINVAL, f"a key is too long to be noted: {exc}") from exc
        if self._torn:
            raise StoreError(
                errno.EIO, f"cannot write to {self.path}: a write that failed is left at its end"
            )
        try:
            if os.write(self._descriptor, record) != len(record):
                # The rest of a record that was cut short would hide all that follow it.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._sync:
                os.fsync(self._descriptor)
        except OSError as exc:
            try:
                os.ftruncate(self._descriptor, self._size)
            except OSError:
                # What follows what is torn would not be read: from now on nothing is noted.
                self._torn = True
            raise _error(self.path, exc) from exc
        self._size += len(record)

    def _compact(self) -> None:
        """Write what is still open to a file beside, and put that in place."""
        fresh = self.path.with_name(self.path.name + ".new")
        record = _record(_BEGIN, list(self.keys)) if self.keys else b""
        try:
            with fresh.open("ab") as file:
                file.truncate(0)
                file.write(_MAGIC + record)
                file.flush()
                os.fsync(file.fileno())
                fresh.replace(self.path)
                # The number stays, for whoever is bringing it to the disk in another thread.
                os.dup2(file.fileno(), self._descriptor, inheritable=False)
        except OSError as exc:
            raise _error(self.path, exc) from exc
        self._size = len(_MAGIC) + len(record)


def _record(sign: bytes, keys: list[bytes]) -> bytes:
    payload = b"".join(_LENGTH.pack(len(key)) + key for key in keys)
    return _RECORD.pack(sign, len(payload), zlib.crc32(sign + payload)) + payload


def _read(data: bytes) -> tuple[set[bytes], int]:
    """Return the keys that are open, and the bytes of all whole records."""
    keys: set[bytes] = set()
    at = len(_MAGIC)
    if len(data) < at:
        return keys, 0
    while at + _RECORD.size <= len(data):
        sign, size, checksum = _RECORD.unpack_from(data, at)
        payload = data[at + _RECORD.size : at + _RECORD.size + size]
        if len(payload) < size or sign not in (_BEGIN, _END) or zlib.crc32(sign + payload) != checksum:
            break
        (keys.update if sign == _BEGIN else keys.difference_update)(_keys(payload))
        at += _RECORD.size + size
    return keys, at


def _keys(payload: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(payload):
        (size,) = _LENGTH.unpack_from(payload, at)
        yield payload[at + _LENGTH.size : at + _LENGTH.size + size]
        at += _LENGTH.size + size


def _error(path: Path, exc: OSError) -> StoreError:
    return StoreError(exc.errno or 0, f"cannot write to {path}: {exc.strerror or exc}")
