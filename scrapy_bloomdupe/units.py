"""How far is each request of a crawl, and when is it done?

A unit of work is a request that was scheduled, through its retries and redirects, until its callback's output
has gone its way. Its number travels in the request's meta; a copy of that meta (``meta=response.meta``, an
errback's copy of its request) is another unit. Only units that are under way are kept here: what waits in the
scheduler is in the journal alone.

It is told what happens (``journaling`` tells it) and writes to the journal; it asks nothing of Scrapy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.marks import Marks
from scrapy_bloomdupe.records import name_of
from scrapy_bloomdupe.seen import SeenSet
from scrapy_bloomdupe.shared.seen import SharedSeen
from scrapy_bloomdupe.unit import META_UNIT, Phase, Unit

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

#: The unit that is with Scrapy's downloader middlewares in this context (its task, and what that calls): what
#: they return is scheduled outside of it.
in_middlewares_of: ContextVar[int | None] = ContextVar("bloomdupe_in_middlewares_of", default=None)


class Units:
    """The units of one crawl.

    Args:
        journal: where they are written.
        seen: holds the marks of what cannot be written.
        spider: name of the spider.
        serialize: request -> bytes; raises if that is not possible.
        retry_failed: keep what ended in failure for the next run.
    """

    def __init__(
        self,
        journal: Journal,
        seen: SeenSet | SharedSeen,
        spider: str,
        serialize: Callable[[Request], bytes],
        *,
        retry_failed: bool = False,
    ) -> None:
        self.journal = journal
        self._token = f"{journal.token}:"
        self.num_unserializable = 0
        #: Callbacks whose output did not all go its way: something has ended them.
        self.num_cut = 0
        self._seen = seen
        self._spider = name_of(spider).encode()
        self._serialize = serialize
        self._retry_failed = retry_failed
        self._active: dict[int, Unit] = {}
        self._replayed: set[int] = set()
        #: URLs of GET requests that have failed in this run and are kept for the next one, by their key.
        self.kept: dict[bytes, set[str]] = {}
        self.marks = Marks(journal, seen, self._spider)
        self._responses: WeakKeyDictionary[Response, Unit] = WeakKeyDictionary()
        # By object: a request of a callback's output, and a unit for each time it was given.
        self._awaited: dict[int, tuple[Request, list[Unit]]] = {}
        self._candidates: set[Unit] = set()
        #: Called when a unit may have become complete.
        self.on_complete: Callable[[], None] = lambda: None
        self._scheduling: tuple[Request, Unit | None, Unit | None] | None = None

    def replay(self, request: Request, number: int) -> None:
        """Let *request*, which is the pending request *number*, be the one unit with this number."""
        request.meta[META_UNIT] = self._mark(number)
        self._replayed.add(number)
        if not self.marks.whole:
            self.marks.put_back(number)

    def replay_stranded(self, request: Request, number: int) -> None:
        """As ``replay``, for a request of this run: it passes the marks that it has set."""
        self.replay(request, number)
        self.marks.put_back(number)

    def number_of(self, request: Request) -> int | None:
        """Return the number of the unit that *request* has in its meta."""
        return self._number(request)

    def give_up(self, number: int) -> None:
        """End a pending request that was put back and dropped."""
        self._replayed.discard(number)
        if (unit := self._active.pop(number, None)) is not None:
            self._candidates.discard(unit)
        if number in self.journal:
            self.marks.leave(number)
            self.journal.end(number)
        self.marks.end(number)

    def dropped(self, request: Request) -> None:
        """A handler of the signal has dropped *request*, which was to be scheduled. What was pending stays
        so, and is given again when the crawl is idle; until then others may have its page."""
        number = self._number(request)
        if number is not None and self.marks.is_given_again(number) and number in self.journal:
            self.marks.leave(number)

    def can_write(self, request: Request) -> bool:
        """Return whether *request* can be pending; else the process is all that knows it."""
        try:
            self._serialize(request)
        except Exception:
            return False
        return True

    def scheduled(self, request: Request, key: bytes | None = None) -> None:
        """A request is about to be scheduled; the duplicate filter may be asked next, see ``judged``.

        Args:
            key: its mark, if it was set though the filter is not asked.
        """
        if (last := self._scheduling) is not None and last[0] is not request:
            # The filter was not asked about it.
            self._scheduling = None
            self.dropped(last[0])
        parent = self._resolve(request)
        unit = self._claim(request)
        if not request.dont_filter:
            # If a handler of the signal drops it nothing follows: it is settled when idle.
            self._scheduling = (request, unit, parent)
        elif unit is None:
            self._add(request, key, parent)
        else:
            if key is not None:
                self._own(unit, key, request)
            self._enqueued(unit)

    def judged(self, request: Request, key: bytes | None, *, seen: bool) -> bool:
        """The duplicate filter has judged *request*; return whether it passes.

        Raises:
            StoreError: the journal could not be read.
        """
        unit = parent = None
        if (scheduling := self._scheduling) is not None and scheduling[0] is request:
            _, unit, parent = scheduling
        elif META_UNIT in request.meta:
            unit = self._claim(request)
        self._scheduling = None
        if unit is None:
            if not seen:
                self._add(request, key, parent)
            return not seen
        # Marks of this run are no matter of a replay: ``redirects`` judges those.
        if seen and (key is None or not self.marks.can_pass(unit.number, key)):
            # It was redirected to a page that another unit has: its own way ends here.
            self.exhausted(unit)
            return False
        if seen and key is not None:
            self.marks.passed(unit.number, key)
        elif key is not None:
            self._own(unit, key, request)
        self._enqueued(unit)
        return True

    def passes(self, request: Request, key: bytes) -> bool:
        """Return whether *request*, which is being scheduled, was given again by the journal and passes
        whatever is known of *key*: the mark is its own.

        Raises:
            StoreError: the journal could not be read.
        """
        if self._scheduling is None or self._scheduling[0] is not request:
            return False
        unit = self._scheduling[1]
        return unit is not None and self.marks.can_pass(unit.number, key)

    def is_kept(self, request: Request, key: bytes) -> bool:
        """Return whether *request* has failed in this run and is kept for the next one: a dead page that
        every page links to would be asked for, and kept, as often. Another URL with its key passes."""
        urls = self.kept.get(key)
        return (
            urls is not None
            and request.url in urls
            and request.method == "GET"
            and not request.body
            and META_UNIT not in request.meta
        )

    def started(self, request: Request) -> None:
        """A request is at the downloader."""
        number = self._number(request)
        if number is None:
            return
        unit = self._active.get(number)
        if unit is None:
            if number in self.journal:
                self._active[number] = Unit(number, request, Phase.DOWNLOADING)
        elif unit.phase is Phase.QUEUED:
            unit.phase, unit.request = Phase.DOWNLOADING, request

    def gave_up(self, request: Request, *, failed: bool) -> None:
        """The downloader has given a request up.

        Args:
            failed: it was not dropped on purpose.
        """
        unit = self._unit(request)
        # A copy that a middleware downloads by itself says nothing of the unit.
        if unit is None or unit.phase is not Phase.DOWNLOADING or unit.request is not request:
            return
        unit.phase, unit.failed = Phase.FAILED, failed
        if request.errback is None:
            self.exhausted(unit)

    def delivered(self, response: Response) -> None:
        """A response goes to the spider."""
        request = response.request
        unit = self._unit(request) if request is not None else None
        if unit is not None and unit.phase is Phase.DOWNLOADING:
            unit.phase = Phase.DELIVERED
            self._responses[response] = unit

    def of(self, response: Any) -> Unit | None:
        """Return the unit of a response that was delivered."""
        return self._responses.get(response) if response is not None else None

    def gave_request(self, unit: Unit, request: Request) -> None:
        """The output of a callback has a request in it."""
        self._awaited.setdefault(id(request), (request, []))[1].append(unit)
        unit.requests += 1
        unit.output += 1

    def gave_item(self, unit: Unit) -> None:
        """The output of a callback has an item in it."""
        unit.items += 1
        unit.output += 1

    def item_left(self, response: Any) -> None:
        """An item has left the pipelines."""
        unit = self.of(response)
        if unit is not None and unit.items:
            unit.items -= 1
            self._consider(unit)

    def exhausted(self, unit: Unit) -> None:
        """The callback has no more output."""
        unit.exhausted = True
        self._consider(unit)

    def settle(self) -> bool:
        """End what is complete, and return whether there was anything. To be called in a turn of its own,
        before a commit."""
        ended = False
        while self._candidates:
            candidates, self._candidates = self._candidates, set()
            for unit in candidates:
                if unit.complete and self._active.get(unit.number) is unit:
                    self._end(unit)
                    ended = True
        return ended

    def settle_all(self, *, closing: bool) -> None:
        """End everything under way, since nothing is any more: idle, or at the end of the crawl. What a
        callback did not finish is asked again by the next run.

        Args:
            closing: the scheduler may still hold requests.
        """
        self.settle()
        for unit in sorted(self._active.values(), key=lambda unit: not unit.held):
            if unit.phase is Phase.QUEUED and closing:
                # In the scheduler, or dropped on the way: if its queue does not have it, the journal does.
                continue
            cut = not unit.exhausted or unit.requests or unit.items
            if unit.phase is Phase.DELIVERED and cut and not unit.again:
                unit.again = True
                self.num_cut += 1
            elif not unit.again:
                unit.exhausted = True
                self._candidates.add(unit)
        self._awaited.clear()
        self.settle()

    @property
    def num_active(self) -> int:
        """Pending requests of the journal that are under way."""
        return sum(not unit.held for unit in self._active.values())

    def is_active(self, number: int) -> bool:
        return number in self._active

    def in_memory(self) -> list[Request]:
        """Return the requests that are scheduled and cannot be written."""
        return [unit.request for unit in self._active.values() if unit.held and unit.phase is Phase.QUEUED]

    def again(self) -> list[int]:
        """Return the numbers of the units that the next run has to ask again."""
        return sorted(
            unit.number for unit in self._active.values() if not unit.held and unit.phase is not Phase.QUEUED
        )

    def _mark(self, number: int) -> str:
        return f"{self._token}{number}"

    def _number(self, request: Request) -> int | None:
        mark = request.meta.get(META_UNIT)
        if isinstance(mark, str) and mark.startswith(self._token):
            return int(mark[len(self._token) :])
        return None

    def _unit(self, request: Request) -> Unit | None:
        number = self._number(request)
        return self._active.get(number) if number is not None else None

    def _claim(self, request: Request) -> Unit | None:
        """Return the unit that *request* continues; a copied mark is taken off."""
        if META_UNIT not in request.meta:
            return None
        number = self._number(request)
        if number is not None and number in self._replayed:
            self._replayed.discard(number)
            unit = self._active[number] = Unit(number, request, Phase.QUEUED)
            return unit
        found = self._active.get(number) if number is not None else None
        # What a middleware schedules by itself while the request is with it is a copy: the request goes on.
        if found is not None and found.phase is Phase.DOWNLOADING and in_middlewares_of.get() != number:
            found.phase, found.request = Phase.QUEUED, request
            return found
        del request.meta[META_UNIT]
        return None

    def _enqueued(self, unit: Unit) -> None:
        """The scheduler has it, and the journal knows it: no need to keep it here."""
        if not unit.held:
            self._active.pop(unit.number, None)

    def _resolve(self, request: Request) -> Unit | None:
        """Return the unit whose output *request* is, and take it as scheduled."""
        awaited = self._awaited.get(id(request))
        if awaited is None:
            return None
        parent = awaited[1].pop(0)
        if not awaited[1]:
            del self._awaited[id(request)]
        parent.requests -= 1
        self._consider(parent)
        return parent

    def _consider(self, unit: Unit) -> None:
        # Not ended here: what it depends on may be in the middle of this turn.
        if unit.complete:
            self._candidates.add(unit)
            self.on_complete()

    def _add(self, request: Request, key: bytes | None, parent: Unit | None) -> None:
        number = self.journal.next_number()
        request.meta[META_UNIT] = f"{self._token}{number}"
        try:
            data = self._serialize(request)
        except Exception:
            # Whatever pickle and the request's own methods raise. The parent stands for it: it is not done
            # before this one is, and replayed it gives this request again.
            self._hold(Unit(number, request, Phase.QUEUED), key, parent)
            return
        self.journal.add_request(number, key, self._spider, data)

    def _hold(self, unit: Unit, key: bytes | None, parent: Unit | None) -> None:
        self.num_unserializable += 1
        unit.held, unit.parent = True, parent
        if parent is not None:
            parent.holding += 1
        if key is not None:
            self._own(unit, key, unit.request)
        self._active[unit.number] = unit

    def _own(self, unit: Unit, key: bytes, request: Request) -> None:
        if unit.held:
            self._seen.hold(key)
            unit.keys.append(key)
            return
        try:
            data = self._serialize(request)
        except Exception:
            data = b""
        self.journal.own(unit.number, key, data)
        self.marks.passed(unit.number, key)

    def _end(self, unit: Unit) -> None:
        if unit.held:
            for key in unit.keys:
                self._seen.release(key)
            if unit.parent is not None:
                unit.parent.holding -= 1
                self._candidates.add(unit.parent)
        elif unit.failed and self._retry_failed:
            keys = self.journal.keys_of(unit.number)
            forgotten = [self._seen.forget(key) for key in keys]
            if not self._seen.can_forget or not all(forgotten):
                # It was not forgotten: it stays pending, and passes its own mark in the next run.
                unit.again = True
                return
            self.journal.end(unit.number, failed=True)
            self._keep(unit.request, keys)
        else:
            self.marks.leave_targets(unit.number)
            self.journal.end(unit.number)
        del self._active[unit.number]
        self.marks.end(unit.number)

    def _keep(self, request: Request, keys: Sequence[bytes]) -> None:
        # What is kept is the first request of a chain of redirects: the next time it may lead elsewhere.
        was_redirected = len(keys) != 1 or "redirect_urls" in request.meta
        if request.method == "GET" and not request.body and not was_redirected:
            self.kept.setdefault(keys[0], set()).add(request.url)
