"""Can the fingerprint that Scrapy gives a request be had faster? The same 20 bytes, or Scrapy is asked.

Only where the project's fingerprinter is Scrapy's own, and only after a ``trial`` has compared the two ways
on a few hundred tricky requests. What Scrapy remembers of a request object is neither read nor written: one
whose method, body or URL is changed in place gets the fingerprint of what it is now.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1
from typing import TYPE_CHECKING

import w3lib.url
from scrapy import Request
from scrapy.utils import request as scrapy_request

from scrapy_bloomdupe.canonical import canonical
from scrapy_bloomdupe.fastcanary import METHODS, canary_requests

if TYPE_CHECKING:
    from scrapy.utils.request import RequestFingerprinterProtocol

# The JSON of `scrapy.utils.request.fingerprint`, by `json.dumps(..., sort_keys=True)`, up to the URL. The
# body is hexadecimal there, and a URL that is easy has nothing that JSON escapes.
_FORM = '{{"body": "{}", "headers": {{}}, "method": "{}", "url": "'
_NO_BODY = {method: _FORM.format("", method).encode() for method in METHODS}
_GET = _NO_BODY["GET"]


def fast_fingerprint(request: Request) -> bytes | None:
    """Return what ``scrapy.utils.request.fingerprint(request)`` returns; None: not easy, ask Scrapy."""
    url = request.url
    method = request.method
    if type(url) is not str or method not in _NO_BODY:
        return None
    form = canonical(url)
    # Releases of Scrapy before `verbatim_url` do not look at it; asking them is right too.
    if form is None or request.meta.get("verbatim_url"):
        return None
    body = request.body
    if body:
        if type(body) is not bytes:
            return None
        return sha1(_FORM.format(body.hex(), method).encode() + form + b'"}').digest()
    return sha1(_NO_BODY[method] + form + b'"}').digest()


def fast_fingerprint_of_get(url: str) -> bytes | None:
    """Return what ``fast_fingerprint`` does of a GET request without body and ``verbatim_url``."""
    if type(url) is not str or (form := canonical(url)) is None:
        return None
    return sha1(_GET + form + b'"}').digest()


def not_easy(request: object) -> None:
    """Return None: the fast way of a fingerprinter that has none."""


def trial(fingerprinter: RequestFingerprinterProtocol) -> Iterator[bool]:
    """Give for one canary after the other whether both ways give the same, or it is not easy; after False
    there are no more. To be taken in turns with other work: all of them take 30 ms.

    It proves that Scrapy and w3lib have no rule that the canaries do not keep to; not that they are equal for
    every URL. That is what the tests of this module are for, with the releases that they are run with.
    """
    try:
        # New ones each time: Scrapy remembers what it said of a request.
        for request in canary_requests():
            fast = fast_fingerprint(request)
            if fast is not None and fast != fingerprinter.fingerprint(request):
                break
            yield True
        else:
            return
    except Exception:
        pass
    yield False


def is_scrapys(fingerprinter: RequestFingerprinterProtocol) -> bool:
    """Return whether the fingerprinter is Scrapy's, with no function of it replaced.

    A patched function can differ on one site only, which no canary meets.
    """
    function = getattr(fingerprinter, "_fingerprint", None)
    method = getattr(fingerprinter, "fingerprint", None)
    return (
        type(fingerprinter) is scrapy_request.RequestFingerprinter
        and getattr(method, "__func__", None) is scrapy_request.RequestFingerprinter.fingerprint
        and _is_from(scrapy_request.RequestFingerprinter.fingerprint, "scrapy.utils.request")
        and function is scrapy_request.fingerprint
        and _is_from(function, "scrapy.utils.request")
        and getattr(scrapy_request, "canonicalize_url", None) is w3lib.url.canonicalize_url
        and _is_from(w3lib.url.canonicalize_url, "w3lib.url")
    )


def _is_from(function: object, module: str) -> bool:
    return getattr(function, "__module__", None) == module
