"""Is anybody else working on this directory? One lock per state directory. POSIX.

The system drops the lock when its process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from scrapy_bloomdupe.errors import StateLocked, StateUnusable


class DirectoryLock:
    """Holds the file ``lock`` of *directory* until ``release``.

    Raises:
        StateLocked: another process, or another crawl in this one, holds it.
        StateUnusable: the system refused.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            raise StateUnusable(
                exc.errno,
                f"cannot lock {directory}: {exc.strerror}; the state needs a directory that can be "
                "written. Nothing was changed",
            ) from exc
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise StateLocked(
                exc.errno,
                f"{directory} is in use by process {holder or 'unknown'}; wait until it has ended, or "
                "give this crawl a directory of its own",
            ) from exc
        except OSError as exc:
            os.close(self._fd)
            raise StateUnusable(
                exc.errno, f"cannot lock {directory}: {exc.strerror}; use a local disk"
            ) from exc
        # The number is for the message above only, so a full disk does not matter.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            # A forked child that is still alive has the file open, too.
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1
