"""Records that should be in a log, held against those that are there, by their contents.

Counts that differ do not say what is wrong: others may write to the same log, and retention or
compaction may have taken records from it. This does, and reads both sides for it.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tidelog.kernel.ids import TopicPartition
from tidelog.spark.pipelines.frames import record_parts


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one partition, in records."""

    partition: str
    lost: int
    """They should be there."""
    doubled: int
    """They are there more often than they should be."""
    removed: int
    """They are not there any more: retention or compaction has taken them."""
    of_others: int
    """They are there, and somebody else has written them."""

    @property
    def is_wrong(self) -> bool:
        return bool(self.lost or self.doubled)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a cluster takes from logs by itself."""

    compacted: Collection[str] = ()
    """Topics of which a later record of the same key may be all that is left."""
    cut: Collection[TopicPartition] = ()
    """Partitions whose oldest records of those that were written are gone."""


def differences(wanted: DataFrame, found: DataFrame, taken: Taken) -> list[Difference]:
    """By partition. Both have topic, partition, offset, key, value, headers and timestamp; the
    offsets are only good for the order of each side."""
    both = _counted(wanted, found)
    missing = f.greatest(f.col("wanted") - f.col("found"), f.lit(0))
    surplus = f.greatest(f.col("found") - f.col("wanted"), f.lit(0))
    excused = _is_cut(taken) | _is_superseded(taken)
    judged = both.select("topic", "partition", "wanted", excused.alias("excused"), missing, surplus)
    judged = judged.toDF("topic", "partition", "wanted", "excused", "missing", "surplus")
    sums = judged.groupBy("topic", "partition").agg(
        _sum("missing", ~f.col("excused")).alias("lost"),
        _sum("surplus", f.col("wanted") > 0).alias("doubled"),
        _sum("missing", f.col("excused")).alias("removed"),
        _sum("surplus", f.col("wanted") == 0).alias("of_others"),
    )
    rows = sums.where("lost + doubled + removed + of_others > 0").orderBy("topic", "partition")
    return [
        Difference(
            f"{row.topic}-{row.partition}", row.lost, row.doubled, row.removed, row.of_others
        )
        for row in rows.collect()
    ]


def _counted(wanted: DataFrame, found: DataFrame) -> DataFrame:
    """Equal records are one row, with how often each side has them."""
    parts = record_parts()
    # Two hashes of 64 bits: of ten million records no two differing ones have the same.
    hashes = {"hash": f.xxhash64(*parts), "hash2": f.xxhash64(f.lit(1), *parts)}
    same = ["topic", "partition", *hashes]
    left = (
        wanted.withColumns(hashes)
        .groupBy(*same)
        .agg(
            f.count("*").alias("wanted"),
            f.max("offset").alias("last"),
            f.first("key").alias("key"),
            f.first(f.col("value").isNull()).alias("deletes"),
        )
    )
    right = found.withColumns(hashes).groupBy(*same).agg(f.count("*").alias("found"))
    return left.join(right, same, "full").fillna(0, ["wanted", "found"])


def _is_cut(taken: Taken) -> Column:
    """Whether it is older than every record that is left where the oldest ones were taken."""
    names = [f"{topic}-{number}" for topic, number in taken.cut]
    log = Window.partitionBy("topic", "partition")
    oldest = f.min(f.when(f.col("found") > 0, f.col("last"))).over(log)
    is_older = oldest.isNull() | (f.col("last") < oldest)
    is_there = f.concat_ws("-", "topic", "partition").isin(names)
    return f.coalesce(is_there & is_older, f.lit(0) == 1)


def _is_superseded(taken: Taken) -> Column:
    """Whether compaction takes it: by a later record of its key, or in time as a tombstone."""
    same = Window.partitionBy("topic", "partition", "key")
    is_older = f.col("last") < f.max("last").over(same)
    goes = f.col("key").isNotNull() & (is_older | f.col("deletes"))
    return f.coalesce(f.col("topic").isin([*taken.compacted]) & goes, f.lit(0) == 1)


def _sum(column: str, where: Column) -> Column:
    return f.sum(f.when(where, f.col(column)).otherwise(0))


def shown(found: Collection[Difference], most: int) -> list[Mapping[str, Any]]:
    """As documents."""
    return [asdict(one) for one in [*found][:most]]
