"""Which server does a URL mean?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.remote.address import Address, hidden, is_address, parse


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://host", Address("single", (("host", 6379),))),
        ("valkey://host:7000/3", Address("single", (("host", 7000),), db=3)),
        ("redis://host?db=3", Address("single", (("host", 6379),), db=3)),
        ("REDIS://host", Address("single", (("host", 6379),))),
        ("redis://[::1]:7000", Address("single", (("::1", 7000),))),
        ("redis://[::1]", Address("single", (("::1", 6379),))),
        ("rediss://host", Address("single", (("host", 6379),), tls=True)),
        ("valkeys://host", Address("single", (("host", 6379),), tls=True)),
        ("redis://me:p%40s:w%2Fd@h", Address("single", (("h", 6379),), username="me", password="p@s:w/d")),
        ("redis://:secret@host", Address("single", (("host", 6379),), password="secret")),
        ("redis://host?password=a%26b", Address("single", (("host", 6379),), password="a&b")),
        ("unix:///run/valkey.sock?db=2", Address("unix", path="/run/valkey.sock", db=2)),
        (
            "redis+sentinel://a,b:1/main/4?sentinel_password=x",
            Address(
                "sentinel",
                (("a", 26379), ("b", 1)),
                service="main",
                db=4,
                sentinel_options={"password": "x"},
            ),
        ),
        ("redis+cluster://a:1,b", Address("cluster", (("a", 1), ("b", 6379)))),
        ("rediss+cluster://a", Address("cluster", (("a", 6379),), tls=True)),
        (
            "rediss://a?timeout=2&connect_timeout=0.1&failures=9&ssl_ca_certs=/ca.pem",
            Address(
                "single",
                (("a", 6379),),
                tls=True,
                timeout=2.0,
                connect_timeout=0.1,
                failures=9,
                tls_options={"ssl_ca_certs": "/ca.pem"},
            ),
        ),
    ],
)  # fmt: skip
def test_a_url_means_a_server(url: str, expected: Address) -> None:
    found = parse(url)
    assert expected == found
    assert is_address(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "http://host",
            "'http://host' is not the URL of a server; write for example 'redis://127.0.0.1:6379/0'",
        ),
        ("host:6379", "'host:6379' is not the URL of a server"),
        ("", "'' is not the URL of a server"),
        ("redis://host:0", "0 is not a port"),
        ("redis://host:99999", "99999 is not a port"),
        ("redis://host:port", "invalid literal for int"),
        ("redis://host/x", "invalid literal for int"),
        ("redis://a,b", "several hosts are a Cluster or Sentinel"),
        ("redis://host?colour=red", "'colour' is not an option; there are connect_timeout, db, failures"),
        ("redis://host?timeout=0", "timeouts have to be > 0 s, failures at least 1"),
        ("redis://host?failures=0", "timeouts have to be > 0 s, failures at least 1"),
        ("redis://host/-1", "db=-1 is below 0"),
        ("redis+cluster://a/1", "a Cluster has no database 1; leave the number out"),
        ("redis+sentinel://a", "the service that Sentinel watches is missing"),
        ("unix://", "it names no socket"),
        ("redis://", "it names no host"),
    ],
)
def test_what_means_no_server_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(url)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2@host",
        "redis://:hunter2@host:0",
        "redis://host?password=hunter2&colour=1",
        "redis+sentinel://a?sentinel_password=hunter2",
        "http://me:hunter2@host",
        "redis+sentinel://a/m?sentinel_password=hunter2",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    try:
        found = parse(url)
        shown = f"{found} {found!r}"
    except ConfigurationError as exc:
        shown = str(exc)
    assert "hunter2" not in shown
    assert "hunter2" not in hidden(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:pw@host?timeout=2", "redis://me:***@host:6379/0"),
        ("valkey://[::1]", "redis://[::1]:6379/0"),
        ("unix:///run/x.sock", "unix:///run/x.sock?db=0"),
        ("rediss+sentinel://a,b/main", "rediss+sentinel://a:26379,b:26379/main/0"),
    ],
)
def test_an_address_is_shown_as_a_url(url: str, shown: str) -> None:
    assert shown == str(parse(url))


@given(
    st.text(max_size=40)
    | st.text(max_size=40).map("redis://".__add__)
    | st.text(max_size=40).map("unix://".__add__)
)
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        found = parse(text)
    except ConfigurationError:
        return
    assert is_address(text)
    assert found == parse(text)


@pytest.mark.parametrize("value", [None, "", "seen.bloom", "/redis", 6379, "postgresql://host"])
def test_other_things_are_no_addresses(value: object) -> None:
    assert not is_address(value)
