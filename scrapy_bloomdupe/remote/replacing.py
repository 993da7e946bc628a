"""How does a new version of what is kept on a server take the place of the one in force? In one step.

::

    <name>:lock:{<name>:meta}                 who makes the new version (``lock``)
    <name>:{<epoch>.<tag>}:<part>:old         a part of a version that was replaced, for an hour

The description (``meta``) says what is in force. The parts of the new version are made beside the old
ones, under an epoch of their own; then the description is exchanged, if the old one is in force still and
the lock is held. An end at any moment leaves one valid version: before that the old one, after it the new.

What the new version is filled with is the business of whoever makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import scrapy_bloomdupe.remote.lock as locks
import scrapy_bloomdupe.remote.meta as metas
from scrapy_bloomdupe.errors import BloomdupeError
from scrapy_bloomdupe.remote.client import Script, Server
from scrapy_bloomdupe.remote.kept import parts_found
from scrapy_bloomdupe.remote.lock import ServerLock
from scrapy_bloomdupe.remote.meta import Meta

#: What the name of a part of a replaced version ends with.
OLD = ":old"
#: Seconds for which the parts of a replaced version are kept.
OLD_SECONDS = 3600
#: Seconds for which unfinished parts stay when nobody works on them any more.
UNFINISHED_SECONDS = 3600

#: KEYS: the description and the lock, of one hash tag. ARGV: the token, the old description, the new one.
#: Returns 1; 0: another description is in force; -1: the lock is another.
_SWITCH = Script(
    """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[3])
return 1
"""
)
#: KEYS: parts, all of one hash tag, each followed by its name from now on. ARGV: seconds.
_RETIRE = Script(
    """
local count = 0
for number = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[number]) == 1 then
    redis.call('RENAME', KEYS[number], KEYS[number + 1])
    redis.call('EXPIRE', KEYS[number + 1], ARGV[1])
    count = count + 1
  end
end
return count
"""
)


class Replacing:
    """The making of a new version of *old*, by the one who holds the lock; made by ``replacing``.

    Attributes:
        old: the description in force when it began.
        new, parts: the one that is to follow, and what names its parts; set before they are made.
        switched: the new one is in force.
    """

    def __init__(self, lock: ServerLock, name: str, old: Meta) -> None:
        self.old = old
        self.new: Meta | None = None
        self.parts: Callable[[], list[str]] = list
        self.switched = False
        self._lock = lock
        self._server = lock.server
        self._name = name
        self._where = f"{lock.server.address} {name}"

    def keep_unfinished(self) -> None:
        """Let the new parts, which nobody asks yet, go by themselves if this process comes to an end.

        Raises:
            RemoteError: the server did not do it.
        """
        for name in self.parts():
            self._server.run("EXPIRE", name, UNFINISHED_SECONDS)

    def keep(self) -> None:
        """Let the new parts stay: the last step before ``switch``.

        Raises:
            RemoteError: the server did not do it.
        """
        for name in self.parts():
            self._server.run("PERSIST", name)

    def switch(self) -> None:
        """Put the new version in force.

        Raises:
            StateLocked: the lock was lost, or what was in force is not any more: nothing was changed.
            RemoteError: not known which one is in force.
        """
        assert self.new is not None
        meta_name = f"{self._name}:meta"
        while True:
            raw = self._server.run("GET", meta_name)
            found = metas.unpack(raw, f"{self._server.address} {meta_name}") if raw is not None else None
            if found is None or found.epoch != self.old.epoch:
                raise metas.emptied(self._server, self._name)
            # What the keys mean can have been written meanwhile.
            new = replace(self.new, identity=found.identity)
            call = [meta_name, self._lock.name], [self._lock.token, raw, new.pack()]
            (done,) = self._server.scripts(_SWITCH, [call], slow=True)
            if done < 0:
                raise locks.lost(self._where)
            if done:
                self.new, self.switched = new, True
                return

    def retire(self, groups: Iterable[Sequence[str]]) -> int:
        """Put the parts of the old version aside, so that whoever works with it notices at the next question;
        return how many there were.

        Args:
            groups: their names, those of one hash tag together; what is not there is left out.

        Raises:
            RemoteError: not all of them were.
        """
        calls = [([name for part in names for name in (part, part + OLD)], [OLD_SECONDS]) for names in groups]
        return sum(self._server.scripts(_RETIRE, calls, slow=True))

    def is_in_force(self) -> bool | None:
        """Return whether the new version is in force; None: that cannot be found out."""
        try:
            found = metas.read(self._server, f"{self._name}:meta")
        except BloomdupeError:
            return None
        return found is not None and self.new is not None and found.epoch == self.new.epoch


@contextmanager
def replacing(server: Server, name: str) -> Iterator[Replacing]:
    """Be the one who makes a new version of what is kept under *name*; what former ones left is removed.

    Raises:
        StateLocked: another process is.
        RemoteEmptied: there is nothing under the name.
        RemoteError, StateCorrupt, StateMismatch: see ``meta.read``.
    """
    with locks.held(server, [lock_name(name)], f"{server.address} {name}") as lock:
        # In this order: the parts of what comes into force in between are not among the names.
        names = parts_found(server, name)
        old = metas.read(server, f"{name}:meta")
        if old is None:
            raise metas.emptied(server, name)
        for left in leftovers(names, old):
            server.run("UNLINK", left, slow=True)
        work = Replacing(lock, name, old)
        try:
            yield work
        except BaseException:
            # An answer may have been lost: the new one may be in force.
            if work.new is not None and not work.switched and work.is_in_force() is False:
                with suppress(BloomdupeError):
                    for part in work.parts():
                        server.run("UNLINK", part, slow=True)
            raise


def lock_name(name: str) -> str:
    """Return the name of the lock: on the node of the description, with which it is looked at."""
    return f"{name}:lock:{{{name}:meta}}"


def is_of(part: bytes, meta: Meta) -> bool:
    """Return whether a name of a part, as ``kept.parts_found`` gives it, is of the version of *meta*, and was
    not put aside."""
    return f":{{{meta.epoch.hex()[:16]}.".encode() in part and not part.endswith(OLD.encode())


def leftovers(names: Iterable[bytes], meta: Meta) -> list[bytes]:
    """Return which of *names* are no parts of the version in force."""
    return sorted(name for name in names if not is_of(name, meta))
