"""What is known of a request that is under way? A unit of work, through its retries and redirects.

What becomes of it is decided in ``units``.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy import Request

#: In ``request.meta``: journal and number of the unit that the request belongs to.
META_UNIT = "bloomdupe_unit"


class Phase(enum.Enum):
    """Where a unit is."""

    #: Being scheduled; units that cannot be written stay in this phase until they are sent.
    QUEUED = "queued"
    #: On its way through the downloader: a request that is scheduled with its number continues it.
    DOWNLOADING = "downloading"
    #: Its response is with the spider.
    DELIVERED = "delivered"
    #: There was no response; an errback may be at work.
    FAILED = "failed"


class Unit:
    """A request under way.

    Attributes:
        number: see ``Journal``.
        request: the object that is being downloaded.
        exhausted: the callback has given all its output.
        requests, items: of its output, not scheduled, and not through the pipelines, yet.
        holding: units that cannot be written and stand for part of its output.
        output: what it has given in all.
        held: it cannot be written; the process is all that knows it.
        parent: of a held unit: the one that stands for it.
        keys: of a held unit: its marks, which are held in memory, too.
        failed: it ended in failure.
        again: it is to be asked again by the next run.
        unsent: it was given again, and has not been at the downloader in this run.
    """

    __slots__ = (
        "again",
        "exhausted",
        "failed",
        "held",
        "holding",
        "items",
        "keys",
        "number",
        "output",
        "parent",
        "phase",
        "request",
        "requests",
        "unsent",
    )

    def __init__(self, number: int, request: Request, phase: Phase) -> None:
        self.number = number
        self.request = request
        self.phase = phase
        self.exhausted = self.failed = self.again = self.held = self.unsent = False
        self.requests = self.items = self.holding = self.output = 0
        self.parent: Unit | None = None
        self.keys: list[bytes] = []

    @property
    def complete(self) -> bool:
        return self.exhausted and not (self.requests or self.items or self.holding or self.again)
