"""How does a crawl start without waiting a second for its imports? A process has made them, and forks.

``crawls`` gives a function that starts crawls: each is ``Going``. ``start_crawl`` starts a single one. All
tests of a process have one process that forks in common.

``python forking.py`` reads orders from its standard input, a line of JSON each, until that is closed:
``folder`` to work in, ``job`` as ``crawling.running`` writes it, ``log`` for what it prints, ``pid`` and
``code``, the files that say which process it is and, when it has ended, how, ``environment`` for more
variables of it. The crawl is a process group of its own, and a whole process: only its imports are older than
it. Another process waits for it, and ends it if it takes too long.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import killspiders

# What a crawl would import itself; more in ``import_components``.
import scrapy.commands
import scrapy.pqueues
import scrapy.spiders.crawl
import scrapy.squeues
import twisted.internet.asyncioreactor
from crawling import Crawl
from crawling import main as crawl_here
from mocksite import child, surroundings
from scrapy.settings import default_settings
from scrapy.utils.misc import load_object

import scrapy_bloomdupe.addon
import scrapy_bloomdupe.stores.lmdb

# Extras, and slow to import.
with suppress(ImportError):
    import redis  # noqa: F401
with suppress(ImportError):
    import psycopg  # noqa: F401
    import sqlalchemy.dialects.postgresql  # noqa: F401

# Seconds; many times what a run takes on a slow machine, in the short versions of the tests.
TIMEOUT = float(os.environ.get("BLOOMDUPE_TEST_TIMEOUT", "60"))

# Seconds; a crawl that nobody ends is killed then.
LIMIT = int(2 * TIMEOUT)

IMPORTED = [
    killspiders,
    scrapy.pqueues,
    scrapy.spiders.crawl,
    scrapy.squeues,
    twisted.internet.asyncioreactor,
    scrapy_bloomdupe.addon,
    scrapy_bloomdupe.stores.lmdb,
]


@contextmanager
def crawls(folder: Path) -> Iterator[Callable[..., Going]]:
    """Give a function that starts crawls, whose temporary files are in *folder*."""
    started: list[Going] = []
    environment = surroundings(folder)

    def start(where: Path, job: dict[str, Any]) -> Going:
        number = len(started) + 1
        path = {what: str(where / f"{what}-{number}") for what in ("job", "log", "pid", "code", "result")}
        Path(path["job"]).write_text(json.dumps({**job, "result": path.pop("result")}))
        _order({"folder": str(where), "environment": environment, **path})
        started.append(Going(where, number))
        return started[-1]

    try:
        yield start
    finally:
        for going in started:
            going.kill()


def start_crawl(folder: Path, number: int, environment: dict[str, str]) -> Process:
    """Start the crawl of ``job-<number>.json`` in *folder*; it prints into ``crawl-<number>.log``."""
    path = {what: str(folder / f"{what}-{number}") for what in ("pid", "code")}
    path |= {"job": str(folder / f"job-{number}.json"), "log": str(folder / f"crawl-{number}.log")}
    _order({"folder": str(folder), "environment": environment, **path})
    return Process(Path(path["pid"]), Path(path["code"]))


_shared: dict[str, Any] = {}


def _order(order: dict[str, Any]) -> None:
    """Let the process that forks start a crawl; all tests of this process have it in common."""
    if not _shared:
        where = Path(tempfile.mkdtemp(prefix="bloomdupe-forking-"))
        stack = ExitStack()
        stack.callback(shutil.rmtree, where, ignore_errors=True)
        command = [sys.executable, str(Path(__file__).resolve())]
        _shared["process"] = stack.enter_context(child(command, where, stdin=subprocess.PIPE, text=True))
        atexit.register(stack.close)
    orders = _shared["process"].stdin
    orders.write(json.dumps(order) + "\n")
    orders.flush()


class Process:
    """A crawl's process, as ``subprocess.Popen`` has it."""

    def __init__(self, pid: Path, code: Path) -> None:
        self._code = code
        wait_until(pid.exists, "process")
        self.pid = int(pid.read_text())

    def poll(self) -> int | None:
        return int(self._code.read_text()) if self._code.exists() else None

    def wait(self, timeout: float = TIMEOUT) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("crawl", timeout)
            time.sleep(0.003)
        return code

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Going:
    """A run that is under way."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        wait_until(lambda: self._file("pid").exists(), "process")
        self.pid = int(self._file("pid").read_text())

    def send(self, signum: int) -> None:
        if not self.ended():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> None:
        """As ``kill -9`` does, whatever it has started with it."""
        if not self.ended():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def ended(self) -> bool:
        return self._file("code").exists()

    def log(self) -> str:
        return self._file("log").read_text(errors="replace") if self._file("log").exists() else ""

    def finish(self) -> Crawl:
        """Wait for the end; what takes too long is killed, and fails."""
        try:
            wait_until(self.ended, "end")
        except AssertionError as exc:
            self.kill()
            raise AssertionError(f"{exc}:\n{self.log()[-5000:]}") from None
        result = self._file("result")
        stats = json.loads(result.read_text())["stats"] if result.exists() else {}
        return Crawl(int(self._file("code").read_text()), self.log(), stats, [])

    def _file(self, what: str) -> Path:
        return self._folder / f"{what}-{self._number}"


def wait_until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < deadline, f"no {what} in {TIMEOUT} s"
        time.sleep(0.003)


def import_components() -> None:
    """Import what Scrapy loads by name: some of them take longer than a small crawl."""
    for name in ("EXTENSIONS", "DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES"):
        for path in getattr(default_settings, f"{name}_BASE"):
            load_object(path)
    for name in ("DOWNLOAD_HANDLERS", "FEED_EXPORTERS", "FEED_STORAGES"):
        for scheme, path in getattr(default_settings, f"{name}_BASE").items():
            # That of FTP installs a reactor in Scrapy 2.13; others are extras that may be missing.
            if scheme != "ftp":
                with suppress(ImportError):
                    load_object(path)
    for found in iter_modules(scrapy.commands.__path__):
        import_module(f"scrapy.commands.{found.name}")


def serve() -> int:
    """The process that forks."""
    import_components()
    # A crawl installs the one that it asks for.
    assert "twisted.internet.reactor" not in sys.modules
    # What is imported is nobody's garbage: each crawl would look through all of it at its end.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while line := sys.stdin.readline():
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return keep(json.loads(line))
    return 0


def keep(order: dict[str, Any]) -> int:
    """Start one crawl and wait for its end."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        return crawl(order)
    _write(order["pid"], pid)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    try:
        _, status = os.waitpid(pid, 0)
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    _write(order["code"], os.waitstatus_to_exitcode(status))
    os._exit(0)


def crawl(order: dict[str, Any]) -> int:
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDWR)
    for ours, its in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(ours, its)
    os.chdir(order["folder"])
    os.environ.update(order.get("environment", {}))
    tempfile.tempdir = None
    random.seed()
    return crawl_here(order["job"])


def _write(path: str, number: int) -> None:
    # Whoever finds the file finds the number in it.
    Path(f"{path}.new").write_text(str(number))
    os.replace(f"{path}.new", path)  # noqa: PTH105


def _too_long(*args: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(serve())
