"""The columnar path: what readers and writers of records import, whatever they are part of."""

from tidelog.spark.columns import ALL, PLAIN, Column, Columns
from tidelog.spark.decoder import ROWS_PER_BATCH, BadBatchError, Decoder

__all__ = ["ALL", "PLAIN", "ROWS_PER_BATCH", "BadBatchError", "Column", "Columns", "Decoder"]
