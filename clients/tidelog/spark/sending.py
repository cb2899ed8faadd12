"""How tidelog's part of a query gets into the other Pythons of Spark, which may not have tidelog.

Spark pickles data sources, readers and writers, and pickles a class by its name. A Python that
cannot import that name fails with a bare "No module named 'tidelog'". So what is pickled first is
code of this module, by its content and not by its name: it needs nothing but Python and Spark,
helps Python to find tidelog where Spark does not look for it, and says what to do if it is missing,
or if it is another version, for what processes send each other has no form that versions share.
"""

import importlib
import os
import pickle
import platform
import sys
from collections.abc import Callable
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from tidelog.spark.version import VERSION

_PICKLER: Final[Any] = cloudpickle  # which has no types


class Sent:
    """An object that Spark sends to other processes."""

    def __reduce__(self) -> tuple[Callable[[bytes, str], object], tuple[bytes, str]]:
        content: bytes = _PICKLER.dumps((type(self), self.__getstate__()))
        return _opened, (content, VERSION)


class RegisteredSource(DataSource):
    """Format `tidelog` as a session registers it: makes the data source wherever it arrives."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> str:
        found: str = self._made().schema()
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        found: DataSourceReader = self._made().reader(schema)
        return found

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's
        found: DataSourceStreamReader = self._made().streamReader(schema)
        return found

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 -- Spark's
        found: DataSourceArrowWriter = self._made().writer(schema, overwrite)
        return found

    def streamWriter(  # noqa: N802 -- Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 -- Spark's
    ) -> DataSourceStreamArrowWriter:
        found: DataSourceStreamArrowWriter = self._made().streamWriter(schema, overwrite)
        return found

    def _made(self) -> Any:  # noqa: ANN401 -- the module of its class may be missing here
        by_name = b"ctidelog.spark.datasource\nTidelogDataSource\n."
        return _found(by_name, VERSION)(self.options)


def _opened(content: bytes, version: str) -> object:
    """The object that was pickled by this version of tidelog."""
    kind, state = _found(content, version)
    sent: object = kind.__new__(kind)
    sent.__dict__.update(state or {})
    return sent


def _found(content: bytes, version: str) -> Any:  # noqa: ANN401 -- whatever was pickled
    """What a pickle holds whose classes Python may not find."""
    _see_sent_files()
    try:
        _check_version(version)
        return pickle.loads(content)  # noqa: S301 -- from the driver of the same query
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(_advice(error.name or ""), name=error.name) from None


def _see_sent_files() -> None:
    """Spark (4.2) tells the Python that plans a stream to look for --py-files in a folder that only
    Spark Connect has; without Connect they are in the folder above."""
    for path in [*sys.path]:
        above = path.replace(f"{os.sep}streaming_job", "")
        if above not in sys.path and os.path.exists(above):  # noqa: PTH110 -- sent with its code
            sys.path.append(above)


def _check_version(sender: str) -> None:
    try:
        mine: str = importlib.import_module("tidelog.spark.version").VERSION
    except ModuleNotFoundError as error:
        if error.name != "tidelog.spark.version":
            raise
        mine = "of before 0.1.0"
    if mine != sender:
        raise RuntimeError(
            f"this Python of Spark ({sys.executable} on {platform.node()}) has tidelog {mine}, and "
            f"the one that sent it work has tidelog {sender}: install the same version in both, or "
            "send it with the program; docs/spark-cluster.md shows both"
        )


def _advice(module: str) -> str:
    where = f"{sys.executable} on {platform.node()}"
    name = module.partition(".")[0]
    if name == "tidelog":
        return (
            f"this Python of Spark ({where}) has no tidelog: send it with the program "
            "(`tidelog pipeline package` writes tidelog.zip for spark-submit --py-files), or "
            "install it in that Python; docs/spark-cluster.md shows both"
        )
    return (
        f"this Python of Spark ({where}) has tidelog, but not {name}, which tidelog needs: run "
        "pip install 'tidelog[spark]' for that Python, or send a packed environment with "
        "spark-submit --archives; docs/spark-cluster.md shows both"
    )


_PICKLER.register_pickle_by_value(sys.modules[__name__])
