"""Is the fast fingerprint Scrapy's, byte for byte, for every request, and off where it might not be?"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
import w3lib.url
from conftest import Python
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request
from scrapy.utils import request as scrapy_request
from scrapy.utils.request import RequestFingerprinter, fingerprint
from w3lib.url import canonicalize_url

import scrapy_bloomdupe.canonical as canonical_module
from scrapy_bloomdupe.canonical import canonical
from scrapy_bloomdupe.fastcanary import canary_requests, canary_urls
from scrapy_bloomdupe.fastprint import (
    fast_fingerprint,
    fast_fingerprint_of_get,
    not_easy,
    trial,
)
from scrapy_bloomdupe.keys import RequestKeys

DATA = Path(__file__).parent / "data"

ORIGINS = [
    "http://a.example",
    "https://www.shop-1.example",
    "http://a.example:80",
    "http://127.0.0.1:41234",
    "http://a.example:65535",
    "http://a.example:65536",
    "http://a.example:99999",
    "http://a.example:080",
    "https://a.example:8443",
    "HTTP://A.Example",
    "http://u:p%40@a.example",
    "http://[::1]:80",
    "http://a.example:",
    "http://a.example:080",
    "http://10.0.0.1",
    "http://xn--mnchen-3ya.example",
    "http://m\u00fcnchen.example",
    "http://a..b",
    f"http://{'x' * 70}.example",
    "ftp://a.example",
]
PIECES = [
    *map(chr, range(0x21, 0x7F)),
    *[f"%{byte:02X}" for byte in range(256)],
    *[f"%{byte:02x}" for byte in range(256)],
    *["a", "b", "aa", "z", "A", "0", "+", "-", ".", "_", "~"] * 30,
    *["%20", "%2B", "%5B", "%5D", "%2f", "%7e", "%3D", "%26", "%25", "%E4%BD%A0", "\u4f60", "\u00e9"] * 10,
    *["%", "%4", "%zz", " ", "\t", "\x00", "\x7f", "\U0001f600"],
]
NAMES = [
    "a",
    "b",
    "id",
    "a+",
    "a%20",
    "a-",
    "a.",
    "a%21",
    "a%7E",
    "a~",
    "a[]",
    "a%5B%5D",
    "%61",
    "\u00e4",
    "",
]
SEGMENTS = [
    "news",
    "a.b",
    "A_b",
    "caf\u00e9",
    "%7Euser",
    "a%20b",
    "a;b",
    "..",
    ".",
    "",
    "a%2Fb",
    "x|y",
    "[z]",
]


def text(rnd: random.Random, longest: int) -> str:
    return "".join(rnd.choices(PIECES, k=rnd.randrange(longest + 1)))


def path(rnd: random.Random) -> str:
    if rnd.random() < 0.3:
        return rnd.choice(["", "/", "/" + text(rnd, 4)])
    return "/" + "/".join(rnd.choices(SEGMENTS, weights=[9] + [2] * 12, k=rnd.randrange(1, 5)))


def field(rnd: random.Random) -> str:
    name = rnd.choice(NAMES) if rnd.random() < 0.7 else text(rnd, 2)
    return name + rnd.choice(["=", "=", "=", "", "=="]) + text(rnd, rnd.randrange(4))


def url(rnd: random.Random) -> str:
    """Return a URL, of which every part is plain more often than not."""
    origin = rnd.choice(ORIGINS) if rnd.random() < 0.25 else ORIGINS[rnd.randrange(2)]
    query = "?" + "&".join(field(rnd) for _ in range(rnd.randrange(5))) if rnd.random() < 0.7 else ""
    fragment = "#" + text(rnd, 3) if rnd.random() < 0.15 else ""
    return origin + path(rnd) + query + fragment


def urls(seed: int, count: int) -> Iterator[str]:
    rnd = random.Random(seed)
    return (url(rnd) for _ in range(count))


def request_to(target: str, **options: Any) -> Request | None:
    try:
        return Request(target, **options)
    except (ValueError, UnicodeError):  # a port of 0x1A, a host of nothing
        return None


def scrapys(request: Request) -> bytes | str:
    try:
        return fingerprint(request)
    except (ValueError, UnicodeError) as exc:
        return type(exc).__name__


def w3libs(target: str) -> str | None:
    try:
        return canonicalize_url(target)
    except (ValueError, UnicodeError):
        return None


def easy_and_wrong(requests: Iterator[Request | None]) -> tuple[float, list[tuple[str, str]]]:
    """Return the share of requests that are easy, and those whose fingerprint is not Scrapy's."""
    easy = total = 0
    wrong = []
    for request in requests:
        if request is None:
            continue
        total += 1
        fast = fast_fingerprint(request)
        if fast is not None:
            easy += 1
            if fast != scrapys(request):
                wrong.append((request.method, request.url))
    return easy / total, wrong


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_thousand_requests_have_the_fingerprint_of_scrapy(seed: int) -> None:
    easy, wrong = easy_and_wrong(request_to(target) for target in urls(seed, 40_000))
    assert [] == wrong
    assert easy > 0.5


