"""What do all tests share? Keys, a fixed secret, processes of their own, and no trace outside tmp_path."""

from __future__ import annotations

import compileall
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest
from hypothesis import configuration, settings
from servers import Valkey, cluster, postgres

import scrapy_bloomdupe

# The same examples in every run: a property that fails is found where it was written, not by a stranger.
settings.register_profile("bloomdupe", derandomize=True, deadline=None)
settings.load_profile("bloomdupe")

#: A browser to look at pages with. Where there is none, what needs it is no test of this machine.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
collect_ignore = [] if CHROMIUM else ["test_page_browser.py"]

# What a file has in it most of whose tests start processes.
_STARTERS = {"run", "running", "jobs", "fleets", "subprocess"}
# Files whose tests take longer than those of others, and how many times.
_LONG = {
    "test_benchmarks": 4,
    "test_example_project": 4,
    "test_filters_rates": 30,
    "test_frontier_damage": 6,
    "test_frontier_disk": 3,
    "test_frontier_kills": 3,
    "test_frontier_stops": 3,
    "test_life_kills": 6,
    "test_shared_stops": 3,
}

Python = Callable[..., "subprocess.CompletedProcess[str]"]
StartPython = Callable[..., "subprocess.Popen[str]"]

# What every script of a child process begins with.
_PREAMBLE = """
import hashlib, os, resource, signal, sys
from pathlib import Path

def key(number):
    return hashlib.sha1(b"%d" % number).digest()

def limit_files(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def become_nobody():
    # root may write everywhere: what a read-only directory does shows only without its powers.
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
"""


def pytest_configure(config: pytest.Config) -> None:
    # Hypothesis writes its cache while tests are collected, which is too early for a fixture.
    directory = tempfile.mkdtemp(prefix="bloomdupe-hypothesis-")
    configuration.set_hypothesis_home_dir(directory)
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    if "PYTEST_XDIST_WORKER" not in os.environ:
        _compile()


def _compile() -> None:
    # Hundreds of processes import these, and must not write: some of them have no room, or are killed.
    # What is written here is valid for as long as the source is the same, whatever its date.
    tests = Path(__file__).parent
    for folder in (Path(scrapy_bloomdupe.__file__).parent, tests, tests.parent / "example_project"):
        mode = PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder, quiet=2, invalidation_mode=mode)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put between the files that crawl, and wait much of their time, those that calculate, and begin with the
    longest of both: no worker is left with one at the end. ``--dist loadfile`` keeps to this order."""
    files: dict[Path, list[pytest.Item]] = {}
    for one in items:
        files.setdefault(one.path, []).append(one)
    crawl: list[list[pytest.Item]] = []
    calculate: list[list[pytest.Item]] = []
    for file in sorted(files.values(), key=lambda file: -len(file) * _LONG.get(file[0].path.stem, 1)):
        names = vars(getattr(file[0], "module", None) or pytest)
        (calculate if _STARTERS.isdisjoint(names) else crawl).append(file)
    places = [(number / len(some), file) for some in (crawl, calculate) for number, file in enumerate(some)]
    items[:] = [one for _, file in sorted(places, key=lambda place: place[0]) for one in file]


def pytest_report_header() -> list[str]:
    return [f"no Chromium here: {name} is not collected" for name in collect_ignore]


def pytest_sessionfinish(session: pytest.Session) -> None:
    # A test that cannot get what it needs says so and is skipped on a laptop. In CI that is a failure.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_stay_in_the_tests_own_directory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    before = tempfile.tempdir
    tempfile.tempdir = str(tmp_path_factory.mktemp("tempfile"))
    yield
    tempfile.tempdir = before


@pytest.fixture
def fixed_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters made in this test get the same secret in every run, so that what is measured is fixed."""
    monkeypatch.setattr(secrets, "token_bytes", lambda size: bytes(range(size)))


@pytest.fixture(scope="session")
def million_keys() -> list[bytes]:
    """10^6 digests to put in; ``key(i)`` of most modules is the i-th."""
    return [sha1(b"%d" % number).digest() for number in range(1_000_000)]


@pytest.fixture(scope="session")
def other_keys() -> list[bytes]:
    """10^6 other digests, to ask for."""
    return [sha1(b"other %d" % number).digest() for number in range(1_000_000)]


def _command(script: str, arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-c", _PREAMBLE + script, *map(str, arguments)]


def _environment() -> dict[str, str]:
    package = Path(scrapy_bloomdupe.__file__).parent.parent
    search = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run a script in a process of its own, in tmp_path, to its end."""

    def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            _command(script, arguments),
            cwd=tmp_path,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def start_python(tmp_path: Path) -> Iterator[StartPython]:
    """Start a script in a process of its own, in tmp_path; it is killed at the test's end."""
    processes: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            _command(script, arguments),
            cwd=tmp_path,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A server without modules. It is emptied by whoever needs that; names tell its users apart."""
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_bloom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A server with RedisBloom."""
    with Valkey(tmp_path_factory.mktemp("valkey-bloom"), bloom=True) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Valkey]]:
    """Three nodes."""
    with cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server; tables tell its users apart."""
    with postgres() as url:
        yield url
