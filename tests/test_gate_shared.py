"""Does a gate on a server judge as one in a file does, for all who ask it, and reject nothing in doubt?"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartPython
from gates import UNKNOWN, Clock, Told, judges, passes_everything
from kinds import name
from servers import Valkey

from scrapy_bloomdupe.errors import (
    ConfigurationError,
    RemoteUnavailable,
    StateLocked,
    StateMismatch,
    StateNotFound,
)
from scrapy_bloomdupe.gate.alias import Alias
from scrapy_bloomdupe.gate.building import build_gate
from scrapy_bloomdupe.gate.gate import Answer, Gate
from scrapy_bloomdupe.gate.sharedbuilding import add_to_shared_gate, build_shared_gate
from scrapy_bloomdupe.remote.client import Server, connect


@pytest.fixture(params=["valkey", "valkey_bloom"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    found: Valkey = request.getfixturevalue(request.param)
    server = connect(f"{found.url}?timeout=10")
    yield server
    server.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Valkey]:
    """A server that a test may kill."""
    with Valkey(tmp_path) as found:
        yield found


def url(server: Server) -> str:
    host, port = server.address.hosts[0]
    return f"redis://{host}:{port}/0?timeout=10"


def opened(server: Server, key: str, **options: Any) -> tuple[Gate, Told]:
    told = Told()
    return Gate.open(url(server), key=key, on_problem=told, **options), told


def add(server: Server, key: str, *texts: str) -> int:
    return add_to_shared_gate(server, key, texts)


def test_no_valid_key_is_rejected_and_nearly_all_others_are(server: Server) -> None:
    key = name()
    valid = [f"Key  {number}" for number in range(20_000)]
    report = build_gate(url(server), valid, key=key)
    assert (1, 20_000, 20_000, 0) == (report.version, report.rows, report.texts, report.short)
    gate, told = opened(server, key)
    assert [True] * 20_000 == gate.might_contain_many([f" key {number}" for number in range(20_000)])
    others = gate.might_contain_many([f"other {number}" for number in range(20_000)])
    assert sum(others) < 1.1 * 0.01 * 20_000 + 50
    assert gate.might_contain("KEY 7")
    info = gate.info()
    assert (1, True, "", 24_001, 0.01) == (
        info.version,
        info.loaded,
        info.problem,
        report.capacity,
        info.error_rate,
    )
    assert 20_000 >= info.num_keys > 19_500
    assert info.path == str(server.address) + f" {key}"
    gate.close()
    assert passes_everything(gate)
    assert [] == told.problems


def test_steps_and_length_stand_on_the_server(server: Server) -> None:
    key = name()
    build_gate(url(server), ["Alpha", "x", "  beta"], key=key, steps=["trim"], min_length=3)
    gate, _ = opened(server, key)
    texts = ["Alpha", "alpha", "yy", " beta "]
    answers = [Answer.PASSED, Answer.REJECTED, Answer.SHORT, Answer.PASSED]
    assert answers == gate.ask_many(texts) == [gate.ask(text) for text in texts]
    assert (("trim",), 3) == (gate.info().steps, gate.info().min_length)
    gate.close()


def test_many_are_asked_in_one_round_trip(server: Server) -> None:
    key = name()
    build_gate(url(server), [str(number) for number in range(100)], key=key)
    gate, _ = opened(server, key)
    assert gate._shared is not None
    asked: list[int] = []
    each = gate._shared.server.each

    def counted(asks: Any, **options: Any) -> Any:
        asked.append(len(asks))
        return each(asks, **options)

    gate._shared.server.each = counted  # type: ignore[method-assign]
    assert [True] * 100 + [False] == gate.might_contain_many([*map(str, range(100)), "a very different one"])
    assert [2] == asked
    gate.close()


def test_what_is_added_passes_at_once_for_all_who_ask_also_through_a_growth(server: Server) -> None:
    key = name()
    build_gate(url(server), ["alpha"], key=key, capacity=50)
    gate, told = opened(server, key)
    for start in range(0, 1000, 200):
        texts = [f"new {number}" for number in range(start, start + 200)]
        assert not all(gate.might_contain_many(texts))
        assert 150 < add(server, key, *texts) <= 200
        assert [True] * 200 == gate.might_contain_many(texts)
    assert 0 == add(server, key, "NEW 7")
    # One text alone is called known by chance, once in a hundred runs.
    through = [f"through the gate {number}" for number in range(10)]
    assert 0 < gate.add(through) <= 10
    assert [True] * 11 == gate.might_contain_many(["alpha", *through])
    assert judges(gate)
    assert [] == told.problems
    gate.close()


def test_a_build_takes_over_at_once_and_keeps_the_one_before_until_the_next(server: Server) -> None:
    key = name()
    gate, told = opened(server, key, clock=Clock())
    assert passes_everything(gate)
    for version in range(1, 4):
        build_gate(url(server), ["always", f"version {version}"], key=key)
        if version == 1:
            # It was looked for, and was not there.
            gate.close()
            gate, told = opened(server, key, clock=Clock())
        assert [True, True, False] == gate.might_contain_many(
            ["always", f"version {version}", f"version {version - 1}"]
        )
        names = {bytes(found).split(b":")[2] for found in server.scan(f"{key}:gate:v*", 100)}
        assert {b"v%d" % number for number in (version - 1, version) if number} == names
    assert 3 == gate.info().version
    assert [] == told.problems
    gate.close()


def test_nothing_valid_is_rejected_while_versions_are_switched_and_added_to(server: Server) -> None:
    key = name()
    build_gate(url(server), ["always"], key=key)
    gate, told = opened(server, key)
    wrong: list[str] = []
    asked = 0
    known = ["always"]
    ended = threading.Event()

    def read() -> None:
        nonlocal asked
        while not ended.is_set():
            texts = list(known)
            answers = gate.might_contain_many(texts)
            wrong.extend(text for text, answer in zip(texts, answers, strict=True) if not answer)
            asked += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for version in range(12):
            build_gate(url(server), list(known), key=key)
            add(server, key, f"added {version}")
            known.append(f"added {version}")
    finally:
        ended.set()
        reader.join()
    assert [] == wrong
    assert asked > 12
    assert [] == told.problems
    gate.close()


def test_what_is_added_while_a_build_is_under_way_is_in_both(server: Server) -> None:
    key = name()
    build_gate(url(server), ["old"], key=key)
    gate, _ = opened(server, key)

    def rows() -> Iterator[str]:
        yield "new"
        # A character that is not known here: the version in force says so from now on.
        add(server, key, "Just Valid", "\U000e0fff")
        assert [True, True, False] == gate.might_contain_many(["old", "just valid", "new"])

    report = build_gate(url(server), rows(), key=key, capacity=1000)
    assert (1, 2) == (report.texts, report.added_meanwhile)
    assert [True, True, False] == gate.might_contain_many(["new", "just valid", "old"])
    gate.close()


def test_what_is_added_while_the_first_one_is_built_is_in(server: Server) -> None:
    key = name()

    def rows() -> Iterator[str]:
        yield "new"
        assert 1 == add(server, key, "just valid")

    build_gate(url(server), rows(), key=key, capacity=1000)
    gate, _ = opened(server, key)
    assert [True, True, False] == gate.might_contain_many(["new", "just valid", "old"])
    gate.close()


def test_two_do_not_build_at_once_and_a_build_that_fails_changes_nothing(server: Server) -> None:
    key = name()
    build_gate(url(server), ["old"], key=key)

    def rows() -> Iterator[str]:
        yield "new"
        with pytest.raises(StateLocked, match="is being built by another process"):
            build_gate(url(server), ["other"], key=key)
        raise LookupError

    before = sorted(server.scan(f"{key}:*", 100))
    with pytest.raises(LookupError):
        build_gate(url(server), rows(), key=key, capacity=1000)
    assert before == sorted(server.scan(f"{key}:*", 100))
    gate, _ = opened(server, key)
    assert [True, False] == gate.might_contain_many(["old", "new"])
    gate.close()


BUILDER = """
from scrapy_bloomdupe.gate.building import build_gate
def rows():
    for number in range(1_000_000):
        yield f"new {number}"
        if number == 20_000:
            print("under way", flush=True)
            sys.stdin.readline()
