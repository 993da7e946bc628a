"""Was this key certainly seen? A plain set, gone when the process ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class MemoryStore:
    """An exact store in memory: some 100 bytes per key, for tests and short crawls."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def add(self, key: bytes) -> bool:
        if key in self._keys:
            return False
        self._keys.add(key)
        return True

    def put(self, key: bytes) -> None:
        self._keys.add(key)

    def remove(self, key: bytes) -> None:
        self._keys.discard(key)

    def add_many(self, keys: Sequence[bytes]) -> list[bool]:
        return [self.add(key) for key in keys]

    def put_many(self, keys: Sequence[bytes]) -> None:
        self._keys.update(keys)

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def iter_keys(self) -> Iterator[bytes]:
        return iter(sorted(self._keys))

    def count(self) -> int:
        return len(self._keys)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
