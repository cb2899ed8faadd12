"""A pipeline with the words of a command line, in a session that runs already."""

import contextlib
import importlib
import io
from typing import Any

from pyspark.sql import SparkSession

from tidelog.spark.pipelines.arguments import parse
from tidelog.spark.pipelines.topics import connect


def answers(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """Its exit code, and what it prints."""
    program: Any = importlib.import_module(f"tidelog.spark.pipelines.{asked['name']}")
    arguments = parse(program.Arguments, asked["words"])
    arguments.check()
    arguments.look(connect(arguments.bootstrap))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = program.main(spark, arguments)
    return {"code": code, "out": out.getvalue()}
