"""Does a gate reject what is not there, and never what is?"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from gates import Clock, Told, build, change_identity
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.gate.gate import Answer, Gate
from scrapy_bloomdupe.gate.text import DEFAULT_STEPS, digest, normalizer
from scrapy_bloomdupe.gate.timing import Timing

#: 1_000_000 is the long form.
TRIES = int(os.environ.get("BLOOMDUPE_GATE_TRIES", "100_000"))

ALPHABETS = (
    "0123456789",
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ -_./",
    "äöüßÄÖÜéÉçıİσςΣ ",
    "日本語の商品ｶﾀｶﾅＡＢＣ１２３①\u3000",
    "\U0001f600\u200d\u0301\u0323\u00a0\t",
)


def a_text(rng: random.Random) -> str:
    return "".join(rng.choices(rng.choice(ALPHABETS), k=rng.randint(1, 20)))


def spelled(text: str, rng: random.Random) -> str:
    """Return another spelling of *text* that its steps make the same."""
    padded = rng.choice(["{}", " {}", "{}\t", "\u3000{}\u00a0"]).format(text)
    return padded.replace(" ", "  ") if rng.random() < 0.5 else padded


def test_no_valid_key_is_rejected_in_any_of_its_spellings(tmp_path: Path) -> None:
    rng = random.Random(1)
    # Added ones, grown layers and synonyms are among them.
    texts = [a_text(rng) for _ in range(TRIES // 2)]
    path = build(tmp_path / "ids.gate", texts[: TRIES // 4], capacity=max(1, TRIES // 8))
    gate = Gate.open(path)
    gate.add(texts[TRIES // 4 :])
    wrong = [text for text in texts if not gate.might_contain(text)]
    wrong += [text for text in texts if not gate.might_contain(spelled(text, rng))]
    assert [] == wrong
    info = gate.info()
    assert TRIES // 2 * 2 == info.answers["passed"] + info.answers["short"]
    assert 0.01 >= info.error_rate_estimate
    gate.close()


@given(st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=30), st.data())
def test_no_text_of_any_kind_is_rejected_once_it_is_in(texts: list[str], data: st.DataObject) -> None:
    steps = data.draw(st.sets(st.sampled_from(DEFAULT_STEPS)))
    normalize = normalizer(steps)
    gate = Gate({digest(normalize(text)) for text in texts}, steps=steps)
    assert all(gate.might_contain(text) for text in texts)


@pytest.mark.usefixtures("fixed_secret")
@pytest.mark.parametrize("error_rate", [0.05, 0.01, 0.003])
def test_at_its_capacity_no_more_pass_than_were_asked_for(tmp_path: Path, error_rate: float) -> None:
    count = 50_000
    path = tmp_path / "ids.gate"
    build(path, [f"id {number}" for number in range(count)], capacity=count + 1, error_rate=error_rate)
    gate = Gate.open(path)
    passed = sum(gate.might_contain(f"no id {number}") for number in range(100_000))
    assert 1.1 * error_rate * 100_000 >= passed
    info = gate.info()
    assert info.error_rate_estimate == pytest.approx(passed / 100_000, rel=0.3)
    assert count == pytest.approx(info.num_keys, rel=0.02)
    gate.close()


def test_a_hundred_million_keys_and_a_fifth_more_take_some_150_megabytes() -> None:
    from scrapy_bloomdupe.filters.growth import first_layer
    from scrapy_bloomdupe.filters.layouts import get_layout
    from scrapy_bloomdupe.gate.filling import DEFAULT_ERROR_RATE, with_room

    layer = first_layer(get_layout("paged"), with_room(100_000_000), DEFAULT_ERROR_RATE)
    assert 150e6 == pytest.approx(layer.num_bytes, rel=0.02)


def test_a_text_is_asked_for_in_the_spelling_of_the_file(tmp_path: Path) -> None:
    gate = Gate.open(build(tmp_path / "words.gate", ["Apple  iPhone"], steps=["trim", "collapse"]))
    assert gate.might_contain(" Apple iPhone ")
    assert not gate.might_contain("apple iphone")
    assert ("collapse", "trim") == gate.info().steps
    gate.close()


def test_a_text_too_short_to_trust_passes_and_is_counted(tmp_path: Path) -> None:
    gate = Gate.open(build(tmp_path / "ids.gate", ["1234"], min_length=3))
    assert Answer.SHORT is gate.ask(" 9 9 ".replace(" ", ""))
    assert Answer.SHORT is gate.ask("")
    assert Answer.SHORT is gate.ask("   99   ")
    assert Answer.REJECTED is gate.ask("999")
    assert Answer.PASSED is gate.ask("1234")
    assert {"passed": 1, "rejected": 1, "short": 3, "bypassed": 0} == gate.info().answers
    gate.close()


def test_an_empty_text_is_no_key(tmp_path: Path) -> None:
    gate = Gate.open(build(tmp_path / "ids.gate", ["", "  ", "1"]))
    assert 1 == gate.info().num_keys
    assert Answer.SHORT is gate.ask("")
    gate.close()


def test_what_is_no_text_passes_as_not_judged(tmp_path: Path) -> None:
    told = Told()
    gate = Gate.open(build(tmp_path / "ids.gate"), on_problem=told)
    nothing: Any = None
    for _ in range(3):
        assert Answer.BYPASSED is gate.ask(nothing)
    assert 1 == len(told.problems)
    gate.close()


class Shared:
    """A filter somewhere else, that is asked for many keys at once."""

    def __init__(self, *texts: str) -> None:
        self.keys = {digest(text) for text in texts}
        self.trips = 0
        self.away = False

    def __contains__(self, key: bytes) -> bool:
        return self.contains_many([key])[0]

    def contains_many(self, keys: list[bytes]) -> list[bool]:
        if self.away:
            raise ConnectionError("no server")
        self.trips += 1
        return [key in self.keys for key in keys]


def test_any_filter_can_stand_behind_a_gate_and_is_asked_once_for_many() -> None:
    shared = Shared("alpha", "beta")
    gate = Gate(shared, min_length=2)
    assert gate.might_contain("ALPHA")
    assert not gate.might_contain("gamma")
    assert [True, False, True, True] == gate.might_contain_many(["Alpha", "gamma", "x", " beta"])
    assert 3 == shared.trips
    assert {"passed": 3, "rejected": 2, "short": 1, "bypassed": 0} == gate.info().answers
    assert gate.info().loaded
    with pytest.raises(ConfigurationError, match="this gate has no file"):
        gate.add(["gamma"])
    gate.close()
    assert gate.might_contain("gamma")


def test_a_server_that_is_away_lets_everything_pass_and_that_is_said_once() -> None:
    told, shared = Told(), Shared("alpha")
    gate = Gate(shared, on_problem=told)
    shared.away = True
    assert gate.might_contain("gamma")
    assert [True, True] == gate.might_contain_many(["gamma", "delta"])
    assert 3 == gate.info().answers["bypassed"]
    assert ["no server"] == told.messages
    shared.away = False
    assert not gate.might_contain("gamma")


def test_one_text_is_added_as_one(tmp_path: Path) -> None:
    gate = Gate.open(build(tmp_path / "ids.gate"))
    assert 1 == gate.add("gamma")
    assert gate.might_contain("gamma")
    assert not gate.might_contain("g")
    gate.close()


def test_a_callback_that_raises_costs_no_page(tmp_path: Path) -> None:
    def raising(exc: Exception) -> None:
        raise RuntimeError(str(exc))

    clock = Clock()
    path = build(tmp_path / "ids.gate")
    gate = Gate.open(path, on_problem=raising, clock=clock)
    path.rename(tmp_path / "other")
    clock.now += 1
    assert Answer.BYPASSED is gate.ask("gamma")
    nothing: Any = None
    assert Answer.BYPASSED is gate.ask(nothing)
    gate.close()


def test_many_texts_are_asked_of_a_file_as_one_by_one(tmp_path: Path) -> None:
    gate = Gate.open(build(tmp_path / "ids.gate"))
    assert [True, False, True] == gate.might_contain_many(["alpha", "gamma", ""])
    gate.close()


def test_threads_share_a_gate_while_its_file_is_replaced(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate", ["always", "v0"])
    gate = Gate.open(path, check_every=0.0, on_problem=Told())
    wrong: list[str] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            if not gate.might_contain("always"):
                wrong.append("always")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for version in range(1, 15):
        build(path, ["always", f"v{version}"])
    done.set()
    for thread in threads:
        thread.join()
    assert [] == wrong
    assert gate.might_contain("v14")
    assert not gate.might_contain("v13")
    gate.close()


# Python's own Unicode grows: who builds a gate may know other characters than who asks it.
NEW = "\u0378"  # assigned in no version so far


@pytest.mark.parametrize(
    ("tables", "unassigned", "text", "answer"),
    [
        (None, "0", "unknown é", Answer.REJECTED),
        (None, "1", f"unknown {NEW}", Answer.REJECTED),
        ("99.0.0", "0", "unknown", Answer.REJECTED),
        ("99.0.0", "0", "unknown é", Answer.REJECTED),
        # He may have known what it is another spelling of.
        ("99.0.0", "0", f"unknown {NEW}", Answer.BYPASSED),
        ("3.2.0", "0", "Unknown É", Answer.REJECTED),
        # He put something in that he did not know: as it was, where we would change it.
        ("3.2.0", "1", "unknown é", Answer.REJECTED),
        ("3.2.0", "1", "Unknown É", Answer.BYPASSED),
        ("3.2.0", "1", "Unknown E", Answer.REJECTED),
    ],
)
def test_a_text_that_another_unicode_may_spell_otherwise_is_not_judged(
    tmp_path: Path, tables: str | None, unassigned: str, text: str, answer: Answer
) -> None:
    path = build(tmp_path / "ids.gate", [f"known {NEW}"])
    changes: dict[str, str | None] = {"unassigned": unassigned}
    if tables is not None:
        changes["tables"] = tables
    change_identity(path, changes)
    gate = Gate.open(path)
    assert answer is gate.ask(text)
    assert Answer.PASSED is gate.ask(f"known {NEW}")
    gate.close()


def test_a_key_with_a_character_that_is_not_known_yet_is_noted(tmp_path: Path) -> None:
    from scrapy_bloomdupe.gate.file import open_file

    path = build(tmp_path / "ids.gate", ["a", f"b{NEW}", "c"])
    Gate.open(path).add([f"d{NEW}", "é"])
    opened = open_file(path)
    assert 2 == opened.header.unassigned
    opened.bloom.abandon()


def test_who_adds_with_other_tables_notes_them(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")
    change_identity(path, {"tables": "3.2.0"})
    gate = Gate.open(path)
    gate.add(["gamma"])
    gate.close()
    gate = Gate.open(path)
    assert 2 == len(gate.info().tables)
    gate.close()


def test_percentiles_are_within_an_eighth() -> None:
    timing = Timing()
    assert 0.0 == timing.microseconds(0.5)
    for nanoseconds in range(1, 100_001):
        timing.add(nanoseconds)
    for share in (0.5, 0.95, 0.99, 1.0):
        assert share * 100 <= timing.microseconds(share) <= share * 100 * 1.125
    timing.add(10**12)
    timing.add(0)
    assert 10**9 <= timing.microseconds(1.0) <= 1.125 * 10**9


def test_a_gate_that_changes_without_end_lets_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate.open(build(tmp_path / "ids.gate"))
    monkeypatch.setattr("scrapy_bloomdupe.filters.persisted.PersistedFilter.is_current", lambda self: False)
    assert Answer.BYPASSED is gate.ask("gamma")
    assert Answer.PASSED is gate.ask("alpha")
    gate.close()
