"""Are the hosts with the most duplicates found, in bounded room, and how wrong can a count be?"""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.tophosts import EXACT, SCALE, TopHosts


def test_the_first_duplicates_are_counted_one_by_one() -> None:
    hosts = TopHosts()
    for i in range(EXACT - 1):
        hosts.add(f"https://h{i % 3}.example/{i}")
    assert [("h0.example", 3_333), ("h1.example", 3_333), ("h2.example", 3_333)] == hosts.top(3)
    assert 0 == hosts.slack


def test_user_names_queries_and_capitals_make_no_host_of_their_own() -> None:
    hosts = TopHosts()
    for url in ("http://me:secret@H.example:8080/a", "http://h.example:8080?q", "https://h.example:8080#f"):
        hosts.add(url)
    assert [("h.example:8080", 3)] == hosts.top(5)


@given(st.text(), st.integers(1, 5))
def test_no_url_is_too_strange(url: str, room: int) -> None:
    hosts = TopHosts(room)
    hosts.add(url)
    hosts.add("http:///" + url)
    hosts.add("data:," + url)
    assert len(hosts.top(9)) <= 2


def test_with_more_hosts_than_room_the_large_ones_are_found_and_no_count_lacks_more_than_the_slack() -> None:
    rng = random.Random(5)
    true: Counter[str] = Counter()
    hosts = TopHosts(room=20)
    for _ in range(EXACT - 1):
        name = f"big{rng.randrange(5)}" if rng.random() < 0.6 else f"small{rng.randrange(5_000)}"
        true[name] += 1
        hosts.add(f"http://{name}/x")
    found = dict(hosts.top(20))
    assert len(found) <= 20
    assert {f"big{i}" for i in range(5)} == {name for name, _ in hosts.top(5)}
    assert hosts.slack <= EXACT / 21
    assert all(true[name] - hosts.slack <= count <= true[name] for name, count in found.items())


def test_later_ones_are_sampled_without_a_bias() -> None:
    hosts = TopHosts()
    # In step with the scale: what a regular sample would get wrong.
    for i in range(400_000):
        hosts.add("http://a.example/" if i % SCALE else "http://b.example/")
    found = dict(hosts.top(2))
    for name, true in (("a.example", 375_000), ("b.example", 25_000)):
        # Three standard deviations; the seed is fixed.
        assert abs(found[name] - true) <= 12 * true**0.5


def test_a_later_run_goes_on_from_an_earlier_one() -> None:
    hosts = TopHosts()
    hosts.seed([("a.example", 5), ("b.example", 2)], 1)
    hosts.add("http://b.example/")
    assert ([("a.example", 5), ("b.example", 3)], 1) == (hosts.top(2), hosts.slack)
