"""What have filters on a server in common? Opening, renewing, clearing, and what they say of themselves.

The bits are the business of the subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scrapy_bloomdupe.filters.base import FilterInfo
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.remote.client import Ask, Server
from scrapy_bloomdupe.remote.kept import Kept
from scrapy_bloomdupe.remote.memory import Memory
from scrapy_bloomdupe.remote.memory import read as read_memory
from scrapy_bloomdupe.remote.meta import Meta


class RemoteFilter:
    """A filter on a server. A subclass gives ``kind``, ``info`` and what raises NotImplementedError here.

    Any thread may use it. Every question raises RemoteError when the server did not answer it: nothing is
    then known of its keys, and their requests have to pass.
    """

    kind: str

    def __init__(
        self,
        server: Server,
        prefix: str,
        params: Mapping[str, Any],
        required: Mapping[str, Any],
        identity: Mapping[str, str] | None,
    ) -> None:
        self.server = server
        self.on_growth: Callable[[Growth], None] | None = None
        self._kept = Kept(
            server,
            f"{prefix}:filter",
            Meta(self.kind, params, dict(identity or {})),
            {"kind": self.kind, **required},
            make=self._make,
            load=self._load,
            parts=self._parts,
        )

    @property
    def path(self) -> str:
        """Server and name, for people."""
        return f"{self.server.address} {self._kept.name}"

    @property
    def filter_id(self) -> bytes:
        """16 bytes, others after every time that it was made anew."""
        return self._kept.meta.epoch

    @property
    def identity(self) -> Mapping[str, str]:
        """What the keys mean; without ``canary``: not known yet."""
        return self._kept.meta.identity

    @property
    def capacity(self) -> int:
        """Keys it was made for."""
        return int(self._kept.meta.params["capacity"])

    @property
    def error_rate(self) -> float:
        """Asked rate of the whole, 0 < error_rate < 1."""
        return float(self._kept.meta.params["error_rate"])

    @property
    def num_shards(self) -> int:
        return int(self._kept.meta.params["shards"])

    @property
    def created(self) -> int:
        """When it was made, in seconds since 1970."""
        return self._kept.meta.created

    @property
    def was_created(self) -> bool:
        """Whether it was made, not found, when it was opened or renewed the last time."""
        return self._kept.was_created

    def set_identity(self, identity: Mapping[str, str]) -> None:
        """Write what the keys mean.

        Raises:
            RemoteError: not written.
        """
        self._kept.set_identity(identity)

    def verify(self) -> None:
        """Look whether it is still the one that was opened; for a timer. See ``Kept.verify``."""
        self._kept.verify()

    def renew(self) -> bool:
        """Take what is there now, or make it anew: after ``RemoteEmptied``. See ``Kept.renew``."""
        return self._kept.renew()

    def clear(self) -> int:
        """Remove the filter from the server; return how many keys of the server it took.

        Raises:
            RemoteError: not all of it was removed.
        """
        return self._kept.clear()

    def memory(self) -> Memory | None:
        """Return the server's memory; None: it does not tell this user.

        Raises:
            RemoteError: no answer.
        """
        return read_memory(self.server)

    def add(self, key: bytes) -> bool:
        return self.add_many([key])[0]

    def add_many(self, keys: Sequence[bytes]) -> list[bool]:
        """Add *keys* in one round trip, and say of each whether it was possibly there.

        All are answered: the filter grows after them. A key that comes twice among them was there the
        second time.

        Raises:
            RemoteError: nothing is known of any of them.
        """
        return self._asked(keys, write=True)

    def add_with(self, keys: Sequence[bytes], asks: Sequence[Ask]) -> tuple[list[bool], list[Any]] | None:
        """Add *keys*, all different, as ``add_many`` does, and let the server run *asks* after that in the
        same round trip.

        Returns:
            The answers to both; None: it takes several questions, and nothing was asked.

        Raises:
            RemoteError: nothing is known of any of the keys, nor of what *asks* have done.
        """
        return None

    def contains_many(self, keys: Sequence[bytes]) -> list[bool]:
        """Return for each key what ``in`` does, in one round trip.

        Raises:
            RemoteError: nothing is known of any of them.
        """
        return self._asked(keys, write=False)

    def contains_with(self, keys: Sequence[bytes], asks: Sequence[Ask]) -> tuple[list[bool], list[Any]]:
        """Return for each of *keys*, 1 to 2,000 and all different, what ``in`` does, and what the
        server answers to *asks* after that: in one round trip, but for a shard that has grown.

        In a Cluster *asks* are run beside, not after.

        Raises:
            RemoteError: nothing is known of any of them.
        """
        raise NotImplementedError

    def __contains__(self, key: bytes) -> bool:
        return self.contains_many([key])[0]

    def info(self) -> FilterInfo:
        """Ask the server for all figures.

        Raises:
            RemoteError: it did not say.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Nothing waits here: what was added is on the server."""

    def close(self) -> None:
        """Nothing to write; the server's connections belong to whoever made it."""

    def _asked(self, keys: Sequence[bytes], *, write: bool) -> list[bool]:
        unique = list(dict.fromkeys(keys))
        if not unique:
            return []
        answers = dict(zip(unique, self._check(unique, write=write), strict=True))
        if not write or len(unique) == len(keys):
            return [answers[key] for key in keys]
        found = []
        for key in keys:
            found.append(answers[key])
            answers[key] = True
        return found

    def _check(self, keys: list[bytes], *, write: bool) -> list[bool]:
        """Return for each of *keys*, all different, whether it was possibly there."""
        raise NotImplementedError

    def _make(self, meta: Meta) -> None:
        raise NotImplementedError

    def _load(self, meta: Meta) -> None:
        raise NotImplementedError

    def _parts(self, meta: Meta) -> list[str]:
        raise NotImplementedError
