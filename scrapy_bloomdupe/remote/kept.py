"""How is a filter or store made on a server, found again, followed, made anew and removed?

It knows the description (``meta``) and the names; what the parts hold is the business of the filter or
store, which gives three functions on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import scrapy_bloomdupe.remote.meta as metas
from scrapy_bloomdupe.errors import RemoteEmptied
from scrapy_bloomdupe.remote.client import Server
from scrapy_bloomdupe.remote.meta import Meta
from scrapy_bloomdupe.remote.naming import shard_tag

_SCAN_COUNT = 1000
# Versions that come one upon another while the one before is looked at.
_MAX_VERSIONS = 8


class Kept:
    """What is kept under ``<name>:meta`` and the names that begin with ``<name>:{``.

    Args:
        server: where.
        name: see ``naming``.
        wanted: what is made if nothing is there.
        required: what has to be as asked, by name, see ``meta.compare``.
        make: make the parts that are missing; for a description that is not ready.
        load: look at the parts; raises RemoteEmptied if one is missing, and changes nothing then.
        parts: the names of the parts, as far as they are known.
    """

    def __init__(
        self,
        server: Server,
        name: str,
        wanted: Meta,
        required: Mapping[str, Any],
        *,
        make: Callable[[Meta], None],
        load: Callable[[Meta], None],
        parts: Callable[[Meta], list[str]],
    ) -> None:
        self.server = server
        self.name = name
        self.meta_name = f"{name}:meta"
        self.meta = wanted
        self.was_created = False
        self._required = required
        self._make = make
        self._load = load
        self._parts = parts

    def open(self, *, create: bool | None = None, renew: bool = False) -> None:
        """Find it, or make it.

        Args:
            create: see ``meta.claim``.
            renew: what is there and has lost a part is made anew.

        Raises:
            RemoteEmptied: what is there has lost a part, and *renew* is False.
            RemoteError, StateError: see ``meta.claim`` and ``meta.compare``.
        """
        meta, self.was_created = metas.claim(self.server, self.meta_name, self.meta, create=create)
        metas.compare(f"{self.server.address} {self.name}", meta, self._required)
        try:
            self._take(meta)
        except RemoteEmptied:
            # It may have been replaced between the two looks.
            if self.follow(meta.epoch):
                return
            if not renew:
                raise
            self._replace(meta)

    def renew(self) -> bool:
        """Take what is there now, or make it anew: after ``RemoteEmptied``.

        Returns:
            Whether it was made anew by this call; False: somebody else had done it, or all was there.

        Raises:
            RemoteError, StateMismatch: see ``open``.
        """
        old = self.meta
        found, created = metas.claim(self.server, self.meta_name, self._fresh(old))
        self.was_created = created
        metas.compare(f"{self.server.address} {self.name}", found, self._required)
        try:
            self._take(found)
        except RemoteEmptied:
            self._replace(found)
        return self.was_created

    def verify(self) -> None:
        """Look whether the description is still there: a server that evicts can lose it alone, and whoever
        comes then makes another. Every question looks only at the parts it asks. A version that replaces the
        one that is known is taken.

        Raises:
            RemoteEmptied: it is gone, or another one.
            RemoteError: the server did not say.
        """
        found = metas.read(self.server, self.meta_name)
        if found is not None and found.epoch == self.meta.epoch:
            return
        if not self.follow(self.meta.epoch):
            raise self.emptied()

    def follow(self, epoch: bytes) -> bool:
        """Take the version that replaces the one of *epoch*; return whether there is one, and it is whole.

        Its parameters are those that whoever made it has answered for: nobody is refused in mid-crawl.

        Raises:
            RemoteError, StateError: see ``meta.read``.
        """
        for _ in range(_MAX_VERSIONS):
            found = metas.read(self.server, self.meta_name)
            if found is None or epoch not in found.replaces or found.kind != self.meta.kind:
                return False
            try:
                self._take(found)
            except RemoteEmptied:
                epoch = found.epoch
            else:
                self.was_created = False
                return True
        return False

    def set_identity(self, identity: Mapping[str, str]) -> None:
        """Write what the keys mean.

        Raises:
            RemoteError: not written.
        """
        try:
            self.meta = metas.swap(self.server, self.meta_name, self.meta, identity=dict(identity))
        except RemoteEmptied:
            if not self.follow(self.meta.epoch):
                raise
            self.meta = metas.swap(self.server, self.meta_name, self.meta, identity=dict(identity))

    def clear(self) -> int:
        """Remove everything under the name; return how many keys there were.

        The description goes first: whoever works with it is told at the next question.

        Raises:
            RemoteError: not all of it was removed.
        """
        removed = int(self.server.run("UNLINK", self.meta_name, slow=True))
        for name in parts_found(self.server, self.name):
            removed += int(self.server.run("UNLINK", name, slow=True))
        return removed

    def part(self, shard: int, num_shards: int, ending: str, meta: Meta | None = None) -> str:
        """Return the name of a part of a shard."""
        return f"{self.name}:{{{shard_tag((meta or self.meta).epoch, shard, num_shards)}}}:{ending}"

    def emptied(self) -> RemoteEmptied:
        """Return the error that says that a part is gone."""
        return metas.emptied(self.server, self.name)

    def _fresh(self, meta: Meta) -> Meta:
        # It replaces nothing: what was seen is gone. By its number others know that its size is meant.
        return Meta(meta.kind, meta.params, meta.identity, version=meta.version)

    def _take(self, meta: Meta) -> None:
        if not meta.ready:
            self._make(meta)
            meta = metas.swap(self.server, self.meta_name, meta, ready=True)
        self._load(meta)
        self.meta = meta

    def _replace(self, old: Meta) -> None:
        """Make *old*, which has lost a part, anew under another epoch; what is left of it goes."""
        left = self._parts(old)
        fresh = self._fresh(old)
        try:
            new = metas.swap(
                self.server,
                self.meta_name,
                old,
                epoch=fresh.epoch,
                secret=fresh.secret,
                created=fresh.created,
                ready=False,
                replaces=(),
            )
            self.was_created = True
        except RemoteEmptied:
            # Somebody else was faster.
            new, self.was_created = metas.claim(self.server, self.meta_name, fresh)
        self._take(new)
        for name in left:
            self.server.run("UNLINK", name, slow=True)


def parts_found(server: Server, name: str) -> set[bytes]:
    """Return the names of all parts under *name* that are on the server, also of former epochs.

    Raises:
        RemoteError: the server did not say.
    """
    pattern = "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in name) + ":{*"
    return set(server.scan(pattern, _SCAN_COUNT))
