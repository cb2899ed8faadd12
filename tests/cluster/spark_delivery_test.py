"""The commands of the page about Spark on several machines run as they stand there.

On a standalone Spark of a master and two workers, whose Python has no tidelog.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest

from harness.processes.cluster import Cluster
from harness.spark.plain import Place
from harness.spark.setup import kept_in
from harness.spark.standalone import clean_python, environment, spark_home, standalone
from harness.suite.documents import blocks
from harness.suite.need import need
from harness.suite.tidy_checks import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = (ROOT / "docs/spark-cluster.md").read_text(encoding="utf-8")
PROGRAM = "tide_copies.py"
ROWS = 300
SMALL = "spark.executor.memory 512m\nspark.log.level ERROR\n"


@dataclass(frozen=True)
class SparkCluster:
    """One of Spark, and the Python of its workers."""

    master: str
    python: Path


@pytest.fixture(scope="module")
def workers(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SparkCluster]:
    if not request.config.getoption("--nightly"):
        pytest.skip("starts a Spark cluster, and takes minutes: --nightly")
    need("java")
    folder = tmp_path_factory.mktemp("standalone")
    python = clean_python(folder / "clean")
    with standalone(folder, python) as master:
        yield SparkCluster(master, python)


class Machine:
    """Where a user submits from: a folder with the page's program."""

    def __init__(self, folder: Path, workers: SparkCluster, cluster: Cluster) -> None:
        self.folder, self._workers = folder, workers
        self.place = Place(cluster.bootstrap)
        self.source, self.sink = (self.place.topic(partitions=2) for _ in range(2))
        (program,) = (one.body for one in blocks(PAGE, "python") if "ts.session(" in one.body)
        named = program.replace('"tide-copies")', f'"{self.sink}")')
        (folder / PROGRAM).write_text(named.replace('"tides"', f'"{self.source}"'))
        (folder / "spark-defaults.conf").write_text(SMALL)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        for n in range(ROWS):
            producer.produce(self.source, b"%d" % n, partition=n % 2)
        assert producer.flush(30) == 0

    def run(self, commands: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """As they stand on the page, but for addresses and places."""
        said = commands.replace("spark://127.0.0.1:7077", self._workers.master)
        said = said.replace("127.0.0.1:9092", self.place.bootstrap)
        said = said.replace("/opt/spark-python/bin/python", str(self._workers.python))
        assert said != commands
        tools = f"{Path(sys.executable).parent}:{spark_home() / 'bin'}:{os.environ['PATH']}"
        given = {**environment(self._workers.python), **kept_in(self.folder), "PATH": tools, **more}
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            del given[name]  # what the page says decides
        return subprocess.run(
            ["bash", "-e", "-c", said],
            cwd=self.folder,
            env={**given, "SPARK_CONF_DIR": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )

    def check(self, done: "subprocess.CompletedProcess[str]") -> None:
        assert done.returncode == 0, (done.stdout + done.stderr)[-6_000:]
        assert done.stdout.splitlines()[-1] == f"{ROWS} rows copied"
        given = {"subscribe": self.sink, "kafka_isolation_level": "read_committed"}
        assert sorted(map(int, self.place.values(**given))) == list(range(ROWS))


@pytest.fixture
def machine(cluster: Cluster, tmp_path: Path, workers: SparkCluster) -> Machine:
    return Machine(tmp_path, workers, cluster)


def commands(name: str) -> str:
    """Of the page's block with this name."""
    found = re.search(rf"<!-- command: {name} -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_executors_without_tidelog_get_it_as_a_zip(machine: Machine) -> None:
    machine.check(machine.run(commands("py-files")))


def test_executors_get_tidelog_in_a_packed_environment(machine: Machine) -> None:
    wheels = machine.folder / "wheels"
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(wheels)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    machine.check(machine.run(commands("archives"), PIP_FIND_LINKS=str(wheels)))


def test_without_tidelog_a_query_says_how_to_send_it(machine: Machine) -> None:
    line = commands("py-files").splitlines()[-1]
    without = line.replace("--py-files sent/tidelog.zip", "")
    assert without != line
    driver = f"spark-submit --conf spark.pyspark.driver.python={sys.executable}"
    done = machine.run(without.replace("spark-submit", driver))
    assert done.returncode != 0
    assert f"this Python of Spark ({machine._workers.python} on " in done.stdout
    assert "has no tidelog: send it with the program (`tidelog pipeline package`" in done.stdout
