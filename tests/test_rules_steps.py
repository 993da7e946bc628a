"""Does each step do what its name says, leave alone what it does not know, and raise on nothing?"""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules import steps
from scrapy_bloomdupe.rules.presets import KINDS, PRESETS, pipeline

SESSION = "0123456789abcdef0123"

EXAMPLES = [
    ("parse", "HTTP://EX.com:80/a/../b", "http://ex.com/b"),
    ("parse", "http:\\\\ex.com\\a", "http://ex.com/a"),
    ("parse", " http://ex.com/a\tb\nc ", "http://ex.com/abc"),
    ("parse", "http://ex.com:99999/", "http://ex.com:99999/"),
    ("parse", "no url", "no url"),
    ("parse", "http://ex.com/\ud800", "http://ex.com/%ED%A0%80"),
    ("percent", "http://ex.com/%7e%c3%a9%2f", "http://ex.com/~%C3%A9%2F"),
    ("percent", "http://ex.com/%%32F?a=%", "http://ex.com/%252F?a=%25"),
    ("percent", "http://ex.com/%252f", "http://ex.com/%252f"),
    ("percent", "http://a%7Eb@ex.com/", "http://a%7Eb@ex.com/"),
    ("percent", "data:,%7e", "data:,%7e"),
    ("decode_path", "http://ex.com/a%2Fb%2C?c=%2C", "http://ex.com/a/b,?c=%2C"),
    ("decode_path", "http://ex.com/a%252Fb%00", "http://ex.com/a%252Fb%00"),
    ("host_dot", "http://ex.com./a", "http://ex.com/a"),
    ("host_dot", "http://u@ex.com.:81/", "http://u@ex.com:81/"),
    ("host_dot", "http://./", "http://./"),
    ("strip_www", "http://www.ex.com/", "http://ex.com/"),
    ("strip_www", "http://www.www.ex.com:8/", "http://ex.com:8/"),
    ("strip_www", "http://www.com/", "http://www.com/"),
    ("strip_www", "http://www.a.1/", "http://www.a.1/"),
    ("collapse_slashes", "http://ex.com//a///b", "http://ex.com/a/b"),
    ("collapse_slashes", "http://ex.com/http://b//c", "http://ex.com/http://b/c"),
    ("lower_path", "http://ex.com/A%C3%89É?Q=A", "http://ex.com/a%C3%89É?Q=A"),
    ("drop_index", "http://ex.com/a/Index.HTML?b", "http://ex.com/a/?b"),
    ("drop_index", "http://ex.com/default.aspx", "http://ex.com/"),
    ("drop_index", "http://ex.com/index.html//index.php/", "http://ex.com/"),
    ("drop_index", "http://ex.com/myindex.html", "http://ex.com/myindex.html"),
    ("trailing_slash", "http://ex.com/a//", "http://ex.com/a"),
    ("trailing_slash", "http://ex.com/", "http://ex.com/"),
    ("session_ids", f"http://ex.com/a;jsessionid={SESSION}?b", "http://ex.com/a?b"),
    ("session_ids", f"http://ex.com/?sid={SESSION}&PHPSESSID={SESSION}&a=1", "http://ex.com/?a=1"),
    ("session_ids", "http://ex.com/?sid=7", "http://ex.com/?sid=7"),
    ("session_ids", "http://ex.com/?sid=abcdefghijklmnopqrst", "http://ex.com/?sid=abcdefghijklmnopqrst"),
    ("session_ids", f"http://ex.com/?user={SESSION}", f"http://ex.com/?user={SESSION}"),
    ("session_ids", f"http://ex.com/..;sid={SESSION}/a", f"http://ex.com/..;sid={SESSION}/a"),
    ("empty_pairs", "http://ex.com/?&a=1&&b&", "http://ex.com/?a=1&b"),
    ("empty_pairs", "http://ex.com/?&", "http://ex.com/"),
    ("drop_empty_params", "http://ex.com/?a&b=&c=1", "http://ex.com/?c=1"),
    ("equal_blanks", "http://ex.com/?a&b=", "http://ex.com/?a=&b="),
    ("plus_space", "http://ex.com/a+b?c+d=e+f", "http://ex.com/a+b?c%20d=e%20f"),
    ("form_escapes", "http://ex.com/%3A?u=http%3A%2F%2Fb%3D%26", "http://ex.com/%3A?u=http://b%3D%26"),
    ("sort_params", "http://ex.com/?b=2&a=2&b=1&a=1", "http://ex.com/?a=2&a=1&b=2&b=1"),
    ("lone_query", "http://ex.com/?", "http://ex.com/"),
    ("lone_query", "http://ex.com/?#a", "http://ex.com/#a"),
    ("drop_fragment", "http://ex.com/#!a", "http://ex.com/"),
    ("drop_plain_fragment", "http://ex.com/#a", "http://ex.com/"),
    ("drop_plain_fragment", "http://ex.com/#!a", "http://ex.com/#!a"),
    ("drop_plain_fragment", "http://ex.com/#/a", "http://ex.com/#/a"),
    ("https_to_http", "https://ex.com/", "http://ex.com/"),
    ("https_to_http", "https://u:p@ex.com/", "http://u:p@ex.com/"),
    ("https_to_http", "https://ex.com:8443/", "https://ex.com:8443/"),
    ("https_to_http", "https://[::1]/", "http://[::1]/"),
    ("drop_params:a,utm_*", "http://ex.com/?a=1&b=2&utm_x=3&A=4", "http://ex.com/?b=2&A=4"),
    ("drop_params:tracking", "http://ex.com/?gclid=1&ref=2&%75tm_x=3", "http://ex.com/?ref=2"),
    ("drop_params:a b", "http://ex.com/?a+b=1&a%20b=2", "http://ex.com/"),
    ("keep_params:id, p*", "http://ex.com/?id=1&page=2&x=3", "http://ex.com/?id=1&page=2"),
]

