"""Do the eight bytes of a key say when, where and by which rule it was seen, for ever the same?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.stamps import SIZE, host_of, stamp, tag, tags_of, time_of

NOW = 1_764_500_000.75


def test_the_bytes_of_format_1_are_frozen() -> None:
    assert "20222c69e1570000" == stamp(NOW, "https://shop.example/list?page=2", None).hex()
    assert "20222c69e157cca7" == stamp(NOW, "http://u:p@Shop.Example.:8080", "lists").hex()
    assert "20222c6900000000" == stamp(NOW, "", None).hex()


def test_what_was_put_in_is_read_again() -> None:
    value = stamp(NOW, "https://shop.example/list", "lists")
    assert (SIZE, 1_764_500_000) == (len(value), time_of(value))
    assert (tag("shop.example"), tag("lists")) == tags_of(value)


def test_of_a_key_of_an_older_release_nothing_is_known() -> None:
    assert (None, (0, 0)) == (time_of(b""), tags_of(b""))


def test_no_name_has_no_tag_and_every_name_has_one() -> None:
    assert 0 == tag("")
    tags = [tag(f"host{number}.example") for number in range(10_000)]
    assert (True, True) == (min(tags) >= 1, max(tags) < 2**16)
    # 10,000 names in 65,535 places: 9,277 different ones are expected.
    assert 9_100 < len(set(tags)) < 9_450


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("a.example", "http://a.example"),
        ("a.example", "http://A.Example./x"),
        ("a.example", "https://u:p@a.example:8443/x?y=http://b.example/"),
        ("a.example", "http://a.example?x/y"),
        ("a.example", "http://a.example#x@y"),
        ("[::1]", "http://[::1]:8080/x"),
        ("", "data:,x"),
        ("", ""),
    ],
)
def test_the_host_is_without_user_and_port_and_in_lower_case(host: str, url: str) -> None:
    assert host == host_of(url)
    assert tag(host) == tags_of(stamp(NOW, url, None))[0]


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.none() | st.text())
def test_any_text_and_any_time_make_eight_bytes(now: float, url: str, rule: str | None) -> None:
    assert SIZE == len(stamp(now, url, rule))
    assert 0 <= (time_of(stamp(now, f"http://{url}", rule)) or 0) < 2**32
