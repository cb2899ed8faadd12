"""What Spark sends to other Pythons loads there, or says in one sentence what they lack."""

import base64
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelog.spark import sending
from tidelog.spark.datasource import TidelogDataSource
from tidelog.spark.sending import RegisteredSource
from tidelog.spark.version import VERSION

SOURCE = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "tides"}
LOAD = """
import base64, sys, types
for word in sys.argv[2:]:
    name, _, version = word.partition("=")
    sys.modules[name] = types.SimpleNamespace(VERSION=version) if version else None
from pyspark import cloudpickle
found = cloudpickle.loads(base64.b64decode(sys.argv[1]))
print(type(found).__name__, getattr(found, "options", {}).get("subscribe"))
if hasattr(found, "schema"):
    print(found.schema())
"""


def opened_by_another_python(sent: object, *missing: str) -> "subprocess.CompletedProcess[str]":
    pickler: Any = cloudpickle  # which has no types
    content = base64.b64encode(pickler.dumps(sent)).decode()
    return subprocess.run(
        [sys.executable, "-c", LOAD, content, *missing],
        check=False,
        capture_output=True,
        text=True,
    )


def source_of(kind: type[DataSource]) -> DataSource:
    return kind(SOURCE)


@pytest.mark.parametrize("kind", [TidelogDataSource, RegisteredSource])
def test_a_python_without_tidelog_says_how_to_send_it(kind: type[DataSource]) -> None:
    done = opened_by_another_python(source_of(kind), "tidelog")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: this Python of Spark ({sys.executable} on ")
    assert "has no tidelog: send it with the program (`tidelog pipeline package`" in last


def test_a_python_without_what_tidelog_needs_says_what_to_install() -> None:
    done = opened_by_another_python(source_of(TidelogDataSource).reader(StructType()), "crc32c")
    last = done.stderr.splitlines()[-1]
    assert "has tidelog, but not crc32c, which tidelog needs: run pip install" in last


@pytest.mark.parametrize("kind", [TidelogDataSource, RegisteredSource])
def test_a_python_with_tidelog_has_the_same_source(kind: type[DataSource]) -> None:
    done = opened_by_another_python(source_of(kind))
    assert done.returncode == 0, done.stderr
    named, schema = done.stdout.splitlines()
    assert named == f"{kind.__name__} tides"
    assert schema == source_of(kind).schema()


@pytest.mark.parametrize("kind", [TidelogDataSource, RegisteredSource])
@pytest.mark.parametrize(
    ("there", "named"),
    [("tidelog.spark.version=0.0.9", "0.0.9"), ("tidelog.spark.version", "of before 0.1.0")],
)
def test_a_python_with_another_version_of_tidelog_names_both(
    kind: type[DataSource], there: str, named: str
) -> None:
    last = opened_by_another_python(source_of(kind), there).stderr.splitlines()[-1]
    assert f" has tidelog {named}, and the one that sent it work has tidelog {VERSION}: " in last


def test_the_version_that_is_compared_is_that_of_the_package() -> None:
    assert metadata.version("tidelog") == VERSION


def test_sent_files_are_found_where_spark_puts_them_and_not_where_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, elsewhere = tmp_path / "tidelog.zip", str(tmp_path / "elsewhere.zip")
    sent.touch()
    looked_at = str(tmp_path / "streaming_job" / "tidelog.zip")
    monkeypatch.setattr(sys, "path", [elsewhere, looked_at])
    for _ in range(2):  # each object that is unpickled looks again
        sending._see_sent_files()
    assert sys.path == [elsewhere, looked_at, str(sent)]
