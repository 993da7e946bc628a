"""What does every filter promise?

The contract and the figures a filter gives of itself; no implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class LayerInfo:
    """One layer of a filter.

    Attributes:
        num_bits: bits of the array.
        num_hashes: positions per key.
        capacity: keys it was made for.
        error_rate: asked false-positive rate at capacity, 0 < error_rate < 1.
        num_keys: keys added to this layer.
        fill: share of bits set, 0 to 1, measured.
        rate: expected false-positive rate now, 0 to 1.
    """

    num_bits: int
    num_hashes: int
    capacity: int
    error_rate: float
    num_keys: int
    fill: float
    rate: float


@dataclass(frozen=True)
class FilterInfo:
    """What a filter says of itself.

    Attributes:
        path: the file, or another name of the place.
        layout, scheme: frozen names.
        capacity: keys the first layer was made for.
        error_rate: the asked rate for the whole filter, 0 < error_rate < 1.
        num_keys: keys added; an estimate after an unclean end.
        num_bytes: size of the file in bytes.
        clean: closed in order the last time.
        error_rate_estimate: expected false-positive rate of the whole now, 0 to 1.
        layers: oldest first.
        identity: what the keys mean; empty: not known yet.
        created: when the seen-set was made, in seconds since 1970; None: not known.
    """

    path: str
    layout: str
    scheme: str
    capacity: int
    error_rate: float
    num_keys: int
    num_bytes: int
    clean: bool
    error_rate_estimate: float
    layers: tuple[LayerInfo, ...]
    identity: Mapping[str, str]
    created: int | None = None

    @property
    def fill(self) -> float:
        """Share of bits set over all layers, 0 to 1."""
        return sum(layer.fill * layer.num_bits for layer in self.layers) / sum(
            layer.num_bits for layer in self.layers
        )


@runtime_checkable
class Filter(Protocol):
    """A set that may say "possibly seen" of a key it never got, and never "new" of one it did."""

    def add(self, key: bytes) -> bool:
        """Add *key*.

        Returns:
            False proves that the key was never added before. True proves nothing: the key was added
            before, or it is a false positive. An over-full filter that was told to take no more
            returns what it knows and adds nothing.
        """
        ...

    def add_many(self, keys: Sequence[bytes]) -> list[bool]:
        """Add *keys* one after the other, in less time than by ``add``.

        Returns:
            The answers of ``add``. They end early after a key that made the filter grow, or fail to: by then
            somebody may have decided that it takes no more. There is one at least, if there is a key.
        """
        ...

    def __contains__(self, key: bytes) -> bool:
        """False proves that *key* was never added; True proves nothing."""
        ...

    def flush(self) -> None:
        """Write what is known of counts to the file. May be called often."""
        ...

    def close(self) -> None:
        """Flush, mark the file as clean and let go of it. A second call does nothing."""
        ...

    def info(self) -> FilterInfo: ...


@runtime_checkable
class RemovingFilter(Filter, Protocol):
    """A filter that can forget."""

    def remove(self, key: bytes) -> bool:
        """Remove *key*, of which ``add`` has said False, and which was not removed since.

        Returns:
            Whether it was removed. False: nothing was changed.
        """
        ...
