"""The columnar path: what readers and writers of records import, whatever they are part of."""

from tidelog.spark.columns import ALL, PLAIN, Column, Columns
from tidelog.spark.decoder import ROWS_PER_BATCH, BadBatchError, Decoder
from tidelog.spark.encoder import BATCH_BYTES, SEQUENCES, Encoded, Encoder
from tidelog.spark.partitions import NO_KEY, partitions_of, split_by_partition

__all__ = [
    "ALL",
    "BATCH_BYTES",
    "NO_KEY",
    "PLAIN",
    "ROWS_PER_BATCH",
    "SEQUENCES",
    "BadBatchError",
    "Column",
    "Columns",
    "Decoder",
    "Encoded",
    "Encoder",
    "partitions_of",
    "split_by_partition",
]
