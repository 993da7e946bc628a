"""Which site do the tests crawl? One in a process of its own, that writes down what it answered.

``python mocksite.py --log FILE`` prints its address, then serves until its standard input is closed. It
knows no pages by heart: a path says how it wants to be answered, and starts with the name of the test
that asks (its area), so that many tests can share one server and its log.

============================ =====================================================================
``/AREA/tree/N/I``           page I of N; links to its children 2I+1 and 2I+2, and to pages that are
                             known already under several spellings
``/AREA/links?to=T&to=U``    a page with these links
``/AREA/many/N``             a page with links to N pages without links
``/AREA/cookie/N``           asks for N cookies, each by a redirect to itself, before it answers
``/AREA/visa``               asks for a cookie by a redirect to ``/AREA/office``, which sends back
``/AREA/Name``               (any upper case in the path) redirects to the path in lower case
``/AREA/...?next=U``         (with a parameter ``next``) redirects to U
``/AREA/loop/...``           redirects to itself, whatever comes
``/AREA/refresh/...``        a page with a meta refresh to itself
``/AREA/missing/...``        404
``/AREA/broken/...``         500 until the cookie ``mended`` is sent
``/AREA/form``               GET: a page; POST: a redirect to it
``/AREA/job/TREE/N``         page N of a tree for crawls that are killed, and what leads to it: see
                             ``killsite``
============================ =====================================================================

Anything else is a page without links.
"""

from __future__ import annotations

import argparse
import html
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import killsite

import scrapy_bloomdupe

TESTS = Path(__file__).resolve().parent
PACKAGE = Path(scrapy_bloomdupe.__file__).resolve().parent.parent

Headers = list[tuple[str, str]]
Answer = tuple[int, str, Headers]


def tree_links(size: int, number: int) -> list[str]:
    """The links of one page of a tree: relative, some of them repeated, all of them in the tree."""
    children = [str(child) for child in (2 * number + 1, 2 * number + 2) if child < size]
    again = [f"{(number - 1) // 2}#up", "0"] if number else []
    # What Scrapy takes for the same page: a fragment, a blank query, an escaped letter.
    same = [f"{number}#top", f"{number}?"]
    return [*children, *again, *same]


def answer(method: str, target: str, cookies: set[str]) -> Answer:
    """Status, body and headers for a request."""
    url = urlsplit(target)
    _, area, kind, *rest = [*url.path.split("/"), "", ""]
    here = f"/{area}/"
    if there := parse_qs(url.query).get("next"):
        return _redirect(there[0])
    match kind:
        case "tree":
            return 200, page(target, tree_links(int(rest[0]), int(rest[1]))), []
        case "links":
            return 200, page(target, parse_qs(url.query)["to"]), []
        case "many":
            return 200, page(target, [f"{here}page/{number}" for number in range(int(rest[0]))]), []
        case "cookie":
            return _cookie_wall(target, int(rest[0]), cookies)
        case "visa" if "visa" not in cookies:
            return _redirect(f"{here}office")
        case "office":
            return _redirect(f"{here}visa", [("Set-Cookie", f"visa=1; Path={here}")])
        case "loop":
            return _redirect(target)
        case "refresh":
            return 200, f'<meta http-equiv="refresh" content="0; url={html.escape(target)}">', []
        case "missing":
            return 404, page(target, []), []
        case "broken" if "mended" not in cookies:
            return 500, page(target, []), []
        case "form" if method == "POST":
            return _redirect(target)
        case _ if kind != kind.lower():
            return _redirect(target.lower())
    return 200, page(target, []), []


def page(title: str, links: Sequence[str]) -> str:
    items = "".join(f'<li><a href="{html.escape(link)}">there</a></li>' for link in links)
    return f"<!doctype html><title>{html.escape(title)}</title><ul>{items}</ul>"


def _cookie_wall(target: str, wanted: int, cookies: set[str]) -> Answer:
    for number in range(wanted):
        if f"c{number}" not in cookies:
            return _redirect(target, [("Set-Cookie", f"c{number}=1; Path={urlsplit(target).path}")])
    return 200, page(target, []), []


def _redirect(location: str, headers: Headers | None = None) -> Answer:
    return 302, "", [("Location", location), *(headers or [])]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0
    # Headers and body in one packet, sent at once: else each answer waits for a delayed ACK.
    wbufsize = -1
    disable_nagle_algorithm = True
    log_fd = -1

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

    def log_message(self, *args: object) -> None:
        """Quiet: what was answered stands in the file of ``--log``."""

    def _answer(self, sent: str = "") -> None:
        cookies = set(SimpleCookie(self.headers.get("Cookie", "")))
        if killsite.answers("".join(self.path.split("/")[2:3])):
            status, body, headers = killsite.answer(self.path, sent, cookies)
        else:
            status, body, headers = answer(self.command, self.path, cookies)
        # Before it is sent, in one write: who has the answer can rely on the line.
        os.write(self.log_fd, f"{self.command} {killsite.logged(self.path, sent)} {status}\n".encode())
        content = body.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    request_queue_size = 128

    def server_bind(self) -> None:
        # HTTPServer asks the DNS for the name of the host.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Who asked may have been killed.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@dataclass(frozen=True)
class Area:
    """The pages of one test. Paths are told without the area's own prefix."""

    url: str
    log: Path
    prefix: str
    #: Bytes of the log that are older than the area: tests look into it all the time.
    before: int = 0

    def at(self, path: str) -> str:
        return f"{self.url}{self.prefix}{path}"

    def links(self, *to: str) -> str:
        """The URL of a page that links to these paths."""
        return self.at("links?" + urlencode([("to", path) for path in to]))

    def answers(self) -> list[tuple[str, str, int]]:
        """Method, path and status of everything that was answered, in order."""
        with self.log.open("rb") as log:
            log.seek(self.before)
            lines = [line.split(" ") for line in log.read().decode().splitlines()]
        return [
            (method, target.removeprefix(self.prefix), int(status))
            for method, target, status in lines
            if target.startswith(self.prefix)
        ]

    def fetched(self) -> Counter[str]:
        """How often each path was answered; the pages of links are left out."""
        return Counter(path for _, path, _ in self.answers() if not path.startswith("links?"))


@dataclass(frozen=True)
class Site:
    url: str
    log: Path
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def area(self) -> Area:
        """Pages that nobody else asks for."""
        return Area(self.url, self.log, f"/a{next(self._numbers)}/", self.log.stat().st_size)


@contextmanager
def mock_site(folder: Path) -> Iterator[Site]:
    log = folder / "answered.log"
    command = [sys.executable, str(Path(__file__).resolve()), "--log", str(log)]
    with child(command, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Site(process.stdout.readline().strip(), log)


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a process that leaves no trace outside *folder*."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        "HOME": str(folder),
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(PACKAGE)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        # At the first cookie tldextract would ask the internet for the list of public suffixes.
        "TLDEXTRACT_CACHE": str(folder / "tldextract"),
        "TLDEXTRACT_PUBLIC_SUFFIX_LIST_URLS": "",
    }


@contextmanager
def child(command: Sequence[str], folder: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process in *folder* that does not outlive the block."""
    environment = os.environ | surroundings(folder)
    # A session of its own: Ctrl-C at a terminal reaches pytest alone, which then ends its children.
    options.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **options)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    log = parser.parse_args().log
    Handler.log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        # Closed when the one who started this ends, however he ends.
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
