"""Does the middleware drop what is not in the gate, and nothing else, wherever the text of a request is?"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from crawling import FollowAll, idle_crawler
from gates import build, torn
from kinds import name
from scrapy import Request
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.utils.misc import load_object

from scrapy_bloomdupe import GateMiddleware
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.gate.building import build_gate
from scrapy_bloomdupe.gatemiddleware import SharedGateMiddleware

SHOP = "https://shop.example/product"


def by_path(url: str) -> str | None:
    """A source of a project's own."""
    return url.rpartition("/")[2] or None


def failing(url: str) -> str | None:
    raise LookupError(url)


class Asked:
    """A middleware of a crawler that does not crawl."""

    def __init__(self, chance: float = 1.0, **settings: Any) -> None:
        self.crawler = idle_crawler(**settings)
        self.crawler.spider = FollowAll(start="[]")
        self.middleware = GateMiddleware(self.crawler, lambda: chance)

    def passes(self, url: str, response: Response | None = None, **options: Any) -> bool:
        request = Request(url, **options)
        return self.middleware.get_processed_request(request, response) is request

    def stats(self) -> dict[str, int]:
        assert self.crawler.stats is not None
        found = self.crawler.stats.get_stats()
        names = ("passed", "rejected", "sampled", "wrong", "no_value", "bypassed")
        counts = {name: found.get(f"bloomdupe/gate/{name}", 0) for name in names}
        counts = {name: count for name, count in counts.items() if count}
        if errors := found.get("bloomdupe/error/gate"):
            counts["errors"] = errors
        return counts


def gate(folder: Path, source: Any, rows: Any = ("1", "2"), **more: Any) -> dict[str, Any]:
    path = build(folder / "ids.gate", rows, **more.pop("options", {}))
    return {"file": str(path), "source": source, **more}


def test_an_id_of_the_query_is_asked_for(tmp_path: Path) -> None:
    asked = Asked(BLOOMDUPE_GATE=gate(tmp_path, "query:id"))
    assert asked.passes(f"{SHOP}?id=1")
    assert asked.passes(f"{SHOP}?x=7&id=%202")
    assert not asked.passes(f"{SHOP}?id=3")
    assert not asked.passes(f"{SHOP}?id=3", dont_filter=True)
    assert not asked.passes(f"{SHOP}?id=3", method="POST", body=b"x")
    assert {"passed": 2, "rejected": 3} == asked.stats()


def test_a_request_without_a_text_passes_and_is_counted(tmp_path: Path) -> None:
    asked = Asked(BLOOMDUPE_GATE=gate(tmp_path, "query:id", ["11"], options={"min_length": 2}))
    assert asked.passes(SHOP)
    assert asked.passes(f"{SHOP}?id=")
    # Nobody knows which.
    assert asked.passes(f"{SHOP}?id=33&id=44")
    assert asked.passes(f"{SHOP}?id=3")
    assert {"no_value": 4} == asked.stats()


@pytest.mark.parametrize(
    ("source", "row", "known", "unknown"),
    [
        (r"path:/item/(\d+)", "7", "https://shop.example/item/7", "https://shop.example/item/8"),
        (r"fragment:^!/(\d+)", "7", "https://shop.example/#!/7", "https://shop.example/#!/8"),
        (r"url:example/(\w+)$", "seven", "https://shop.example/Seven", "https://shop.example/eight"),
        (
            r"path:/w/([^/]+)$",
            "a&b/c %",
            "https://shop.example/w/a%26b%2Fc%20%25",
            "https://shop.example/w/a",
        ),
        (r"path:/w/([^/]+)$", "gr\xfcn", "https://shop.example/w/gr%C3%BCn", "https://shop.example/w/gr"),
        (r"path:/w/([^/]+)$", "7", "https://shop.example/w/%FF", "https://shop.example/w/8"),
        (r"url:(https?://\S+)", "https://a.example/%26", "https://a.example/%26", "https://a.example/&"),
        ("url", "https://shop.example/x", "https://shop.example/x", "https://shop.example/y"),
        (f"call:{__name__}:by_path", "tea pot", "https://shop.example/tea%20pot", "https://shop.example/cup"),
        (["query:id", r"path:/(\d+)"], "7", "https://shop.example/7?id=", "https://shop.example/8"),
    ],
)
def test_every_source_finds_its_text(tmp_path: Path, source: Any, row: str, known: str, unknown: str) -> None:
    rows = [row, "tea%20pot"]
    asked = Asked(BLOOMDUPE_GATE=gate(tmp_path, source, rows))
    assert asked.passes(known)
    assert not asked.passes(unknown)


