"""Do size, info, check and rebuild answer right, in text and in JSON?"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from crawling import FILTER, Cli, make_state, running
from mocksite import mock_site

from scrapy_bloomdupe.identity import StateOptions
from scrapy_bloomdupe.opening import open_or_create

COUNT = 2_900


@pytest.fixture
def bloomdupe(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_state(tmp_path / "job", COUNT)


@pytest.mark.parametrize(
    ("capacity", "rate", "bits", "size", "hashes"),
    [
        ("1e6", "0.01", 9_585_059, "1.14 MiB", 7),
        ("1e9", "0.01", 9_585_058_378, "1.2 GB", 7),
        ("1_000_000_000", "0.001", 14_377_587_567, "1.8 GB", 10),
        ("1e10", "1e-2", 95_850_583_774, "12 GB", 7),
    ],
)
def test_size_gives_the_known_values(
    bloomdupe: Cli, capacity: str, rate: str, bits: int, size: str, hashes: int
) -> None:
    words = ("size", "--capacity", capacity, "--error-rate", rate)
    code, out, err = bloomdupe(*words)
    assert (0, "") == (code, err)
    assert f"bits           {bits:,}\n" in out
    assert size in out
    assert f"hashes         {hashes}\n" in out
    found = bloomdupe.json(*words)
    assert bits == pytest.approx(found["num_bits"], abs=2)
    assert hashes == found["num_hashes"]
    assert found["num_bytes"] == -(-found["num_bits"] // 8)
    assert float(rate) == pytest.approx(found["rate_at_load"]["1"], rel=0.02)
    assert ["0.5", "1", "2", "4"] == list(found["rate_at_load"])
    assert sorted(found["rate_at_load"].values()) == list(found["rate_at_load"].values())


def test_size_tells_how_many_keys_fit_into_some_bytes(bloomdupe: Cli) -> None:
    found = bloomdupe.json("size", "--bytes", "2e9", "--error-rate", "0.01")
    assert 1_669_000_000 < found["capacity"] < 1_670_000_000
    assert 2e9 == pytest.approx(found["num_bytes"], rel=1e-6)
    assert found["num_bytes"] <= 2e9


def test_info_says_what_is_in_a_state_in_words_and_in_json(bloomdupe: Cli, job: Path) -> None:
    found = bloomdupe.json("info", job)
    code, out, err = bloomdupe("info", job / "bloomdupe")
    assert (0, "") == (code, err)
    assert COUNT == found["store"]["keys"]
    assert 0.98 * COUNT < found["num_keys"] <= COUNT  # without the false positives
    assert ("classic", "murmur3", 1000, 0.01, True) == tuple(
        found[name] for name in ("layout", "scheme", "capacity", "error_rate", "clean")
    )
    assert 2 == len(found["layers"])
    assert 0.05 < found["fill"] < 0.6
    assert 0 < found["error_rate_estimate"] <= 0.01
    for line in (
        f"directory            {job}/bloomdupe",
        f"keys in the filter   {found['num_keys']:,} (made for 1,000)",
        f"exact store          {COUNT:,} keys, ",
        "closed in order      yes",
        "keys made by         not known yet",
        "layer 1              ",
    ):
        assert line in out


def test_info_works_beside_a_running_crawl_and_check_says_that_it_is_in_use(
    bloomdupe: Cli, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    jobdir = tmp_path / "job"
    settings = {**FILTER, "JOBDIR": str(jobdir), "DOWNLOAD_DELAY": 0.3}
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        area = site.area()
        with running(tmp_path, settings, start=[area.at("tree/100/0")]) as crawl:
            crawl.wait_until(lambda: len(area.answers()) > 1, "the second page")
            crawl.wait_until(lambda: bloomdupe.json("info", jobdir)["store"]["keys"] > 1, "the second key")
            found = bloomdupe.json("info", jobdir)
            assert not found["clean"]
            assert "scrapy.utils.request.RequestFingerprinter" == found["identity"]["fingerprinter"]
            _, out, _ = bloomdupe("info", jobdir)
            assert "closed in order      no: in use, or killed" in out
            for command in ("check", "rebuild"):
                code, out, err = bloomdupe(command, jobdir)
                assert (2, "") == (code, out)
                assert f"is in use by process {crawl.process.pid}" in err


def test_check_finds_nothing_wrong_with_a_whole_state(bloomdupe: Cli, job: Path) -> None:
    code, out, err = bloomdupe("check", job)
    assert (0, "") == (code, err)
    assert f"{job}/bloomdupe: whole; every key of the store is in the filter\n" == out


def lose_bits(directory: Path) -> None:
    path = directory / "seen.bloom"
    data = bytearray(path.read_bytes())
    data[-800:] = bytes(800)
    path.write_bytes(data)


def flip_in_header(directory: Path) -> None:
    path = directory / "seen.bloom"
    path.write_bytes(b"X" + path.read_bytes()[1:])


def damage_store(directory: Path) -> None:
    path = directory / "seen.lmdb"
    data = bytearray(path.read_bytes())
    data[4 * 4096 :] = b"\xff" * (len(data) - 4 * 4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lose_bits, r"lacks [0-9,]+ of the 2,900 keys of the store.*bloomdupe rebuild"),
        (flip_in_header, "it starts with b'XLOOMDUP'"),
        (damage_store, "seen.lmdb: "),
        (lambda directory: (directory / "seen.lmdb").unlink(), "which is not there"),
        (lambda directory: (directory / "seen.bloom").unlink(), "there is no filter at"),
    ],
)
def test_check_finds_what_is_wrong_and_changes_nothing(
    bloomdupe: Cli, job: Path, damage: Callable[[Path], None], says: str
) -> None:
    directory = job / "bloomdupe"
    damage(directory)
    before = {path.name: path.read_bytes() for path in directory.glob("seen.*[bm]")}
    code, out, err = bloomdupe("check", job)
    assert (1, "") == (code, err)
    assert [] != [line for line in out.splitlines() if re.search(says, line)], out
    assert before == {path.name: path.read_bytes() for path in directory.glob("seen.*[bm]")}


@pytest.mark.parametrize("damage", [lose_bits, flip_in_header, lambda d: (d / "seen.bloom").unlink()])
def test_rebuild_makes_a_whole_filter_from_the_store(
    bloomdupe: Cli, job: Path, damage: Callable[[Path], None]
) -> None:
    damage(job / "bloomdupe")
    code, out, err = bloomdupe("rebuild", job)
    assert (0, "") == (code, err)
    assert f"{job}/bloomdupe/seen.bloom: " in out
    assert 0 == bloomdupe("check", job)[0]
    state = open_or_create(job / "bloomdupe", StateOptions(1000, 0.01, "classic", "murmur3", "lmdb"))
    rng = random.Random(1)
    seen = [state.seen.check_and_add(rng.randbytes(20)).seen for _ in range(COUNT)]
    state.close()
    assert all(seen)


def test_rebuild_takes_another_capacity_rate_layout_and_scheme(bloomdupe: Cli, job: Path) -> None:
    before = bloomdupe.json("info", job)
    options = ("--capacity", "5e4", "--error-rate", "0.001", "--layout", "paged", "--scheme", "blake2b")
    code, out, _ = bloomdupe("rebuild", job, *options)
    assert 0 == code
    assert "made for 50,000 at an error rate of 0.001" in out
    found = bloomdupe.json("info", job)
    assert (50_000, 0.001, "paged", "blake2b", 1) == tuple(
        found[name] if name != "layers" else len(found[name])
        for name in ("capacity", "error_rate", "layout", "scheme", "layers")
    )
    assert before["store"] == found["store"]
    assert {**before["identity"], "version": "2"} == found["identity"]
    assert not list((job / "bloomdupe").glob("*.new"))
