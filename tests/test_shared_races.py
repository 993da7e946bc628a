"""Two workers ask for the same new keys at once: does each key belong to exactly one of them?"""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from conftest import StartPython
from kinds import key, name, store_url, url_for

from scrapy_bloomdupe.filters.redisbitmap import RedisBitmapFilter
from scrapy_bloomdupe.remote.client import connect

NUM_KEYS = 100_000

WORKER = """
import random
url, kind, prefix, seed, count = sys.argv[1:]
count = int(count)
if kind in ("bitmap", "redisbloom"):
    from scrapy_bloomdupe.filters.redis import open_filter
    from scrapy_bloomdupe.remote.client import connect
    it = open_filter(connect(url), prefix, kind=kind, capacity=count // 2, error_rate=1e-6)
    new = lambda keys: [not seen for seen in it.add_many(keys)]
elif kind.startswith("redis"):
    from scrapy_bloomdupe.stores.redis import RedisStore
    from scrapy_bloomdupe.remote.client import connect
    new = RedisStore.open(connect(url), prefix).add_many
else:
    from scrapy_bloomdupe.stores.sql import SqlStore
    new = SqlStore.open(url, prefix, timeout=60).add_many
# On the same page at the same time, each in an order of its own.
numbers = list(range(count))
generator = random.Random(int(seed))
pages = [numbers[start:start + 500] for start in range(0, count, 500)]
print("ready", flush=True)
sys.stdin.readline()
granted = bytearray(count)
tell, hear = (("one", "two") if seed == "0" else ("two", "one"))
tell, hear = os.open(tell, os.O_RDWR), os.open(hear, os.O_RDWR)
for page in pages:
    os.write(tell, b".")
    os.read(hear, 1)
    generator.shuffle(page)
    for start in range(0, len(page), 100):
        some = page[start:start + 100]
        for number, is_new in zip(some, new([key(number) for number in some])):
            granted[number] = is_new
Path(f"granted{seed}").write_bytes(granted)
print("done", flush=True)
"""


@pytest.mark.parametrize("kind", ["bitmap", "redisbloom", "redis", "redis-cluster", "postgresql", "sqlite"])
def test_each_key_is_granted_to_one_of_two_workers(
    kind: str, start_python: StartPython, tmp_path: Any, request: pytest.FixtureRequest
) -> None:
    count = NUM_KEYS
    if kind == "sqlite":
        url, count = f"sqlite:///{tmp_path}/seen.db", NUM_KEYS // 5  # one writer at a time
    else:
        url = (store_url if kind == "postgresql" else url_for)(kind, request)  # type: ignore[operator]
    prefix = name()
    for pipe in ("one", "two"):
        os.mkfifo(tmp_path / pipe)
    workers = [start_python(WORKER, url, kind, prefix, seed, count) for seed in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        assert "ready\n" == worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.stdout is not None
        assert "done\n" == worker.stdout.readline()
    one, two = ((tmp_path / f"granted{seed}").read_bytes() for seed in range(2))
    both = sum(a and b for a, b in zip(one, two, strict=True))
    none = sum(not (a or b) for a, b in zip(one, two, strict=True))
    assert 0 == both
    # A filter calls a new key seen now and then, here one in 10^6: more than five of 10^5 are never seen. A
    # store never does.
    assert none <= (5 if kind in ("bitmap", "redisbloom") else 0)


def test_a_filter_may_be_used_by_several_threads(request: pytest.FixtureRequest) -> None:
    server = connect(url_for("bitmap", request))
    found = RedisBitmapFilter.open(server, name(), capacity=500, error_rate=1e-9)
    granted: list[list[bool]] = [[] for _ in range(4)]

    def work(answers: list[bool]) -> None:
        for number in range(0, 4000, 50):
            answers += found.add_many([key(one) for one in range(number, number + 50)])

    threads = [threading.Thread(target=work, args=(answers,)) for answers in granted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [3] * 4000 == [sum(answers) for answers in zip(*granted, strict=True)]
    server.close()
