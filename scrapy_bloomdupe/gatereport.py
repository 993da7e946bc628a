"""What does a person read about a gate? Sentences for the log, and nothing else."""

from __future__ import annotations

import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import message
from scrapy_bloomdupe.gate.gate import GateInfo
from scrapy_bloomdupe.report import size


def opened(info: GateInfo) -> str:
    """Return the line of a gate that was opened."""
    return (
        f"Gate: version {info.version} of {info.path}, {info.num_keys:,} keys, lets "
        f"{info.error_rate_estimate:.2g} of all others pass ({size(info.num_bytes)})"
    )


def without_url(info: GateInfo) -> str:
    """Return the warning of a gate that is asked for URLs and does not know how they are sent."""
    return (
        f"Gate: {info.path} is asked for URLs and was built without the step `url`: a URL that its list "
        "spells otherwise than Scrapy sends it is rejected. Build it with --steps url,trim"
    )


def problem(exc: Exception) -> str:
    """Return the one warning of a gate that cannot judge."""
    return (
        f"Gate: {message(exc) or repr(exc)}: until it can judge every request passes. Counted in "
        f"{stats.ERROR_GATE} and {stats.GATE_BYPASSED}, shown once"
    )


def source_failed(exc: Exception, request: object) -> str:
    """Return the one warning of a source that raised."""
    return (
        f"Gate: its source failed on {request}: {exc!r}; the request passes. Counted in "
        f"{stats.ERROR_GATE} and {stats.GATE_BYPASSED}, shown once"
    )


def wrong(text: str, request: object) -> str:
    """Return the one warning of a list that lacks something."""
    return (
        f"Gate: {text!r} is not in it, and the page that was let through to see ({request}) brought an item: "
        "the list is not complete, or its keys are spelled otherwise. Counted in "
        f"{stats.GATE_WRONG}, shown once"
    )
