"""Does the command line build, extend, look at and try a gate, and say what is wrong?"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Python
from crawling import Cli
from gates import torn
from kinds import name
from servers import Valkey

from scrapy_bloomdupe.gate.gate import Gate

Feed = Callable[[bytes], None]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """Give the command a file on its standard input."""
    files: list[io.TextIOWrapper] = []

    def give(data: bytes) -> None:
        path = tmp_path / "keys"
        path.write_bytes(data)
        files.append(path.open())
        monkeypatch.setattr(sys, "stdin", files[-1])

    yield give
    for file in files:
        file.close()


def has(path: Path, *texts: str) -> list[bool]:
    gate = Gate.open(path)
    found = [gate.might_contain(text) for text in texts]
    gate.close()
    return found


def test_a_gate_is_built_of_lines_and_columns_and_says_what_went_in(
    cli: Cli, feed: Feed, tmp_path: Path
) -> None:
    path = tmp_path / "ids.gate"
    feed(b"\xef\xbb\xbf1001\tTea  Pot\tteapot\r\n1002\n\n1003\t\tmug")
    code, out, _ = cli("gate", "build", path)
    assert 0 == code
    assert out.startswith(
        f"{path}: version 1, 6 keys of 4 rows, about 6 of them different; made for 1,000 at"
    )
    assert [True] * 5 == has(path, "1001", "tea pot", "teapot", "1002", "MUG")
    assert [False, False] == has(path, "1004", "tea")


def test_the_options_of_a_build_stand_in_the_file(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    feed(b"Alpha,x,a\nBeta,y,b\n")
    options = ["--steps", "trim,lower", "--min-length", 2, "--error-rate", "1e-3", "--capacity", "5e3"]
    code, out, _ = cli("gate", "build", path, *options, "--format", "csv", "--columns", "1,3")
    assert 0 == code
    assert "2 have under 2 characters and pass without being in" in out
    info = cli.json("gate", "info", path)
    assert ["lower", "trim"] == info["steps"]
    assert (2, 5000, 0.001, 2) == (
        info["min_length"],
        info["capacity"],
        info["error_rate"],
        info["num_keys"],
    )
    assert [True, True, False] == has(path, "ALPHA", "b", "xx")


def test_a_quoted_field_of_csv_may_hold_commas_and_lines(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    feed(b'7,"Pot, for\ntea"\n8,Mug\n')
    assert 0 == cli("gate", "build", path, "--format", "csv")[0]
    assert [True, True, False] == has(path, "pot, for tea", "mug", "pot")


def test_a_line_is_a_key_where_tabs_are_part_of_it(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    feed(b"a\tb\nc\n")
    assert 0 == cli("gate", "build", path, "--format", "lines")[0]
    assert [True, True, False] == has(path, "A B", "c", "a")


def test_a_file_is_counted_before_it_is_read(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    feed(b"".join(b"%d\tname %d\n" % (number, number) for number in range(5000)))
    assert 0 == cli("gate", "build", path)[0]
    info = cli.json("gate", "info", path)
    assert 12_000 <= info["capacity"] <= 12_010
    assert info["error_rate_estimate"] < 0.01


def test_bytes_that_are_no_utf8_are_told_and_asked_for_as_they_are(
    cli: Cli, feed: Feed, tmp_path: Path
) -> None:
    path = tmp_path / "ids.gate"
    feed(b"caf\xe9\nplain\n")
    code, _, err = cli("gate", "build", path)
    assert 0 == code
    assert "1 lines are no UTF-8" in err
    assert [True, True, False] == has(path, b"caf\xe9".decode("utf-8", "surrogateescape"), "plain", "café")


def test_a_pipe_needs_a_capacity(python: Python, tmp_path: Path) -> None:
    script = """
