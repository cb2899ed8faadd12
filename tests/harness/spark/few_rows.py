"""Settings of sessions whose plans run over a few rows."""

from typing import Final

FEW_ROWS: Final = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""To make such plans better, to check them, or to compile code for them costs more than to run
them. Programs of users run with what Spark has: the page's, pipelines as commands."""
