"""Are the fingerprints those of scrapy-redis 0.8 and later, so that what it has seen is known?"""

from __future__ import annotations

import pytest
from crawling import filtering
from scrapy import Request
from scrapy.utils.request import fingerprint

from scrapy_bloomdupe import ScrapyRedisFingerprinter

# What scrapy-redis 0.9.1 makes of them.
KNOWN = [
    (Request("http://shop.example/?b=2&a=1#part"), "e4813796625fd1acbfdac61735c13ba7091f466e"),
    (
        Request("http://shop.example/?a=1&b=2", method="POST", body=b"\x00\xff"),
        "65d62c652c073157cb60ec5e1bcdf1659571fcf9",
    ),
    (Request("http://shop.example/caf\u00e9?q=%7e x"), "82c5e0863aaecb40b8691d4370e8602544341dac"),
    (Request("http://shop.example/", headers={"Cookie": "a=1"}), "e9c2053a8421efb7eb386bd39ffa68308436c8d9"),
    (Request("data:,text"), "35260e1bec91f59eea29dd084340158abc9a4604"),
]


@pytest.mark.parametrize(("request_", "made"), KNOWN, ids=str)
def test_it_makes_what_scrapy_redis_makes_and_scrapy_does_not(request_: Request, made: str) -> None:
    ours = ScrapyRedisFingerprinter()
    assert [made, made] == [ours.fingerprint(request_).hex() for _ in range(2)]
    assert made != fingerprint(request_).hex()


def test_a_crawl_can_be_told_to_use_it() -> None:
    with filtering(None, REQUEST_FINGERPRINTER_CLASS="scrapy_bloomdupe.ScrapyRedisFingerprinter") as (
        ours,
        _,
    ):
        assert [False, True, False] == [
            ours.request_seen(Request(url))
            for url in ("http://a.example/?b=1&a=2", "http://a.example/?a=2&b=1", "http://b.example/")
        ]
