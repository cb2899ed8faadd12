"""Figures of each segment of a topic, from the files of a cluster on this machine."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidelog.spark.replicas import partitions_in, replicas_of
from tidelog.wire.log_files import LOG_SUFFIX, offsets_with_suffix

_END_OF_ALL: Final = 2**63 - 1


def segments_in(folder: Path, topic: str) -> dict[int, list[int]]:
    """Where the segments of each partition begin, in the replica that has most of it."""
    found = {}
    for place in sorted(one for one in partitions_in([folder]) if one[0] == topic):
        best = max(replicas_of([folder], place), key=lambda one: one.committed)
        names = [path.name for path in best.folder.iterdir()]
        found[int(place[1])] = sorted(offsets_with_suffix(names, LOG_SUFFIX))
    return found


def by_segment(rows: DataFrame, bases: Mapping[int, list[int]]) -> DataFrame:
    """Records and bytes, and what of them is superseded."""
    known = [
        (number, base, stop)
        for number, starting in bases.items()
        for base, stop in pairwise([*starting, _END_OF_ALL])
    ]
    segments = rows.sparkSession.createDataFrame(known, "number int, segment bigint, stop bigint")
    within = (
        (f.col("partition") == f.col("number"))
        & (f.col("offset") >= f.col("segment"))
        & (f.col("offset") < f.col("stop"))
    )
    old = f.when(f.col("superseded"), f.col("size")).otherwise(0)
    return (
        rows.join(f.broadcast(segments), within)
        .groupBy("partition", "segment")
        .agg(
            f.count("*").alias("records"),
            f.count_if("superseded").alias("superseded"),
            f.sum("size").alias("bytes"),
            f.sum(old).alias("superseded_bytes"),
        )
    )
