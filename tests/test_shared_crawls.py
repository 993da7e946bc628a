"""Do several crawls that share what they have seen fetch every page, and once?

A long version: ``BLOOMDUPE_FLEET=4 BLOOMDUPE_FLEET_PAGES=2000 pytest -n0`` with this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleets import BARE, EXACT, EXTRA, KINDS, LONG, PAGES, Fleet, fleets, sharing
from killsite import Tree


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Fleet]]:
    with fleets(tmp_path_factory.mktemp("fleets")) as make:
        yield make


SHORT = ["bitmap", "store under negatives", "filter and postgresql", "filter and local lmdb"]


@pytest.mark.parametrize("kind", [*BARE, *EXACT] if LONG else SHORT)
def test_every_page_is_fetched_once_by_one_of_several_crawls(
    make: Callable[..., Fleet], tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    fleet = make(tmp_path, Tree(PAGES, 1, KINDS, extra=EXTRA), sharing(kind, request))
    fleet.run()
    fleet.check()
    shares = [run.stats["downloader/response_status_count/200"] for run in fleet.runs]
    assert min(shares) > PAGES / fleet.size / 4, shares
