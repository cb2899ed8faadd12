"""How far groups are behind: in records, in time, by partition and by key; once, or again."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.clients.admin.group_offsets import committed_offsets
from tidelog.clients.settings import Isolation
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.failures import DONE, NOT_FOUND, PipelineError
from tidelog.spark.pipelines.frames import first_rows, milliseconds, read_between
from tidelog.spark.pipelines.interrupts import INTERRUPTS
from tidelog.spark.pipelines.output import emit
from tidelog.spark.pipelines.topics import connect, ends, starts

_SHARES = (0.5, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    groups: str
    samples: int = option(given.positive, 1)
    interval: float = option(given.seconds, 10.0)
    top: int = option(given.whole, 5)


def main(spark: SparkSession, arguments: Arguments) -> int:
    for number in range(arguments.samples):
        if number:
            INTERRUPTS.pause(arguments.interval)
        for group in arguments.groups.split(","):
            emit({"pipeline": "lag", "sample": number, **sample(spark, arguments, group)})
    return DONE


def sample(spark: SparkSession, arguments: Arguments, group: str) -> dict[str, Any]:
    """One group, now."""
    client = connect(arguments.bootstrap)
    committed = {
        one: int(where.offset)
        for one, where in client.run(committed_offsets(client.view, group)).items()
    }
    if not committed:
        raise PipelineError(f"group {group!r} has committed no offset", NOT_FOUND)
    stops = ends(client, committed, Isolation.READ_COMMITTED)
    begins = starts(client, committed)
    # What retention has taken nobody can be behind with any more.
    first = {one: min(max(at, begins[one]), stops[one]) for one, at in committed.items()}
    lags = {one: stops[one] - at for one, at in first.items()}
    now_ms = time.time_ns() // 1_000_000
    rows = read_between(
        spark, arguments.bootstrap, first, stops, columns="key,topic,partition,timestamp"
    ).withColumn("age_ms", f.lit(now_ms) - milliseconds(f.col("timestamp")))
    behind = ages(rows)
    total = sum(lags.values())
    return {
        "group": group,
        "at_ms": now_ms,
        "lag": total,
        "unread": sum(one["unread"] for one in behind.values()),
        "partitions": [
            {
                "partition": f"{topic}-{number}",
                "committed": committed[topic, number],
                "end": stops[topic, number],
                "lag": lag,
                "share": round(lag / total, 4) if total else 0.0,
                **behind.get((topic, number), {"unread": 0, "age_ms": None}),
            }
            for (topic, number), lag in sorted(lags.items(), key=lambda one: -one[1])
        ],
        "keys": hot_keys(rows, arguments.top),
    }


def ages(rows: DataFrame) -> Mapping[tuple[str, int], dict[str, Any]]:
    """How many records each partition has unread, and how old they are."""
    found = rows.groupBy("topic", "partition").agg(
        f.count("*").alias("unread"),
        f.percentile_approx("age_ms", list(_SHARES), 1000).alias("ages"),
    )
    names = ("p50", "p95", "p99", "max")
    return {
        (row.topic, row.partition): {
            "unread": row.unread,
            "age_ms": dict(zip(names, row.ages, strict=True)),
        }
        for row in found.collect()
    }


def hot_keys(rows: DataFrame, count: int) -> list[dict[str, Any]]:
    """Of what is unread: the keys that most of it has."""
    if not count:
        return []
    keys = rows.where("key is not null").groupBy("key").agg(f.count("*").alias("unread"))
    return first_rows(keys.orderBy(f.desc("unread"), "key"), count)