def test_methods_bodies_encodings_and_meta_are_those_of_scrapy() -> None:
    rnd = random.Random(6)

    def made(target: str) -> Request | None:
        return request_to(
            target,
            method=rnd.choice(["GET", "POST", "post", "Head", "PUT", "DELETE", "TRACE", "M\u00c4H", 'G"T']),
            body=rnd.choice([None, "", b"a=1", "\u00e9", b"\xff\x00" * 100]),
            encoding=rnd.choice(["utf-8", "latin-1", "cp1251", "euc-jp"]),
            meta=rnd.choice([None, {"verbatim_url": True}, {"verbatim_url": 0}, {"depth": 1}]),
            headers=rnd.choice([None, {"Accept-Language": "de"}]),
        )

    easy, wrong = easy_and_wrong(made(target) for target in urls(7, 20_000))
    assert [] == wrong
    assert easy > 0.1


def test_strings_that_no_request_saw_are_canonical_or_not_easy() -> None:
    found = [(target, canonical(target)) for target in urls(8, 40_000)]
    easy = [(target, form.decode()) for target, form in found if form is not None]
    assert [] == [(target, form) for target, form in easy if form != w3libs(target)]
    assert len(easy) > 10_000


@given(
    st.text(st.characters(codec="utf-8"), max_size=30), st.sampled_from(["", "http://a.example", "http://"])
)
def test_any_text_is_canonical_or_not_easy(tail: str, head: str) -> None:
    form = canonical(head + tail)
    assert form is None or w3libs(head + tail) == form.decode()


@given(st.text(st.sampled_from("a%+=&;/?#.~!-_[]|4E2F5b "), max_size=30))
def test_any_query_of_marks_is_canonical_or_not_easy(query: str) -> None:
    request = Request(f"http://a.example/p?{query}")
    assert fast_fingerprint(request) in (None, fingerprint(request))


def test_the_way_of_a_plain_get_request_is_that_of_any_request() -> None:
    for target in urls(seed=21, count=5_000):
        request = request_to(target)
        assert request is None or fast_fingerprint(request) == fast_fingerprint_of_get(request.url)


@pytest.mark.parametrize(
    "broken", ["\ud800", "http://a.example/\ud800", "http://a.example/#\udcff", "http:", ""]
)
def test_what_is_no_url_is_not_easy(broken: str) -> None:
    assert canonical(broken) is None


def test_the_urls_of_the_rule_tests_have_the_fingerprint_of_scrapy() -> None:
    targets = [json.loads(line)["url"] for line in (DATA / "product_ids.jsonl").read_text().splitlines()]
    for line in (DATA / "url_pairs.jsonl").read_text().splitlines():
        targets += [json.loads(line)[side] for side in ("a", "b")]
    easy, wrong = easy_and_wrong(request_to(target) for target in targets)
    assert [] == wrong
    assert easy > 0.8


# A form and its end: what a pattern that goes back would try in every way before it fails.
_HOSTILE = """
from scrapy import Request
from scrapy.utils.request import fingerprint
from scrapy_bloomdupe.canonical import canonical
from scrapy_bloomdupe.fastprint import fast_fingerprint

parts = ("a", "/", "/a", "/.", "%", "%4", "%41", "%E4", "%e4", "%25", "%2541", "&", "=", "a=", "&a", "&=",
         "a&", "a=1&", "a=%E4&", "%E4=&",
         "a+", "+", ";", "[", "|", "?", "-", ".", "a.", ":", ":8", "@", "~", "!")
ends = ("", "%", "%2", "\\x7f", '"', ";", "&", "=", " ", "\\x00", "\\\\", "#", "a=1", "&a")
starts = ("http://a.example/", "http://a.example/p?", "http://a.example/#",
          "http://a.example/p?a=1&a=", "http://")
times = 0
for start in starts:
    for part in parts:
        body = part * (80_000 // len(part))
        for end in ends:
            canonical(start + body + end)
            times += 1
    for number, part in enumerate(parts):
        if number % 3:
            continue
        try:
            request = Request(start + part * (80_000 // len(part)) + ends[number % len(ends)])
        except ValueError:
            continue
        # Scrapy's own function is linear too, but slow.
        assert fast_fingerprint(request) in (None, fingerprint(request)), (start, part)
print(times)
"""


