"""How does what others have seen come into a seen-set? ``bloomdupe import``.

From Scrapy's ``requests.seen`` or a set of scrapy-redis, into a state directory, a filter and a store on a
server, or a store in a database. The source is only read, and what is imported is only added: an import that
was cut short is run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import scrapy_bloomdupe.settings as settings
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.cli_places import is_server, is_url, open_server
from scrapy_bloomdupe.cli_sources import RedisSet, SeenFile, Source
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.progress import Bar
from scrapy_bloomdupe.shared.filling import IMPORTING, SharedPlan, open_shared
from scrapy_bloomdupe.stores.sql import SqlStore

#: Takes keys and returns how many of them were new.
Take = Callable[[list[bytes]], int]

_BATCH = 2_000


def add_import(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``import`` but those on the filter."""
    parser.add_argument(
        "source",
        metavar="JOBDIR|URL",
        help="the JOBDIR of a stopped crawl, or redis://... with a set of scrapy-redis",
    )
    parser.add_argument("--to", metavar="DIR|URL", help="instead of JOBDIR/bloomdupe; a server needs --key")
    parser.add_argument("--key", metavar="NAME", help="what names on the server begin with; a namespace")
    parser.add_argument("--set", metavar="NAME", help="the set of scrapy-redis, such as shop:dupefilter")
    parser.add_argument("--no-store", action="store_true", help="the filter alone")
    parser.add_argument("--no-filter", action="store_true", help="the store alone, on a server")


def run_import(arguments: argparse.Namespace) -> int:
    """``bloomdupe import``."""
    _refuse_what_does_not_fit(arguments)
    if not is_url(arguments.source):
        return _import(arguments, SeenFile(Path(arguments.source)))
    with open_server(arguments.source) as server:
        return _import(arguments, RedisSet(server, arguments.set))


def _refuse_what_does_not_fit(arguments: argparse.Namespace) -> None:
    source, to, problem = arguments.source, arguments.to, ""
    if is_url(source) and to is None:
        problem = "say where to: --to DIR, or --to redis://... --key NAME"
    elif not is_url(source) and arguments.set is not None:
        problem = "--set names a set on a server, and the source is a directory"
    elif arguments.no_store and arguments.no_filter:
        problem = "--no-store and --no-filter leave nothing to import into"
    elif to is not None and is_url(to):
        if not arguments.key:
            problem = "--to a server or a database needs --key NAME, for example --key shop:bloomdupe"
        elif set(arguments.key) & set("{}") or "%(" in arguments.key:
            problem = (
                f"--key {arguments.key} is not a name as it stands on the server: write the spider's name in "
                "place of %(spider)s, and no braces"
            )
        elif arguments.layout or arguments.scheme:
            problem = "--layout and --scheme are for a filter in a file; on a server there is one of each"
        elif not is_server(to) and arguments.no_store:
            problem = "a database has no filter: leave out --no-store, or import into a server"
    elif arguments.key is not None:
        problem = "--key is for a server or a database, and this imports into a directory"
    elif arguments.no_filter:
        problem = "--no-filter is for a server: a state directory always has a filter"
    if problem:
        raise ConfigurationError(problem)


def _import(arguments: argparse.Namespace, source: Source) -> int:
    added = 0
    with _target(arguments, source) as (shown, take), Bar("importing", source.total, source.unit) as bar:
        keys = _counting(source, bar)
        while batch := list(islice(keys, _BATCH)):
            added += take(batch)
    print(f"{source.shown}: {source.num_keys:,} fingerprints, {added:,} of them new in {shown}")
    for line in source.rest():
        print(line)
    return 0


def _counting(source: Source, bar: Bar) -> Iterator[bytes]:
    for key in source.read():
        yield key
        bar.reached(source.reached)


def _target(arguments: argparse.Namespace, source: Source) -> AbstractContextManager[tuple[str, Take]]:
    to = arguments.to
    # Room for twice what is there.
    capacity = arguments.capacity or max(settings.DEFAULT_CAPACITY, 2 * source.room)
    bare = settings.DEFAULT_BARE_ERROR_RATE if arguments.no_store else settings.DEFAULT_ERROR_RATE
    error_rate = arguments.error_rate or bare
    if to is None or not is_url(to):
        options = StateOptions(
            capacity=capacity,
            error_rate=error_rate,
            layout=arguments.layout or settings.DEFAULT_LAYOUT,
            scheme=arguments.scheme or settings.DEFAULT_SCHEME,
            store=None if arguments.no_store else "lmdb",
            identity=IMPORTING,
        )
        return _into_directory(Path(to) if to else Path(arguments.source) / "bloomdupe", options)
    if not is_server(to):
        return _into_database(to, arguments.key)
    plan = SharedPlan(
        capacity=sizing.check_capacity(capacity),
        error_rate=error_rate,
        explicit=[name for name in ("capacity", "error_rate") if getattr(arguments, name) is not None],
        filter=not arguments.no_filter,
        store=not arguments.no_store,
    )
    return _into_server(to, arguments.key, plan)


@contextmanager
def _into_directory(directory: Path, options: StateOptions) -> Iterator[tuple[str, Take]]:
    state = open_or_create(directory, options)
    try:
        seen = state.seen

        def take(keys: list[bytes]) -> int:
            added = sum(not verdict.seen for verdict in seen.check_and_add_many(keys))
            if state.audit is not None:
                # An exact store writes by itself when enough waits.
                state.flush()
            return added

        yield str(state.directory), take
        state.set_identity({k: v for k, v in state.filter.identity.items() if k not in IMPORTING})
    finally:
        state.close()


@contextmanager
def _into_server(url: str, prefix: str, plan: SharedPlan) -> Iterator[tuple[str, Take]]:
    with open_server(url) as server:
        shared = open_shared(server, prefix, plan)
        yield f"{server.address} {prefix}", shared.take
        shared.finish()


@contextmanager
def _into_database(url: str, namespace: str) -> Iterator[tuple[str, Take]]:
    store = SqlStore.open(url, namespace, identity=IMPORTING, timeout=30.0)
    with ExitStack() as stack:
        stack.callback(store.close)
        yield store.path, lambda keys: sum(store.add_many(keys))
        if set(store.identity) & set(IMPORTING):
            store.set_identity({k: v for k, v in store.identity.items() if k not in IMPORTING})
