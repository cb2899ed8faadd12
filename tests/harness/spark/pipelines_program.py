"""Every pipeline once, in one session of Spark: how it ended, and what it printed."""

import contextlib
import importlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tidelog.clients.admin.group_offsets import commit_offsets, committed_offsets
from tidelog.kernel.ids import Partition
from tidelog.spark.pipelines.acks import SCHEMA
from tidelog.spark.pipelines.arguments import parse
from tidelog.spark.pipelines.topics import connect

ROWS = 3_000
GROUP = "g-of-load"
READ = {0: 100, 1: 0, 2: 700}
"""How far the group has read each partition."""


class Steps:
    """Runs programs one after the other and keeps what they said."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.folder = folder
        self.said: dict[str, Any] = {}

    def run(self, step: str, name: str, **given: Any) -> None:
        words = [f"--bootstrap={self.bootstrap}"] if given.pop("cluster", True) else []
        for key, value in given.items():
            option = "--" + key.replace("_", "-")
            words.append(option if value is True else f"{option}={value}")
        program: Any = importlib.import_module(f"tidelog.spark.pipelines.{name}")
        out = io.StringIO()
        arguments = parse(program.Arguments, words)
        arguments.check()
        if arguments.bootstrap:
            arguments.look(connect(arguments.bootstrap))
        with contextlib.redirect_stdout(out):
            code = program.main(self.spark, arguments)
        told = [json.loads(line) for line in out.getvalue().splitlines()]
        self.said[step] = {"code": code, "told": told}

    def path(self, name: str) -> str:
        return str(self.folder / name)


def load(steps: Steps) -> None:
    steps.run(
        "produce",
        "produce",
        topic="load",
        partitions=3,
        rows=ROWS,
        keys=40,
        skew=1.0,
        rate=20_000,
        tasks=2,
        codec="lz4",
        history=steps.path("acks"),
    )
    Path(steps.path("in.csv")).write_text("id,name\n1,a\n2,b\n3,c\n", encoding="utf-8")
    given = {"input": steps.path("in.csv"), "format": "csv", "key": "id"}
    steps.run("produce rows", "produce", topic="orders", partitions=1, **given)
    steps.run("produce again", "produce", topic="orders", tasks=1, value="name", **given)


def copies(steps: Steps) -> None:
    lake = {"topics": "load", "dest": steps.path("lake"), "batch_offsets": 2_000}
    steps.run("export", "export", by_date=True, **lake)
    steps.run("export again", "export", by_date=True, **lake)
    steps.run("replay", "replay", source=steps.path("lake"), topic="back", verify=True)
    for step in ("replay once", "replay twice"):
        once = {"topic": "once", "job_id": "once-1", "verify": True}
        steps.run(step, "replay", source=steps.path("lake"), **once)
    client = connect(steps.bootstrap)
    offsets = {("load", Partition(number)): at for number, at in READ.items()}
    client.run(commit_offsets(client.view, GROUP, offsets))
    steps.run(
        "mirror",
        "mirror",
        to=steps.bootstrap,
        prefix="copy-",
        topics="load",
        checkpoint=steps.path("mirror"),
        groups=GROUP,
        batch_offsets=1_200,
    )
    found = client.run(committed_offsets(client.view, GROUP))
    steps.said["translated"] = {
        str(number): where.offset for (topic, number), where in found.items() if topic != "load"
    }


def checks(steps: Steps) -> None:
    history = {"history": steps.path("acks")}
    steps.run("verify", "verify", topics="load", **history)
    steps.run("verify copy", "verify", topics="copy-load", **history)
    _tell_lies(steps)
    steps.run(
        "verify lies",
        "verify",
        cluster=False,
        records=steps.path("lies"),
        history=steps.path("told.parquet"),
        faults=steps.path("faults.jsonl"),
        reads=steps.path("reads.jsonl"),
        id="cast(cast(value as string) as bigint)",
        ids_of=100,
        dest=steps.path("found"),
    )


def looks(steps: Steps) -> None:
    steps.run("asof", "asof", topic="load", dest=steps.path("then"))
    steps.run("asof keys", "asof", topic="load", latest_by_key=True, show=1)
    steps.run("asof diff", "asof", topic="orders", diff_from="3", at="end", show=9)
    steps.run("lag", "lag", groups=GROUP, top=2, samples=2, interval="1ms")
    steps.run("compaction", "compaction", topic="load", top=1)


def files(steps: Steps, data: str) -> None:
    steps.run("compaction of files", "compaction", cluster=False, topic="load", data=data, top=9)
    history = steps.path("acks")
    steps.run("verify files", "verify", cluster=False, topics="load", data=data, history=history)


def _tell_lies(steps: Steps) -> None:
    """One record wrong in each way there is; the others are right."""
    acks = [
        *((id_, at, "acked", 1_000) for at, id_ in enumerate(range(100, 105))),
        (105, 50, "acked", 2_000),  # lost, while b1 was away
        (106, 6, "aborted", 2_000),  # there
        (107, -1, "unknown", 2_000),  # there
        (108, 44, "acked", 3_000),  # elsewhere
        (109, -1, "failed", 3_000),  # not there, as it should be
    ]
    told = [(id_, "t", 0, at, status, when) for id_, at, status, when in acks]
    columns = [pa.array(list(one), field.type) for one, field in zip(zip(*told), SCHEMA)]  # noqa: B905 -- of one length
    pq.write_table(pa.table(columns, schema=SCHEMA), steps.path("told.parquet"))
    # 102 is there twice, 104 before 103, and nobody knows of 777.
    log = [100, 101, 102, 104, 103, 102, 106, 107, 108, 777]
    rows = {
        "value": pa.array([str(id_).encode() for id_ in log]),
        "offset": pa.array(range(len(log)), pa.int64()),
        "timestamp": pa.array([1_000_000] * len(log), pa.timestamp("us", "UTC")),
    }
    folder = Path(steps.path("lies")) / "topic=t" / "partition=0"
    folder.mkdir(parents=True)
    pq.write_table(pa.table(rows), folder / "part.parquet")
    faults = [("kill b1", 1_500, 2_500), ("cut", 5_000, 6_000)]
    _lines(steps, "faults.jsonl", [dict(zip(("name", "from_ms", "to_ms"), one)) for one in faults])  # noqa: B905 -- as above
    _lines(steps, "reads.jsonl", [{"id": id_, "at_ms": 9} for id_ in log if id_ != 101])


def _lines(steps: Steps, name: str, rows: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    Path(steps.path(name)).write_text(text, encoding="utf-8")


def answers(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """What each step has said: of all that ask a cluster, or of those that read its files."""
    steps = Steps(spark, asked["bootstrap"], Path(asked["folder"]))
    if asked["data"]:
        files(steps, asked["data"])
        return steps.said
    for part in (load, copies, checks, looks):
        part(steps)
    return steps.said
