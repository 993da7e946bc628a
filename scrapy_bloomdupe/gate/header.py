"""What does a gate's file say of itself, beyond what every filter's header does? Its identity, format 1.

::

    gate         "1"            format of what follows
    digest       "blake2b-160"  how a text becomes key bytes
    steps        "nfkc,lower"   text steps, in the order in which they run
    min_length   "2"            characters; a shorter text is not judged
    version      "41"           counts the builds of this file
    tables       "15.0.0"       Unicode versions that made its keys, with commas between
    unassigned   "0"            keys with characters that those versions did not know
    bits         "5123"         bits that were set when it was built: fewer are a hole
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scrapy_bloomdupe.errors import ConfigurationError, StateCorrupt, StateMismatch
from scrapy_bloomdupe.gate.text import DIGEST_NAME, check_steps

FORMAT = "1"


@dataclass(frozen=True)
class GateHeader:
    """What makes a filter a gate; see the module."""

    steps: tuple[str, ...]
    min_length: int
    version: int
    tables: tuple[str, ...]
    unassigned: int = 0
    bits: int = 0

    def identity(self) -> dict[str, str]:
        """Return what stands in the filter's header."""
        return {
            "gate": FORMAT,
            "digest": DIGEST_NAME,
            "steps": ",".join(self.steps),
            "min_length": str(self.min_length),
            "version": str(self.version),
            "tables": ",".join(self.tables),
            "unassigned": str(self.unassigned),
            "bits": str(self.bits),
        }


def of_identity(identity: Mapping[str, str], name: str) -> GateHeader:
    """Return what *identity*, of the file called *name*, says.

    Raises:
        StateMismatch: it is no gate, or was made by rules that this release does not know.
        StateCorrupt: it makes no sense.
    """
    if "gate" not in identity:
        raise StateMismatch(
            f"{name} is a filter of seen requests and no gate; make one with `bloomdupe gate build`"
        )
    for what, known in (("gate", FORMAT), ("digest", DIGEST_NAME)):
        if (found := identity.get(what)) != known:
            raise StateMismatch(
                f"{name} was built with {what}={found!r}, this release reads {known!r}; upgrade "
                "scrapy-bloomdupe, or build it again with this release"
            )
    try:
        steps = tuple(filter(None, identity["steps"].split(",")))
        if check_steps(steps) != steps:
            raise ValueError(f"steps in an order in which they do not run: {identity['steps']!r}")
        return GateHeader(
            steps=steps,
            min_length=int(identity["min_length"]),
            version=int(identity["version"]),
            tables=tuple(identity["tables"].split(",")),
            unassigned=int(identity["unassigned"]),
            bits=int(identity["bits"]),
        )
    except ConfigurationError as exc:
        raise StateMismatch(
            f"{name} was built with steps that this release does not know: {exc}; upgrade scrapy-bloomdupe, "
            "or build it again with this release"
        ) from exc
    except (KeyError, ValueError) as exc:
        raise StateCorrupt(f"{name}: its header as a gate cannot be read: {exc!r}; build it again") from exc
