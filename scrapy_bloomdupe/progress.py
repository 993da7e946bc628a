"""How far is a long command? A bar on the standard error."""

from __future__ import annotations

import sys
import time
from typing import Any


class Bar:
    """A progress bar on the standard error, by tqdm where it is installed, else a line now and then."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what, self._total = what, total
        self._next_line = time.monotonic() + 5
        try:
            from tqdm import tqdm
        except ImportError:
            self._bar: Any = None
        else:
            self._bar = tqdm(total=total, desc=what, unit=f" {unit}", unit_scale=True, disable=None)

    def reached(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + 5
            sys.stderr.write(f"{self._what}: {done:,} of {self._total:,}\n")

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
