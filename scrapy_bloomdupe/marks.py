"""Which marks as seen does a pending request that is given again pass, and which does it leave to others?

A pending request of an earlier run is marked as seen, as are the targets of its redirects. When it is given
again it passes each of these marks once, since nobody else has its page. If it is dropped instead, or goes
another way, its marks would be those of pages that nobody fetches.
"""

from __future__ import annotations

from scrapy_bloomdupe.journal import Journal
from scrapy_bloomdupe.seen import SeenSet
from scrapy_bloomdupe.shared.seen import SharedSeen


class Marks:
    """The marks of the pending requests of *journal*, by the numbers of these.

    Attributes:
        whole: every request of an earlier run comes from the journal; else Scrapy's own queue has most of
            them, as far as they had come.
    """

    def __init__(self, journal: Journal, seen: SeenSet | SharedSeen, spider: bytes) -> None:
        self.whole = True
        self._journal = journal
        self._seen = seen
        self._spider = spider
        # Given again from the journal one by one: marks that they set are passed again.
        self._put_back: set[int] = set()
        # Those that were passed in this run.
        self._passed: dict[int, set[bytes]] = {}
        # What was dropped when it was given again: its marks are forgotten.
        self._left: set[int] = set()

    def put_back(self, number: int) -> None:
        """The request is given again, alone."""
        self._put_back.add(number)

    def is_given_again(self, number: int) -> bool:
        """Return whether the request is of an earlier run, or was put back."""
        return (self.whole and number < self._journal.first) or number in self._put_back

    def can_pass(self, number: int, key: bytes) -> bool:
        """Return whether the request passes *key*, which is seen.

        Raises:
            StoreError: the journal could not be read.
        """
        if not self.is_given_again(number) or key in self._passed.get(number, ()):
            return False
        return self._journal.owns(number, key)

    def passed(self, number: int, key: bytes) -> None:
        """Note that the request has passed *key*, or set it: from now on it is as seen as any other."""
        if self.is_given_again(number):
            self._passed.setdefault(number, set()).add(key)

    def leave(self, number: int) -> None:
        """Forget all marks of the request, which was dropped: they are any request's from now on.

        Raises:
            StoreError: the journal could not be read.
        """
        if number in self._left:
            return
        self._left.add(number)
        for key in self._journal.keys_of(number):
            self._seen.forget(key)
            self._passed.setdefault(number, set()).add(key)

    def leave_targets(self, number: int) -> None:
        """Make pending what the last run was redirected to, and this one was not: links to it were filtered,
        and nobody has had it. It is put back when the crawl is idle.

        Raises:
            StoreError: the journal could not be read.
        """
        if not self.is_given_again(number):
            return
        passed = self._passed.get(number, set())
        for key, request in self._journal.targets_of(number).items():
            if key in passed:
                continue
            if request:
                self._journal.add_request(self._journal.next_number(), key, self._spider, request)
            else:
                self._seen.forget(key)

    def has_targets_left(self) -> bool:
        """Return whether a request that is given again has not come as far as in an earlier run: it owns a
        mark that it has not passed in this one. In Scrapy's queue it could not pass it any more.

        Raises:
            StoreError: the journal could not be read.
        """
        return any(
            self.is_given_again(number) and key not in self._passed.get(number, ())
            for number, key in self._journal.targets()
        )

    def end(self, number: int) -> None:
        """The request is pending no more."""
        self._put_back.discard(number)
        self._left.discard(number)
        self._passed.pop(number, None)