def test_two_thousand_urls_of_80_kb_that_fail_late_take_linear_time(python: Python) -> None:
    # A quadratic way would take hours; the process is ended after two minutes.
    done = python(_HOSTILE)
    assert "" == done.stderr
    assert "2380" == done.stdout.strip()


def test_many_different_fields_and_escapes_of_80_kb_are_sorted_as_scrapy_sorts_them() -> None:
    rnd = random.Random(9)
    for piece in ("p{}={}", "p%5B{}%5D={}", "p=%E4{}", "%E4{}"):
        query = "&".join(piece.format(rnd.randrange(10**6), 1) for _ in range(6_000))
        request = Request(f"http://a.example/?{query}")
        assert fast_fingerprint(request) == fingerprint(request)


def test_a_crawl_of_many_hosts_does_not_fill_the_memory() -> None:
    for number in range(10_000):
        canonical(f"http://host{number}.example/")
    canonical(f"http://{'x' * 100_000}.example/")
    assert len(canonical_module._origins) <= 4096
    assert max(map(len, canonical_module._origins)) <= 300
    for _ in range(2):  # learned, and known
        assert b"http://host1.example/" == canonical("http://host1.example#x")
        assert canonical("http://Host1.example/") is None


@pytest.mark.parametrize(
    ("target", "form"),
    [
        ("http://a.example", b"http://a.example/"),
        ("http://a.example?", b"http://a.example/"),
        ("http://a.example?b=/&a#x?y", b"http://a.example/?a=&b=%2F"),
        ("http://a.example/%7euser/%c3%a9", b"http://a.example/~user/%C3%A9"),
        ("http://a.example/?a=2&a=1&a-=0&a%20=3", b"http://a.example/?a=1&a=2&a+=3&a-=0"),
        ("http://a.example/?a=b=c&&=", b"http://a.example/?=&a=b%3Dc"),
        ("http://a.example/?z=%E4&z=~", b"http://a.example/?z=~&z=%E4"),
        ("http://a.example/a/../b", None),
        ("http://a.example/a;b", None),
        ("http://user@a.example/", None),
        ("http://a.example:65536/", None),
        ('http://a.example/"', None),
        ("http://a.example/?\\", None),
        ("http://a.example/\x7f", None),
        ("ftp://a.example/", None),
    ],
)
def test_what_is_easy_and_what_it_becomes(target: str, form: bytes | None) -> None:
    assert form == canonical(target)
    assert form is None or form.decode() == canonicalize_url(target)


# The canary.


class Other(RequestFingerprinter):
    """A project's own; that it is a subclass does not make it the same."""

    def fingerprint(self, request: Request) -> bytes:
        return b"x" * 20


class Function:
    """A fingerprinter from a function that says what a URL becomes."""

    def __init__(self, becomes: Callable[[str], str]) -> None:
        self._becomes = becomes

    def fingerprint(self, request: Request) -> bytes:
        form = {"body": request.body.hex(), "headers": {}, "method": request.method}
        form["url"] = self._becomes(request.url)
        return sha1(json.dumps(form, sort_keys=True).encode()).digest()


def agrees(fingerprinter: Any) -> bool:
    return all(trial(fingerprinter))


def fast_way_of(fingerprinter: Any) -> Callable[[Request], bytes | None]:
    """Return what is asked first when some requests have come; all of them get Scrapy's fingerprint."""
    keys = RequestKeys(fingerprinter)
    for number in range(60):
        request = Request(f"http://a.example/{number}?b=2&a=1")
        assert fingerprinter.fingerprint(request) == keys.fingerprint(request)
    of_get, fast = keys.of_get, keys._fast_fingerprint
    assert (of_get is fast_fingerprint_of_get) is (fast is fast_fingerprint)
    return fast


