"""``bloomdupe import``: what others have seen, and the pending requests of a stock Scrapy job.

Fingerprints come from Scrapy's ``requests.seen`` or a set of scrapy-redis, and go into a state directory, a
filter and a store on a server, or a store in a database; requests come from ``requests.queue`` and go into
the frontier of a state directory. An import that was cut short is run again: what it leaves is marked, no
crawl begins on it, keys are only added, and the frontier is filled anew. ``requests.queue`` is moved aside
when all of it is committed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import scrapy_bloomdupe.settings as settings
import scrapy_bloomdupe.sizing as sizing
from scrapy_bloomdupe.assembling import attach_frontier, pending_of
from scrapy_bloomdupe.cli_places import is_server, is_url, open_server
from scrapy_bloomdupe.cli_sources import RedisSet, SeenFile, Source
from scrapy_bloomdupe.errors import ConfigurationError, StateMismatch, StateNotFound, StateUnusable
from scrapy_bloomdupe.frontier.lmdb import DATABASES, record
from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create
from scrapy_bloomdupe.progress import Bar
from scrapy_bloomdupe.shared.filling import IMPORTING, SharedPlan, open_shared
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.statefiles import FILTER_NAME
from scrapy_bloomdupe.stockjob import QUEUE_NAME, SEEN_NAME, StockQueue, dated, read_state
from scrapy_bloomdupe.stores.environment import Transaction
from scrapy_bloomdupe.stores.sql import SqlStore

#: Takes keys and returns how many of them were new.
Take = Callable[[list[bytes]], int]

_BATCH = 2_000
# The mark of an import with requests: where the queue is moved when all is committed. If it is there, all is.
(_MARK,) = IMPORTING


def add_import(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``import`` but those on the filter."""
    parser.add_argument(
        "source",
        metavar="JOBDIR|URL",
        help="the JOBDIR of a stopped crawl, or redis://... with a set of scrapy-redis",
    )
    parser.add_argument("--to", metavar="DIR|URL", help="instead of JOBDIR/bloomdupe; a server needs --key")
    parser.add_argument("--spider", metavar="NAME", help="whose pending requests are in the JOBDIR")
    parser.add_argument(
        "--queue-only",
        action="store_true",
        help="of a killed job: its pending requests without what was seen, so that all else is crawled again",
    )
    parser.add_argument(
        "--trust-seen",
        action="store_true",
        help="of a killed job: what was seen, too; pages that were seen and not crawled are lost",
    )
    parser.add_argument("--key", metavar="NAME", help="what names on the server begin with; a namespace")
    parser.add_argument("--set", metavar="NAME", help="the set of scrapy-redis, such as shop:dupefilter")
    parser.add_argument("--no-store", action="store_true", help="the filter alone")
    parser.add_argument("--no-filter", action="store_true", help="the store alone, on a server")


def run_import(arguments: argparse.Namespace) -> int:
    """``bloomdupe import``."""
    _refuse_what_does_not_fit(arguments)
    if is_url(arguments.source):
        with open_server(arguments.source) as server:
            return _import(arguments, RedisSet(server, arguments.set), None)
    jobdir = Path(arguments.source)
    queue = StockQueue.find(jobdir)
    seen = None
    if not arguments.queue_only and (queue is None or (jobdir / SEEN_NAME).exists()):
        seen = SeenFile(jobdir)
    if queue is not None:
        _refuse_killed(arguments, queue)
        if arguments.to is not None and is_url(arguments.to):
            print(f"{queue.path}: its {queue.count:,} pending requests stay there; a server takes none")
            queue = None
        elif queue.count and not arguments.spider:
            raise ConfigurationError(
                f"{queue.path} holds {queue.count:,} requests, whose callbacks belong to a spider: give its "
                "name by --spider NAME. Nothing was changed"
            )
    return _import(arguments, seen, queue)


def _refuse_killed(arguments: argparse.Namespace, queue: StockQueue) -> None:
    """Make sure that a person has decided what becomes of the pages that a killed job may have lost."""
    if not queue.problem or arguments.queue_only:
        return
    jobdir = Path(arguments.source)
    keys = sum(1 for _ in SeenFile(jobdir).read()) if (jobdir / SEEN_NAME).exists() else 0
    what = (
        f"{queue.path} {queue.problem}: the crawl was killed, or still runs. {keys:,} pages are marked as "
        f"seen, {queue.count:,} requests can be read, and nothing says which of the other "
        f"{max(keys - queue.count, 0):,} pages were crawled: those that were under way, or not yet written, "
        "never were"
    )
    if arguments.trust_seen:
        print(f"{what}. Those pages are lost")
        return
    raise StateMismatch(
        f"{what}. --queue-only takes the requests and not what was seen: all else is crawled again, and "
        "nothing is lost. --trust-seen takes both, and those pages are lost. Nothing was changed"
    )


def _refuse_what_does_not_fit(arguments: argparse.Namespace) -> None:
    source, to, problem = arguments.source, arguments.to, ""
    if is_url(source) and to is None:
        problem = "say where to: --to DIR, or --to redis://... --key NAME"
    elif not is_url(source) and arguments.set is not None:
        problem = "--set names a set on a server, and the source is a directory"
    elif arguments.queue_only and arguments.trust_seen:
        problem = "--queue-only leaves out what was seen, and --trust-seen takes it: give one of them"
    elif arguments.queue_only and (is_url(source) or (to is not None and is_url(to))):
        problem = "--queue-only is for pending requests, which are in a JOBDIR and go into a directory"
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


