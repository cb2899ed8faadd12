"""Spark looks here by itself for format `tidelog`: packages of such names are never registered."""

from tidelog.spark.datasource import TidelogDataSource


class DefaultSource(TidelogDataSource):
    """The class that Spark looks for."""
