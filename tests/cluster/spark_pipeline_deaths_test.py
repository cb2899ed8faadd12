"""Mirrors and replays that are told to end, or are killed, and run again: each row is there once,
and the counts say so.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.processes.cluster import Cluster
from harness.spark import setup
from harness.spark.few_rows import FEW_ROWS
from harness.spark.interrupts import Ended, started
from harness.spark.plain import Place
from harness.spark.shared import SharedSpark
from harness.spark.starts import NOT_STARTED, STARTS_MAX
from harness.spark.struck import DEATH, DEATHS, MARK, MOMENT, MOMENTS
from harness.suite.need import need
from tidelog.spark.pipelines.topics import ensure_topics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 4_000
CODES = {"SIGINT": 130, "SIGTERM": 143, "jvm": 1, "python": -9}


class Cell(NamedTuple):
    """Of the matrix."""

    program: str
    death: str
    moment: str


IN_EVERY_RUN = [
    Cell("mirror", "SIGINT", "middle"),
    Cell("replay", "python", "written"),
]
OTHERS = [
    cell
    for program in ("mirror", "replay")
    for death in DEATHS
    for moment in MOMENTS
    if (cell := Cell(program, death, moment)) not in IN_EVERY_RUN
]


def value_of(number: int) -> bytes:
    """Large, so that Spark hands fifty of them on without waiting for more."""
    return b"%d %s" % (number, b"x" * 2_000)


class Scene:
    """Rows, and what copies them."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._place = Place(cluster.bootstrap)

    def words(self, program: str) -> list[str]:
        """Of the program; the copy is the topic `copy-` and the name of the folder."""
        rows = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50"}
        conf = {**FEW_ROWS, **rows, "spark.driver.memory": "1g"}
        words = [f"--conf={name}={value}" for name, value in conf.items()]
        words += ["--master", "local[2]", "--bootstrap", self._cluster.bootstrap]
        return words + (self._mirror() if program == "mirror" else self._replay())

    def struck(self, words: list[str], cell: Cell) -> tuple[Ended, list[str]]:
        """The program's end, and the processes that are left of it."""
        ended, left = self._run(words, cell)
        for _ in range(STARTS_MAX):
            if NOT_STARTED not in ended.err:
                break
            ended, left = self._run(words, cell)
        return ended, left

    def _run(self, words: list[str], cell: Cell) -> tuple[Ended, list[str]]:
        folder = self._folder / f"run-{len([*self._folder.iterdir()])}"
        folder.mkdir()
        tests = str(Path(__file__).parents[1])
        environment = {**self._cluster.variables(), **setup.kept_in(folder)}
        environment |= {
            **setup.preloaded_workers(),
            "PYTHONPATH": os.pathsep.join([tests, environment["PYTHONPATH"]]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            MOMENT: cell.moment,
            DEATH: cell.death,
            MARK: str(self._folder / "mark"),
        }
        words = ["-W", "ignore", "-m", "harness.spark.struck", cell.program, *words]
        with started(words, folder, environment) as program:
            return program.ended(300), program.left()

    def copied(self) -> list[int]:
        committed = {"kafka_isolation_level": "read_committed"}
        values = self._place.values(subscribe=self._copy, **committed)
        return sorted(int(value.split()[0]) for value in values)

    @property
    def _copy(self) -> str:
        return f"copy-{self._topic}"

    @property
    def _topic(self) -> str:
        return f"t-{self._folder.name}".replace("[", "-").replace("]", "")

    def _mirror(self) -> list[str]:
        ensure_topics(self._place.client, {self._topic: 2, self._copy: 2})
        producer = confluent_kafka.Producer({"bootstrap.servers": self._cluster.bootstrap})
        for n in range(ROWS):
            producer.produce(self._topic, value_of(n), partition=n % 2)
        assert producer.flush(30) == 0
        checkpoint = str(self._folder / "cp")
        words = ["--to", self._cluster.bootstrap, "--prefix", "copy-", "--topics", self._topic]
        return [*words, "--checkpoint", checkpoint, "--batch-offsets", str(ROWS // 2)]

    def _replay(self) -> list[str]:
        for number in range(2):
            values = range(number, ROWS, 2)
            rows = {
                "value": pa.array([value_of(n) for n in values]),
                "key": pa.nulls(len(values), pa.binary()),
                "offset": pa.array(range(len(values)), pa.int64()),
                "timestamp": pa.array([1_000_000] * len(values), pa.timestamp("us", "UTC")),
                "headers": pa.nulls(len(values), HEADERS),
            }
            folder = self._folder / "lake" / "topic=any" / f"partition={number}"
            folder.mkdir(parents=True)
            pq.write_table(pa.table(rows), folder / "part.parquet")
        words = ["--source", str(self._folder / "lake"), "--topic", self._copy]
        return [*words, "--job-id", self._topic]


HEADERS: Any = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def check(cell: Cell, cluster: Cluster, spark: SharedSpark, folder: Path) -> None:
    """What runs next needs no JVM of its own: all it has of the first one is in the cluster and in
    the folder."""
    need("java")
    scene = Scene(cluster, folder)
    words = scene.words(cell.program)
    ended, left = scene.struck(words, cell)
    assert (folder / "mark").exists(), ended
    assert left == [], ended
    assert ended.code == CODES[cell.death], ended
    again = spark.answers("again_program", name=cell.program, words=words)
    assert again["code"] == 0
    assert scene.copied() == [*range(ROWS)]
    told = json.loads(again["out"])
    assert (told["rows"], told["found"]) == (ROWS, ROWS)


@pytest.mark.parametrize("cell", IN_EVERY_RUN, ids="-".join)
def test_each_row_is_there_once_after_the_next_run(
    cluster: Cluster, shared_spark: SharedSpark, tmp_path: Path, cell: Cell
) -> None:
    check(cell, cluster, shared_spark, tmp_path)


@pytest.mark.parametrize("cell", OTHERS, ids="-".join)
def test_each_row_is_there_once_whatever_ends_a_program_whenever(
    cluster: Cluster, shared_spark: SharedSpark, tmp_path: Path, cell: Cell, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("starts twenty JVMs: --nightly")
    check(cell, cluster, shared_spark, tmp_path)
