"""Who is at work on a server, when only one may be? A key that goes by itself when its holder is gone.

Whoever stands still for longer than that has lost it without being told: what only the holder may do looks
at the lock in the same script that does it. Not here: what is done.
"""

from __future__ import annotations

import errno
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from scrapy_bloomdupe.errors import BloomdupeError, StateLocked
from scrapy_bloomdupe.remote.client import Script, Server

#: Seconds for which a holder that was killed holds up the next one.
LOCK_SECONDS = 60
_RENEW_SECONDS = 10.0

# In all: KEYS: the lock, then what goes with it. ARGV: the token, the seconds.
_ACQUIRE = Script(
    """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then return 0 end
for number = 2, #KEYS do redis.call('DEL', KEYS[number]) end
return 1
"""
)
_RENEW = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for _, name in ipairs(KEYS) do redis.call('EXPIRE', name, ARGV[2]) end
return 1
"""
)
_RELEASE = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', unpack(KEYS))
"""
)


class ServerLock:
    """A lock that is held; made by ``held``.

    Args:
        names: of the lock, and of what is removed with it; in a Cluster all of one hash tag.
    """

    def __init__(self, server: Server, names: Sequence[str]) -> None:
        self.server = server
        self.name = names[0]
        #: 32 letters that nobody else has; what the lock holds.
        self.token = secrets.token_hex(16).encode()
        self._names = names
        self._ended = threading.Event()

    def holds(self) -> bool:
        """Return whether it is held still.

        Raises:
            RemoteError: the server did not say.
        """
        return bool(self.server.run("GET", self.name) == self.token)

    def _keep(self) -> None:
        while not self._ended.wait(_RENEW_SECONDS):
            # One that is lost is told by whatever looks at it.
            with suppress(BloomdupeError):
                self._run(_RENEW)

    def _run(self, script: Script) -> Any:
        return self.server.scripts(script, [(self._names, [self.token, LOCK_SECONDS])], slow=True)[0]


@contextmanager
def held(server: Server, names: Sequence[str], where: str) -> Iterator[ServerLock]:
    """Be the only one, until the end of the ``with``.

    Args:
        names: see ``ServerLock``.
        where: what is worked on, for people.

    Raises:
        StateLocked: another process is.
        RemoteError: the server did not say.
    """
    lock = ServerLock(server, names)
    if not lock._run(_ACQUIRE):
        raise StateLocked(
            errno.EAGAIN,
            f"{where} is being built by another process, or by one that was killed less than "
            f"{LOCK_SECONDS} s ago",
        )
    keeper = threading.Thread(target=lock._keep, name="bloomdupe-lock", daemon=True)
    keeper.start()
    try:
        yield lock
    finally:
        lock._ended.set()
        keeper.join()
        # It goes by itself.
        with suppress(BloomdupeError):
            lock._run(_RELEASE)


def lost(where: str) -> StateLocked:
    """Return the error of a holder that is none any more."""
    return StateLocked(
        errno.EAGAIN,
        f"{where}: this build stood still for more than {LOCK_SECONDS} s or lost the server meanwhile, and "
        "another one may have begun; try again",
    )
