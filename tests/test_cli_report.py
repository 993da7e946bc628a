"""Does ``bloomdupe report`` make the page of a state, also beside a crawl, and say what it cannot do?"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from crawling import FILTER, Cli, make_state, run, running
from mocksite import mock_site

from scrapy_bloomdupe.history import HISTORY_NAME


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def text_of(page: Path) -> str:
    root = ElementTree.fromstring(page.read_text(encoding="utf-8").removeprefix("<!DOCTYPE html>\n"))
    return " ".join(" ".join(root.itertext()).split())


@pytest.mark.parametrize("store", ["lmdb", None])
def test_a_state_without_a_history_gives_a_page_that_says_so(
    bloomdupe: Cli, tmp_path: Path, store: str | None
) -> None:
    job = make_state(tmp_path / "job", 700, store)
    before = sorted((job / "bloomdupe").iterdir())
    page = tmp_path / "report.html"
    code, out, err = bloomdupe("report", job, "-o", page)
    assert (0, f"{page}: 0 samples; the page says how to get some\n", "") == (code, out, err)
    text = text_of(page)
    # Without a store it is the filter's count, which lacks its false positives.
    assert "700 keys known" in text if store else re.search(r"\b(69\d|700) keys known", text)
    assert "there is no history.jsonl" in text.lower()
    assert before == sorted((job / "bloomdupe").iterdir())


def test_the_page_of_a_crawl_is_made_during_it_and_after(bloomdupe: Cli, tmp_path: Path) -> None:
    job, page = tmp_path / "job", tmp_path / "out.html"
    settings = {**FILTER, "JOBDIR": str(job), "DOWNLOAD_DELAY": 0.02, "BLOOMDUPE_HISTORY": 0.1}
    with mock_site(tmp_path) as site:
        start = [site.area().at("tree/60/0")]
        with running(tmp_path, settings, start=start) as going:
            history = job / "bloomdupe" / HISTORY_NAME
            going.wait_until(lambda: history.exists() and history.read_bytes().count(b"\n") > 3, "samples")
            assert 0 == bloomdupe("report", job, "--output", page)[0]
            assert going.process.poll() is None
            assert "is under way or was killed" in text_of(page)
            assert 6 == page.read_text(encoding="utf-8").count("<svg")
            assert "finished" == going.finish().stats["finish_reason"]
        assert 0 == bloomdupe("report", job / "bloomdupe", "-o", page)[0]
        assert "Fine: Nothing is off" in text_of(page)
        assert "1 run since" in text_of(page)
        assert "finished" == run(tmp_path, settings, start=start).stats["finish_reason"]
        assert 0 == bloomdupe("report", job, "-o", page)[0]
        assert "2 runs since" in text_of(page)
    assert not list(tmp_path.glob("*.new"))


def test_what_cannot_be_read_or_written_is_said(bloomdupe: Cli, tmp_path: Path) -> None:
    code, _, err = bloomdupe("report", tmp_path)
    assert (2, True) == (code, "there is no state in" in err)
    job = make_state(tmp_path / "job", 7)
    code, _, err = bloomdupe("report", job, "-o", tmp_path / "no" / "page.html")
    assert (2, True) == (code, "cannot write" in err)
    (job / "bloomdupe" / HISTORY_NAME).mkdir()
    code, _, err = bloomdupe("report", job, "-o", tmp_path / "page.html")
    assert (2, True) == (code, "cannot read the history in" in err)
    assert [job] == list(tmp_path.iterdir())


def test_without_a_name_the_page_goes_where_one_stands(
    bloomdupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_state(tmp_path / "job", 7)
    monkeypatch.chdir(tmp_path)
    assert 0 == bloomdupe("report", "job")[0]
    assert "7 keys known" in text_of(tmp_path / "report.html")