def test_a_text_in_the_meta_may_be_a_number(tmp_path: Path) -> None:
    asked = Asked(BLOOMDUPE_GATE=gate(tmp_path, "meta:word", ["tea pot", "7"]))
    for word in ("Tea  Pot", 7, None, True):
        assert asked.passes(SHOP, meta={"word": word})
    for word in ("cup", 8):
        assert not asked.passes(SHOP, meta={"word": word})
    assert {"passed": 2, "rejected": 2, "no_value": 2} == asked.stats()


def test_urls_are_told_by_what_a_browser_sends(tmp_path: Path) -> None:
    rows = ["HTTPS://Shop.Example/café?b=1"]
    asked = Asked(BLOOMDUPE_GATE=gate(tmp_path, "url", rows, options={"steps": ["url"]}))
    assert asked.passes("https://shop.example/café?b=1")
    assert asked.passes("https://shop.example/caf%c3%a9?b=1#reviews")
    assert not asked.passes("https://shop.example/cafe?b=1")


def test_a_gate_of_urls_that_was_built_without_the_step_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Asked(BLOOMDUPE_GATE=gate(tmp_path, ["url"], options={"steps": ["url"]}))
    assert "" == "".join(record.getMessage() for record in caplog.records if record.levelno > logging.INFO)
    Asked(BLOOMDUPE_GATE=gate(tmp_path, ["url"]))
    assert "Build it with --steps url,trim" in caplog.records[-1].getMessage()


def test_a_match_says_which_urls_the_gate_is_for(tmp_path: Path) -> None:
    match = {"domain": "shop.example", "path": "/product*", "spider": "follow"}
    asked = Asked(BLOOMDUPE_GATE=gate(tmp_path, "query:id", match=match))
    assert not asked.passes(f"{SHOP}?id=3")
    assert not asked.passes("https://www.shop.example/product?id=3")
    assert asked.passes("https://shop.example/list?id=3")
    assert asked.passes("https://other.example/product?id=3")
    assert {"rejected": 2, "no_value": 2} == asked.stats()
    assert Asked(BLOOMDUPE_GATE={**gate(tmp_path, "query:id"), "match": {"spider": "another"}}).passes(
        f"{SHOP}?id=3"
    )


def test_a_request_can_be_kept_from_the_gate(tmp_path: Path) -> None:
    asked = Asked(BLOOMDUPE_GATE=gate(tmp_path, "query:id"))
    assert asked.passes(f"{SHOP}?id=3", meta={"bloomdupe_gate": False})
    assert {} == asked.stats()


def response_of(request: Request) -> Response:
    return Response(request.url, request=request)


def test_a_share_of_the_rejected_is_let_through_and_counted_as_wrong_if_it_brings_an_item(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"BLOOMDUPE_GATE": gate(tmp_path, "query:id"), "BLOOMDUPE_GATE_SAMPLE": 0.25}
    asked = Asked(chance=0.2, **settings)
    request = Request(f"{SHOP}?id=3")
    assert request is asked.middleware.get_processed_request(request, None)
    assert {"sampled": 1} == asked.stats()
    # A redirect and a retry copy the meta.
    response = response_of(request.replace(url=f"{SHOP}?id=3&again=1"))
    item = {"id": 3}
    assert item is asked.middleware.get_processed_item(item, response)
    assert item is asked.middleware.get_processed_item(item, response)
    assert {"sampled": 1, "wrong": 1} == asked.stats()
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert warning.startswith("Gate: '3' is not in it, and the page that was let through to see")
    assert not Asked(chance=0.3, **settings).passes(f"{SHOP}?id=3")


def test_a_copied_meta_makes_nothing_wrong(tmp_path: Path) -> None:
    asked = Asked(chance=0.0, BLOOMDUPE_GATE=gate(tmp_path, "query:id"), BLOOMDUPE_GATE_SAMPLE=1)
    sampled = Request(f"{SHOP}?id=3")
    asked.middleware.get_processed_request(sampled, None)
    follow = Request(f"{SHOP}?id=1", meta=sampled.meta)
    assert follow is asked.middleware.get_processed_request(follow, response_of(sampled))
    asked.middleware.get_processed_item({}, response_of(follow))
    asked.middleware.get_processed_item({}, response_of(Request(SHOP)))
    asked.middleware.get_processed_item({}, Response(SHOP))
    asked.middleware.get_processed_item({}, None)
    assert {"sampled": 1, "passed": 1} == asked.stats()