build_gate(sys.argv[1], rows(), key=sys.argv[2], capacity=30_000)
"""


def test_a_build_that_is_killed_leaves_the_old_one_and_the_next_removes_what_it_left(
    server: Server, start_python: StartPython
) -> None:
    key = name()
    build_gate(url(server), ["old"], key=key)
    process: subprocess.Popen[str] = start_python(BUILDER, url(server), key)
    assert process.stdout is not None
    assert "under way\n" == process.stdout.readline()
    process.kill()
    process.wait()
    gate, told = opened(server, key)
    assert [True, False] == gate.might_contain_many(["old", "new 7"])
    # What the dead builder holds goes by itself.
    assert 0 < server.run("TTL", f"{key}:{{gate}}:lock") <= 60
    server.run("DEL", f"{key}:{{gate}}:lock")
    build_gate(url(server), ["newest"], key=key)
    assert [False, False, True] == gate.might_contain_many(["old", "new 7", "newest"])
    assert 2 == gate.info().version
    assert [] == told.problems
    gate.close()


def test_a_builder_that_lost_its_lock_puts_nothing_in_force(server: Server) -> None:
    key = name()
    build_gate(url(server), ["old"], key=key)

    def rows() -> Iterator[str]:
        yield "slow"
        server.run("DEL", f"{key}:{{gate}}:lock")

    with pytest.raises(StateLocked, match="another one may have begun"):
        build_gate(url(server), rows(), key=key, capacity=1000)
    gate, _ = opened(server, key)
    assert [True, False] == gate.might_contain_many(["old", "slow"])
    gate.close()


class Dead(BaseException):
    """The builder was killed."""


def dying(url: str, moment: int) -> Server:
    """Return a server whose client is killed before or after one of its questions."""
    server = connect(url)
    guarded = server._guarded
    asked = 0

    def ask(question: Callable[[], Any]) -> Any:
        nonlocal asked
        asked += 2
        if asked > moment + 1:
            raise Dead
        answer = guarded(question)
        if asked > moment:
            raise Dead
        return answer

    server._guarded = ask  # type: ignore[method-assign]
    return server


def test_a_builder_that_is_killed_at_any_moment_leaves_one_valid_version(server: Server) -> None:
    key = name()
    options: dict[str, Any] = {
        "capacity": 1000,
        "error_rate": 1e-9,
        "steps": ("lower",),
        "min_length": 1,
        "columns": None,
    }
    build_shared_gate(server, key, ["always", "in force"], **options)
    gate, told = opened(server, key)
    in_force, moment, killed = "in force", 0, True
    while killed:
        victim = dying(url(server), moment)
        try:
            build_shared_gate(victim, key, ["always", f"new {moment}"], **options)
            killed = False
        except Dead:
            pass
        victim.close()
        answers = gate.might_contain_many(["always", in_force, f"new {moment}"])
        assert answers in ([True, True, False], [True, False, True])
        if answers[2]:
            in_force = f"new {moment}"
        server.run("DEL", f"{key}:{{gate}}:lock")
        moment += 1
    assert moment > 20
    assert f"new {moment - 1}" == in_force
    build_shared_gate(server, key, ["always"], **options)
    versions = {bytes(found).split(b":")[2] for found in server.scan(f"{key}:gate:v*", 100)}
    assert 2 == len(versions)
    assert [] == told.problems
    gate.close()


def test_a_gate_in_a_cluster_is_built_switched_and_added_to(valkey_cluster: list[Valkey]) -> None:
    url, key = f"redis+cluster://127.0.0.1:{valkey_cluster[0].port}?timeout=10", name()
    gate = Gate.open(url, key=key, check_every=0, on_problem=Told())
    assert passes_everything(gate)
    for version in range(3):
        build_gate(url, ["always", f"version {version}"], key=key)
        assert judges(gate)
        assert 1 == gate.add(["added"])
        texts = ["always", "added", f"version {version}", f"version {version - 1}"]
        assert [True, True, True, False] == gate.might_contain_many(texts)
    assert 3 == gate.info().version
    gate.close()


def test_keys_of_another_unicode_are_told_at_once_to_who_has_it_open(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import scrapy_bloomdupe.gate.text as gatetext

    key = name()
    build_gate(url(server), ["alpha"], key=key)
    gate, _ = opened(server, key)
    assert Answer.REJECTED is gate.ask("gr\xfcn")
    with monkeypatch.context() as patch:
        patch.setattr(gatetext, "tables", lambda steps: "99.0.0")
        add(server, key, "beta \U000e0fff")
    assert "99.0.0" in gate.info().tables
    # A character that is not known here may be part of a spelling that is known there.
    assert [Answer.BYPASSED, Answer.REJECTED] == gate.ask_many(["x \U000e0ffe", "gamma"])
    gate.close()


def test_a_server_that_was_emptied_lets_all_pass_says_so_once_and_judges_when_it_is_built_again(
    own: Valkey,
) -> None:
    server = connect(own.url)
    clock = Clock()
    build_gate(own.url, ["old"], key="ids")
    gate, told = opened(server, "ids", clock=clock)
    assert judges(gate)
    own.client().flushall()
    assert passes_everything(gate)
    assert all(gate.might_contain_many(UNKNOWN))
    clock.now += 2
    assert passes_everything(gate)
    (problem,) = told.problems
    assert isinstance(problem, StateNotFound)
    assert gate.info().answers["bypassed"] >= 300
    build_gate(own.url, ["new"], key="ids")
    clock.now += 2
    assert judges(gate)
    assert [True, False] == gate.might_contain_many(["new", "old"])
    gate.close()
    server.close()


def test_a_filter_that_is_gone_alone_rejects_nothing(server: Server) -> None:
    key = name()
    build_gate(url(server), ["old"], key=key)
    gate, told = opened(server, key)
    for found in server.scan(f"{key}:gate:v1:filter:{{*", 100):
        server.run("DEL", found)
    assert passes_everything(gate)
    assert all(gate.might_contain_many(UNKNOWN))
    (message,) = told.messages
    assert "the filter of the gate is gone from the server, or a part of it; build it again" in message
    late, told = opened(server, key)
    assert passes_everything(late)
    assert 1 == len(told.problems)
    gate.close()
    late.close()


def test_a_server_that_was_killed_lets_all_pass_and_does_not_slow_anybody(own: Valkey) -> None:
    build_gate(own.url, ["old"], key="ids")
    told = Told()
    gate = Gate.open(own.url, key="ids", on_problem=told)
    assert judges(gate)
    own.kill()
    assert passes_everything(gate)
    assert all(gate.might_contain_many(UNKNOWN))
    (problem,) = told.problems
    assert isinstance(problem, RemoteUnavailable)
    # The circuit is open: a hundred questions cost less than one that waits.
    assert gate.timing.microseconds(0.5) < 100_000
    assert not gate.info().loaded
    gate.close()
    late = Gate.open(own.url, key="ids", on_problem=told)
    assert passes_everything(late)
    late.close()


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"format": 2}, StateMismatch, "is of format 2, this release reads 1"),
        ({"identity": {"gate": "2"}}, StateMismatch, "was built with gate='2'"),
        ({"identity": {"steps": "magic"}}, StateMismatch, "steps that this release does not know"),
        ({"identity": {"min_length": "few"}}, ValueError, "cannot be read"),
        ({"epoch": "00"}, OSError, "is gone"),
    ],
)
def test_a_gate_of_another_version_lets_all_pass(
    server: Server, change: dict[str, Any], error: type[Exception], text: str
) -> None:
    key = name()
    build_gate(url(server), ["old"], key=key)
    gate, told = opened(server, key)
    alias = f"{key}:{{gate}}:alias"
    values = json.loads(server.run("GET", alias))
    identity = {**values["identity"], **change.get("identity", {})}
    server.run("SET", alias, json.dumps({**values, **change, "identity": identity}))
    assert passes_everything(gate)
    (problem,) = told.problems
    assert isinstance(problem, error)
    assert text in str(problem)
    # A build takes its place.
    assert 2 == build_gate(url(server), ["new"], key=key).version
    gate.close()


def test_what_is_no_gate_at_all_lets_all_pass(server: Server) -> None:
    key = name()
    server.run("SET", f"{key}:{{gate}}:alias", b"\xff no gate")
    gate, told = opened(server, key)
    assert passes_everything(gate)
    assert "does not say which gate is in force" in str(told.problems[0])
    gate.close()


def test_adding_to_what_is_not_there_is_refused(server: Server) -> None:
    with pytest.raises(StateNotFound, match="there is no gate at"):
        add(server, name(), "x")


@pytest.mark.parametrize("key", [None, "", "a{b}"])
def test_a_gate_on_a_server_needs_a_name(key: str | None) -> None:
    with pytest.raises(ConfigurationError, match="is no name for a gate on a server"):
        Gate.open("redis://127.0.0.1:1/0", key=key)


def test_a_name_is_for_a_server_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is for a gate on a server"):
        Gate.open(tmp_path / "x", key="ids")
    with pytest.raises(ConfigurationError, match="is for a gate on a server"):
        build_gate(tmp_path / "x", ["x"], key="ids")


def test_an_alias_has_its_names_in_one_slot_of_a_cluster(server: Server) -> None:
    assert {"gate"} == {part.split("{")[1].split("}")[0] for part in Alias(server, "ids")._names}
