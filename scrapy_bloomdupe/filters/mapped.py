"""How does a filter file get its space, its memory and its header onto the disk?

It knows bytes and offsets, not what they mean. POSIX.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from scrapy_bloomdupe.errors import StateExists, StateNotFound, StateUnusable

_ZEROS = bytes(1 << 20)


def _refused(path: Path, verb: str, exc: OSError) -> StateUnusable:
    return StateUnusable(
        exc.errno,
        f"cannot {verb} {path}: {exc.strerror or exc}; check the path, its permissions and the free "
        "space of the disk. Nothing was deleted",
    )


class MappedFile:
    """A file of a fixed header and areas that are mapped into memory.

    Space is reserved before it is mapped: a mapped hole on a full disk would kill the process
    (SIGBUS) at some later write, a reservation fails here and can be handled.
    """

    def __init__(self, path: Path, fd: int, writable: bool) -> None:
        self.path = path
        self._fd = fd
        self._writable = writable
        self._maps: list[tuple[mmap.mmap, list[memoryview]]] = []

    @classmethod
    def create(cls, path: Path, size: int) -> MappedFile:
        """Create the file with *size* reserved bytes of zero.

        Raises:
            StateExists: there is something at *path*.
            StateUnusable: the system refused; what was begun is removed again.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError as exc:
            raise StateExists(
                exc.errno, f"{path} exists and is not overwritten; move it aside first"
            ) from exc
        except OSError as exc:
            raise _refused(path, "create", exc) from exc
        file = cls(path, fd, writable=True)
        try:
            file.reserve(size)
        except OSError as exc:
            file.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise _refused(path, f"reserve {size} bytes for", exc) from exc
        return file

    @classmethod
    def open(cls, path: Path, *, readonly: bool) -> MappedFile:
        """Open what is there.

        Raises:
            StateNotFound: nothing is there.
            StateUnusable: the system refused, or it is no file.
        """
        flags = os.O_RDONLY if readonly else os.O_RDWR
        try:
            fd = os.open(path, flags | os.O_CLOEXEC)
        except FileNotFoundError as exc:
            raise StateNotFound(exc.errno, f"there is no filter at {path}") from exc
        except OSError as exc:
            raise _refused(path, "open", exc) from exc
        file = cls(path, fd, writable=not readonly)
        if path.is_dir():  # a read-only open of a directory succeeds
            file.close()
            raise _refused(path, "open", IsADirectoryError(21, "it is a directory, not a file"))
        return file

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def cut(self, size: int) -> None:
        """Throw away what lies behind *size* bytes, which nothing may have mapped."""
        if self.size() > size:
            os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> None:
        """Make the file *size* bytes long, with all of them really there.

        Raises:
            OSError: no space; the file has its old length again.
        """
        old = self.size()
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._fd, old, size - old)
            else:
                for at in range(old, size, len(_ZEROS)):
                    os.pwrite(self._fd, _ZEROS[: size - at], at)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, old)
            raise

    def map(self, offset: int, length: int) -> memoryview:
        """Return the memory of an area.

        Raises:
            StateUnusable: the system refused to map it.
        """
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        try:
            area = mmap.mmap(self._fd, offset - start + length, access=access, offset=start)
        except (OSError, ValueError) as exc:
            cause = exc if isinstance(exc, OSError) else OSError(0, str(exc))
            raise _refused(self.path, f"map {length} bytes of", cause) from exc
        if hasattr(mmap, "MADV_RANDOM"):
            # Probes are random: without this a first touch reads ahead for 1 to 4 ms.
            area.madvise(mmap.MADV_RANDOM)
        whole = memoryview(area)
        part = whole[offset - start :]
        self._maps.append((area, [part, whole]))
        return part

    def read(self, length: int, offset: int = 0) -> bytes:
        """Return *length* bytes from *offset* on, or as many as there are."""
        return os.pread(self._fd, length, offset)

    def place(self) -> tuple[int, int]:
        """Return the device and the number of this very file there: no other one's as long as it is open."""
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def write(self, data: bytes) -> None:
        """Write *data* at the start of the file, in one call."""
        os.pwrite(self._fd, data, 0)

    def rename(self, path: Path) -> None:
        """Rename the file, over whatever is at *path*, in one step."""
        self.path.rename(path)
        self.path = path

    def sync(self) -> None:
        """Bring everything to the disk. Slow; holds no lock: any thread may call it."""
        # Not mmap.flush(): it keeps the interpreter's lock for the seconds that this may take.
        getattr(os, "fdatasync", os.fsync)(self._fd)

    def close(self) -> None:
        """Let go of all."""
        while self._maps:
            area, views = self._maps.pop()
            # What somebody still looks at is unmapped when he lets go.
            with contextlib.suppress(BufferError):
                for view in views:
                    view.release()
                area.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
