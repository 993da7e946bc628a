"""Was this key certainly seen? A plain dict, gone when the process ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class MemoryStore:
    """An exact store in memory: some 100 bytes per key, for tests and short crawls."""

    def __init__(self) -> None:
        self._keys: dict[bytes, bytes] = {}

    def add(self, key: bytes, value: bytes = b"") -> bool:
        if key in self._keys:
            return False
        self._keys[key] = value
        return True

    def put(self, key: bytes, value: bytes = b"") -> None:
        self._keys[key] = value

    def get(self, key: bytes) -> bytes | None:
        return self._keys.get(key)

    def remove(self, key: bytes) -> None:
        self._keys.pop(key, None)

    def add_many(self, keys: Sequence[bytes], value: bytes = b"") -> list[bool]:
        return [self.add(key, value) for key in keys]

    def put_many(self, keys: Sequence[bytes], value: bytes = b"") -> None:
        self._keys.update(dict.fromkeys(keys, value))

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def iter_keys(self) -> Iterator[bytes]:
        return iter(sorted(self._keys))

    def iter_items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(self._keys.items()))

    def count(self) -> int:
        return len(self._keys)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