import subprocess
command = [sys.executable, "-m", "scrapy_bloomdupe", "gate", "build", "ids.gate", *sys.argv[1:]]
done = subprocess.run(command, input=b"alpha\\nbeta\\n", capture_output=True)
print(done.returncode, done.stdout.decode(), done.stderr.decode())
"""
    assert "only a file can be counted first" in python(script).stdout
    assert not (tmp_path / "ids.gate").exists()
    assert "version 1, 2 keys of 2 rows" in python(script, "--capacity", 10).stdout


def test_keys_are_added(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    feed(b"alpha\n")
    cli("gate", "build", path)
    feed(b"alpha\nbeta\tb\nignored,\n")
    assert (0, f"{path}: 4 keys, 3 of them new\n", "") == cli("gate", "add", path)
    feed(b"x,gamma\n")
    assert 0 == cli("gate", "add", path, "--format", "csv", "--columns", 2)[0]
    assert [True, True, True, False] == has(path, "beta", "b", "gamma", "x")


def test_info_shows_what_a_gate_is(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    for _ in range(2):
        feed(b"alpha\nbeta\n")
        cli("gate", "build", path)
    code, out, _ = cli("gate", "info", path)
    assert 0 == code
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert lines["version"].startswith("2, built 2")
    assert "2 (made for 1,000)" == lines["keys"]
    assert "nfkc, lower, collapse, trim" == lines["steps"]
    assert {
        "path",
        "loaded",
        "problem",
        "version",
        "created",
        "steps",
        "min_length",
        "num_keys",
        "capacity",
    } < (set(cli.json("gate", "info", path)))


def test_texts_are_tried_and_the_exit_code_tells(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    feed(b"alpha\nbeta\n")
    cli("gate", "build", path, "--min-length", 2)
    assert (0, "may be there          ALPHA\n") == cli("gate", "test", path, "ALPHA")[:2]
    code, out, _ = cli("gate", "test", path, "alpha", "gamma", "x", "\x1b[1m")
    assert 1 == code
    assert [
        "may be there          alpha",
        "is not there          gamma",
        "too short to judge    x",
        "is not there          \\x1b[1m",
    ] == out.splitlines()


@pytest.mark.parametrize("command", ["info", "test"])
def test_a_gate_that_does_not_open_is_exit_code_2(cli: Cli, feed: Feed, tmp_path: Path, command: str) -> None:
    path = tmp_path / "ids.gate"
    words = ["gate", command, path, *(["alpha"] if command == "test" else [])]
    code, _, err = cli(*words)
    assert 2 == code
    assert f"bloomdupe: there is no gate at {path}; make one with `bloomdupe gate build`\n" == err
    feed(b"alpha\n")
    cli("gate", "build", path)
    torn(path)
    assert 2 == cli(*words)[0]


def test_adding_to_no_gate_is_exit_code_2(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    feed(b"alpha\n")
    code, _, err = cli("gate", "add", tmp_path / "ids.gate")
    assert 2 == code
    assert "there is no gate at" in err
    assert not (tmp_path / "ids.gate").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "stem"], "text step 'stem' is not known"),
        (["--min-length", "0"], "'0' is not a number, 1 or more"),
        (["--columns", "0"], "'0' is not a number, 1 or more"),
        (["--columns", "a"], "'a' is not a number, 1 or more"),
        (["--capacity", "0"], "capacity=0.0"),
        (["--error-rate", "2"], "error_rate=2.0"),
        (["--format", "xml"], "invalid choice: 'xml'"),
    ],
)
def test_a_wrong_option_is_told(cli: Cli, tmp_path: Path, options: list[str], message: str) -> None:
    code, _, err = cli("gate", "build", tmp_path / "ids.gate", *options)
    assert 2 == code
    assert message in err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there were no rows"),
        (b"\n\n", "none of the 2 rows has a text"),
        ("1001\n1002\n".encode("utf-16"), "the keys are UTF-16"),
        ("1001\n1002\n".encode("utf-16-le"), "the keys are UTF-16"),
        (b"1001\r1002\r", "the first line has a carriage return in the middle"),
    ],
)
def test_an_input_without_keys_is_refused_and_leaves_the_old_one(
    cli: Cli, feed: Feed, tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "ids.gate"
    feed(b"1001\n")
    assert 0 == cli("gate", "build", path)[0]
    feed(data)
    code, _, err = cli("gate", "build", path)
    assert 2 == code
    assert message in err
    assert [True, False] == has(path, "1001", "1002")


def test_a_version_with_far_fewer_keys_than_the_one_before_is_told(
    cli: Cli, feed: Feed, tmp_path: Path
) -> None:
    for number, told in ((1000, False), (600, False), (200, True)):
        feed(b"".join(b"%d\n" % key for key in range(number)))
        code, out, _ = cli("gate", "build", tmp_path / "ids.gate")
        assert (0, told) == (code, "of the version before it: all others are rejected from now on" in out)
    assert "that is 33.3% of the 6" in out


def test_a_closed_input_is_told(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = cli("gate", "build", tmp_path / "ids.gate")
    assert (2, True) == (code, "the standard input is closed" in err)


def test_what_is_no_csv_is_told_and_leaves_the_old_one(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "ids.gate"
    feed(b"alpha\n")
    cli("gate", "build", path)
    feed(b'"' + b"x" * 200_000 + b"\n")
    code, _, err = cli("gate", "build", path, "--format", "csv")
    assert 2 == code
    assert "the keys are no CSV" in err
    assert [True] == has(path, "alpha")


def test_the_command_line_of_the_gate_does_without_scrapy(python: Python) -> None:
    script = "import scrapy_bloomdupe.cli_gate; print('scrapy' in sys.modules, 'twisted' in sys.modules)"
    assert "False False\n" == python(script).stdout


def test_json_is_one_object(cli: Cli, feed: Feed, tmp_path: Path) -> None:
    feed(b"alpha\n")
    cli("gate", "build", tmp_path / "g")
    assert 1 == json.loads(cli("gate", "info", tmp_path / "g", "--json")[1])["num_keys"]


@pytest.mark.parametrize("kind", ["valkey", "valkey_bloom"])
def test_a_gate_on_a_server_is_built_extended_looked_at_and_tried(
    cli: Cli, feed: Feed, request: pytest.FixtureRequest, kind: str
) -> None:
    server: Valkey = request.getfixturevalue(kind)
    key = name()
    feed(b"1001\tTea  Pot\n1002\n")
    code, out, _ = cli("gate", "build", server.url, "--key", key, "--error-rate", "1e-6")
    assert 0 == code
    assert out.startswith(f"{server.url}/0 {key}: version 1, 3 keys of 2 rows, about 3 of them different")
    feed(b"1003\n1002\n")
    code, out, _ = cli("gate", "add", server.url, "--key", key)
    assert (0, f"{server.url}/0 {key}: 2 keys, 1 of them new\n") == (code, out)
    info = cli.json("gate", "info", server.url, "--key", key)
    assert (1, 4, 1e-6, f"{server.url}/0 {key}") == (
        info["version"],
        info["num_keys"],
        info["error_rate"],
        info["path"],
    )
    _, out, _ = cli("gate", "info", server.url, "--key", key)
    assert out.startswith(f"server       {server.url}/0 {key}, ")
    code, out, _ = cli("gate", "test", server.url, "--key", key, "tea pot", "1003", "1004")
    assert 1 == code
    assert ["may be there", "may be there", "is not there"] == [line[:12] for line in out.splitlines()]


def test_a_gate_that_no_server_has_is_told(cli: Cli, valkey: Valkey) -> None:
    for command in (("info",), ("test", "x")):
        code, _, err = cli("gate", command[0], valkey.url, "--key", name(), *command[1:])
        assert 2 == code
        assert "there is no gate at" in err
    code, _, err = cli("gate", "info", valkey.url)
    assert 2 == code
    assert "--key NAME" in err
    code, _, err = cli("gate", "info", "postgresql://user:secret@host/x", "--key", "ids")
    assert 2 == code
    assert "is on a Redis or Valkey server" in err.replace("or on a", "is on a")
    assert "secret" not in err
    code, _, err = cli("gate", "info", "ids.gate", "--key", "ids")
    assert 2 == code
    assert "--key is for a server" in err
