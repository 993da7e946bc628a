"""Is what several crawls share there, and do its keys mean what this crawl's keys mean?

It connects, compares and makes what is missing. A server that cannot be reached now is an error: nobody
would know what the others have seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import scrapy_bloomdupe.remote.address as addresses
import scrapy_bloomdupe.remote.naming as naming
from scrapy_bloomdupe.errors import ConfigurationError, RemoteEmptied, RemoteRefused, StateMismatch
from scrapy_bloomdupe.filters.redis import open_filter
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.remote.client import Server, connect
from scrapy_bloomdupe.shared.options import SharedOptions
from scrapy_bloomdupe.shared.parts import RemoteStore, SharedParts
from scrapy_bloomdupe.stores.redis import RedisStore
from scrapy_bloomdupe.stores.sql import SQL_TIMEOUT, SqlStore

# What the keys mean, and nothing of who asked first.
_MEANING = ("fingerprinter", "canary", "rules")


def open_shared(
    options: SharedOptions,
    *,
    spider: str,
    identity: Mapping[str, str],
    create: bool | None = None,
    patience: float = 0.0,
) -> tuple[SharedParts, list[str]]:
    """Open what is shared, or make it; return it, and sentences that a person should read.

    Args:
        spider: its name, for the names on the server.
        identity: what the keys of this crawl mean.
        create: False: only what is there.
        patience: seconds; so long, and not shorter, is waited for an answer.

    Raises:
        ConfigurationError: a URL is wrong, or a package is missing.
        StateMismatch: what is there was made with other values, or for keys of another meaning.
        StateNotFound: nothing is there, with *create* false.
        RemoteEmptied: what is there has lost a part, and ``on_empty`` is ``stop``.
        RemoteError: a server did not answer, or refused.
    """
    prefix = naming.prefix(options.key, spider=spider)
    meaning = {name: identity[name] for name in _MEANING if name in identity}
    notices: list[str] = []
    servers: dict[str, Server] = {}

    def close() -> None:
        for server in servers.values():
            server.close()
        if isinstance(store, SqlStore):
            store.close()

    def server_at(url: str) -> Server:
        if url not in servers:
            servers[url] = connect(url, patience)
        return servers[url]

    filter: RemoteFilter | None = None  # noqa: A001
    store: RemoteStore | None = None
    try:
        if options.filter is not None:
            server = server_at(options.filter)
            asked: dict[str, Any] = {
                "capacity": options.capacity,
                "error_rate": options.error_rate,
                "identity": meaning,
            }
            filter = _opened(  # noqa: A001
                lambda renew: open_filter(server, prefix, **asked, create=create, renew=renew),
                options.on_empty,
                notices,
            )
            _compare(filter, meaning)
        if options.store is not None and addresses.is_address(options.store):
            shelf = server_at(options.store)
            store = _opened(
                lambda renew: RedisStore.open(shelf, prefix, identity=meaning, create=create, renew=renew),
                options.on_empty,
                notices,
            )
        elif options.store is not None:
            store = SqlStore.open(
                options.store, prefix, identity=meaning, create=create, timeout=max(SQL_TIMEOUT, patience)
            )
        if store is not None:
            _compare(store, meaning)
        for server in servers.values():
            _refuse_replica(server)
    except BaseException:
        close()
        raise
    return SharedParts(filter, store, close), notices


def _opened(open_it: Any, on_empty: str, notices: list[str]) -> Any:
    try:
        return open_it(False)
    except RemoteEmptied as exc:
        if on_empty == "stop":
            raise
        notices.append(str(exc.args[-1]))
        return open_it(True)


def _compare(part: RemoteFilter | RemoteStore, wanted: Mapping[str, str]) -> None:
    """Refuse keys of another meaning; what was imported takes the meaning of whoever opens it first."""
    made = part.identity
    if not wanted:
        return
    if "importing" in made:
        raise StateMismatch(
            f"{part.path}: `bloomdupe import` was cut short there, or is at work, and part of what was seen "
            "is missing; run it again (what is in already is not added twice)"
        )
    if "canary" not in made:
        if "rules" in wanted:
            raise StateMismatch(
                f"{part.path} was imported: its keys are fingerprints, and the project has rules that make "
                "other keys of the same requests. Crawl without rules, or use another BLOOMDUPE_KEY"
            )
        part.set_identity({**made, **wanted})
        return
    for name, what in (("rules", "rules"), ("canary", "fingerprints")):
        if made.get(name) != wanted.get(name):
            raise StateMismatch(
                f"{part.path}: its keys were made by other {what} than this crawl has "
                f"({made.get('fingerprinter')}, {what} {_short(made.get(name))}; here "
                f"{wanted.get('fingerprinter')}, {_short(wanted.get(name))}): the same request gets another "
                "key. Give all crawls the same rules and versions of Scrapy and w3lib, use another "
                "BLOOMDUPE_KEY, or run `bloomdupe clear` on it to start anew"
            )


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"


def _refuse_replica(server: Server) -> None:
    """Refuse a replica, which takes no keys."""
    if server.is_cluster:
        return
    try:
        answer = server.run("ROLE")
    except RemoteRefused:  # this user may not ask
        return
    if answer and answer[0] != b"master":
        raise ConfigurationError(
            f"{server.address} is a read-only replica; give the address of its master, or of a Sentinel that "
            "names it: redis+sentinel://host:26379/mymaster"
        )