def test_a_source_that_fails_lets_pass_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(BLOOMDUPE_GATE=gate(tmp_path, f"call:{__name__}:failing"))
    assert asked.passes(f"{SHOP}?id=3")
    assert asked.passes(f"{SHOP}?id=4")
    assert {"bypassed": 2, "errors": 2} == asked.stats()
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert warning.startswith("Gate: its source failed")
    assert "https://shop.example/product?id=3" in warning


def test_a_gate_that_does_not_open_lets_all_pass_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = gate(tmp_path, "query:id")
    torn(tmp_path / "ids.gate")
    asked = Asked(BLOOMDUPE_GATE=settings)
    assert all(asked.passes(f"{SHOP}?id={number}") for number in range(50))
    assert {"bypassed": 50, "errors": 1} == asked.stats()
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert "until it can judge every request passes" in warning


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "url"}, "BLOOMDUPE_GATE = .* is not valid; it takes None, or a dict of `file`, `source`"),
        ({"file": "x", "source": "url", "rate": 1}, "is not valid"),
        ({"file": "x", "source": []}, "is not valid"),
        ({"file": "x", "source": [7]}, "is not valid"),
        (7, "is not valid"),
        ({"file": "redis://host", "source": "url"}, "BLOOMDUPE_GATE: a gate on a server needs `key`"),
        ({"file": "x", "source": "url", "key": "ids"}, "a gate in a file has no `key`"),
        ({"file": "redis://host:x", "source": "url", "key": "ids"}, "is not the URL of a server"),
        ({"file": "x", "source": "header:id"}, "source 'header:id' is not one of query, path"),
        ({"file": "x", "source": "meta:"}, "lacks the name"),
        ({"file": "x", "source": "query:"}, "source 'query:' is not one of"),
        ({"file": "x", "source": "path:("}, "path:\\("),
        ({"file": "x", "source": "call:no.such:thing"}, "no.such"),
        ({"file": "x", "source": "url", "match": {"hosts": "y"}}, "'hosts' is not known"),
    ],
)
def test_a_wrong_setting_is_refused_before_the_first_request(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Asked(BLOOMDUPE_GATE=given)


@pytest.mark.parametrize("sample", [-0.1, 1.5, "much"])
def test_a_wrong_share_is_refused(tmp_path: Path, sample: Any) -> None:
    with pytest.raises(ConfigurationError, match="it takes a share, 0 to 1"):
        Asked(BLOOMDUPE_GATE=gate(tmp_path, "url"), BLOOMDUPE_GATE_SAMPLE=sample)


def test_the_setting_can_be_given_as_json(tmp_path: Path) -> None:
    import json

    assert not Asked(BLOOMDUPE_GATE=json.dumps(gate(tmp_path, "query:id"))).passes(f"{SHOP}?id=3")


@pytest.mark.parametrize("nothing", [None, "", "None", {}])
def test_without_a_gate_the_middleware_is_not_there(nothing: Any) -> None:
    with pytest.raises(NotConfigured):
        Asked(BLOOMDUPE_GATE=nothing)


@pytest.mark.parametrize("kind", ["valkey", "valkey_bloom"])
def test_a_gate_on_a_server_is_asked(request: pytest.FixtureRequest, kind: str) -> None:
    url, key = request.getfixturevalue(kind).url, name()
    build_gate(url, ["1", "2"], key=key)
    given = {"file": url, "key": key, "source": "query:id"}
    asked = Asked(BLOOMDUPE_GATE=given)
    assert asked.passes(f"{SHOP}?id=1")
    assert not asked.passes(f"{SHOP}?id=3")
    assert {"passed": 1, "rejected": 1} == asked.stats()
    crawler = idle_crawler(BLOOMDUPE_GATE=given)
    assert isinstance(GateMiddleware.from_crawler(crawler), SharedGateMiddleware)


def test_the_addon_switches_it_on_where_there_is_a_gate(tmp_path: Path) -> None:
    addon = {"ADDONS": {"scrapy_bloomdupe.Addon": 500}}
    with_gate = idle_crawler(**addon, BLOOMDUPE_GATE=gate(tmp_path, "url")).settings["SPIDER_MIDDLEWARES"]
    assert GateMiddleware in [load_object(name) for name in with_gate]
    without = idle_crawler(**addon).settings["SPIDER_MIDDLEWARES"]
    assert GateMiddleware not in [load_object(name) for name in without]