STARTS = (
    "http://ex.com/", "https://ex.com/", "http://", "HTTP://WWW.Ex.com", "http:/x", "http:\\\\ex.com\\",
    "https://www.ex.com/a?", "http://ex.com./", "ftp://ex.com/", "foo://h/", "foo:", "file:///", "mailto:",
    "", "http://u:p@ex.com:8080/", "http://[::1]/", "//", "http:///", "javascript:", "http://www.1/",
)  # fmt: skip
NASTY = (
    "%%32F", "%25", "2F", "%2F", "%", "%2", "%E4%BD", "%C4%E3", "\ud800", "\udfff", "\x00", "\x1f", "\t",
    "\n", "//", "////", "/", "\\", "/./", "/../", "/%2e%2e/", "/..;/", "index.html", "/index.html//",
    "/default.asp", "www.", "www.www.", "ex.com", ".", "..", f";jsessionid={SESSION}", f"sid={SESSION}",
    "sid=7", "&", "=", "?", "#", "#!", "#/", "+", "%20", " ", "A", "é", "例子", "。", "xn--", "@", ":",
    ":80", ":99999", "[::1]", "0x7f.1", "1", "utm_source=x", "a=1", "a=2", "id=5", ";", "|", "'", '"', "<",
    "%7E", "%61", "%00", "%0A", "İ", "\u200d", "\ufeff", "%EF%BB%BF", "https://", "amp;", "%26", "%3D",
    "%3F", "%23", "%3B", "%2B", "[", "]", "%40", "!", "*", ",",
)  # fmt: skip
ALL_STEPS = [
    *(name for name in KINDS if name not in ("call", "drop_params", "keep_params")),
    "drop_params:tracking",
    "drop_params:a,utm_*",
    "keep_params:id,a*",
]
STEPS = {name: pipeline(name).steps[0] for name in ALL_STEPS}


