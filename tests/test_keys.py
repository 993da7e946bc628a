"""Are keys the bytes of the project's own fingerprinter, and does the canary notice another one?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha1

import pytest
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter, fingerprint

from scrapy_bloomdupe.keys import RequestKeys, canary_requests


class Fingerprinter:
    """A fingerprinter from a function."""

    def __init__(self, function: Callable[[Request], bytes]) -> None:
        self.fingerprint = function


def keys_by(function: Callable[[Request], bytes]) -> RequestKeys:
    return RequestKeys(Fingerprinter(function))


def canary_of(function: Callable[[Request], bytes]) -> str:
    return keys_by(function).identity()["canary"]


def no_scheme(request: Request) -> bytes:
    scheme, _, rest = request.url.partition(":")
    return fingerprint(request.replace(url=f"http:{rest}") if scheme == "https" else request)


def with_headers(request: Request) -> bytes:
    return fingerprint(request, include_headers=["Accept-Language"])


def with_fragments(request: Request) -> bytes:
    return fingerprint(request, keep_fragments=True)


def with_verbatim(request: Request) -> bytes:
    """As a release of Scrapy that learns to look at the meta of a request."""
    return sha1(request.url.encode()).digest() if request.meta.get("verbatim_url") else fingerprint(request)


def without_body(request: Request) -> bytes:
    return fingerprint(request.replace(body=b""))


def needs_meta(request: Request) -> bytes:
    return bytes(request.meta["page_id"])


def test_a_key_is_the_fingerprint_of_scrapy_itself() -> None:
    keys = RequestKeys(RequestFingerprinter())
    requests = canary_requests()
    assert [fingerprint(request) for request in requests] == [keys.key(request) for request in requests]


@pytest.mark.parametrize("length", [0, 1, 19, 21, 32, 1000])
def test_a_fingerprint_of_another_length_becomes_a_key_of_20_bytes_that_is_no_part_of_it(length: int) -> None:
    text = b"x" * length
    key = keys_by(lambda request: text).key(Request("http://a.example/"))
    assert 20 == len(key)
    assert key not in text + b"x" * 20
    assert key == keys_by(lambda request: text).key(Request("http://b.example/"))
    assert key != keys_by(lambda request: text + b"y").key(Request("http://a.example/"))


@pytest.mark.parametrize("wrong", [None, "a" * 20, 7, bytearray(20)])
def test_a_fingerprint_that_is_not_bytes_is_a_type_error_that_shows_it(wrong: object) -> None:
    keys = keys_by(lambda request: wrong)  # type: ignore[return-value, arg-type]
    with pytest.raises(TypeError, match=type(wrong).__name__):
        keys.key(Request("http://a.example/"))


def test_what_the_fingerprinter_raises_comes_out_of_the_key() -> None:
    with pytest.raises(KeyError, match="page_id"):
        keys_by(needs_meta).key(Request("http://a.example/"))


def test_the_canary_asks_some_fifty_different_requests() -> None:
    requests = canary_requests()
    asked = {(r.url, r.method, r.body, str(r.headers), str(r.meta), str(r.cookies)) for r in requests}
    # Some spellings are one already to scrapy.Request, which is a part of what a key means.
    assert 40 <= len(asked) <= len(requests) <= 60


def test_the_canary_meets_urls_that_scrapy_tells_apart_and_urls_that_it_does_not() -> None:
    requests = canary_requests()
    assert 30 < len({fingerprint(request) for request in requests}) < len(requests)


def test_two_fingerprinters_of_one_kind_have_one_identity() -> None:
    first, second = (RequestKeys(RequestFingerprinter()).identity() for _ in range(2))
    assert first == second
    assert "scrapy.utils.request.RequestFingerprinter" == first["fingerprinter"]


def test_every_other_fingerprinter_has_another_canary() -> None:
    others: Iterable[Callable[[Request], bytes]] = (
        fingerprint,
        no_scheme,
        with_headers,
        with_fragments,
        with_verbatim,
        without_body,
        needs_meta,
        lambda request: request.url.encode(),
        lambda request: request.url.lower().encode(),
    )
    canaries = [canary_of(function) for function in others]
    assert len(canaries) == len(set(canaries))


def test_a_fingerprinter_that_raises_has_an_identity_too() -> None:
    identity = keys_by(needs_meta).identity()
    assert identity == keys_by(needs_meta).identity()
    assert 64 == len(identity["canary"])


def test_the_identity_names_the_class_of_the_fingerprinter() -> None:
    assert f"{__name__}.Fingerprinter" == keys_by(fingerprint).identity()["fingerprinter"]
