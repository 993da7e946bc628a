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


def message(exc: BaseException) -> str:
    """Return the text of *exc* for a person: without the number that an OSError's text starts with."""
    own = isinstance(exc, BloomdupeError) and isinstance(exc, OSError) and exc.args
    return str(exc.args[-1]) if own else str(exc)
