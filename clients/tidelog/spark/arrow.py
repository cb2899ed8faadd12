"""The columnar path: what readers and writers of records import, whatever they are part of."""

from tidelog.spark.columns import ALL, PLAIN, Column, Columns

__all__ = ["ALL", "PLAIN", "Column", "Columns"]
