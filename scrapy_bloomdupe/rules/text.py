"""How is the text of an id made alike? Pure steps ``str -> str`` with names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_SPACE = re.compile(r"\s+")


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _collapse_ws(text: str) -> str:
    return _SPACE.sub(" ", text)


def _strip_zeros(text: str) -> str:
    return text.lstrip("0") or text[-1:]


TEXT_STEPS: dict[str, Callable[[str], str]] = {
    "strip": str.strip,
    "nfkc": _nfkc,
    "lower": str.lower,
    "upper": str.upper,
    "collapse_ws": _collapse_ws,
    "strip_zeros": _strip_zeros,
}
