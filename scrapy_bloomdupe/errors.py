"""What can go wrong, and which builtin does a caller already catch for it?

It holds the exception types only: no messages, no handling.

::

    BloomdupeError
     ├─ ConfigurationError (ValueError)       a setting or an argument is wrong
     ├─ StateError                            the state directory cannot be used
     │   ├─ StateNotFound (FileNotFoundError) nothing is there to open
     │   ├─ StateExists (FileExistsError)     something is there that would be overwritten
     │   ├─ StateLocked (BlockingIOError)     another process works on it
     │   ├─ StateUnusable (OSError)           the system refused to read, write or map it
     │   ├─ StateCorrupt (ValueError)         what is there does not check out
     │   └─ StateMismatch (ValueError)        what is there was made for another meaning of a key
     ├─ FilterError (OSError)                 the filter could not do its work
     └─ StoreError (OSError)                  the exact store could not do its work
         └─ RemoteError (FilterError too)     the server behind a filter or store did not do it
             ├─ RemoteUnavailable (ConnectionError)  no answer in time, or none at all
             │   └─ CircuitOpen               not even asked: it has failed too often just now
             ├─ RemoteRefused (PermissionError)      it answered no: password, rights, read-only replica
             │   └─ RemoteFull                its memory or disk is full
             └─ RemoteEmptied                 it answers, and what was kept there is gone

A message names the thing, the value that was found, the one that was expected, and the next step.
"""

from __future__ import annotations


class BloomdupeError(Exception):
    """Whatever this package raises on purpose."""


class ConfigurationError(BloomdupeError, ValueError):
    """A setting or argument is outside what it may be. Nothing was touched."""


class StateError(BloomdupeError):
    """The state directory cannot be used as it is. Nothing was changed in it."""


class StateNotFound(StateError, FileNotFoundError):
    """Opening never creates: there is no state at this place."""


class StateExists(StateError, FileExistsError):
    """Creating never overwrites: there is something at this place already."""


class StateLocked(StateError, BlockingIOError):
    """Another process, or another crawl of this one, has the directory."""


class StateUnusable(StateError, OSError):
    """The operating system refused: permissions, a full disk, a directory in a file's place."""


class StateCorrupt(StateError, ValueError):
    """A file is torn, cut, flipped or not ours."""


class StateMismatch(StateError, ValueError):
    """The keys in the state mean something else than the keys that would be asked for."""


class FilterError(BloomdupeError, OSError):
    """The filter failed in use. The question stays open: the request has to pass."""


class StoreError(BloomdupeError, OSError):
    """The exact store failed in use. The question stays open: the request has to pass."""


class RemoteError(FilterError, StoreError):
    """The server behind a filter or a store did not do what was asked.

    Both, so that whoever handles one of them handles it. Nothing is known of the keys that were asked for:
    their requests have to pass, and the question must not be asked again on its own account, since the
    server may have taken the keys before its answer was lost.
    """

    #: The last part of ``bloomdupe/error/...``.
    kind = "remote"


class RemoteUnavailable(RemoteError, ConnectionError):
    """No connection, or no answer in time. The keys may or may not have been taken."""

    kind = "unavailable"


class CircuitOpen(RemoteUnavailable):
    """The server was not asked: it failed several times just now, and each try costs its timeout."""

    kind = "circuit_open"


class RemoteRefused(RemoteError, PermissionError):
    """The server answered no: password, rights, a read-only replica, a command that it does not know.

    No key was taken.
    """

    kind = "refused"


class RemoteFull(RemoteRefused):
    """The server's memory or disk is full. No key was taken."""

    kind = "full"


class RemoteEmptied(RemoteError):
    """The server answers, but what was kept there is gone or was made anew by somebody else: it was
    restarted without its data, flushed, or it evicted keys.

    Every question fails with this until the filter or store is told to ``renew``: what is asked in between
    passes, and pages that were crawled before can be crawled once more.
    """

    kind = "emptied"


def message(exc: BaseException) -> str:
    """Return the text of *exc* for a person: without the number that an OSError's text starts with."""
    own = isinstance(exc, BloomdupeError) and isinstance(exc, OSError) and exc.args
    return str(exc.args[-1]) if own else str(exc)
