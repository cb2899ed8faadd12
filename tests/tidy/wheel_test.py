"""What is published: names in the wheel and the sdist, and that the wheel alone runs."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.suite.tidy_checks import CODE_ROOTS, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


FOUND_BY_SPARK = "pyspark_tidelog"
"""Spark looks for data sources in packages of such names."""


@dataclass(frozen=True, slots=True)
class Built:
    wheel: Path
    sdist: Path

    def wheel_names(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()

    def sdist_names(self) -> list[str]:
        """Without the folder that all of them lie in."""
        with tarfile.open(self.sdist) as archive:
            return [name.partition("/")[2] for name in archive.getnames()]


def run(*command: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run it without PYTHONPATH, which would show it the tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist from the tree, and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, which borrows this one's dependencies."""
    folder = tmp_path_factory.mktemp("venv")
    made = run(sys.executable, "-m", "venv", "--without-pip", folder)
    assert made.returncode == 0, made.stderr
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python")
    done = run(*pip, "install", "--no-deps", built.wheel)
    assert done.returncode == 0, done.stderr
    # A path named in a .pth file is searched, but its own .pth files are not read: so the tree
    # this environment was installed from stays out of sight.
    borrowed = sysconfig.get_path("purelib")
    (site_packages(folder) / "borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    return folder


def site_packages(folder: Path) -> Path:
    (found,) = folder.glob("lib/python3.*/site-packages")
    return found


def test_the_wheel_holds_the_package_under_its_own_names_only(built: Built) -> None:
    tops = {name.split("/")[0] for name in built.wheel_names()}
    about = f"{built.wheel.name.split('-py3')[0]}.dist-info"
    assert sorted(tops) == [FOUND_BY_SPARK, "tidelog", about]
    assert "tidelog/__init__.py" not in built.wheel_names()


def test_the_wheel_holds_every_module(built: Built) -> None:
    modules = {
        str(path.relative_to(ROOT / top))
        for top in CODE_ROOTS
        for path in (ROOT / top / "tidelog").rglob("*.py")
    }
    assert modules - set(built.wheel_names()) == set()


def test_the_sdist_holds_what_a_packager_needs(built: Built) -> None:
    names = set(built.sdist_names())
    needed = {"pyproject.toml", "README.md", "LICENSE", "tests/conftest.py", ".ci/run"}
    assert needed - names == set()
    assert [name for name in names if ".venv" in name or "__pycache__" in name] == []


def test_installing_adds_no_bare_name(installed: Path) -> None:
    names = sorted(path.name for path in site_packages(installed).iterdir())
    ours = ("tidelog", FOUND_BY_SPARK, "borrowed")
    assert [name for name in names if not name.startswith(ours)] == []
    for bare in ("tools", "node", "clients", "coordinator", "tests", "harness"):
        done = run(installed / "bin/python", "-c", f"import {bare}", folder=installed)
        assert "ModuleNotFoundError" in done.stderr, bare


def test_the_command_runs_from_the_wheel(installed: Path) -> None:
    done = run(installed / "bin/tidelog", "--help", folder=installed)
    assert done.returncode == 0, done.stderr
    assert "up" in done.stdout


def test_every_module_of_the_wheel_is_its_own_and_imports(installed: Path) -> None:
    """Each from the wheel's files: none is found in the tree by accident."""
    listing = (
        "import pkgutil, importlib, tidelog\n"
        "for found in pkgutil.walk_packages(tidelog.__path__, 'tidelog.'):\n"
        "    print(importlib.import_module(found.name).__file__)\n"
    )
    done = run(installed / "bin/python", "-c", listing, folder=installed)
    assert done.returncode == 0, done.stderr
    places = [Path(line) for line in done.stdout.splitlines()]
    assert places
    assert [place for place in places if not place.is_relative_to(installed)] == []
