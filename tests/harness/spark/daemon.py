"""Spark's daemon of Python workers, which has imported what the workers need before it forks them.

Each new worker of Spark's own daemon imports pyarrow and tidelog anew: half a second of a
processor, which was most of what a cell of the matrix cost. The setting is
`spark.python.daemon.module`.
"""

import pyarrow as pa
import pyspark.sql.worker.commit_data_source_write
import pyspark.sql.worker.plan_data_source_read
import pyspark.sql.worker.write_into_data_source
import pyspark.worker
from pyspark.daemon import manager

import harness.spark.matrix_strikes
import tidelog.spark.datasource

__all__ = ["harness", "pa", "pyspark", "tidelog"]

if __name__ == "__main__":
    manager()
