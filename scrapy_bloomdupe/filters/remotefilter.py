"""What have filters on a server in common? Opening, renewing, clearing, and what they say of themselves.

A filter that was replaced by a new version (``remote.replacing``) is followed when a question finds that
its parts were put aside: the question is asked again of the new one, since nothing was done. The bits are
the business of the subclass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import scrapy_bloomdupe.remote.replacing as replacing
from scrapy_bloomdupe.errors import RemoteEmptied
from scrapy_bloomdupe.filters.base import FilterInfo
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.remote.client import Ask, Server
from scrapy_bloomdupe.remote.kept import Kept
from scrapy_bloomdupe.remote.memory import Memory
from scrapy_bloomdupe.remote.memory import read as read_memory
from scrapy_bloomdupe.remote.meta import Meta
from scrapy_bloomdupe.remote.replacing import Replacing

# Versions that come one upon another while one question is asked.
_MAX_VERSIONS = 4

Self = TypeVar("Self", bound="RemoteFilter")


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
        # Held by the thread that takes another version, or looks at the parts anew.
        self._following = threading.RLock()
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
    def name(self) -> str:
        """What all its names on the server begin with."""
        return self._kept.name

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
    def num_keys(self) -> int:
        """Keys added by all, as far as this process was told; ``info`` asks."""
        raise NotImplementedError

    @property
    def num_layers(self) -> int:
        """Layers of the shard that has the most, as far as this process was told."""
        raise NotImplementedError

    @property
    def version(self) -> int:
        """Which one of its name it is: 1 for the first, one more after every time that it was rebuilt."""
        return self._kept.meta.version

    def replaces(self, filter_id: bytes) -> bool:
        """Return whether it was rebuilt from the store of the filter that had this id, or is that one."""
        return filter_id == self.filter_id or filter_id in self._kept.meta.replaces

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
        with self._following:
            self._kept.set_identity(identity)

    def verify(self) -> None:
        """Look whether it is still the one that was opened, or what replaces it; for a timer. See
        ``Kept.verify``."""
        with self._following:
            self._kept.verify()

    def renew(self) -> bool:
        """Take what is there now, or make it anew: after ``RemoteEmptied``. See ``Kept.renew``."""
        with self._following:
            return self._kept.renew()

    def replacing(self) -> AbstractContextManager[Replacing]:
        """Be the one who makes a new version of it; errors as ``remote.replacing.replacing``."""
        return replacing.replacing(self.server, self._kept.name)

    def begin(self: Self, work: Replacing, *, capacity: int, error_rate: float) -> Self:
        """Make the empty filter that is to replace this one, beside it; nobody asks it yet.

        Raises:
            ConfigurationError: a value is out of its range.
            RemoteError: the server did not do it.
        """
        params = {"capacity": capacity, "error_rate": error_rate}
        number = self._num_shards(self.server, capacity, error_rate, self.num_shards)
        meta = work.new = work.old.next({**params, "shards": number})
        new = type(self)(self.server, self._kept.name.removesuffix(":filter"), meta.params, {}, None)
        work.parts = lambda: new._parts(meta)
        new._make(meta)
        new._load(meta)
        new._kept.meta = meta
        work.keep_unfinished()
        return new

    def groups(self, meta: Meta) -> Iterable[Sequence[str]]:
        """Return the names that parts of the version of *meta* can have, those of one hash tag together."""
        raise NotImplementedError

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

    def _check_beside(
        self, keys: Sequence[bytes], *, write: bool, beside: Sequence[Ask] = ()
    ) -> tuple[list[bool], list[Any]]:
        """Return the answers for *keys*, and those to *beside*, which is asked once whatever happens."""
        beside_answers: list[Any] = []
        for _ in range(_MAX_VERSIONS):
            epoch, seen, answers = self._ask(keys, write=write, beside=beside)
            if beside:
                beside_answers, beside = answers, ()
            if seen is not None:
                return seen, beside_answers
            if not self._follow(epoch):
                break
        raise self._kept.emptied()

    def _ask(
        self, keys: Sequence[bytes], *, write: bool, beside: Sequence[Ask]
    ) -> tuple[bytes, list[bool] | None, list[Any]]:
        """Ask what is known to be there.

        Returns:
            Its epoch; the answers for *keys*, None: a part is gone; the answers to *beside*.
        """
        raise NotImplementedError

    def _follow(self, epoch: bytes) -> bool:
        """A part of *epoch* is gone: take the version that replaces it; return whether there is one.

        Raises:
            RemoteError, StateError: see ``Kept.follow``.
        """
        with self._following:
            if epoch == self._kept.meta.epoch:
                return self._kept.follow(epoch)
            # Another thread was faster.
            return epoch in self._kept.meta.replaces

    def _look_again(self) -> None:
        """Look at the parts as they are now.

        Raises:
            RemoteEmptied: one is gone.
        """
        with self._following:
            meta = self._kept.meta
            try:
                self._load(meta)
            except RemoteEmptied:
                if not self._kept.follow(meta.epoch):
                    raise

    @staticmethod
    def _num_shards(server: Server, capacity: int, error_rate: float, at_least: int) -> int:
        """Return how many shards a filter needs.

        Raises:
            ConfigurationError: a value is out of its range.
        """
        raise NotImplementedError

    def _make(self, meta: Meta) -> None:
        raise NotImplementedError

    def _load(self, meta: Meta) -> None:
        raise NotImplementedError

    def _parts(self, meta: Meta) -> list[str]:
        raise NotImplementedError
