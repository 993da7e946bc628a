"""Which files stand beside a gate's, who may write them, and how does a new one come into force?

A build takes minutes, and a text that becomes valid meanwhile must pass at once and afterwards too: ``add``
puts it into the file in force and, while a build is under way, into a list that the build takes over before
it switches.

``FILE.new``     being built, never in force
``FILE.added``   texts added since the build began, JSON lines; locked by the build
``FILE.old``     the one that was in force before
``FILE.lock``    held for the moment of an ``add`` or a switch
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from scrapy_bloomdupe.errors import FilterError, StateLocked, StateUnusable


def beside(path: Path, ending: str) -> Path:
    """Return the path of one of the files beside a gate's."""
    return path.with_name(path.name + ending)


@contextlib.contextmanager
def _opened_lock(path: Path) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as exc:
        raise StateUnusable(
            exc.errno, f"cannot write {path}: {exc.strerror}; the gate's directory has to be writable"
        ) from exc
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the gate for the moment of an ``add`` or a switch; waits for another one's."""
    with _opened_lock(beside(path, ".lock")) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as exc:
            raise StateUnusable(exc.errno, f"cannot lock {path}: {exc.strerror}; use a local disk") from exc
        yield


@contextlib.contextmanager
def building(path: Path) -> Iterator[None]:
    """Be the one who builds the gate; from now on ``add`` notes what it adds."""
    added = beside(path, ".added")
    with _opened_lock(added) as fd:
        with locked(path):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise StateLocked(exc.errno, f"{path} is being built by another process") from exc
            if not added.exists() or not os.path.samestat(os.fstat(fd), added.stat()):
                raise StateLocked(11, f"{path} was just built by another process; try again")
            os.ftruncate(fd, 0)
        beside(path, ".new").unlink(missing_ok=True)
        try:
            yield
        finally:
            added.unlink(missing_ok=True)


def note_added(path: Path, texts: Sequence[str]) -> bool:
    """Write *texts* down if a build is under way; return whether one is."""
    try:
        fd = os.open(beside(path, ".added"), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise FilterError(exc.errno, f"cannot write {beside(path, '.added')}: {exc}") from exc
    try:
        with os.fdopen(fd, "ab") as file:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                # What a killed process left of a line ends here.
                file.write(b"\n" + b"".join(json.dumps(text).encode() + b"\n" for text in texts))
                return True
    except OSError as exc:
        raise FilterError(
            exc.errno,
            f"cannot write {beside(path, '.added')}, so that the build under way lacks what was added: {exc}",
        ) from exc
    return False


def read_added(path: Path) -> list[str]:
    """Return what was added since the build began."""
    added = []
    for line in beside(path, ".added").read_bytes().splitlines():
        # Half a line is of an `add` that did not come to its end.
        with contextlib.suppress(ValueError):
            added.append(json.loads(line))
    return [text for text in added if isinstance(text, str)]


def switch(path: Path) -> None:
    """Put ``FILE.new`` in force and keep what was as ``FILE.old``."""
    new, old, spare = beside(path, ".new"), beside(path, ".old"), beside(path, ".old.new")
    try:
        _sync(new)
        # A second name: there is a file in force at every moment. Some file systems have none.
        with contextlib.suppress(OSError):
            spare.unlink(missing_ok=True)
            os.link(path, spare)
            spare.rename(old)
        new.rename(path)
        _sync(path.parent)
    except OSError as exc:
        raise FilterError(exc.errno, f"cannot put {new} in the place of {path}: {exc}") from exc


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
