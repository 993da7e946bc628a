"""Is a crawl that cannot trust its state ended at once, with a reason, exit code 1 and nothing touched?"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import FILTER, Crawl, FollowAll, filtering, run, running, scrapy
from mocksite import Site, mock_site
from scrapy import Request
from scrapy.utils.request import fingerprint

Damage = Callable[[Path], None]

SPIDER = str(Path(__file__).with_name("crawling.py"))
PAGES = Counter(f"tree/30/{number}" for number in range(30))


class KeepsFragments:
    """Another idea of what a page is."""

    def fingerprint(self, request: Request) -> bytes:
        return fingerprint(request, keep_fragments=True)


class Waits(FollowAll):
    """Crawls *first*, and goes on with *start* when there is a file ``go``."""

    name = "waits"
    first: str

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.first)
        while not Path("go").exists():
            await asyncio.sleep(0.05)
        async for request in super().start():
            yield request


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with mock_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The directory of a state that knows a hundred pages."""
    with filtering(tmp_path / "job") as (ours, _):
        for number in range(100):
            ours.request_seen(Request(f"http://shop.example/{number}"))
    return tmp_path / "job" / "bloomdupe"


def contents(directory: Path) -> dict[str, bytes | None]:
    """Every file but those that only tell who works here."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
        if path.name not in ("lock", "seen.lmdb-lock")
    }


def flip(name: str, at: int) -> Damage:
    def damage(directory: Path) -> None:
        data = bytearray((directory / name).read_bytes())
        data[at] ^= 1
        (directory / name).write_bytes(data)

    return damage


def cut(name: str, size: int) -> Damage:
    return lambda directory: os.truncate(directory / name, size)


def remove(name: str) -> Damage:
    return lambda directory: (directory / name).unlink()


def replace_by_directory(name: str) -> Damage:
    def damage(directory: Path) -> None:
        (directory / name).unlink()
        (directory / name).mkdir()

    return damage


def mix(directory: Path) -> None:
    with filtering(directory / "other") as (ours, _):
        ours.request_seen(Request("http://shop.example/"))
    (directory / "other" / "bloomdupe" / "seen.lmdb").replace(directory / "seen.lmdb")


def nothing(directory: Path) -> None:
    """The files are whole: the settings ask for something else."""


DAMAGES: list[Any] = [
    pytest.param(flip("seen.bloom", 113), {}, "checksum is", id="a flipped byte in the header"),
    pytest.param(cut("seen.bloom", 0), {}, "has 0 bytes", id="an empty filter"),
    pytest.param(cut("seen.bloom", 500_000), {}, "has 500000 bytes", id="a filter cut in the body"),
    pytest.param(replace_by_directory("seen.bloom"), {}, "Is a directory", id="a directory as filter"),
    pytest.param(remove("seen.bloom"), {}, "bloomdupe rebuild", id="no filter"),
    pytest.param(remove("seen.lmdb"), {}, "which is not there", id="no store"),
    pytest.param(cut("seen.lmdb", 0), {}, "the file is empty", id="an empty store"),
    pytest.param(cut("seen.lmdb", 9000), {}, "beyond EOF or truncated", id="a store cut short"),
    pytest.param(replace_by_directory("seen.lmdb"), {}, "is not a file", id="a directory as store"),
    pytest.param(mix, {}, "files of two seen-sets were mixed", id="the store of another filter"),
    pytest.param(
        nothing,
        {"REQUEST_FINGERPRINTER_CLASS": f"{__name__}.KeepsFragments"},
        r"made by scrapy.utils.request.RequestFingerprinter .*now uses .*KeepsFragments.*ON_MISMATCH",
        id="another fingerprinter",
    ),
    pytest.param(nothing, {"BLOOMDUPE_SCHEME": "blake2b"}, "'murmur3'.*'blake2b'", id="another scheme"),
    pytest.param(
        nothing, {"BLOOMDUPE_STORE": "None"}, "'lmdb', settings ask for None", id="without its store"
    ),
]


def assert_refused(crawl: Crawl, message: str) -> None:
    assert 1 == crawl.code
    assert "'finish_reason': 'bloomdupe_refused'" in crawl.log
    assert "'bloomdupe/error/open': 1" in crawl.log
    assert "Traceback" not in crawl.log
    assert crawl.log.rstrip().endswith("Spider closed (bloomdupe_refused)")
    (line,) = crawl.lines("[scrapy_bloomdupe", "ERROR: The crawl does not start: ")
    assert re.search(message, line), line
    assert "Crawled 0 pages" in crawl.log


@pytest.mark.parametrize(("damage", "settings", "message"), DAMAGES)
def test_a_state_that_does_not_check_out_ends_the_crawl_before_it_begins(
    site: Site, tmp_path: Path, state: Path, damage: Damage, settings: dict[str, Any], message: str
) -> None:
    area = site.area()
    damage(state)
    before = contents(state)
    job = {**FILTER, "JOBDIR": tmp_path / "job", **settings}
    crawl = scrapy(tmp_path, ["runspider", SPIDER, "-a", f'start=["{area.at("tree/30/0")}"]'], job)
    assert_refused(crawl, message)
    assert [] == area.answers()
    assert before == contents(state)


def test_a_project_that_asks_for_what_cannot_be_gets_exit_code_1_of_scrapy_crawl(
    site: Site, tmp_path: Path
) -> None:
    area = site.area()
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop_settings\n")
    (tmp_path / "shop_settings.py").write_text(
        "SPIDER_MODULES = ['crawling']\n"
        "ADDONS = {'scrapy_bloomdupe.Addon': 500}\n"
        "BLOOMDUPE_DIR = '/proc/nowhere/seen'\n"
    )
    start = f'start=["{area.at("tree/30/0")}"]'
    crawl = scrapy(tmp_path, ["crawl", "follow", "-a", start], {}, forked=False)
    assert_refused(crawl, "cannot make the directory /proc/nowhere/seen: .*check the path")
    assert [] == area.answers()


def test_on_mismatch_new_moves_the_old_state_aside_and_crawls(
    site: Site, tmp_path: Path, state: Path
) -> None:
    area = site.area()
    before = contents(state)
    other = {"REQUEST_FINGERPRINTER_CLASS": f"{__name__}.KeepsFragments", "BLOOMDUPE_ON_MISMATCH": "new"}
    job = {**FILTER, "JOBDIR": str(tmp_path / "job"), **other}
    crawl = run(tmp_path, job, start=[area.at("plain#a"), area.at("plain#b")])
    assert (0, "finished") == (crawl.code, crawl.stats["finish_reason"])
    assert {"plain": 2} == area.fetched()
    assert 2 == crawl.ours()["bloomdupe/keys"]
    (aside,) = state.glob("old-*")
    assert re.fullmatch(r"old-\d{8}-\d{6}", aside.name)
    # The same bytes, but for the mark that the filter was opened.
    assert before["seen.lmdb"] == (aside / "seen.lmdb").read_bytes()
    assert len(before["seen.bloom"] or b"") == (aside / "seen.bloom").stat().st_size
    (notice,) = crawl.lines("WARNING", "ON_MISMATCH is 'new'")
    assert str(aside) in notice
    assert "RequestFingerprinter" in notice


def test_a_second_crawl_on_the_same_directory_is_refused_and_the_first_goes_on_unharmed(
    site: Site, tmp_path: Path
) -> None:
    area, other = site.area(), site.area()
    job = {**FILTER, "JOBDIR": str(tmp_path / "job")}
    spider, start = f"{__name__}.Waits", [area.at("tree/30/0")]
    with running(tmp_path, job, spider=spider, first=area.at("plain"), start=start) as first:
        first.wait_until(lambda: bool(area.answers()), "the first page")
        # Without the JOBDIR: what two crawls do to one queue of Scrapy is not the question.
        same = {**FILTER, "BLOOMDUPE_DIR": tmp_path / "job" / "bloomdupe"}
        second = scrapy(tmp_path, ["runspider", SPIDER, "-a", f'start=["{other.at("plain")}"]'], same)
        (tmp_path / "go").touch()
        ended = first.finish()
    assert_refused(second, f"{tmp_path}/job/bloomdupe is in use by process {first.process.pid}; wait until")
    assert [] == other.answers()
    assert (0, "finished") == (ended.code, ended.stats["finish_reason"])
    assert PAGES + Counter(["plain"]) == area.fetched()
    # The directory is whole, and free again.
    again = run(tmp_path, job, start=start)
    assert (0, "finished") == (again.code, again.stats["finish_reason"])
    assert PAGES + Counter(["plain"]) == area.fetched()
