"""The README's quickstart runs as it stands; only address, topic and the command's place differ."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.suite import documents
from harness.suite.need import need
from harness.suite.tidy_checks import ROOT

pytestmark = pytest.mark.slow

README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def block(language: str, word: str) -> str:
    """The README's one block of a language that uses this word."""
    (found,) = (b for b in documents.blocks(README, language) if word in b.body)
    return found.body


def run(cluster: Cluster, program: str, body: str) -> str:
    """What a block prints on this cluster, with a topic of its own."""
    here = body.replace("127.0.0.1:9092", cluster.bootstrap).replace(".venv/bin", str(BIN))
    script = here.replace("tides", f"tides-{uuid.uuid4().hex[:8]}")
    assert script != body
    done = subprocess.run(
        [program, *(["-e", "-c"] if program == "bash" else ["-c"]), script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TIDELOG_BOOTSTRAP": cluster.bootstrap},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_project_s_own_commands(cluster: Cluster) -> None:
    printed = run(cluster, "bash", block("sh", "tidelog topic create"))
    assert printed.splitlines()[-1] == "high water"


def test_kcat(cluster: Cluster) -> None:
    need("kcat")
    assert "high water" in run(cluster, "bash", block("sh", "kcat -b"))


def test_confluent_kafka(cluster: Cluster) -> None:
    printed = run(cluster, sys.executable, block("python", "confluent_kafka"))
    assert printed == "0 b'harbour' b'high water'\n"


def test_kafka_python(cluster: Cluster) -> None:
    printed = run(cluster, sys.executable, block("python", "KafkaProducer"))
    assert printed == "0 b'harbour' b'low water'\n"