def _import(arguments: argparse.Namespace, source: Source | None, queue: StockQueue | None) -> int:
    with _target(arguments, source, queue) as (shown, take):
        if source is not None:
            added = 0
            with Bar("importing", source.total, source.unit) as bar:
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


def _target(
    arguments: argparse.Namespace, source: Source | None, queue: StockQueue | None
) -> AbstractContextManager[tuple[str, Take]]:
    to = arguments.to
    # Room for twice what is there.
    room = max(source.room if source is not None else 0, queue.count if queue is not None else 0)
    capacity = arguments.capacity or max(settings.DEFAULT_CAPACITY, 2 * room)
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
        directory = Path(to) if to else Path(arguments.source) / "bloomdupe"
        return _into_directory(directory, options, queue, arguments.spider, alone=arguments.queue_only)
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
def _into_directory(
    directory: Path, options: StateOptions, queue: StockQueue | None, spider: str | None, *, alone: bool
) -> Iterator[tuple[str, Take]]:
    """Give what takes keys into a state; when that is done, its frontier takes the requests of *queue*.

    Args:
        alone: whether no keys will come.
    """
    if alone and queue is None and not (directory / FILTER_NAME).exists():
        raise StateNotFound(2, f"no requests are pending in a {QUEUE_NAME} of Scrapy's; give its JOBDIR")
    state = open_or_create(directory, options)
    try:
        _finish_earlier(state)
        aside = None
        if queue is not None:
            _refuse_state(state, queue, alone=alone)
            aside = dated(queue.path.absolute())
            _begin(state, str(aside), spider)

        def take(keys: list[bytes]) -> int:
            added = sum(not verdict.seen for verdict in state.seen.check_and_add_many(keys))
            state.flush()
            return added

        yield str(state.directory), take
        if queue is not None and aside is not None:
            if queue.count and spider:
                _take_requests(state, queue, spider)
                print(f"{queue.path}: {queue.count:,} requests of {spider} are pending in {state.directory}")
            # Before the queue is out of its place.
            state.sync()
            _move_aside(queue.path, aside, marked=queue.count > 0)
            print(f"{queue.path} was moved to {aside}, which can be deleted when the job is done")
        _take_mark_away(state)
    finally:
        state.close()


def _finish_earlier(state: State) -> None:
    """Take the mark off a state if its import was cut short after the queue was moved aside."""
    mark = state.filter.identity.get(_MARK, "")
    if Path(mark).is_absolute() and Path(mark).exists():
        view = pending_of(state)
        _mark_queue(Path(mark).with_name(QUEUE_NAME), marked=view is not None and view.num_pending > 0)
        _take_mark_away(state)
        print(
            f"{state.directory}: the import before this one had taken the requests over; {mark} is their "
            "queue"
        )


def _refuse_state(state: State, queue: StockQueue, *, alone: bool) -> None:
    view = pending_of(state)
    if view is not None and _MARK not in state.filter.identity and view.num_pending + view.num_failed:
        raise StateMismatch(
            f"{state.directory} holds {view.num_pending + view.num_failed:,} pending requests of its own, "
            f"and {queue.path} those of another job. Finish one of them, or move it aside. Nothing was "
            "changed"
        )
    if alone and (count := state.num_keys()):
        raise StateMismatch(
            f"{state.directory} knows {count:,} pages as seen, and --queue-only is to begin with none: move "
            "it aside. Nothing was changed"
        )


def _begin(state: State, mark: str, spider: str | None) -> None:
    """Mark *state*, and empty the frontier that an import which was cut short has left."""
    identity = {**state.filter.identity, _MARK: mark}
    if spider and "canary" not in identity:
        identity["spider"] = spider
    state.set_identity(identity)
    environment = state.environment
    if environment is None or pending_of(state) is None:
        return
    databases = [environment.database(name, create=False) for name in DATABASES if name != b"frontier"]

    def empty(txn: Transaction) -> None:
        for database in databases:
            txn.drop(database, delete=False)

    environment.write(empty)


def _take_requests(state: State, queue: StockQueue, spider: str) -> None:
    attach_frontier(state, spider, wanted=True)
    frontier = state.frontier
    assert frontier is not None
    with Bar("importing", queue.count, "requests") as bar:
        for one in queue.buckets:
            place = one.slot, one.priority, one.start
            bucket = frontier.buckets.get(place) or frontier.bucket(*place)
            for data in one.read():
                frontier.added[frontier.next] = bucket, record(None, data)
                frontier.next += 1
                frontier.num_pending += 1
                if len(frontier.added) >= _BATCH:
                    state.flush()
                    bar.reached(frontier.num_pending)
    file, digest = read_state(queue.path.parent)
    if file is not None:
        # Stock Scrapy empties its file when it refuses to start.
        frontier.set_note(b"state", digest + file)
    frontier.end_in_order()
    state.flush()


def _move_aside(path: Path, aside: Path, *, marked: bool) -> None:
    try:
        path.rename(aside)
    except OSError as exc:
        raise StateUnusable(
            exc.errno,
            f"cannot move {path} to {aside}: {exc.strerror}; run the import again when that is mended",
        ) from exc
    _mark_queue(path, marked=marked)


def _mark_queue(path: Path, *, marked: bool) -> None:
    if marked:
        # Not at the top: the other commands do without Scrapy.
        from scrapy_bloomdupe.scrapy_compat import QueueMark

        QueueMark(path.parent).set()


def _take_mark_away(state: State) -> None:
    state.set_identity({k: v for k, v in state.filter.identity.items() if k not in IMPORTING})


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