def fuzzed(seed: int, count: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(count):
        pieces = (
            chance.choice(NASTY) if chance.random() < 0.93 else chr(chance.randrange(0x110000))
            for _ in range(chance.randrange(1, 9))
        )
        yield chance.choice(STARTS) + "".join(pieces)


@pytest.mark.parametrize(("name", "url", "expected"), EXAMPLES)
def test_a_step_does_to_a_url_what_its_table_says(name: str, url: str, expected: str) -> None:
    step = pipeline(name).steps[0]
    assert expected == step(url)
    assert expected == step(expected)


def test_every_step_has_an_example() -> None:
    assert {"call"} == set(KINDS) - {name.partition(":")[0] for name, _, _ in EXAMPLES}


@given(st.text())
def test_no_text_makes_a_step_raise(text: str) -> None:
    for url in (text, f"http://{text}", f"http://ex.com/{text}", f"http://ex.com/?{text}"):
        for name in ALL_STEPS:
            step = STEPS[name]
            assert step(url) == step(step(url)), (name, url)


@pytest.mark.parametrize("name", [name for name in ALL_STEPS if name != "parse"])
@pytest.mark.parametrize("url", ["", "?", "mailto:A@ex.com?", "javascript:a#B", "data:,a%7e?&#x", "/a//b"])
def test_what_has_no_authority_stays_as_it_is(name: str, url: str) -> None:
    assert url == pipeline(name)(url)


# 17,000 for each of six presets are over 100,000.
@pytest.mark.parametrize(("seed", "preset"), list(enumerate(PRESETS)))
def test_a_preset_changes_nothing_the_second_time(seed: int, preset: str) -> None:
    canonical = pipeline(preset)
    for url in fuzzed(seed, 17_000):
        once = canonical(url)
        assert once == canonical(once), url


def test_no_selection_of_steps_changes_anything_the_second_time() -> None:
    chance = random.Random(99)
    for number in range(300):
        names = chance.sample(ALL_STEPS, chance.randrange(1, 8))
        canonical = pipeline(names)
        for url in fuzzed(1_000 + number, 50):
            once = canonical(url)
            assert once == canonical(once), (names, url)


def test_without_the_library_parse_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_normalize", None)
    assert not steps.can_parse()
    with pytest.raises(ConfigurationError, match=r"ada-url; run `pip install scrapy-bloomdupe\[rules\]`"):
        pipeline("safe")
    assert "http://ex.com/" == pipeline("drop_fragment")("http://ex.com/#a")


def meaning(url: str, *, form: bool) -> object:
    """Return the bytes that a server gets, cut at the delimiters before they are decoded.

    Args:
        form: the query as a form: its order of names, empty pieces, and how a space is written do not matter.
    """
    parts = urlsplit(steps.parse(url))
    path = [unquote_to_bytes(piece) for piece in parts.path.split("/")]
    query = parts.query.replace("+", "%20") if form else parts.query
    pieces = [tuple(unquote_to_bytes(side) for side in piece.split("=")) for piece in query.split("&")]
    if form:
        pieces = sorted((piece for piece in pieces if piece != (b"",)), key=lambda piece: piece[0])
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port, path, pieces


def dense(seed: int, count: int) -> Iterator[str]:
    """Give URLs of so few pieces that many of them mean the same."""
    chance = random.Random(seed)
    pieces = (
        "a",
        "%61",
        "b",
        "%62",
        "/",
        "%2F",
        "%2f",
        "&",
        "%26",
        "=",
        "%3D",
        "?",
        "%3F",
        "+",
        "%2B",
        "%20",
    )
    pieces += ("%", "%25", "2F", "61", ";", "%3B", ".", "%2e", "%C4", "%c4", ":", "%3A", "%00", "\\", "%5C")
    for _ in range(count):
        yield "http://ex.com/" + "".join(chance.choice(pieces) for _ in range(chance.randrange(1, 6)))


@pytest.mark.parametrize(("preset", "form"), [("safe", False), ("usual", True), ("tmall", True)])
def test_what_becomes_one_means_the_same_bytes_to_a_server(preset: str, form: bool) -> None:
    canonical = pipeline(preset)
    found: dict[str, str] = {}
    merged = 0
    for url in dense(7, 20_000):
        other = found.setdefault(canonical(url), url)
        if other != url:
            merged += 1
            assert meaning(other, form=form) == meaning(url, form=form), (other, url)
    assert merged > 3_000
