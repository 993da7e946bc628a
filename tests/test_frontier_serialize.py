"""Does a request come back as it was written, and does a look at it run no code?"""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import Response
from scrapy.utils.request import request_from_dict

import scrapy_bloomdupe.frontier.serialize as serialize
from scrapy_bloomdupe.frontier.serialize import RequestReader, RequestWriter, Summary, peek


class Shop(Spider):
    name = "shop"

    def parse_item(self, response: Response) -> None: ...

    def failed(self, failure: Any) -> None: ...


SPIDER = Shop()
write = RequestWriter(SPIDER)
read = RequestReader(SPIDER)

FULL = FormRequest(
    "http://shop.example/search?q=1",
    method="POST",
    formdata={"page": "2"},
    headers={"X-Token": "abc"},
    cookies={"session": "1"},
    callback=SPIDER.parse_item,
    errback=SPIDER.failed,
    cb_kwargs={"page": 2},
    meta={"trail": [1, {"a": b"b"}], "tuple": (1, 2)},
    flags=["f"],
    priority=-7,
    dont_filter=True,
)


PLAIN = [
    Request("http://shop.example/"),
    Request("http://shop.example/", meta={"depth": 1}, callback=SPIDER.parse_item),
    Request("http://shop.example/", errback=SPIDER.failed, priority=3, dont_filter=True, encoding="latin-1"),
    Request("http://shop.example/", method="POST", body=b"a=1", headers={"X-Token": ["a", "b"]}),
    Request("http://shop.example/", cookies={"session": "1"}, flags=["f"], cb_kwargs={"page": 2}),
    Request("http://shop.example/", headers={}, cookies={}, meta={}, flags=[], cb_kwargs={}, body=b""),
]


@pytest.mark.parametrize("request_", PLAIN)
def test_a_plain_request_has_the_same_bytes_in_every_release_of_scrapy(request_: Request) -> None:
    expected = write._by_documented_names(request_)
    assert expected == write(request_)
    if hasattr(request_, "_headers"):  # Scrapy 2.19
        assert expected == write._by_kept_names(request_)
    assert request_.to_dict(spider=SPIDER) == read(expected).to_dict(spider=SPIDER)


@pytest.mark.parametrize("request_", PLAIN)
def test_a_request_is_restored_as_by_scrapys_own_constructor(request_: Request) -> None:
    data = write(request_)
    expected, found = request_from_dict(pickle.loads(data), spider=SPIDER), read(data)
    for name in Request.attributes:
        assert getattr(expected, name) == getattr(found, name)
    # It is a request like any other.
    assert expected.replace(url="http://shop.example/b").to_dict(spider=SPIDER) == found.replace(
        url="http://shop.example/b"
    ).to_dict(spider=SPIDER)
    found.meta["depth"], found.headers["X"] = 2, "y"
    assert (2, b"y") == (found.meta["depth"], found.headers["X"])


def test_a_request_comes_back_as_it_was() -> None:
    found = read(write(FULL))
    assert FormRequest is type(found)
    assert FULL.to_dict(spider=SPIDER) == found.to_dict(spider=SPIDER)
    assert SPIDER.parse_item == found.callback
    assert SPIDER.failed == found.errback


@pytest.mark.parametrize(
    "request_",
    [
        Request("http://shop.example/", callback=lambda response: None),
        Request("http://shop.example/", errback=lambda failure: None),
        Request("http://shop.example/", meta={"open": lambda: None}),
    ],
    ids=["lambda", "errback", "meta"],
)
def test_what_cannot_be_written_is_an_error(request_: Request) -> None:
    with pytest.raises(Exception, match=r"not an instance method|pickle"):
        write(request_)


@pytest.mark.parametrize("data", [write(FULL), write(PLAIN[1])], ids=["full", "plain"])
def test_a_callback_that_the_spider_lost_is_an_error(data: bytes) -> None:
    class Poorer(Spider):
        name = "shop"

    with pytest.raises(ValueError, match="parse_item"):
        RequestReader(Poorer())(data)


def test_a_look_shows_what_a_person_wants_to_know() -> None:
    summary = Summary("POST", "http://shop.example/search?q=1", "parse_item", -7)
    assert summary == peek(write(FULL))
    plain = Request("http://shop.example/ü")
    assert Summary("GET", "http://shop.example/%C3%BC", None, 0) == peek(write(plain))


class Evil:
    """Runs a command when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


class Stateful:
    """Has all that a pickle can call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Stateful, (self.path,), {"path": self.path}, iter([1, 2]), iter([(1, 2)])

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        (self.path.parent / "state").touch()

    def append(self, value: Any) -> None:
        (self.path.parent / "append").touch()

    def __setitem__(self, key: Any, value: Any) -> None:
        (self.path.parent / "setitem").touch()


@pytest.mark.parametrize("kind", [Evil, Stateful])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_look_runs_no_code(tmp_path: Path, kind: type, protocol: int) -> None:
    parts = {
        "method": "GET",
        "url": "http://shop.example/",
        "priority": 1,
        "meta": {"x": kind(tmp_path / "x")},
    }
    data = pickle.dumps(parts, protocol=protocol)
    assert Summary("GET", "http://shop.example/", None, 1) == peek(data)
    assert [] == list(tmp_path.iterdir())
    # It would have:
    pickle.loads(data)
    assert [] != list(tmp_path.iterdir())


def test_a_look_runs_no_code_whatever_it_stands_for(tmp_path: Path) -> None:
    for parts in (
        Evil(tmp_path / "x"),
        {"method": Evil(tmp_path / "x"), "url": Evil(tmp_path / "y"), "priority": 1},
        {"method": "GET", "url": "http://shop.example/", "priority": Evil(tmp_path / "x")},
    ):
        with suppress(ValueError):
            peek(pickle.dumps(parts, protocol=4))
    assert [] == list(tmp_path.iterdir())


@given(st.binary(max_size=60))
def test_a_look_at_any_bytes_is_a_summary_or_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        peek(data)


def test_a_look_at_a_cut_request_is_a_value_error() -> None:
    data = write(FULL)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="the request cannot be read"):
            peek(data[:length])


def test_the_protocol_is_that_of_scrapys_own_queues() -> None:
    assert 4 == serialize._PROTOCOL
    assert b"\x80\x04" == write(FULL)[:2]
