"""Is every page fetched, and every item there, when crawls that share what they have seen are killed?

Each has a job directory, and goes on after a kill. A long version: ``BLOOMDUPE_FLEET=4
BLOOMDUPE_FLEET_PAGES=1000 BLOOMDUPE_FLEET_KILLS=40 BLOOMDUPE_FLEET_SEEDS=5 pytest -n0`` with this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleets import BARE, EXACT, EXTRA, KINDS, LONG, PAGES, Fleet, fleets, sharing
from killsite import Tree

KILLS = int(os.environ.get("BLOOMDUPE_FLEET_KILLS", "6"))
SEEDS = int(os.environ.get("BLOOMDUPE_FLEET_SEEDS", "1"))
SHARED = [*BARE, *EXACT] if LONG else ["bitmap", "filter and store"]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Fleet]]:
    with fleets(tmp_path_factory.mktemp("fleets")) as make:
        yield make


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_crawls_that_are_killed_again_and_again_lose_no_page(
    make: Callable[..., Fleet], tmp_path: Path, kind: str, seed: int, request: pytest.FixtureRequest
) -> None:
    fleet = make(tmp_path, Tree(PAGES, seed, KINDS, extra=EXTRA), sharing(kind, request), jobs=True)
    killed = fleet.kill_often(KILLS, seed)
    fleet.check(once=False)
    assert killed > KILLS / 2
    # What was under way is asked again, and not much more.
    assert sum(count - 1 for count in fleet.twice().values()) <= 30 * KILLS, fleet.story()
