"""Is anybody else working on this directory, and who was the last? One lock per state directory. POSIX.

The system drops the lock when its process ends, however it ends. What stands in its file is for messages and
to find out whether files can have been torn or exchanged since: a guess that errs costs a closer look.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
            holder = self._read().get("pid", "unknown")
            os.close(self._fd)
            raise StateLocked(
                exc.errno,
                f"{directory} is in use by process {holder}; wait until it has ended, or "
                "give this crawl a directory of its own",
            ) from exc
        except OSError as exc:
            os.close(self._fd)
            raise StateUnusable(
                exc.errno, f"cannot lock {directory}: {exc.strerror}; use a local disk"
            ) from exc
        self._last = self._read()
        # Until somebody has looked at the files: who ends before that leaves them as suspect as they were.
        self._looked_at_in = self._last.get("boot", "")
        self._write({})

    @property
    def same_boot(self) -> bool:
        """Whether the machine has been up since a process looked at the files; false: not known."""
        return self._last.get("boot") == _boot() != ""

    def looked_at(self) -> None:
        """Note that the files were found whole in this run of the machine."""
        self._looked_at_in = _boot()
        self._write({})

    def is_as_left(self, path: Path) -> bool:
        """Return whether the last process ended in order and nobody has changed *path* since."""
        left = self._last.get("left", {})
        return isinstance(left, dict) and left.get(path.name) == _trace(path)

    def release(self, *, left: Sequence[Path] | None = None) -> None:
        """Let others in.

        Args:
            left: files that were closed in order and are as they should be; None: nothing was changed.
        """
        if self._fd >= 0:
            before = self._last.get("left", {})
            self._write(before if left is None else {path.name: _trace(path) for path in left})
            # A forked child that is still alive has the file open, too.
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(os.pread(self._fd, 4096, 0))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, left: Any) -> None:
        note = {"pid": os.getpid(), "boot": self._looked_at_in, "left": left}
        # A full disk does not matter here.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(note).encode(), 0)


def _trace(path: Path) -> list[int]:
    """Return what changes when somebody writes to *path*."""
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


def _boot() -> str:
    """Return what names the system's present run; empty: it does not tell. Linux and macOS."""
    try:
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
