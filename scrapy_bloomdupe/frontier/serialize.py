"""Serialized requests: a pickle of the request's dictionary, as in Scrapy's own disk queues.

``RequestWriter`` writes them, ``RequestReader`` restores them, ``peek`` reads a summary. A pickle can run
code when it is loaded, so a job directory must be trusted, as Scrapy's own must be; ``peek`` loads plain
values only.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy import Request, Spider

# What Scrapy's queues use, so that both can or cannot write the same requests.
_PROTOCOL = 4
_EMPTY_BY_DEFAULT = ("body", "cookies", "meta", "priority", "dont_filter", "flags", "cb_kwargs")
# Where Scrapy 2.19 keeps them: the documented names would make what is empty, headers and all.
_KEPT = ("_url", "_headers", "_body", "_cookies", "_meta", "_flags", "_cb_kwargs", "_encoding")
# What the writer below knows of a request. An attribute that a later Scrapy adds must not be dropped.
_KNOWN = {"url", "callback", "errback", "method", "headers", "encoding", *_EMPTY_BY_DEFAULT}


class RequestWriter:
    """Writes requests of *spider*, a plain ``Request`` without what has its default value.

    Subclasses, and all requests where Scrapy's ``Request.attributes`` has a name that is not known here, are
    written by their own ``to_dict``.
    """

    def __init__(self, spider: Spider) -> None:
        # Not at the top: `bloomdupe pending` does without Scrapy.
        from scrapy import Request

        self._spider = spider
        self._request = Request
        self._plain = Request if set(Request.attributes) <= _KNOWN else None
        # By function; Scrapy goes through all members of the spider for every request.
        self._names: dict[Any, str] = {}
        kept = all(hasattr(Request("data:,"), name) for name in _KEPT)
        self._write = self._by_kept_names if kept else self._by_documented_names

    def __call__(self, request: Request) -> bytes:
        """Return the bytes of *request*.

        Raises:
            Exception: it cannot be serialized: a callback that is no method of the spider, a value that
                cannot be pickled.
        """
        if type(request) is not self._plain:
            return pickle.dumps(request.to_dict(spider=self._spider), protocol=_PROTOCOL)
        return self._write(request)

    def _by_documented_names(self, request: Request) -> bytes:
        parts: dict[str, Any] = {"url": request.url}
        if request.callback is not None:
            parts["callback"] = self._name(request.callback)
        if request.errback is not None:
            parts["errback"] = self._name(request.errback)
        if request.method != "GET":
            parts["method"] = request.method
        if headers := request.headers:
            parts["headers"] = dict(headers)
        for name in _EMPTY_BY_DEFAULT:
            if value := getattr(request, name):
                parts[name] = value
        if request.encoding != "utf-8":
            parts["encoding"] = request.encoding
        return pickle.dumps(parts, protocol=_PROTOCOL)

    def _by_kept_names(self, request: Any) -> bytes:
        parts: dict[str, Any] = {"url": request._url}
        if (callback := request.callback) is not None:
            parts["callback"] = self._name(callback)
        if request.errback is not None:
            parts["errback"] = self._name(request.errback)
        if request.method != "GET":
            parts["method"] = request.method
        if request._headers:
            parts["headers"] = dict(request._headers)
        if request._body:
            parts["body"] = request._body
        if request._cookies:
            parts["cookies"] = request._cookies
        if request._meta:
            parts["meta"] = request._meta
        if request.priority:
            parts["priority"] = request.priority
        if request.dont_filter:
            parts["dont_filter"] = request.dont_filter
        if request._flags:
            parts["flags"] = request._flags
        if request._cb_kwargs:
            parts["cb_kwargs"] = request._cb_kwargs
        if request._encoding != "utf-8":
            parts["encoding"] = request._encoding
        return pickle.dumps(parts, protocol=_PROTOCOL)

    def _name(self, method: Any) -> str:
        function = getattr(method, "__func__", None)
        name = self._names.get(function)
        if name is None or method.__self__ is not self._spider:
            found = self._request("data:,", callback=method).to_dict(spider=self._spider)
            name = self._names[function] = str(found["callback"])
        return name


class RequestReader:
    """Restores requests for *spider*.

    Scrapy's constructor escapes the URL of a request once more, which takes most of the time of restoring it.
    Where a plain request has the attributes that are known here (Scrapy 2.19) they are set one by one
    instead.
    """

    def __init__(self, spider: Spider) -> None:
        from scrapy import Request
        from scrapy.http import Headers

        self._spider = spider
        self._plain, self._headers = Request, Headers
        names = set(getattr(Request, "__slots__", ())) - {"__weakref__"}
        self._is_known = names == {*_KEPT, "callback", "errback", "method", "priority", "dont_filter"}

    def __call__(self, data: bytes) -> Request:
        """Return the request that ``RequestWriter`` wrote.

        Raises:
            Exception: it cannot be restored: the spider lacks a method, a class is gone.
        """
        parts = pickle.loads(data)
        if not self._is_known or not _KNOWN.issuperset(parts):
            from scrapy.utils.request import request_from_dict

            return request_from_dict(parts, spider=self._spider)
        get = parts.get
        request: Any = self._plain.__new__(self._plain)
        request._url = parts["url"]
        request._encoding = encoding = get("encoding", "utf-8")
        headers = get("headers")
        request._headers = self._headers(headers, encoding=encoding) if headers else None
        request._body = get("body", b"")
        request._cookies = get("cookies") or None
        request._meta = get("meta") or None
        request._flags = get("flags") or None
        request._cb_kwargs = get("cb_kwargs") or None
        request.method = get("method", "GET")
        request.priority = get("priority", 0)
        request.dont_filter = get("dont_filter", False)
        request.callback = self._method(get("callback"))
        request.errback = self._method(get("errback"))
        return request  # type: ignore[no-any-return]

    def _method(self, name: str | None) -> Any:
        if not name:
            return None
        try:
            return getattr(self._spider, name)
        except AttributeError as exc:
            raise ValueError(f"the spider {self._spider.name!r} has no method {name!r}") from exc


@dataclass(frozen=True)
class Summary:
    """What a person wants to know of a request."""

    method: str
    url: str
    callback: str | None
    priority: int


def peek(data: bytes) -> Summary:
    """Return what stands in the bytes of a request, without running code of it.

    Raises:
        ValueError: they cannot be read.
    """
    try:
        found = _Plain(io.BytesIO(data)).load()
        callback = found.get("callback")
        priority, method = int(found.get("priority", 0)), str(found.get("method", "GET"))
        return Summary(method, str(found["url"]), callback and str(callback), priority)
    except Exception as exc:
        raise ValueError(f"the request cannot be read: {exc}") from exc


class _Placeholder:
    """Stands for an object of a class that is not loaded."""

    def __new__(cls, *args: Any, **kwargs: Any) -> _Placeholder:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> _Placeholder:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Placeholder
