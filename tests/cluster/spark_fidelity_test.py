"""Drawn topics and options give the same rows with format `tidelog` and with Spark's connector."""

import json
import secrets
from pathlib import Path

import pytest

from harness.clients.compacted_topic import BROKER
from harness.processes.cluster import Cluster
from harness.spark.fidelity import PLANTS
from harness.spark.shared import SharedSpark
from harness.suite.need import need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7_200)]

CASES, CASES_OF_A_NIGHT = 50, 1_000
SEED = 20


def test_drawn_topics_and_options_give_the_same_rows_with_the_connector(
    shared_spark: SharedSpark, tmp_path: Path, *, nightly: bool
) -> None:
    need("java", "mvn")
    asked = {
        "seed": secrets.randbelow(10**6) if nightly else SEED,
        "cases": CASES_OF_A_NIGHT if nightly else CASES,
    }
    with Cluster(tmp_path, settings=BROKER) as cluster:
        found = shared_spark.answers("fidelity", bootstrap=cluster.bootstrap, **asked)
    (tmp_path / "found.json").write_text(json.dumps(found, indent=1))
    assert found["differ"] == [], f"seed {asked['seed']}"
    assert found["cases"] == asked["cases"]
    assert set(found["caught"]) == {plant.name() for plant in PLANTS}, "each planted fault is found"
    assert min(found["seen"].values()) > 0 or not nightly, found["seen"]
