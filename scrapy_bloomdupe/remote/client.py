"""How is a Redis or Valkey server asked once, and what does each way of failing mean?

Nothing is asked twice: redis-py's own retries are off, because a question that was answered into the void
has done its work, and asked again it says of a new key that it was seen. The one exception is an answer
that says that nothing was done (``NOSCRIPT``; a Cluster's ``MOVED`` and ``ASK``).

Not here: what is asked. redis is imported when a server is, and nowhere else in this package.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha1
from types import ModuleType
from typing import Any

import scrapy_bloomdupe.remote.address as addresses
from scrapy_bloomdupe.errors import (
    CircuitOpen,
    ConfigurationError,
    RemoteError,
    RemoteFull,
    RemoteRefused,
    RemoteUnavailable,
)
from scrapy_bloomdupe.remote.breaker import Breaker

#: Seconds for what a crawl does not wait for page by page: making, growing, counting.
SLOW_SECONDS = 30.0
_MAX_THREADS = 8

# First words of answers that say that nothing was done, and may be otherwise in a moment.
_BUSY = ("LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "UNBLOCKED")
_FULL = ("OOM", "MISCONF")


@dataclass(frozen=True)
class Script:
    """A Lua script, which the server runs in one go.

    Attributes:
        text: its source.
    """

    text: str

    @cached_property
    def sha(self) -> str:
        return sha1(self.text.encode()).hexdigest()


#: The keys and arguments of one run of a script. In a Cluster all the keys have one hash tag.
Call = tuple[Sequence[str], Sequence[Any]]
#: A script and what it is run with.
Ask = tuple[Script, Call]


class Server:
    """A server, a Sentinel's master or a Cluster. Any thread may use it.

    Args:
        address: where it is.
        breaker: None: one after ``address.failures``. Share a server to share its breaker.

    Raises:
        ConfigurationError: the package ``redis`` is missing, or takes none of the options.
    """

    def __init__(self, address: addresses.Address, breaker: Breaker | None = None) -> None:
        self.address = address
        self.breaker = breaker or Breaker(failures=address.failures)
        self._redis = _redis()
        self._clients: dict[bool, Any] = {}
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._shas: dict[Script, str] = {}

    @property
    def is_cluster(self) -> bool:
        return self.address.form == "cluster"

    def run(self, *command: Any, slow: bool = False) -> Any:
        """Run one command and return the answer as bytes, numbers and lists of them.

        Args:
            command: its words; the key, if it has one, decides on the node.
            slow: wait ``SLOW_SECONDS`` for the answer.

        Raises:
            RemoteError: see its kinds.
        """
        return self._guarded(lambda: self._client(slow).execute_command(*command))

    def on_nodes(self, *command: Any) -> list[Any]:
        """Run a command without a key on each node that takes writes.

        Raises:
            RemoteError: see its kinds.
        """
        if not self.is_cluster:
            return [self.run(*command, slow=True)]

        def ask() -> list[Any]:
            client = self._client(True)
            return [client.execute_command(*command, target_nodes=node) for node in client.get_primaries()]

        found: list[Any] = self._guarded(ask)
        # Older releases of redis-py answer for one node as for many: by its name.
        return [next(iter(one.values())) if isinstance(one, dict) and len(one) == 1 else one for one in found]

    def scripts(self, script: Script, calls: Sequence[Call], *, slow: bool = False) -> list[Any]:
        """Run *script* once for each of *calls*: see ``each``."""
        return self.each([(script, call) for call in calls], slow=slow)

    def each(self, asks: Sequence[Ask], *, slow: bool = False) -> list[Any]:
        """Run several scripts, in one round trip for each node that is asked.

        One server runs them one after the other; other clients may come in between.

        Returns:
            The answers, in the order of *asks*.

        Raises:
            RemoteError: one of them failed; the others may have done their work.
        """
        if len(asks) == 1:
            return [self._guarded(lambda: self._script(*asks[0], slow))]
        if self.is_cluster:
            found: list[Any] = self._guarded(lambda: self._scattered(asks, slow))
        else:
            found = self._guarded(lambda: self._piped(asks, slow))
        return found

    def scan(self, pattern: str, count: int) -> list[bytes]:
        """Return the names of all keys that match *pattern*, some perhaps twice.

        Raises:
            RemoteError: see its kinds.
        """
        return list(self._guarded(lambda: list(self._client(True).scan_iter(pattern, count=count))))

    def has_command(self, name: str) -> bool:
        """Return whether the server knows a command; of a Cluster, every node that takes writes.

        Raises:
            RemoteError: see its kinds.
        """
        return all(
            bool(answer) and any(answer.values() if isinstance(answer, dict) else answer)
            for answer in self.on_nodes("COMMAND INFO", name)
        )

    def close(self) -> None:
        """Let go of the connections. A later question opens them again."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
            threads, self._threads = self._threads, None
        for client in clients:
            client.close()
        if threads is not None:
            threads.shutdown(wait=False)

    def _guarded(self, ask: Callable[[], Any]) -> Any:
        breaker = self.breaker
        if not breaker.allows():
            raise CircuitOpen(
                errno.ECONNREFUSED,
                f"{self.address} was not asked: it failed {self.address.failures} times in a row or more, "
                f"and is tried again in {breaker.seconds_to_probe:.1f} s",
            )
        try:
            answer = ask()
        except Exception as exc:
            error = self._meaning(exc)
            if error is None:
                breaker.failed()
                raise
            if isinstance(error, RemoteUnavailable):
                breaker.failed()
            else:
                breaker.succeeded()
            raise error from exc
        except BaseException:
            breaker.failed()
            raise
        breaker.succeeded()
        return answer

    def _meaning(self, exc: Exception) -> Exception | None:
        """Return what of our errors a foreign one is; None: none of them, a fault in a program."""
        redis = self._redis.exceptions
        words = str(exc)
        first = getattr(exc, "status_code", None) or words.partition(" ")[0]
        if isinstance(exc, RemoteError | ConfigurationError):
            return exc
        if isinstance(exc, redis.OutOfMemoryError) or first in _FULL:
            return RemoteFull(
                errno.ENOMEM,
                f"{self.address} takes no more: {words}. Raise its maxmemory, or give it a disk with room; "
                "until then nothing new is remembered there",
            )
        if isinstance(exc, redis.AuthenticationError | redis.AuthorizationError) or first in (
            "NOAUTH",
            "WRONGPASS",
        ):
            return RemoteRefused(
                errno.EACCES,
                f"{self.address} asks for another user or password: {words}. Write them into the URL: "
                "redis://user:password@host",
            )
        if isinstance(exc, redis.ReadOnlyError):
            return RemoteRefused(
                errno.EROFS, f"{self.address} is a replica and takes no writes: {words}. Name its master"
            )
        unavailable = isinstance(
            exc,
            redis.ConnectionError
            | redis.TimeoutError
            | redis.InvalidResponse
            | redis.ClusterError
            | redis.RedisClusterException
            | redis.AskError
            | OSError,
        )
        if unavailable or first in _BUSY:
            hint = ""
            if isinstance(exc, redis.InvalidResponse):
                hint = " (what answers there speaks another language: TLS is rediss://)"
            return RemoteUnavailable(errno.EHOSTUNREACH, f"{self.address} gave no answer: {words}{hint}")
        if isinstance(exc, redis.RedisError):
            return RemoteRefused(errno.EPERM, f"{self.address} refused: {words}")
        return None

    def _script(self, script: Script, call: Call, slow: bool) -> Any:
        keys, arguments = call
        client = self._client(slow)
        try:
            return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except self._redis.exceptions.NoScriptError:
            # Nothing was done: the server does not know the script yet, or was restarted.
            return client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

    def _piped(self, asks: Sequence[Ask], slow: bool) -> list[Any]:
        client = self._client(slow)
        pipe = client.pipeline(transaction=False)
        for script, (keys, arguments) in asks:
            pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
        found: list[Any] = pipe.execute(raise_on_error=False)
        unknown = self._redis.exceptions.NoScriptError
        for answer in found:
            if isinstance(answer, Exception) and not isinstance(answer, unknown):
                raise answer
        for number, (script, (keys, arguments)) in enumerate(asks):
            if isinstance(found[number], unknown):  # nothing was done
                found[number] = client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)
        return found

    def _scattered(self, asks: Sequence[Ask], slow: bool) -> list[Any]:
        self._client(slow)
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="bloomdupe-cluster")
            threads = self._threads
        waiting = [threads.submit(self._script, script, call, slow) for script, call in asks]
        errors = [error for one in waiting if (error := one.exception()) is not None]
        if errors:
            raise errors[0]
        return [one.result() for one in waiting]

    def _client(self, slow: bool) -> Any:
        client = self._clients.get(slow)
        if client is None:
            # A Cluster is asked for its nodes: not under the lock that others need meanwhile.
            made = make_client(self._redis, self.address, slow=slow)
            with self._lock:
                client = self._clients.setdefault(slow, made)
            if client is not made:
                made.close()
        return client


