"""How is something waited for that knows no time limit?"""

from __future__ import annotations

import threading
from functools import partial

import pytest

from scrapy_bloomdupe.remote.deadline import Deadline, Overdue


def test_it_gives_what_the_work_gives_or_raises() -> None:
    deadline = Deadline("test")
    assert 3 == deadline.run(lambda: 1 + 2, 10)
    with pytest.raises(ZeroDivisionError):
        deadline.run(lambda: 1 // 0, 10)
    assert [4, 5] == [deadline.run(partial(int, text), 10) for text in ("4", "5")]
    deadline.close()
    deadline.close()
    assert 6 == deadline.run(lambda: 6, 10)
    deadline.close()


def test_what_hangs_is_left_behind_and_the_next_is_done() -> None:
    deadline = Deadline("test")
    go_on = threading.Event()
    with pytest.raises(Overdue, match=r"no answer in 0\.05 s"):
        deadline.run(go_on.wait, 0.05)
    assert "done" == deadline.run(lambda: "done", 10)
    go_on.set()
    deadline.close()
