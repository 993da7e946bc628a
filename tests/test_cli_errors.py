"""Does the command line say what is wrong, with exit code and words, and never with a traceback?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from crawling import Cli, make_state

from scrapy_bloomdupe import rebuilding


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


WRONG: list[Any] = [
    pytest.param(("size",), "either --capacity or --bytes", id="size of nothing"),
    pytest.param(("size", "--capacity", "9", "--bytes", "9"), "either --capacity or --bytes", id="of both"),
    pytest.param(("size", "--capacity", "many"), "--capacity", id="no number"),
    pytest.param(("size", "--capacity", "0"), "from 1 to 1e+13", id="no keys"),
    pytest.param(("size", "--capacity", "inf"), "from 1 to 1e+13", id="endless keys"),
    pytest.param(("size", "--capacity", "9", "--error-rate", "1"), "not including, 1", id="every key"),
    pytest.param(("size", "--bytes", "0"), "from 1 to 1e+13", id="no bytes"),
    pytest.param(("size", "--bytes", "-3"), "from 1 to 1e+13", id="less than no bytes"),
    pytest.param(("size", "--bytes", "inf"), "bytes", id="endless bytes"),
    pytest.param(("size", "--bytes", "nan"), "bytes", id="bytes that are no number"),
    pytest.param(("info", "nowhere"), "there is no state in", id="info on nothing"),
    pytest.param(("check", "nowhere"), "there is no state in", id="check of nothing"),
    pytest.param(("rebuild", "nowhere"), "there is no state in", id="rebuild of nothing"),
    pytest.param(("import", "nowhere"), "there is no requests.seen in", id="import of nothing"),
    pytest.param(("info", "a-file"), "there is no state in", id="info on a file"),
    pytest.param(("rebuild", "bare"), "no exact store seen.lmdb", id="rebuild without a store"),
    pytest.param(("info", "broken"), "it starts with b'XXXXXXXX'", id="info on a broken filter"),
    pytest.param(("rebuild", "bad"), "seen.lmdb", id="rebuild from a broken store"),
    pytest.param(("rebuild", "bare", "--scheme", "md5"), "--scheme", id="an unknown scheme"),
    pytest.param(("import", "bare", "--layout", "round"), "--layout", id="an unknown layout"),
    pytest.param((), "COMMAND", id="no command"),
    pytest.param(("explode",), "explode", id="no such command"),
]


@pytest.mark.parametrize(("words", "says"), WRONG)
def test_what_cannot_be_done_has_exit_code_2_and_one_message(
    bloomdupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("text")
    make_state(tmp_path / "bare", 10, None)
    (make_state(tmp_path / "broken", 10) / "bloomdupe" / "seen.bloom").write_bytes(b"X" * 9000)
    (make_state(tmp_path / "bad", 10) / "bloomdupe" / "seen.lmdb").write_bytes(b"\xff" * 9000)
    code, out, err = bloomdupe(*words)
    assert (2, "") == (code, out)
    assert says in err
    assert "Traceback" not in err
    assert "[Errno" not in err


def test_ctrl_c_is_not_a_traceback(bloomdupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(rebuilding, "rebuild", interrupt)
    code, _, err = bloomdupe("rebuild", make_state(tmp_path / "job", 10))
    assert 130 == code
    assert "interrupted" in err


def test_the_module_runs_as_a_command_and_imports_neither_scrapy_nor_twisted() -> None:
    run: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, "check": True}
    done = subprocess.run([sys.executable, "-m", "scrapy_bloomdupe", "size", "--capacity", "1e6"], **run)
    assert "capacity       1,000,000 keys" in done.stdout
    code = "import sys, scrapy_bloomdupe.cli; print(sorted({'scrapy', 'twisted', 'lmdb'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], **run)
    assert "['lmdb']\n" == done.stdout