def test_canaries_are_compared_with_the_first_requests_and_one_that_disagrees_ends_it() -> None:
    keys = RequestKeys(RequestFingerprinter())
    number = sum(1 for _ in canary_requests())
    ways = []
    for _ in range(number // 10 + 2):
        keys.fingerprint(Request("http://a.example/?q=1"))
        ways.append(keys._fast_fingerprint)
    assert [not_easy] * (number // 10) + [fast_fingerprint] * 2 == ways
    compared = list(trial(Function(OTHER_RELEASES["comma stays"])))
    assert [True] * (len(compared) - 1) + [False] == compared
    assert 1 < len(compared) < number
    assert [False] == list(trial(Function(OTHER_RELEASES["fails"])))


def test_with_the_fingerprinter_of_scrapy_the_fast_way_is_taken() -> None:
    assert fast_fingerprint is fast_way_of(RequestFingerprinter())
    assert agrees(Function(canonicalize_url))


OTHER_RELEASES: dict[str, Callable[[str], str]] = {
    "no sorting": lambda url: url.partition("#")[0],
    "fragments stay": lambda url: canonicalize_url(url, keep_fragments=True),
    "blank values go": lambda url: canonicalize_url(url, keep_blank_values=False),
    "tilde is escaped": lambda url: canonicalize_url(url).replace("~", "%7E"),
    "plus is an escape": lambda url: canonicalize_url(url).replace("+", "%20"),
    "escapes in lower case": lambda url: canonicalize_url(url).replace("%C3%A9", "%c3%a9"),
    "brackets are escaped": lambda url: canonicalize_url(url).replace("[", "%5B"),
    "the bar is escaped": lambda url: canonicalize_url(url).replace("|", "%7C"),
    "apostrophes are escaped": lambda url: canonicalize_url(url).replace("'", "%27"),
    "slash is decoded": lambda url: canonicalize_url(url).replace("%2F", "/"),
    "comma stays": lambda url: canonicalize_url(url).replace("%2C", ","),
    "no default port": lambda url: canonicalize_url(url).replace(":80/", "/"),
    "no https port": lambda url: canonicalize_url(url).replace(
        "https://example.com:443/", "https://example.com/"
    ),
    "slashes are one": lambda url: canonicalize_url(url).replace(".example//", ".example/"),
    "no trailing slash": lambda url: canonicalize_url(url).rstrip("/"),
    "no root": lambda url: "http://a.example" if url == "http://a.example" else canonicalize_url(url),
    "no tracking": lambda url: canonicalize_url(url).replace("utm_source=b", ""),
    "no dot at the host's end": lambda url: canonicalize_url(url).replace(".com./", ".com/"),
    "an equals sign is not added": lambda url: canonicalize_url(url).removesuffix("="),
    "NUL is decoded": lambda url: canonicalize_url(url).replace("%00", "\x00"),
    "long ones are cut": lambda url: canonicalize_url(url)[:600],
    "fails": lambda url: str(1 // 0),
}


@pytest.mark.parametrize("release", OTHER_RELEASES)
def test_the_canary_notices_a_release_with_another_rule(release: str) -> None:
    assert not agrees(Function(OTHER_RELEASES[release]))


def test_the_canary_notices_a_fingerprint_of_another_form() -> None:
    class Form(Function):
        def fingerprint(self, request: Request) -> bytes:
            return sha1(super().fingerprint(request)).digest()

    class NoBody(Function):
        def fingerprint(self, request: Request) -> bytes:
            return super().fingerprint(request.replace(body=b""))

    class NoMethod(Function):
        def fingerprint(self, request: Request) -> bytes:
            return super().fingerprint(request.replace(method="GET"))

    for kind in (Form, NoBody, NoMethod):
        assert not agrees(kind(canonicalize_url))


def test_every_character_and_escape_that_is_easy_is_met_by_an_easy_canary() -> None:
    easy = [request.url for request in canary_requests() if canonical(request.url) is not None]
    paths = "".join(target.partition("?")[0] for target in easy)
    queries = "".join(target.partition("?")[2] for target in easy)
    assert [] == [pair for pair in canonical_module._PATH_ESCAPES if f"%{pair}" not in paths]
    assert [] == [pair for pair in canonical_module._QUERY_ESCAPES if f"%{pair}" not in queries]
    assert [] == [char for char in canonical_module._PATH_PLAIN if char not in paths + "[]|"]
    assert [] == [char for char in canonical_module._QUERY_PLAIN if char not in queries]
    # `Request` escapes some of them, as `safe_url_string` does.
    raw = "".join(target for target in canary_urls() if canonical(target) is not None)
    assert [] == [char for char in "[]|" if char not in raw]
    assert 200 < len(easy) < 500


def test_a_patched_function_switches_the_fast_way_off_even_if_no_canary_notices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = fingerprint

    def patched(request: Request, **options: Any) -> bytes:
        return b"x" * 20 if "only.example" in request.url else original(request, **options)

    monkeypatch.setattr(scrapy_request, "fingerprint", patched)
    keys = RequestKeys(RequestFingerprinter())
    assert b"x" * 20 == keys.key(Request("http://only.example/"))
    assert not_easy is fast_way_of(RequestFingerprinter())


def test_a_patched_method_or_canonicalization_switches_the_fast_way_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def same(*args: Any, **options: Any) -> Any:
        return canonicalize_url(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(scrapy_request, "canonicalize_url", same)
        assert not_easy is fast_way_of(RequestFingerprinter())
    with monkeypatch.context() as patch:
        patch.setattr(scrapy_request, "canonicalize_url", same)
        patch.setattr(w3lib.url, "canonicalize_url", same)
        assert not_easy is fast_way_of(RequestFingerprinter())
    with monkeypatch.context() as patch:
        patch.setattr(RequestFingerprinter, "fingerprint", lambda self, request: fingerprint(request))
        assert not_easy is fast_way_of(RequestFingerprinter())
    own = RequestFingerprinter()
    own.fingerprint = lambda request: b"x" * 20  # type: ignore[method-assign]
    assert not_easy is fast_way_of(own)
    assert fast_fingerprint is fast_way_of(RequestFingerprinter())


def test_a_release_of_w3lib_that_disagrees_switches_the_fast_way_off(monkeypatch: pytest.MonkeyPatch) -> None:
    # What `canonicalize_url` calls, so that every function is the genuine one.
    assert fast_fingerprint is fast_way_of(RequestFingerprinter())
    code = w3lib.url.canonicalize_url.__code__
    other = (lambda url, keep_blank_values=True, keep_fragments=False, encoding=None, **more: url).__code__
    try:
        w3lib.url.canonicalize_url.__code__ = other
        keys = RequestKeys(RequestFingerprinter())
        request = Request("http://a.example/?b&a#c")
        assert fingerprint(request.replace()) == keys.key(request)
        assert not_easy is fast_way_of(RequestFingerprinter())
    finally:
        w3lib.url.canonicalize_url.__code__ = code


def test_a_fingerprinter_of_the_project_is_asked_for_every_request() -> None:
    assert not_easy is fast_way_of(Other())
    assert b"x" * 20 == RequestKeys(Other()).key(Request("http://a.example/"))


# Requests.


def test_a_key_is_the_fingerprint_whether_it_is_easy_or_not() -> None:
    keys = RequestKeys(RequestFingerprinter())
    for target in (
        "http://a.example/",
        "http://a.example/a/../b",
        "http://user@a.example/?b&a",
        "about:blank",
    ):
        assert fingerprint(Request(target)) == keys.key(Request(target))


def test_a_replaced_request_has_the_fingerprint_of_what_it_is_now() -> None:
    keys = RequestKeys(RequestFingerprinter())
    request = Request("http://a.example/?b=2&a=1")
    keys.key(request)
    for changes in (
        {"url": "http://b.example/"},
        {"method": "POST"},
        {"body": b"x"},
        {"meta": {"verbatim_url": 1}},
    ):
        changed = request.replace(**changes)
        assert fingerprint(changed) == keys.key(changed)
        assert fingerprint(changed.replace()) == keys.key(changed)


def test_a_form_request_has_the_fingerprint_of_scrapy() -> None:
    request = FormRequest("http://a.example/form", formdata={"b": "2", "a": "\u00e9"})
    assert fast_fingerprint(request) == fingerprint(request)


def test_a_url_or_body_of_an_odd_type_is_not_easy() -> None:
    request = Request("http://a.example/")
    request._url = b"http://a.example/"  # type: ignore[assignment]
    assert fast_fingerprint(request) is None
    request = Request("http://a.example/")
    request._body = bytearray(b"x")  # type: ignore[assignment]
    assert fast_fingerprint(request) is None
