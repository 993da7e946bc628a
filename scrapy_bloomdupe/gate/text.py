"""How does a text become a key, the same one for who builds a gate and who asks it? Named, frozen steps.

The names stand in the gate's header. What they do may not change: another way needs another name. They
always run in the order of ``STEPS``, whatever order they are given in; every selection is idempotent.

``url``
    the URL as a browser sends it: the preset ``safe`` of the rules (needs ``[rules]``).
``nfkc``
    Unicode normalization form KC (UAX #15): full-width letters, ligatures, circled numbers.
``lower``
    lower case of all letters that have one.
``collapse``
    any run of white space is one space.
``trim``
    no white space at both ends.

Unicode grows: what a Python without a character does to it is nothing, and what a newer one does may be
something. ``tables`` names the version that was used, and ``is_unassigned`` tells the texts that it matters
for; a key of known characters is the same under all versions (the stability policies for normalization and
for case pairs).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.presets import pipeline

#: Names of steps in the order in which they run.
STEPS = ("url", "nfkc", "lower", "collapse", "trim")
DEFAULT_STEPS = ("nfkc", "lower", "collapse", "trim")
#: The frozen name of ``digest``.
DIGEST_NAME = "blake2b-160"

# What `str.split` and `str.strip` take for white space: Unicode's White_Space, and the separators of ASCII.
_SPACES = re.compile(
    "[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+",
)
_nfkc = unicodedata.normalize

TextStep = Callable[[str], str]


def check_steps(names: Iterable[str]) -> tuple[str, ...]:
    """Return *names* in the order in which they run, each once.

    Raises:
        ConfigurationError: a name is not known.
    """
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in STEPS:
            raise ConfigurationError(f"text step {name!r} is not known; there are {', '.join(STEPS)}")
    return tuple(name for name in STEPS if name in wanted)


def normalizer(names: Iterable[str]) -> TextStep:
    """Return the function that takes all steps *names*. It raises on no text.

    Raises:
        ConfigurationError: a name is not known, or its library is not installed.
    """
    steps = check_steps(names)
    as_url = pipeline("safe") if "url" in steps else None
    compose, lower = "nfkc" in steps, "lower" in steps
    spaces = _spaces("collapse" in steps, "trim" in steps)

    def normalized(text: str) -> str:
        if as_url is not None:
            text = as_url(text)
        if not text.isascii():
            if compose:
                text = _nfkc("NFKC", text)
            if lower:
                text = text.lower()
                if compose:
                    # Lower case can leave the form: UAX #15 has both taken in turns.
                    text = _nfkc("NFKC", text)
        elif lower:
            text = text.lower()
        return spaces(text)

    def plain(text: str) -> str:
        text = text.lower() if text.isascii() else _nfkc("NFKC", _nfkc("NFKC", text).lower())
        return " ".join(text.split())

    # The default, in as few steps as Python has.
    return plain if steps == DEFAULT_STEPS else normalized


def _spaces(collapse: bool, trim: bool) -> TextStep:
    if collapse and trim:
        return lambda text: " ".join(text.split())
    if collapse:
        return lambda text: _SPACES.sub(" ", text)
    return str.strip if trim else str


def digest(text: str) -> bytes:
    """Return the key of a text that has been through its steps: 20 bytes."""
    # Half a character cannot be encoded; whoever has one in a key has the same one when he asks.
    data = text.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=20, person=b"bloomdupe gate").digest()


def is_unassigned(text: str) -> bool:
    """Return whether *text* has a character that this Python's Unicode does not know."""
    # What can be printed is known: the quick way out.
    return not text.isprintable() and any(unicodedata.category(c) == "Cn" for c in text)


def tables(steps: Iterable[str]) -> str:
    """Return the versions of what *steps* look up."""
    if "url" not in steps:
        return unicodedata.unidata_version
    try:
        return f"{unicodedata.unidata_version}+ada-url-{version('ada-url')}"
    except PackageNotFoundError:
        return unicodedata.unidata_version
