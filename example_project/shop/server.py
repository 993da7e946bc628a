"""How is the shop served? By a process of its own: `python -m shop.server --port 0`.

It prints one line with its address as soon as it can be asked, then nothing more. Asked as a proxy
(`GET http://detail.tmall.com/...`) it shows `shop.tmall` and asks no other server. It listens on
loopback only, keeps connections alive, and ends by itself after `--lifetime` seconds if nobody ends
it before.
"""

from __future__ import annotations

import argparse
import html
import os
import sys
import threading
import time
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import NamedTuple

from shop.site import Ask, Page, Shop
from shop.tmall import Tmall

MAX_BODY = 10_000  # bytes; the search form sends about twenty


class Answer(NamedTuple):
    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = ()


class ShopServer(ThreadingHTTPServer):
    """Serves one shop.

    Args:
        delay: seconds that every answer takes longer than it must, at least 0.
        log: file that gets one line per answer: method, target, status, body of the request.
    """

    request_queue_size = 128

    def __init__(self, port: int, shop: Shop, delay: float = 0.0, log: Path | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.shop = shop
        self.tmall = Tmall()
        self.delay = delay
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._failed: set[Ask] = set()
        self._lock = threading.Lock()

    def server_bind(self) -> None:
        # HTTPServer.server_bind asks the DNS for the host's name, which nobody here wants to know.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def fails_now(self, ask: Ask) -> bool:
        """True for the first request of each page that fails once."""
        with self._lock:
            first = ask not in self._failed
            self._failed.add(ask)
        return first

    def log(self, method: str, target: str, status: int, body: str) -> None:
        if self._log is not None:
            # One write, to a file opened for appending: lines of two threads do not mix.
            os.write(self._log, f"{method} {target} {status} {body}\n".encode())


class Handler(BaseHTTPRequestHandler):
    server: ShopServer
    protocol_version = "HTTP/1.1"
    timeout = 60.0  # seconds that an idle connection is kept
    # Headers and body in one packet, sent at once: else each answer waits for a delayed ACK.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > MAX_BODY:
            self.close_connection = True
            self._send(Answer(413, "too much"), "")
            return
        self._answer(self.rfile.read(int(size)).decode("utf-8", "replace"))

    def log_message(self, *args: object, **kwargs: object) -> None:
        """Quiet: what was asked for stands in the file of `--log`."""

    def _answer(self, body: str) -> None:
        if self.server.delay:
            time.sleep(self.server.delay)
        try:
            ask = Ask.of(self.path, self.command, body)
            # The absolute form is how a proxy is asked (RFC 9112 section 3.2.2).
            proxied = self.path.startswith("http://")
            page = self.server.tmall.page(self.path) if proxied else self.server.shop.page(ask)
        except ValueError:
            self._send(Answer(400, "not understood"), body)
            return
        self._send(Answer(404, "nothing here") if page is None else self._show(ask, page), body)

    def _show(self, ask: Ask, page: Page) -> Answer:
        if page.location is not None:
            return Answer(302, "this way", (("Location", page.location),))
        if page.fails_once and self.server.fails_now(ask):
            return Answer(503, "out for lunch")
        if page.cookie is not None and page.cookie not in self._cookies():
            cookie = ("Set-Cookie", f"{page.cookie}=yes; Path={ask.path}")
            return Answer(302, "have a cookie", (("Location", page.via or self.path), cookie))
        return Answer(200, render(page))

    def _cookies(self) -> SimpleCookie:
        try:
            return SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return SimpleCookie()

    def _send(self, answer: Answer, request_body: str) -> None:
        # Logged before it is sent: who has the answer can rely on the line being there.
        self.server.log(self.command, self.path, answer.status, request_body)
        content = answer.body.encode()
        self.send_response(answer.status)
        for header, value in answer.headers:
            self.send_header(header, value)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def read_log(path: Path) -> list[Ask]:
    """What was answered, in order, from the file of `--log`; nothing if there is no file yet."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    parts = (line.split(" ", 3) for line in lines)
    return [Ask.of(target, method, body) for method, target, _status, body in parts]


def read_targets(path: Path) -> list[str]:
    """The targets of all requests answered, as they were sent, hosts included if it was a proxy."""
    return [line.split(" ", 3)[1] for line in path.read_text(encoding="utf-8").splitlines()]


def render(page: Page) -> str:
    """The page as HTML."""
    product = "" if page.product is None else f' data-product="{page.product}"'
    links = "".join(f'<li><a href="{html.escape(link)}">see</a></li>\n' for link in page.links)
    options = "".join(f'<option value="{html.escape(word)}">' for word in page.words)
    form = f'<form method="post" action="/search"><select name="word">{options}</select></form>'
    title = html.escape(page.title)
    head = f"<!doctype html>\n<title>{title}</title>\n<h1{product}>{title}</h1>\n"
    return f"{head}<ul>\n{links}</ul>\n{form if options else ''}\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m shop.server", description="Serve the shop.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds added to each answer")
    parser.add_argument("--log", type=Path, help="file that gets a line per answer")
    parser.add_argument("--lifetime", type=float, default=3600.0, help="seconds; default 3600")
    args = parser.parse_args(argv)
    try:
        server = ShopServer(args.port, Shop(), args.delay, args.log)
    except OSError as exc:
        parser.error(f"cannot open at port {args.port} with log {args.log}: {exc}")
    with server:
        closing_time = threading.Timer(args.lifetime, server.shutdown)
        closing_time.daemon = True
        closing_time.start()
        print(f"The shop is open at {server.url}", flush=True)
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            print("The shop is closed.", flush=True)
        closing_time.cancel()
    return 0


if __name__ == "__main__":
    sys.exit(main())
