"""The pipelines by their names, for tests that hold for all of them."""

import importlib

from tidelog.spark.pipelines.arguments import Arguments
from tidelog.spark.pipelines.running import NAMES

__all__ = ["NAMES", "arguments_of"]


def arguments_of(name: str) -> type[Arguments]:
    """What a program takes."""
    found: type[Arguments] = importlib.import_module(f"tidelog.spark.pipelines.{name}").Arguments
    return found
