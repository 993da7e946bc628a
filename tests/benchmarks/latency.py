"""How far away is a server? A TCP proxy in a process of its own that holds back every answer for a while.

``python latency.py PORT SECONDS`` prints the port it listens on, then serves until its standard input is
closed. What comes in one piece goes out in one piece, so much later; pieces do not wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_PIECE = 1 << 16


async def _serve(target: int, seconds: float) -> None:
    async def connected(near: asyncio.StreamReader, nearer: asyncio.StreamWriter) -> None:
        far, farther = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(_pass(near, farther, 0.0), _pass(far, nearer, seconds))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
    """Give on what comes, *seconds* after it came."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):
        while piece := await source.read(_PIECE):
            if seconds:
                loop.call_later(seconds, sink.write, piece)
            else:
                sink.write(piece)
    loop.call_later(seconds, sink.close)


@contextlib.contextmanager
def far_away(url: str, seconds: float) -> Iterator[str]:
    """Give the URL of the server at *url*, on this machine, as if each answer took *seconds* longer."""
    command = [sys.executable, str(Path(__file__).resolve()), url.rpartition(":")[2], str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"redis://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(30)


if __name__ == "__main__":
    # What still waits is dropped: whoever asked has gone.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
