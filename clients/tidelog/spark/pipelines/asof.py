"""A topic as it was: all records up to a moment, the latest of each key, or what two moments differ
in."""

import sys
import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidelog.clients.client import Client
from tidelog.clients.consumer.offsets import parse_range, plan_offsets
from tidelog.clients.settings import Isolation
from tidelog.kernel.instant import WallMs
from tidelog.spark.offsets import Positions
from tidelog.spark.pipelines import arguments as given
from tidelog.spark.pipelines.arguments import option
from tidelog.spark.pipelines.failures import DONE, UsageError
from tidelog.spark.pipelines.frames import first_rows, read_between
from tidelog.spark.pipelines.output import emit
from tidelog.spark.pipelines.topics import connect, ends, partitions_of, starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(given.Arguments):
    topic: str
    at: str = "end"
    diff_from: str | None = None
    latest_by_key: bool = False
    dest: str | None = None
    show: int = option(given.whole, 0)

    def check(self) -> None:
        for name, text in (("--at", self.at), ("--diff-from", self.diff_from or "start")):
            try:
                span = parse_range(text, WallMs(0))
            except ValueError as error:
                raise UsageError(f"{name}: {error}") from None
            if span.stop is not None:
                raise UsageError(f"{name}={text}: must be one moment, not a range")

    def look(self, client: Client) -> None:
        partitions_of(client, self.topic)


def main(spark: SparkSession, arguments: Arguments) -> int:
    now = WallMs(time.time_ns() // 1_000_000)
    stop = moment(arguments, arguments.at, now)
    rows = _read(spark, arguments, stop)
    if arguments.diff_from is not None:
        before = _read(spark, arguments, moment(arguments, arguments.diff_from, now))
        rows = changes(latest_by_key(before), latest_by_key(rows))
    elif arguments.latest_by_key:
        rows = latest_by_key(rows)
    rows = rows.cache()
    summary: dict[str, Any] = {
        "pipeline": "asof",
        "topic": arguments.topic,
        "ends": {str(number): at for (_, number), at in sorted(stop.items())},
        "rows": rows.count(),
    }
    if arguments.diff_from is not None:
        summary["changes"] = {row.change: row["count"] for row in _by_change(rows)}
    if arguments.dest is not None:
        rows.write.parquet(arguments.dest)
    if arguments.show:
        order = ["partition", "offset"] if "offset" in rows.columns else ["key"]
        summary["shown"] = first_rows(rows.orderBy(*order), arguments.show)
    emit(summary)
    return DONE


def moment(arguments: Arguments, text: str, now: WallMs) -> Positions:
    """The offset of each partition at that time, within what its log has."""
    client = connect(arguments.bootstrap)
    places = partitions_of(client, arguments.topic)
    plan = plan_offsets(client.view, places, parse_range(text, now), Isolation.READ_COMMITTED)
    found = client.run(plan)
    first, last = starts(client, places), ends(client, places, Isolation.READ_COMMITTED)
    return {one: max(first[one], min(int(found[one].first), last[one])) for one in places}


def latest_by_key(rows: DataFrame) -> DataFrame:
    """What a compacted topic would have: of each key its last record, unless that deletes it."""
    fields = ["offset", "timestamp", "value", *[n for n in ("headers",) if n in rows.columns]]
    last = (
        rows.where("key is not null")
        .groupBy("topic", "partition", "key")
        .agg(f.max_by(f.struct(*fields), "offset").alias("last"))
    )
    return last.select("topic", "partition", "key", "last.*").where("value is not null")


def changes(before: DataFrame, after: DataFrame) -> DataFrame:
    """Keys that came, went, or have another value."""
    old = before.select("partition", "key", f.col("value").alias("old_value"))
    new = after.select("partition", "key", f.col("value").alias("new_value"))
    change = (
        f.when(f.col("old_value").isNull(), "added")
        .when(f.col("new_value").isNull(), "removed")
        .otherwise("changed")
    )
    both = old.join(new, ["partition", "key"], "full")
    return both.where("not (old_value <=> new_value)").withColumn("change", change)


def _read(spark: SparkSession, arguments: Arguments, stop: Positions) -> DataFrame:
    first = starts(connect(arguments.bootstrap), stop)
    return read_between(spark, arguments.bootstrap, first, stop, headers=True)


def _by_change(rows: DataFrame) -> list[Any]:
    return rows.groupBy("change").count().orderBy("change").collect()


if __name__ == "__main__":
    from tidelog.spark.pipelines.running import run

    sys.exit(run("asof", sys.argv[1:]))
