"""What can be wrong with a record that a producer knows of: a row for each time it is."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

VIOLATIONS: Final = ("lost", "duplicated", "reordered", "moved", "aborted_but_seen", "never_read")
KINDS: Final = (*VIOLATIONS, "unknown_but_seen", "failed_but_seen", "unexpected")
"""Those after the violations are no fault of the cluster: who has no answer knows nothing, what was
given up may have been written, and others may write to a topic."""

ID_OF_VALUE: Final = (
    "case when cast(value as string) rlike '^[0-9a-f]{16}' "
    "then cast(conv(substring(cast(value as string), 1, 16), 16, 10) as bigint) end"
)
"""As `produce` makes values up."""
IDS_OF_PRODUCER: Final = 1 << 40


def records_of(rows: DataFrame, id_of: Column) -> DataFrame:
    """What is needed of the records of a topic; those without an id are not the history's."""
    named = rows.select(id_of.alias("id"), "topic", "partition", "offset", "timestamp")
    return named.where("id is not null")


def findings(acks: DataFrame, records: DataFrame, ids_of: int) -> DataFrame:
    """All of them, with the columns kind, id, topic, partition, offset and at_ms. Of one producer
    ids grow by one a record, and its last is below `ids_of` times its number and one."""
    told = acks.alias("a")
    seen = records.groupBy("id").agg(
        f.count("*").alias("times"),
        f.collect_set(f.struct("topic", "partition", "offset")).alias("places"),
    )
    both = told.join(seen.alias("s"), "id", "left")
    is_seen = f.col("times").isNotNull()
    acked = f.col("status") == "acked"
    place = f.struct("a.topic", "a.partition", "a.offset")
    known = f.col("a.offset") >= 0
    kind = f.explode(
        f.array_compact(
            f.array(
                f.when(acked & ~is_seen, "lost"),
                f.when(f.col("times") > 1, "duplicated"),
                f.when(acked & known & is_seen & ~_contains(place), "moved"),
                f.when((f.col("status") == "aborted") & is_seen, "aborted_but_seen"),
                f.when((f.col("status") == "unknown") & is_seen, "unknown_but_seen"),
                f.when((f.col("status") == "failed") & is_seen, "failed_but_seen"),
            )
        )
    )
    columns = [f.col(f"a.{name}").alias(name) for name in ("topic", "partition", "offset", "at_ms")]
    of_acks = both.select(kind.alias("kind"), "id", *columns)
    return of_acks.unionByName(_reordered(records, ids_of)).unionByName(_unexpected(acks, records))


def of_reads(acks: DataFrame, records: DataFrame, reads: DataFrame) -> DataFrame:
    """What consumers should have read and have not, and what they should never have seen."""
    there = acks.where("status = 'acked'").join(records.select("id").distinct(), "id", "semi")
    unread = there.join(reads.select("id").distinct(), "id", "anti")
    aborted = acks.where("status = 'aborted'")
    seen = aborted.join(reads.select("id").distinct(), "id", "semi")
    return _as("never_read", unread).unionByName(_as("aborted_but_seen", seen))


def _contains(place: Column) -> Column:
    """Whether the record lies where the producer was told. The type of the history's numbers is
    whoever's wrote it."""
    type_ = "struct<topic:string,partition:int,offset:bigint>"
    return f.array_contains("places", place.cast(type_))


def _reordered(records: DataFrame, ids_of: int) -> DataFrame:
    """Behind a later record of the same producer in the same partition. One that is there twice
    lies where it lay first: the other is told as a duplicate."""
    records = records.groupBy("id", "topic", "partition").agg(
        f.min("offset").alias("offset"), f.min("timestamp").alias("timestamp")
    )
    producer = f.floor(f.col("id") / f.lit(ids_of))
    log = Window.partitionBy("topic", "partition", producer).orderBy("offset")
    latest = f.max("id").over(log.rowsBetween(Window.unboundedPreceding, -1))
    out = records.withColumn("before", latest).where("before > id")
    return _as("reordered", out.withColumn("at_ms", f.unix_millis("timestamp")))


def _unexpected(acks: DataFrame, records: DataFrame) -> DataFrame:
    strange = records.join(acks.select("id"), "id", "anti")
    return _as("unexpected", strange.withColumn("at_ms", f.unix_millis("timestamp")))


def _as(kind: str, rows: DataFrame) -> DataFrame:
    return rows.select(f.lit(kind).alias("kind"), "id", "topic", "partition", "offset", "at_ms")
