"""Pipelines whose counts are held against what readers find, in one session of Spark.

Some steps plant a fault between what is read and what is written: a row that is dropped, or is
written twice.
"""

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from harness.spark.fingerprints_program import SCHEMA
from harness.spark.plain import Place
from tidelog.clients.admin.delete_records import delete_records
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Offset, Partition
from tidelog.spark.pipelines import export, mirror, produce, replay
from tidelog.spark.pipelines.arguments import parse
from tidelog.spark.pipelines.contents import Taken, differences
from tidelog.spark.pipelines.running import told
from tidelog.spark.pipelines.topics import connect, ends, ensure_topics
from tidelog.spark.sessions import read_stream

ROWS = 300
OTHERS = 7
CUT = 40
Change = Callable[[DataFrame], DataFrame]


def dropped(rows: DataFrame) -> DataFrame:
    """Without one of them."""
    return rows.where("cast(value as string) not like '%-5'")


def doubled(rows: DataFrame) -> DataFrame:
    """With one of them twice."""
    twice = f.expr("if(cast(value as string) like '%-5', array(1, 2), array(1))")
    return rows.withColumn("times", f.explode(twice)).drop("times")


@contextlib.contextmanager
def put(module: Any, name: str, made: Any) -> Iterator[None]:
    """Another function in the place of a module's own."""
    before = getattr(module, name)
    setattr(module, name, made)
    try:
        yield
    finally:
        setattr(module, name, before)


def changed(function: Callable[..., DataFrame], change: Change) -> Callable[..., DataFrame]:
    return lambda *given, **named: change(function(*given, **named))


class Steps:
    """Runs programs one after the other, and keeps what they said."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.said: dict[str, Any] = {}

    def run(self, step: str, name: str, /, **given: Any) -> None:
        words = [f"--bootstrap={self.bootstrap}"]
        for key, value in given.items():
            option = "--" + key.replace("_", "-")
            words.append(option if value is True else f"{option}={value}")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code, sentence = self._ended(name, words)
        rows = [json.loads(line) for line in out.getvalue().splitlines()]
        said = {"code": code, "told": rows, "error": sentence or err.getvalue()}
        self.said[step] = said

    def _ended(self, name: str, words: list[str]) -> tuple[int, str]:
        program: Any = importlib.import_module(f"tidelog.spark.pipelines.{name}")
        try:
            arguments = parse(program.Arguments, words)
            arguments.check()
            arguments.look(connect(arguments.bootstrap))
            return program.main(self.spark, arguments), ""
        except Exception as error:  # noqa: BLE001 -- as the command does
            sentence, code = told(error)
            return code, sentence

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def write(self, topic: str, what: str, count: int, partition: int = 0) -> None:
        """Rows that say whose and which they are."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for number in range(count):
            producer.produce(topic, b"%s-%d" % (what.encode(), number), partition=partition)
        assert producer.flush(30) == 0

    def values(self, topic: str) -> int:
        place = Place(self.bootstrap)
        return len(place.values(subscribe=topic, kafka_isolation_level="read_committed"))


def loads(steps: Steps) -> None:
    load = {"topic": "load", "partitions": 2, "rows": ROWS, "tasks": 2}
    steps.run("produce", "produce", history=steps.path("acks"), **load)
    steps.run("produce unconfirmed", "produce", acks="0", **load)
    steps.run("produce again", "produce", history=steps.path("acks"), **load)
    of_tasks = produce._generated

    def lying(*given: Any) -> Any:
        reports = of_tasks(*given)
        place, spans = next(iter(reports[0].acked.items()))
        end = spans[-1][1]
        acked = {**reports[0].acked, place: [*spans, (end + 1_000_000, end + 1_000_001)]}
        rows = reports[0].rows + 1
        return [replace(reports[0], rows=rows, acked=acked), *reports[1:]]

    with put(produce, "_generated", lying):
        steps.run("produce lies", "produce", **load)


def mirrors(steps: Steps) -> None:
    steps.run("source", "produce", topic="tides", partitions=2, rows=ROWS, tasks=1)
    told = {"to": steps.bootstrap, "prefix": "copy-", "topics": "tides", "groups": "none"}
    same = {**told, "checkpoint": steps.path("cp")}
    steps.run("mirror", "mirror", **same)
    steps.run("mirror nothing", "mirror", **same)
    steps.write("tides", "more", ROWS)
    steps.write("copy-tides", "others", OTHERS)
    steps.run("mirror beside others", "mirror", **same)
    steps.run("mirror of a new checkpoint", "mirror", **{**told, "checkpoint": steps.path("cp2")})
    steps.run("mirror of another name", "mirror", name="other", **same)
    for step, change in (("mirror drops", dropped), ("mirror doubles", doubled)):
        again = {**told, "prefix": f"{step[7:]}-", "checkpoint": steps.path(step)}
        with put(mirror, "read_stream", changed(read_stream, change)):
            steps.run(step, "mirror", **again)


