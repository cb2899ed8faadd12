"""Spark's data source over the clients, and the columnar path below it, which needs no Spark."""

from importlib.util import find_spec

_NEEDED = ("numpy", "pyarrow", "pyspark")

_missing = [name for name in _NEEDED if find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(
        f"tidelog.spark needs {' and '.join(_missing)}: pip install 'tidelog[spark]'",
        name=_missing[0],
    )
