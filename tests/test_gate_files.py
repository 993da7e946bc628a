"""Does a gate that is not whole, not there, or not ours let everything pass, and say so once?"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from conftest import Python
from gates import (
    UNKNOWN,
    Clock,
    Told,
    build,
    change_format,
    change_identity,
    judges,
    passes_everything,
    zero_block,
)

from scrapy_bloomdupe.errors import BloomdupeError, StateCorrupt, StateMismatch, StateNotFound, StateUnusable
from scrapy_bloomdupe.filters.bloom import BloomFilter
from scrapy_bloomdupe.gate import file as gatefile
from scrapy_bloomdupe.gate.file import open_file
from scrapy_bloomdupe.gate.gate import Gate, GateWarning

KEYS = [f"key {number}" for number in range(20_000)]


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatefile, "_MOMENT", 0)


def refused(path: Path) -> str:
    """Return the one thing that a gate says which lets everything pass."""
    told = Told()
    gate = Gate.open(path, on_problem=told)
    assert passes_everything(gate)
    info = gate.info()
    assert not info.loaded
    assert info.problem
    assert {"passed": 0, "rejected": 0, "short": 0, "bypassed": len(UNKNOWN)} == info.answers
    gate.close()
    (message,) = told.messages
    return message


def test_a_missing_file_is_said_once(tmp_path: Path) -> None:
    assert "there is no gate at" in refused(tmp_path / "none.gate")


def test_without_a_callback_it_is_one_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gate = Gate.open(tmp_path / "none.gate")
        assert passes_everything(gate)
    (warning,) = caught
    assert warning.category is GateWarning
    assert "until it can everything passes: there is no gate at" in str(warning.message)


def test_every_flipped_byte_of_the_header_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")
    whole = path.read_bytes()
    accepted = []
    for position in range(4096):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        try:
            open_file(path).bloom.abandon()
        except (StateCorrupt, StateMismatch):
            continue
        accepted.append(position)
    assert [] == accepted


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path, share: float) -> None:
    path = build(tmp_path / "ids.gate", KEYS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "build it with `bloomdupe gate build`" in refused(path)


def test_a_file_that_lacks_its_last_byte_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate", KEYS)
    path.write_bytes(path.read_bytes()[:-1])
    assert "its 1 layers need" in refused(path)


def test_a_gate_of_this_format_is_read_for_ever() -> None:
    """Built by ``build_gate(path, [...], capacity=2000, min_length=2)``, then added to, on Python 3.11."""
    gate = Gate.open(Path(__file__).parent / "data" / "ids-v1.gate")
    assert all(
        gate.might_contain(text) for text in ("Key 0", "\uff2b\uff45\uff59 999", "caf\u00c9", "added", "x")
    )
    assert judges(gate)
    info = gate.info()
    assert (1, 2, 2000, 1003, ("nfkc", "lower", "collapse", "trim")) == (
        info.version,
        info.min_length,
        info.capacity,
        info.num_keys,
        info.steps,
    )
    gate.close()


def test_every_hole_is_found(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate", KEYS)
    whole = path.read_bytes()
    for block in range(len(whole) // 4096 - 1):
        path.write_bytes(whole)
        zero_block(path, block)
        with pytest.raises(StateCorrupt, match="it was not copied whole"):
            open_file(path)


def test_a_hole_is_found_in_a_gate_that_was_added_to(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate", KEYS)
    Gate.open(path).add(f"later {number}" for number in range(3000))
    zero_block(path, 3)
    assert "1 blocks are empty" in refused(path)


def test_a_gate_that_has_grown_since_it_was_built_is_known_by_its_bits_too(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate", KEYS, capacity=len(KEYS))
    # A few percent in a second layer, so thin that an empty block of it proves nothing.
    Gate.open(path).add(f"later {number}" for number in range(200))
    bloom = BloomFilter.open(path, readonly=True)
    (_, second), num_blocks = bloom.info().layers, path.stat().st_size // 4096
    bloom.abandon()
    assert second.num_keys / second.capacity < 0.05
    whole = path.read_bytes()
    for block in range(num_blocks - 1):
        path.write_bytes(whole)
        zero_block(path, block)
        if path.read_bytes() != whole:
            assert "it was not copied whole" in refused(path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")
    change_format(path, 2)
    assert "has format 2, this release reads format 1" in refused(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gate": "2"}, "was built with gate='2', this release reads '1'"),
        ({"gate": None}, "is a filter of seen requests and no gate"),
        ({"digest": "blake3-160"}, "was built with digest='blake3-160'"),
        ({"steps": "nfkc,stem"}, "text step 'stem' is not known"),
        ({"steps": "trim,nfkc"}, "in an order in which they do not run"),
        ({"min_length": "two"}, "its header as a gate cannot be read"),
        ({"version": None}, "its header as a gate cannot be read"),
    ],
)
def test_a_gate_of_another_meaning_is_refused(
    tmp_path: Path, changes: dict[str, str | None], message: str
) -> None:
    path = build(tmp_path / "ids.gate")
    change_identity(path, changes)
    assert message in refused(path)


def test_a_filter_of_seen_requests_is_no_gate(tmp_path: Path) -> None:
    path = tmp_path / "seen.bloom"
    BloomFilter.create(path, capacity=100, error_rate=0.01).close()
    assert "make one with `bloomdupe gate build`" in refused(path)


def test_a_step_without_its_library_lets_everything_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path / "urls.gate", ["https://shop.example/"], steps=["url"])
    monkeypatch.setattr("scrapy_bloomdupe.rules.steps._normalize", None)
    assert "needs the library ada-url" in refused(path)


def test_a_directory_and_a_file_without_permission_let_everything_pass(
    tmp_path: Path, python: Python
) -> None:
    assert "directory" in refused(tmp_path)
    path = build(tmp_path / "ids.gate")
    path.chmod(0)
    done = python(
        """
