"""Drawn topics and options give the same rows with format `tidelog` and with Spark's connector."""

import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.clients.compacted_topic import BROKER
from harness.processes.cluster import Cluster
from harness.spark import setup as spark
from harness.spark.fidelity import PLANTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7_200)]

CASES, CASES_OF_A_NIGHT = 50, 1_000
SEED = 20


def test_drawn_topics_and_options_give_the_same_rows_with_the_connector(
    tmp_path: Path, *, nightly: bool
) -> None:
    jars = ",".join(map(str, sorted(spark.connector_jars().glob("*.jar"))))
    seed = secrets.randbelow(10**6) if nightly else SEED
    with Cluster(tmp_path, settings=BROKER) as cluster:
        asked = {
            "bootstrap": cluster.bootstrap,
            "jars": jars,
            "seed": seed,
            "cases": CASES_OF_A_NIGHT if nightly else CASES,
        }
        found = compared(tmp_path, asked)
    assert found["differ"] == [], f"seed {seed}"
    assert found["cases"] == asked["cases"]
    assert set(found["caught"]) == {plant.name() for plant in PLANTS}, "each planted fault is found"
    assert min(found["seen"].values()) > 0 or not nightly, found["seen"]


def compared(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "harness.spark.fidelity", json.dumps(asked)],
        env={**spark.environment(), **spark.kept_in(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=7_000,
        check=False,
    )
    (folder / "stderr").write_text(done.stderr)
    assert done.returncode == 0, done.stderr[-6_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    (folder / "found.json").write_text(json.dumps(found, indent=1))
    return found
