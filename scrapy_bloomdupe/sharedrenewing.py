"""When does a crawl make the filter that it shares anew? If that has many layers or is old, one at a time.

In a thread of its own, with connections of its own, for about a tenth of the time: neither the crawl nor the
server is kept from anything else. How it is done: ``shared.versions``.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from threading import Event, Thread

import scrapy_bloomdupe.sharedreport as sharedreport
import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import StateLocked
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.shared.opening import open_shared
from scrapy_bloomdupe.shared.options import SharedOptions
from scrapy_bloomdupe.shared.parts import SharedParts
from scrapy_bloomdupe.shared.versions import Rebuilt, VersionPlan, rebuild
from scrapy_bloomdupe.watch import Watch

logger = logging.getLogger(__name__)

# The share of the time that it takes.
_SHARE = 0.1
# In seconds: how long it waits for an answer, ...
_PATIENCE = 10.0
# ... how long until it looks again whether another crawl has done it, ...
_AGAIN = 60.0
# ... and how long the end of the crawl waits for it.
_AT_END = 5.0


class _Stopped(Exception):
    """The crawl is over."""


class SharedRenewer:
    """Makes the filter of *parts* anew when it has ``rebuild_layers`` layers or was made ``rebuild_every``
    seconds ago; a failure is counted, and the last try.

    Args:
        parts: a filter, and a store with the keys of all.
        options: what they were opened with.
        spider: its name.
    """

    def __init__(self, parts: SharedParts, options: SharedOptions, spider: str, watch: Watch) -> None:
        self._parts = parts
        self._options = replace(options, on_empty="stop")
        self._spider = spider
        self._watch = watch
        self._ended = Event()
        self._thread: Thread | None = None
        self._found: Rebuilt | BaseException | None = None
        self._began = 0.0
        self._not_before = 0.0
        self._given_up = False

    def tick(self) -> None:
        """Look whether there is anything to do; called now and then on the crawl's thread."""
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._tell()
        now = time.monotonic()
        if self._given_up or now < self._not_before or not self._is_wanted(self._parts.filter):
            return
        # What another crawl is at is looked at again when it is done.
        self._began, self._not_before = now, now + _AGAIN
        self._found = None
        self._thread = Thread(target=self._run, name="bloomdupe-renewal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave what is not finished: the crawl is over."""
        self._ended.set()
        self._given_up = True
        if self._thread is not None:
            self._thread.join(_AT_END)
            if not self._thread.is_alive():
                self._tell()

    def _is_wanted(self, filter: RemoteFilter | None) -> bool:  # noqa: A002
        if filter is None:
            return False
        layers, every = self._options.rebuild_layers, self._options.rebuild_every
        if layers and filter.num_layers >= layers:
            return True
        return every is not None and time.time() - filter.created >= every

    def _run(self) -> None:
        try:
            self._found = self._rebuild()
        except Exception as exc:
            self._found = exc

    def _rebuild(self) -> Rebuilt | None:
        parts, _ = open_shared(
            self._options, spider=self._spider, identity={}, create=False, patience=_PATIENCE
        )
        try:
            if parts.filter is None or parts.store is None:
                return None
            return rebuild(
                parts.filter, parts.store, VersionPlan(), pace=self._pace, is_wanted=self._is_wanted
            )
        finally:
            parts.close()

    def _pace(self, seconds: float) -> None:
        if self._ended.wait(seconds * (1 / _SHARE - 1)):
            raise _Stopped

    def _tell(self) -> None:
        """Say what became of it; on the crawl's thread."""
        self._thread = None
        found = self._found
        if isinstance(found, Rebuilt):
            self._watch.count(stats.REBUILDS)
            seconds = time.monotonic() - self._began
            logger.info(
                sharedreport.rebuilt_shared(self._parts.names, found, seconds),
                extra={"spider": self._watch.spider},
            )
        elif isinstance(found, Exception) and not isinstance(found, StateLocked | _Stopped):
            self._given_up = True
            self._watch.failed(stats.ERROR_REBUILD, found)
