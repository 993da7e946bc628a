"""Is the id found where the key says, the right one, and never one that two pages share?"""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.rules.ruleset import Decision, RuleSet
from scrapy_bloomdupe.rules.text import TEXT_STEPS

HERE = f"call:{__name__}"
BASE = "http://ex.com"


def by_call(url: str) -> str | None:
    return url.rpartition("-")[2] if "-" in url else None


def by_broken_call(url: str) -> str | None:
    raise RuntimeError(f"no id in {url}")


def rules(sources: str | list[str] = "query:id", missing: str = "url", **key: Any) -> RuleSet:
    return RuleSet.load(rules=[{"name": "r", "missing": missing, "key": {"sources": sources, **key}}])


def decided(url: str, *args: Any, **key: Any) -> Decision:
    return rules(*args, **key).decide(url)


def values(url: str, *args: Any, **key: Any) -> list[str] | None:
    """Return id and further values of the only rule, None: it found no id."""
    decision = decided(url, *args, **key)
    if decision.source is None:
        return None
    rest, found = decision.key.removeprefix("v1|r|"), []
    while rest:
        length, _, rest = rest.partition(":")
        found.append(rest[: int(length)])
        rest = rest[int(length) + 1 :]
    return found


@pytest.mark.parametrize(
    ("source", "url", "expected"),
    [
        ("query:id", f"{BASE}/?id=7", ["7"]),
        ("query:id", f"{BASE}/?mi_id=1&user_id=2&id=7&cat_id=3", ["7"]),
        ("query:id", f"{BASE}/?%69d=%37", ["7"]),
        ("query:id", f"{BASE}/?a=1&amp;id=7", ["7"]),
        ("query:id", f"{BASE}/?id=a+b%2Bc", ["a b+c"]),
        ("query:id", f"{BASE}/?ID=7", None),
        ("query:id", f"{BASE}/?id=", None),
        ("query:id", f"{BASE}/?id", None),
        ("query:id", f"{BASE}/#?id=7", None),
        ("query:id", f"{BASE}/id=7", None),
        ("query:id", "mailto:a@ex.com?id=7", None),
        (r"path:/p/(\d+)", f"{BASE}/p/7?id=8", ["7"]),
        (r"path:\d+", f"{BASE}/p/7", ["7"]),
        (r"path:/(?:p-(\d+)|q-(\d+))", f"{BASE}/q-7", ["7"]),
        (r"path:/p/(\d+)", f"{BASE}/?p=/p/7", None),
        (r"path:/p/(\w+)", f"{BASE}/p/%E4%BD%A0", None),
        (r"path:/p/([^/]+)", f"{BASE}/p/%E4%BD%A0", ["你"]),
        (r"path:/p/([^/]+)/([^/]+)", f"{BASE}/p/a/b", ["a/b"]),
        (r"fragment:id=(\d+)", f"{BASE}/#id=7", ["7"]),
        (r"fragment:id=(\d+)", f"{BASE}/#/page?id=7", ["7"]),
        (r"fragment:id=(\d+)", f"{BASE}/?id=7", None),
        (r"url:ex\.com/(\d+)$", "HTTP://EX.COM/7#top", ["7"]),
        (f"{HERE}:by_call", f"{BASE}/a-7", ["7"]),
        (f"{HERE}:by_call", f"{BASE}/a", None),
    ],
)
def test_a_source_finds_its_id_and_no_other(source: str, url: str, expected: list[str] | None) -> None:
    assert expected == values(url, source)


def test_sources_are_tried_in_their_order() -> None:
    sources = ["query:a", "query:b", r"path:/(\d+)"]
    assert ["1"] == values(f"{BASE}/3?b=2&a=1", sources)
    assert ["2"] == values(f"{BASE}/3?b=2", sources)
    assert "path:/(\\d+)" == decided(f"{BASE}/3", sources).source
    assert ["3"] == values(f"{BASE}/3?a=x&b=", sources, pattern=r"\d+")


def test_a_callable_that_raises_is_not_taken_for_a_page_without_an_id() -> None:
    with pytest.raises(RuntimeError, match=f"no id in {BASE}/"):
        decided(BASE, f"{HERE}:by_broken_call")


def test_what_cannot_be_imported_is_named_with_rule_and_source() -> None:
    with pytest.raises(ConfigurationError, match=r"rule 'r': source 'call:no\.such:f': .*cannot be imported"):
        rules("call:no.such:f")
    with pytest.raises(ConfigurationError, match="rule 'r': text step 'shout' is not known; there are strip"):
        rules(text="shout")


@pytest.mark.parametrize("missing", ["url", "drop", "keep", "next"])
def test_a_repeated_parameter_with_two_values_leaves_the_url_as_key(missing: str) -> None:
    decision = decided(f"{BASE}/?id=1&id=2", missing=missing)
    assert ("key", None, "r") == (decision.action, decision.rule, decision.missed)
    assert f"v1|url|{len(BASE) + 11}:{BASE}/?id=1&id=2" == decision.key


@pytest.mark.parametrize(
    ("repeated", "query", "expected"),
    [
        ("reject", "id=1&id=1", ["1"]),
        ("reject", "id=&id=1&id", ["1"]),
        ("reject", "id=1&%69d=%31", ["1"]),
        ("reject", "id=1&amp;id=2", None),
        ("first", "id=1&id=2", ["1"]),
        ("first", "id=&id=2", ["2"]),
        ("last", "id=1&id=2", ["2"]),
        ("last", "id=1&id=", ["1"]),
    ],
)
def test_a_repeated_parameter_is_read_as_the_key_says(
    repeated: str, query: str, expected: list[str] | None
) -> None:
    assert expected == values(f"{BASE}/?{query}", repeated=repeated)


