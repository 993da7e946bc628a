"""What does every exact store promise? The contract; no implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Store(Protocol):
    """A set of whole keys, never truncated, that says what is certainly in it.

    What ``add`` or ``put`` took is visible at once, and on the disk after ``flush``. With every key it keeps
    a few bytes that mean nothing to it, see ``stamps``; a
    store on a server does not (``Valueless``).
    """

    def add(self, key: bytes, value: bytes = b"") -> bool:
        """Add *key* with *value*; return whether it is newly added. Both answers are proofs. One that is in
        keeps the value it has.

        Raises:
            StoreError: the store could not answer or take it; nothing is known of the key.
        """
        ...

    def put(self, key: bytes, value: bytes = b"") -> None:
        """Add *key* without asking: for a key that is known to be new, or to get *value* instead of its own.

        Raises:
            StoreError: as ``add``.
        """
        ...

    def remove(self, key: bytes) -> None:
        """Forget *key*: it is not in any more, and can be added anew. One that is not in does no harm.

        Raises:
            StoreError: as ``add``.
        """
        ...

    def get(self, key: bytes) -> bytes | None:
        """Return the value of *key*, None: it is not in. Both answers are proofs.

        Raises:
            StoreError: as ``__contains__``.
        """
        ...

    def add_many(self, keys: Sequence[bytes], value: bytes = b"") -> list[bool]:
        """Add *keys* one after the other, all with *value*; return the answers of ``add``.

        Raises:
            StoreError: as ``add``; nothing is known of any of the keys.
        """
        ...

    def put_many(self, keys: Sequence[bytes], value: bytes = b"") -> None:
        """Add *keys* without asking, all with *value*.

        Raises:
            StoreError: as ``put``; nothing is known of any of the keys.
        """
        ...

    def __contains__(self, key: bytes) -> bool:
        """Whether *key* is in. Both answers are proofs.

        Raises:
            StoreError: the store could not answer.
        """
        ...

    def iter_keys(self) -> Iterator[bytes]:
        """Give every key once, in no promised order. Keys added meanwhile may or may not come."""
        ...

    def iter_items(self) -> Iterator[tuple[bytes, bytes]]:
        """As ``iter_keys``, with their values."""
        ...

    def count(self) -> int:
        """Return how many keys are in."""
        ...

    def flush(self) -> None:
        """Write what is waiting.

        Raises:
            StoreError: not written; the keys keep waiting and stay visible.
        """
        ...

    def close(self) -> None:
        """Flush and let go. A second call does nothing.

        Raises:
            StoreError: not everything could be written.
        """
        ...


class Valueless:
    """Part of a store that keeps keys and drops their values: one that many crawls share."""

    def __contains__(self, key: bytes) -> bool:
        raise NotImplementedError

    def iter_keys(self) -> Iterator[bytes]:
        raise NotImplementedError

    def get(self, key: bytes) -> bytes | None:
        return b"" if key in self else None

    def iter_items(self) -> Iterator[tuple[bytes, bytes]]:
        return ((key, b"") for key in self.iter_keys())
