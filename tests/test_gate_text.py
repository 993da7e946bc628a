"""Does a text become the same key for who builds a gate and who asks it, whatever its spelling?"""

from __future__ import annotations

import sys
import unicodedata
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.gate.text import (
    DEFAULT_STEPS,
    STEPS,
    check_steps,
    digest,
    is_unassigned,
    normalizer,
    tables,
)

ANY = st.text(st.characters(exclude_categories=()), max_size=30)
#: What is likely to make trouble: marks that move, letters whose lower case is two, final sigma, spaces.
TRICKY = st.text(
    st.sampled_from(
        "aA\u03a3\u03c3\u03c2\u0391\u0130I\u0131\u00df\u1e9e\u017f\ufb01\u2460\uff34\u0307\u0323\u0301\u0345\u03d4"
        " \t\n\xa0\u3000\u2028\x1c\x85\ud800%"
    )
)
SELECTIONS = list(chain.from_iterable(combinations(STEPS, n) for n in range(len(STEPS) + 1)))


@pytest.mark.parametrize("steps", SELECTIONS, ids=",".join)
def test_every_selection_of_steps_is_idempotent_and_raises_on_no_text(steps: tuple[str, ...]) -> None:
    normalize = normalizer(steps)

    @given(ANY | TRICKY | TRICKY.map("http://É.example/{}?q=%C3%a9".format))
    def check(text: str) -> None:
        normal = normalize(text)
        assert normal == normalize(normal)
        assert 20 == len(digest(normal))

    check()


def test_every_character_is_the_same_after_the_default_steps_and_after_them_again() -> None:
    normalize = normalizer(DEFAULT_STEPS)
    changed = [
        code
        for code in range(sys.maxunicode + 1)
        if (normal := normalize(f"a{chr(code)}b")) != normalize(normal)
    ]
    assert [] == changed


@given(ANY | TRICKY)
def test_the_short_way_of_the_default_is_the_steps_one_by_one(text: str) -> None:
    by_step = text
    for name in ("nfkc", "lower", "nfkc", "collapse", "trim"):
        by_step = normalizer([name])(by_step)
    assert by_step == normalizer(DEFAULT_STEPS)(text)


@given(st.lists(ANY, max_size=5), st.sampled_from([" ", "\t", "\xa0", "\u3000", "\r\n", "\x1f "]))
def test_what_differs_in_case_width_and_space_only_has_one_key(words: list[str], space: str) -> None:
    normalize = normalizer(DEFAULT_STEPS)
    ascii_words = [word.encode("ascii", "ignore").decode() for word in words]
    wide = [
        "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in word.swapcase())
        for word in ascii_words
    ]
    assert normalize(" ".join(ascii_words)) == normalize(space + space.join(wide) + space)


def test_white_space_is_what_python_takes_for_it_in_every_step() -> None:
    spaces = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
    for space in spaces:
        assert "a b" == normalizer(["collapse"])(f"a{space}{space}b")
        assert "a b" == normalizer(["collapse", "trim"])(f"{space}a{space}b{space}")
        assert "a" == normalizer(["trim"])(f"{space}a{space}")
    # Frozen: another character among them would be another key.
    assert 29 == len(spaces)


@pytest.mark.parametrize(
    ("steps", "text", "expected"),
    [
        (DEFAULT_STEPS, "  Apple\u3000 iPhone\t15 ", "apple iphone 15"),
        (DEFAULT_STEPS, "ＡＢ①ﬁ", "ab1fi"),
        (DEFAULT_STEPS, "İstanbul", "i\u0307stanbul"),
        (("trim",), " A\u00a0B ", "A\u00a0B"),
        (("collapse",), " a \n b ", " a b "),
        (("lower",), "ＡÉ", "ａé"),
        (("nfkc",), "e\u0301", "é"),
        ((), " As It Is ", " As It Is "),
        (
            ("url",),
            "HTTP://Shop.Example:80/a/../%7ecafé?x=%c3%a9#top",
            "http://shop.example/~caf%C3%A9?x=%C3%A9",
        ),
        (("url",), "no url", "no url"),
    ],
)
def test_the_steps_do_what_their_names_say(steps: tuple[str, ...], text: str, expected: str) -> None:
    assert expected == normalizer(steps)(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "118544b9aa4b753c5ad15616795f178558de5c5f"),
        ("apple iphone 15", "31696de5c822575f243ce8744078808a8d968c2c"),
        ("café", "a4a67c474b13f2312f65433f0b52292ffc22c330"),
        ("\ud800", "e1c923484d1ecfef1f57422f43b5345dd8677e92"),
    ],
)
def test_the_key_of_a_text_is_frozen(text: str, expected: str) -> None:
    assert expected == digest(text).hex()


def test_steps_run_in_one_order_whatever_order_they_are_given_in() -> None:
    assert DEFAULT_STEPS == check_steps(["trim", "collapse", "lower", "nfkc", "trim"])
    assert ("url", "trim") == check_steps(["trim", "url"])
    assert ("trim",) == check_steps("trim")
    assert () == check_steps([])


def test_a_step_that_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match=r"'stem' is not known; there are url, nfkc, lower"):
        normalizer(["trim", "stem"])


def test_a_character_that_this_python_does_not_know_is_told() -> None:
    assert is_unassigned("a\u0378")
    for known in ("", "abc", "日本", "a\u200db", "tab\t", "\ud800", "\ue000"):
        assert not is_unassigned(known)


def test_the_tables_are_those_that_the_steps_look_up() -> None:
    assert unicodedata.unidata_version == tables(DEFAULT_STEPS)
    assert tables(STEPS).startswith(f"{unicodedata.unidata_version}+ada-url-")
