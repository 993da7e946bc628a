"""Can it be built and installed? Wheel and sdist, and what a user gets."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=True,
        capture_output=True,
    )
    return out


def test_the_wheel_holds_the_typed_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "scrapy_bloomdupe/py.typed" in names
    assert {"scrapy_bloomdupe"} == {name.split("/")[0] for name in names if ".dist-info/" not in name}


def test_the_sdist_holds_package_tests_and_example(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert {"scrapy_bloomdupe", "tests", "example_project", "README.md", "LICENSE"} <= tops


def test_an_installed_wheel_imports_and_its_command_runs(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    code = (
        "import scrapy_bloomdupe, scrapy_bloomdupe.cli as cli; print(scrapy_bloomdupe.__file__);"
        "raise SystemExit(cli.main(['size', '--capacity', '1e6']))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    ).stdout
    assert shown.startswith(str(tmp_path))
    assert "hashes         10" in shown