def test_another_source_may_decide_what_a_repeated_parameter_leaves_open() -> None:
    assert ["7"] == values(f"{BASE}/7?id=1&id=2", ["query:id", r"path:/(\d+)"])


def test_names_are_read_in_any_case_if_the_key_says_so() -> None:
    assert ["7"] == values(f"{BASE}/?ID=7", ignore_case=True)
    assert ["7", "8"] == values(f"{BASE}/?Id=7&SKUid=8", "query:ID", ignore_case=True, also="skuId")
    assert values(f"{BASE}/?id=7&ID=8", ignore_case=True) is None


def test_further_parameters_tell_pages_apart() -> None:
    both = {"also": ["skuId", "v"]}
    assert ["7", "8", ""] == values(f"{BASE}/?id=7&skuId=8", **both)
    assert ["7", "", "8"] == values(f"{BASE}/?id=7&v=8", **both)
    assert values(f"{BASE}/?skuId=8", **both) is None
    assert values(f"{BASE}/?id=7&skuId=8&skuId=9", **both) is None


def test_a_gbk_site_and_a_utf8_site_meet_in_the_text() -> None:
    name = {"sources": "query:q", "namespace": "word"}
    found = RuleSet.load(
        rules=[
            {"name": "old", "match": {"host": "old.ex.com"}, "key": {**name, "encoding": "gbk"}},
            {"name": "new", "match": {"host": "new.ex.com"}, "key": name},
        ]
    )
    expected = "v1|word|2:你好"
    assert expected == found.decide("http://old.ex.com/?q=%C4%E3%BA%C3").key
    assert expected == found.decide("http://new.ex.com/?q=%E4%BD%A0%E5%A5%BD").key
    assert expected == found.decide("http://new.ex.com/?q=你好").key
    assert "v1|word|6:%C4%E3" == found.decide("http://new.ex.com/?q=%C4%E3").key


def test_bytes_that_are_none_of_the_encoding_stay_escaped() -> None:
    assert ["%FF"] == values(f"{BASE}/?id=%ff", encoding="gbk")
    assert ["%C4"] == values(f"{BASE}/%C4", r"path:/([^/]+)")
    assert ["%C4", "%C5"] == values(f"{BASE}/?id=%C4&v=%C5", also="v")


@pytest.mark.parametrize(
    ("source", "one", "other"),
    [
        ("query:id", "?id=%C4", "?id=%25C4"),
        ("query:id", "?id=%2541", "?id=A"),
        ("query:id", "?id=a%26b", "?id=a&b"),
        ("query:id", "?id=a%00", "?id=a"),
        ("path:/(.+)", "a%2Fb", "a/b"),
        ("path:/(.+)", "a%2Bb", "a+b"),
        ("path:/(.+)", "%C4", "%25C4"),
        ("path:/(.+)", "a%3Bb", "a;b"),
        ("path:/(.+)/x/(.+)", "a/b/x/c", "a/x/b/c"),
        ("path:/(.+)/x/(.+)", "a/b/x/c", "a%2Fb/x/c"),
        ("url:com/(.+)", "?a=1%26b=2", "?a=1&b=2"),
        ("url:com/(.+)", "a%3Fb", "a?b"),
        ("url:com/(.+)", "?a%3Db=1", "?a=b=1"),
    ],
)
def test_different_values_never_become_one(source: str, one: str, other: str) -> None:
    found = rules(source)
    first, second = found.decide(f"{BASE}/{one}"), found.decide(f"{BASE}/{other}")
    assert source == first.source
    assert first.key != second.key
    assert first.digest() != second.digest()


@pytest.mark.parametrize("value", ["1|2:ab", "7|1:8", "1:7", "|", "7|POST|", "\n"])
def test_no_value_can_look_like_two(value: str) -> None:
    from urllib.parse import quote

    assert [value, ""] == values(f"{BASE}/?id={quote(value, safe='')}", also="v")
    assert ["7", value] == values(f"{BASE}/?id=7&v={quote(value, safe='')}", also="v")


def test_a_value_that_is_too_short_or_of_another_shape_is_none() -> None:
    assert values(f"{BASE}/?id=1234567", min_length=8) is None
    assert ["12345678"] == values(f"{BASE}/?id=12345678", min_length=8)
    assert values(f"{BASE}/?id=7a", pattern=r"\d+") is None
    assert values(f"{BASE}/?id=7%0A", pattern=r"\d+") is None
    assert ["7"] == values(f"{BASE}/?id=%207%0A", pattern=r"\d+", text="strip")
    assert values(f"{BASE}/?id={'7' * 4097}") is None
    assert ["7" * 4096] == values(f"{BASE}/?id={'7' * 4096}")


@pytest.mark.parametrize(
    ("step", "text", "expected"),
    [
        ("strip", " a b\n", "a b"),
        ("nfkc", "ｅ①ﬁ", "e1fi"),
        ("lower", "AbÉ", "abé"),
        ("upper", "aBé", "ABÉ"),
        ("collapse_ws", "a \t\n b", "a b"),
        ("strip_zeros", "0070", "70"),
        ("strip_zeros", "000", "0"),
        ("strip_zeros", "", ""),
    ],
)
def test_a_text_step_makes_values_alike(step: str, text: str, expected: str) -> None:
    assert expected == TEXT_STEPS[step](text)
    assert expected == TEXT_STEPS[step](expected)


def test_text_steps_run_in_the_order_in_which_they_are_named() -> None:
    assert ["7"] == values(f"{BASE}/?id=%20007%20", text=["strip", "strip_zeros"])
    assert ["007"] == values(f"{BASE}/?id=%20007%20", text=["strip_zeros", "strip"])
