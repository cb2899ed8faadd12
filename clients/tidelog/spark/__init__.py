"""Spark's data source over the clients, and the columnar path below it, which needs no Spark.

`session` and `read_stream` are what a program of Spark begins with.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.spark.sessions import read_stream, session

__all__ = ["read_stream", "session"]

_NEEDED = ("numpy", "pyarrow", "pyspark")

_missing = [name for name in _NEEDED if find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(
        f"tidelog.spark needs {' and '.join(_missing)}: pip install 'tidelog[spark]'",
        name=_missing[0],
    )


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- what a module may have
    """Made at first use: who wants columns only need not wait a second for Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidelog.spark import sessions  # noqa: PLC0415 -- as said

    return getattr(sessions, name)