def cut(steps: Steps) -> None:
    """Retention takes the oldest records of the copy before they are counted."""
    steps.write("tides", "cut", ROWS)
    copy = mirror._copy
    client = connect(steps.bootstrap)

    def copied(*given: Any) -> Any:
        done = copy(*given)
        place = ("copy-tides", Partition(0))
        end = ends(client, [place], Isolation.READ_COMMITTED)[place]
        client.run(delete_records(client.view, {place: Offset(end - ROWS + CUT - 1)}))
        return done

    told = {"to": steps.bootstrap, "prefix": "copy-", "topics": "tides"}
    with put(mirror, "_copy", copied):
        steps.run("mirror cut", "mirror", checkpoint=steps.path("cp"), **told)


def upgrades(steps: Steps) -> None:
    """A checkpoint of a version that kept no name, and had one for all mirrors."""
    told = {"to": steps.bootstrap, "prefix": "old-", "topics": "tides"}
    same = {**told, "checkpoint": steps.path("old")}
    steps.run("mirror as it was", "mirror", name="mirror", **same)
    (Path(steps.path("old")) / "tidelog-mirror.json").unlink()
    steps.run("mirror elsewhere", "mirror", **{**told, "checkpoint": steps.path("old2")})
    steps.write("tides", "new", ROWS)
    steps.run("mirror upgraded", "mirror", **same)
    steps.write("tides", "newer", ROWS)
    steps.run("mirror later", "mirror", **same)
    steps.said["upgraded"] = {"source": steps.values("tides"), "copy": steps.values("old-tides")}


def files(steps: Steps) -> None:
    ensure_topics(connect(steps.bootstrap), {"fresh": 2})
    steps.write("fresh", "a", ROWS)
    same = {"topics": "fresh", "dest": steps.path("lake")}
    steps.run("export", "export", **same)
    steps.write("fresh", "b", ROWS)
    with put(export, "dated", changed(export.dated, dropped)):
        steps.run("export drops", "export", **same)
    steps.run("export after that", "export", **same)
    source = {"source": steps.path("lake"), "topic": "again"}
    steps.run("replay", "replay", **source)
    steps.write("again", "others", OTHERS)
    for step in ("replay job", "replay job again"):
        steps.run(step, "replay", job_id="j-1", **source)
    write = replay.write

    def writing(change: Change) -> Callable[..., None]:
        return lambda rows, *given: write(change(rows), *given)

    for step, change in (("replay drops", dropped), ("replay doubles", doubled)):
        with put(replay, "write", writing(change)):
            steps.run(step, "replay", **source)


def planted(steps: Steps) -> None:
    """Small logs, and what is found to be different of them."""
    log = [("a", "1"), ("b", "2"), ("a", "3"), ("c", None)]
    plain, compacted, cut = Taken(), Taken(compacted={"t"}), Taken(cut=[("t", Partition(0))])
    cases: dict[str, tuple[list[Any], Taken]] = {
        "others": ([*log, ("x", "9"), ("y", "9")], plain),
        "lost and others": ([*log[:3], ("x", "9")], plain),
        "superseded": (log[2:], plain),
        "superseded in a compacted topic": (log[2:], compacted),
        "tombstone in a compacted topic": (log[:3], compacted),
        "oldest": (log[2:], plain),
        "oldest where the log is cut": (log[2:], cut),
        "newest where the log is cut": (log[1:3], cut),
        "doubled": ([*log, log[1]], plain),
    }
    wanted = _frame(steps.spark, log)
    found = {}
    for name, (there, taken) in cases.items():
        (one,) = differences(wanted, _frame(steps.spark, there), taken)
        found[name] = {
            kind: count for kind, count in asdict(one).items() if kind != "partition" and count
        }
    steps.said["planted"] = found


def _frame(spark: SparkSession, log: list[Any]) -> DataFrame:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        ("t", 0, offset, key.encode(), None if value is None else value.encode(), None, at)
        for offset, (key, value) in enumerate(log)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def answers(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """What each step has said."""
    steps = Steps(spark, asked["bootstrap"], Path(asked["folder"]))
    for part in (loads, mirrors, cut, upgrades, files, planted):
        part(steps)
        sys.stderr.write(f"{part.__name__} done\n")
    return steps.said
