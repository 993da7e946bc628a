"""Can the server keep what it is given? Its own figures of memory and eviction; a report, no measure."""

from __future__ import annotations

from dataclasses import dataclass

from scrapy_bloomdupe.errors import RemoteRefused
from scrapy_bloomdupe.remote.client import Server


@dataclass(frozen=True)
class Memory:
    """The memory of a server; of the fullest node of a Cluster.

    Attributes:
        used, maximum: bytes; maximum 0: no limit.
        policy: its ``maxmemory-policy``.
        evicted_keys: keys that it threw out since it was started, of whomever.
    """

    used: int
    maximum: int
    policy: str
    evicted_keys: int

    @property
    def evicts(self) -> bool:
        """Whether it throws out keys of ours when memory is short: pages are then crawled again.

        ``volatile-*`` takes only keys with a time to live, which ours do not have.
        """
        return self.maximum > 0 and self.policy.startswith("allkeys")

    @property
    def free(self) -> int | None:
        """Bytes until the limit; None: there is none."""
        return max(0, self.maximum - self.used) if self.maximum else None

    def trouble(self, num_bytes: int = 0) -> str:
        """Return a sentence on what will go wrong when *num_bytes* more are taken; empty: nothing."""
        if self.evicts:
            return (
                f"the server evicts keys when its {self.maximum:,} bytes are full (maxmemory-policy "
                f"{self.policy}; {self.evicted_keys:,} evicted so far): what had been seen is then forgotten "
                "and crawled again. Set maxmemory-policy to noeviction"
            )
        if self.free is not None and self.free < num_bytes:
            return (
                f"the server has {self.free:,} bytes left of its maxmemory of {self.maximum:,}, and "
                f"{num_bytes:,} are needed; raise maxmemory or take a smaller capacity"
            )
        return ""


def read(server: Server) -> Memory | None:
    """Return the figures; None: the server does not give them to this user.

    Raises:
        RemoteError: no answer.
    """
    try:
        nodes = [_figures(answer) for answer in server.on_nodes("INFO")]
    except RemoteRefused:
        return None
    return max(nodes, key=lambda node: (node.evicts, node.used / node.maximum if node.maximum else 0.0))


def _figures(answer: object) -> Memory:
    if isinstance(answer, bytes):
        lines = [line.partition(":") for line in answer.decode(errors="replace").splitlines()]
        answer = {name: value for name, _, value in lines}
    values = answer if isinstance(answer, dict) else {}
    return Memory(
        used=int(values.get("used_memory", 0)),
        maximum=int(values.get("maxmemory", 0)),
        policy=str(values.get("maxmemory_policy", "noeviction")),
        evicted_keys=int(values.get("evicted_keys", 0)),
    )