def make_client(redis: ModuleType, address: addresses.Address, *, slow: bool) -> Any:
    """Return a client of redis-py that never asks twice.

    Raises:
        ConfigurationError: redis-py does not take the options.
    """
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_timeout": SLOW_SECONDS if slow else address.timeout,
        "socket_connect_timeout": address.connect_timeout,
        "protocol": 2,  # lists and numbers, the same from all releases of server and client
    }
    once: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
    tls: dict[str, Any] = dict(address.tls_options)
    if "ssl_check_hostname" in tls:
        tls["ssl_check_hostname"] = tls["ssl_check_hostname"].lower() in ("1", "true", "yes")
    if address.tls:
        options |= {"ssl": True, **tls}
    try:
        if address.form == "unix":
            return redis.Redis(unix_socket_path=address.path, db=address.db, **options, **once)
        if address.form == "single":
            host, port = address.hosts[0]
            return redis.Redis(host=host, port=port, db=address.db, **options, **once)
        if address.form == "sentinel":
            watchers = redis.Sentinel(
                list(address.hosts),
                sentinel_kwargs={
                    "socket_timeout": address.connect_timeout,
                    "socket_connect_timeout": address.connect_timeout,
                    **address.sentinel_options,
                },
            )
            return watchers.master_for(address.service, db=address.db, **options, **once)
        nodes = [redis.cluster.ClusterNode(host, port) for host, port in address.hosts]
        if int(redis.__version__.partition(".")[0]) < 6:
            once["cluster_error_retry_attempts"] = 0
        return redis.RedisCluster(startup_nodes=nodes, **options, **once)
    except TypeError as exc:
        raise ConfigurationError(f"{address}: redis-py {redis.__version__} does not take it: {exc}") from exc


def connect(url: str, patience: float = 0.0) -> Server:
    """Return the server of *url*; nothing is sent yet.

    Args:
        patience: seconds that are waited for an answer at least, whatever the URL says.

    Raises:
        ConfigurationError: the URL is wrong, or the package ``redis`` is missing.
    """
    address = addresses.parse(url)
    return Server(replace(address, timeout=max(address.timeout, patience)))


def _redis() -> ModuleType:
    try:
        import redis
        import redis.cluster
        import redis.exceptions
    except ImportError as exc:
        raise ConfigurationError(
            "a Redis or Valkey server was named, and the package to ask it is not installed: "
            "pip install scrapy-bloomdupe[redis]"
        ) from exc
    return redis