from scrapy_bloomdupe.gate.gate import Gate
become_nobody()
told = []
gate = Gate.open(sys.argv[1], on_problem=lambda exc: told.append(type(exc).__name__))
print(gate.might_contain("nobody"), told)
""",
        path,
    )
    assert "True ['StateUnusable']\n" == done.stdout, done.stderr


def test_a_file_that_appears_later_is_taken_at_the_next_look(tmp_path: Path) -> None:
    told, clock = Told(), Clock()
    gate = Gate.open(tmp_path / "ids.gate", on_problem=told, clock=clock)
    assert passes_everything(gate)
    build(tmp_path / "ids.gate")
    assert passes_everything(gate)
    clock.now += 1
    assert judges(gate)
    assert gate.might_contain("ALPHA")
    assert "" == gate.info().problem
    assert 1 == len(told.problems)
    gate.close()


def test_if_the_new_one_does_not_open_everything_passes_and_that_is_said_once(tmp_path: Path) -> None:
    told, clock = Told(), Clock()
    path = build(tmp_path / "ids.gate")
    gate = Gate.open(path, on_problem=told, clock=clock)
    broken = build(tmp_path / "new.gate", ["gamma"])
    change_format(broken, 3)
    broken.rename(path)
    # The old one does not know what has become valid with the new one; it is not waited for a second.
    for _ in range(3):
        assert passes_everything(gate)
        clock.now += 1
    (problem,) = told.problems
    assert isinstance(problem, StateMismatch)
    assert "format 3" in gate.info().problem
    path.unlink()
    clock.now += 1
    assert passes_everything(gate)
    assert [StateMismatch, StateNotFound] == [type(exc) for exc in told.problems]
    # Until there is one that opens.
    build(path, ["gamma"])
    clock.now += 1
    assert gate.might_contain("gamma")
    assert not gate.might_contain("alpha")
    assert "" == gate.info().problem
    gate.close()


def test_trouble_of_the_system_is_over_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told, clock = build(tmp_path / "ids.gate"), Told(), Clock()

    def out_of_files(*_: object, **__: object) -> None:
        raise StateUnusable(24, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(BloomFilter, "open", out_of_files)
        gate = Gate.open(path, on_problem=told, clock=clock)
        assert passes_everything(gate)
    clock.now += 1
    assert judges(gate)
    assert ["too many open files"] == told.messages
    gate.close()


def test_a_file_that_is_overwritten_in_place_is_opened_anew_before_a_no_is_given(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")
    gate = Gate.open(path, on_problem=Told())
    assert not gate.might_contain("gamma")
    other = build(tmp_path / "other.gate", ["gamma"])
    # Of the same size: what is mapped stays there.
    with path.open("r+b") as file:
        file.write(other.read_bytes())
    assert gate.might_contain("gamma")
    assert not gate.might_contain("alpha")
    gate.close()


def test_opening_changes_nothing_and_creates_nothing(tmp_path: Path) -> None:
    path = build(tmp_path / "ids.gate")
    (tmp_path / "ids.gate.lock").unlink()
    before = path.read_bytes()
    gate = Gate.open(path)
    assert judges(gate)
    gate.close()
    assert before == path.read_bytes()
    assert ["ids.gate"] == [entry.name for entry in tmp_path.iterdir()]


def test_a_closed_gate_lets_everything_pass(tmp_path: Path) -> None:
    gate = Gate.open(build(tmp_path / "ids.gate"))
    gate.close()
    gate.close()
    assert passes_everything(gate)


def test_adding_to_what_is_no_gate_is_an_error(tmp_path: Path) -> None:
    gate = Gate.open(tmp_path / "none.gate", on_problem=Told())
    with pytest.raises(StateNotFound):
        gate.add(["alpha"])
    path = build(tmp_path / "ids.gate")
    change_format(path, 2)
    with pytest.raises(BloomdupeError, match="format 2"):
        Gate.open(path, on_problem=Told()).add(["alpha"])
