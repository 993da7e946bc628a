"""Which site do the crawls of ``crawls`` read? Pages full of links, from a process of its own.

``python linksite.py --links N --duplicates SHARE`` prints its port, then serves until its standard input
is closed. Page i of the breadth-first order shows N links; the pages that nobody linked to yet come in
the order of their numbers, the others lead to pages with lower ones, half of them to the menu. A page's
address is that of ``links_mix``, on this host.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer

from links_mix import MENU, number_of, page

#: Pages that can be under way at once, and more.
LAG = 64
FILLING = "<p>" + "What stands between the links of a page. " * 4 + "</p>"


@cache
def body(number: int, links: int, duplicates: float) -> bytes:
    """Return the HTML of a page; the first one links to the whole menu."""
    rng = random.Random(number)
    new = round(links * (1 - duplicates))
    first = MENU + number * new
    numbers = [*range(first, first + new)]
    # Pages come back out of order: what lies this far behind was linked to whatever the order.
    known = max(MENU, first - LAG * new)
    numbers += [rng.randrange(MENU if rng.random() < 0.5 else known) for _ in range(links - new)]
    rng.shuffle(numbers)
    targets = [page(i).target for i in (range(MENU) if number == 0 else ())]
    targets += [page(i).target for i in numbers]
    items = "".join(f'<li><a href="{html.escape(to)}">there</a>{FILLING}</li>' for to in targets)
    return f"<!doctype html><meta charset=utf-8><title>{number}</title><ul>{items}</ul>".encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in one packet, sent at once: else each answer waits for a delayed ACK.
    wbufsize = -1
    disable_nagle_algorithm = True
    links = 0
    duplicates = 0.0

    def do_GET(self) -> None:
        content = body(number_of(self.path) or 0, self.links, self.duplicates)
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        # HTTPServer asks the DNS for the name of the host.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


@contextlib.contextmanager
def link_site(links: int, duplicates: float) -> Iterator[str]:
    """Serve in a process of its own; give the address of the first page."""
    command = [sys.executable, str(Path(__file__).resolve())]
    command += ["--links", str(links), "--duplicates", str(duplicates)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield f"http://127.0.0.1:{port}{page(0).target}"
        finally:
            process.stdin.close()
            process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--links", type=int, required=True)
    parser.add_argument("--duplicates", type=float, required=True)
    arguments = parser.parse_args()
    Handler.links, Handler.duplicates = arguments.links, arguments.duplicates
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
