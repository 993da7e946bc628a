"""Which requests tell whether the fast fingerprint is Scrapy's? Each thing that it does, alone and together.

Not frozen: nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from scrapy import Request

#: Methods of which the fast fingerprint is tried.
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS")

_SITE = "http://a.example"
_ASCII = [chr(code) for code in range(0x20, 0x7F)]
# Each byte, in both cases and mixed ones.
_ESCAPES = sorted({f"%{a}{b}" for a in "0123456789ABCDEFabcdef" for b in "0123456789ABCDEFabcdef"})

_ORIGINS = (
    "http://example.com",
    "https://example.com",
    "HTTP://Example.COM",
    "http://example.com:80",
    "https://example.com:443",
    "http://example.com:8080",
    "http://example.com:",
    "http://example.com:080",
    "http://example.com:0",
    "http://example.com:65535",
    "http://user:Pa%73s@example.com",
    "http://@example.com",
    "http://m\u00fcnchen.example",
    "http://xn--mnchen-3ya.example",
    "http://192.168.0.1",
    "http://0x7f.1",
    "http://[2001:DB8::1]",
    "http://[2001:db8::1]:81",
    "http://a_b.example",
    "http://example.com.",
    "http://a..b",
    "http://-a.b-",
    f"http://{'x' * 64}.example",
    f"http://{'x' * 300}.example",
    "ftp://example.com",
)
_PATHS = (
    "", "/", "//", "//a//b/", "/a", "/A/b.html", "/a.", "/a..", "/.a", "/..a", "/.", "/..", "/./a",
    "/a/./b", "/a/../b", "/a/..", "/a/.", "/%2e/a", "/a/%2E%2e/b", "/a;", "/a;b", "/a;b/c", "/a;b=1;c",
    "/a%3B", "/a%3bb", "/;", "/a%2Fb%3fc%23d", "/%7Euser", "/caf\u00e9", "/caf%E9", "/%C3%a9", "/a%",
    "/a%4", "/a%zz%", "/%%41", "/%%25", "/%2%35", "/a%25", "/%2541", "/%252F", "/%252fa", "/a|b", "/a[0]",
    "/a b", "/a+b", "/a%20b", "/'", "/a:80", "/@", "/http://b.example/", "/a\\b", "/a\tb", '/"a"', "/<a>",
    "/{a}", "/%00", "/%0a", "/%7f",
)  # fmt: skip
_QUERIES = (
    "", "a", "a=", "=", "=a", "==", "a==", "a=b=c", "a=b=", "&", "&&", "&a", "a&", "&a=1&&b=2&", "a&b",
    "b&a", "a=1", "b=2&a=1", "a=2&a=1", "a=1&a=1", "a=&a", "a&a=", "a=b&a", "a=%20&a=%20", "a=+&a=%2B",
    "a=%2B&a=+", "a+=1&a=2", "a=2&a+=1", "a%20=1&a-=2&a=3", "a-=1&a=2", "a.=1&a=2", "a0=1&a=2", "a!=1&a=2",
    "a%21=1&a=2", "a%25=1&a=2", "aa=1&a=2&A=3", "a~=1&a=2", "a=~&a=%7E", "%61=1&a=0", "b=1&%61=2",
    "%E4=1&z=2", "z=%E4&z=~", "z=~&z=%E4", "a=%5B&a=b", "a=%5b&a=B", "a[0]=1&a[1]=0&a=3",
    "a%5B%5D=2&a%5B%5D=1", "a%5b1%5d=1&a%5B0%5D=2", "f[x]=b&f[x]=a", "\u4f60=\u597d&a=b", "q=\u597d",
    "q=%e4%bd%a0", "q=%C4", "q=%", "q=%4", "q=%zz&a=%", "%=1", "q=%%41", "q=%25", "q=%2541",
    "u=http://b.example/?x=1", "u=http%3A%2F%2Fb.example%2F%3fx%3D1%26y", "a;b=1", "a=1;b=2", ";",
    "a;&b;=;", "show?/category/3", "a?b", "?", "a=1?b=2", "/../a", "a=/./", "q=a b", "q=a%20b", "q='a'",
    "q=a,b", "q=(a)*!$@", "q=a|b", "q=[]", "q={}", 'q="', "q=<>", "q=\\", "q=^`", "q=%00&q=%01", "q=\t",
    "a%3D=1&a=2", "a=%3D&a=%26", "a=x%3dy", "a%26b=1", "utm_source=b&utm_medium=a&id=5", "A=1&a=1&B=2&b=2",
    "a=10&a=9&a=1", "a=%31&a=2&a=0", "a+b=1&a%20b=0", "a=b+c&a=b%20a", "__=1&_=2",
    "-=1&_=2&.=3&~=4&+=5&0=6",
)  # fmt: skip
_FRAGMENTS = ("#", "#a", "#!/a?b=1&c", "#%41", "#a#b", "# a", "#\u00e9", '#"\\')


def canary_urls() -> Iterator[str]:
    """Yield some hundred URLs, among them every character and escape at every place."""
    for origin in _ORIGINS:
        yield f"{origin}/a?b=2&a=1"
    yield from (f"{_SITE}{path}" for path in _PATHS)
    yield from (f"{_SITE}/p?{query}" for query in _QUERIES)
    yield from (f"{_SITE}{start}{fragment}" for start in ("", "/p", "/?b=1&a=2") for fragment in _FRAGMENTS)
    yield from (_SITE, f"{_SITE}?", f"{_SITE}?b=1&a", f"{_SITE}#a?b/c", f"{_SITE}?a/b#c?d", f"{_SITE}?/")
    # One by one, as one that is not easy hides the others.
    for char in _ASCII:
        yield f"{_SITE}/x{char}y?x{char}y&a{char}=b{char}"
    # Their order, that of the `=`, which is above some and below others, and that of a byte that is no ASCII.
    some = [f"%{byte:02X}" for byte in (*range(0x1F, 0x80), 0xE4)]
    yield f"{_SITE}/p?" + "&".join(f"a{escape}=1" for escape in some) + "&a=2&az=3"
    yield f"{_SITE}/p?" + "&".join(f"a=b{escape}" for escape in some) + "&a=b&a=bz"
    easy_in_path = [escape for escape in _ESCAPES if escape.lower() not in ("%2e", "%3b", "%25")]
    yield f"{_SITE}/" + "x".join(easy_in_path)
    yield f"{_SITE}/p?" + "x".join(_ESCAPES)
    for order in permutations(("b=1", "a=%E4", "a=z", "%62=0")):
        yield f"{_SITE}/p?{'&'.join(order)}"
    yield f"{_SITE}/p?" + "&".join(f"p{7 * i % 101}={i}" for i in range(100))
    yield f"{_SITE}/{'long/' * 100}?{'q=long&' * 100}"


def canary_requests() -> Iterator[Request]:
    """Yield requests with those URLs, and others with methods, bodies, headers and meta."""
    for url in canary_urls():
        yield Request(url)
    form = f"{_SITE}/form?b=2&a=1"
    for method in (*METHODS, "post", "TRACE", "X-\u00c4", 'G"T'):
        yield Request(form, method=method)
        yield Request(form, method=method, body=b"a=1\xff\x00")
    yield Request(form, body="\u00e9", encoding="latin-1")
    yield Request(form, headers={"Accept-Language": "de"}, cookies={"a": "1"})
    yield Request(f"{_SITE}/?q=\u00e9", encoding="latin-1")
    for verbatim in (True, False):
        yield Request(form, meta={"verbatim_url": verbatim})
    yield Request("http://A.example/%7e#x", meta={"verbatim_url": True})
    yield Request("about:blank")
    yield Request("data:text/plain,A")
