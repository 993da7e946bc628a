"""Which requests tell one fingerprinter from another? A fixed set of tricky ones.

Frozen: another set makes every state mismatch.
"""

from __future__ import annotations

from scrapy import Request

_CANARY_URLS = (
    # Query: order, repetition, blanks, separators, escapes in names and values.
    "http://example.com/?b=2&a=1",
    "http://example.com/?a=2&a=1",
    "http://example.com/?a=&b",
    "http://example.com/?a;b=1",
    "http://example.com/?&&a=1&",
    "http://example.com/?",
    "http://example.com/?a=b=c",
    "http://example.com/?q=a+b",
    "http://example.com/?q=a%20b",
    "http://example.com/?q=%2B%26%3D",
    "http://example.com/?q=%C4%E3",
    "http://example.com/?q=%e4%bd%a0",
    "http://example.com/?q=\u4f60\u597d",
    "http://example.com/?u=http%3A%2F%2Fexample.org%2F%3Fa%3D1",
    "http://example.com/?u=http://example.org/?a=1",
    "http://example.com/show?/category/3",
    # Path: escapes, dots, slashes, parameters, case.
    "http://example.com",
    "http://example.com/",
    "http://example.com/A/b",
    "http://example.com//a//b/",
    "http://example.com/a/../b/./c",
    "http://example.com/a%2Fb%3Fc%23d",
    "http://example.com/%7euser",
    "http://example.com/~user",
    "http://example.com/caf\u00e9",
    "http://example.com/caf%C3%A9",
    "http://example.com/caf%E9",
    "http://example.com/a%zz%",
    "http://example.com/a;x=1/b;y",
    "http://example.com/a b|c",
    "http://example.com/a%00b",
    # Host, port, user.
    "HTTP://EXAMPLE.com/",
    "https://example.com:443/",
    "http://example.com:80/",
    "http://example.com:8080/",
    "http://user:Pass@example.com/",
    "http://m\u00fcnchen.example/",
    "http://example.com./",
    "http://[2001:DB8::1]/",
    # Fragment.
    "http://example.com/#a",
    "http://example.com/#!/route",
    # Other schemes.
    "ftp://example.com/a",
    "data:text/plain,A",
)


def canary_requests() -> list[Request]:
    """Return the fixed set of tricky requests."""
    requests = [Request(url) for url in _CANARY_URLS]
    plain = "http://example.com/form?b=2&a=1"
    requests += [
        Request(plain, method="POST", body=b"a=1"),
        Request(plain, method="POST", body=b"\xff\x00"),
        Request(plain, method="post", body=b"a=1"),
        Request(plain, method="HEAD"),
        Request(plain, headers={"Accept-Language": "de", "Cookie": "a=1"}),
        Request(plain, cookies={"session": "1"}),
        Request(plain, meta={"verbatim_url": True}),
    ]
    return requests
