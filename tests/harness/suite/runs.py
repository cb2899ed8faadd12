"""Runs of pytest that a run of pytest starts."""

import os
import subprocess
import sys
from pathlib import Path

from harness.suite.tidy_checks import ROOT


def environment() -> dict[str, str]:
    """This process's own, without what pytest and its workers say of the present run."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_CURRENT", "PYTEST_XDIST"))
    }


def run_apart(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of another project, which can import `harness`, without options of this run."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env=outside | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
