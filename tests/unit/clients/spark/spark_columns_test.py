"""The columns of a topic, and what an installation without the extra is told."""

import subprocess
import sys

import pyarrow as pa
import pytest

from tidelog.spark.arrow import ALL, PLAIN, Column, Columns

WITHOUT = (
    "import importlib.util\n"
    "found = importlib.util.find_spec\n"
    "importlib.util.find_spec = lambda name, *more: None if name == 'pyarrow' else found(name)\n"
    "import tidelog.spark\n"
)


def test_all_columns_have_the_types_of_sparks_own_source() -> None:
    assert str(ALL.schema()).splitlines() == [
        "key: binary",
        "value: binary",
        "topic: string",
        "partition: int32",
        "offset: int64",
        "timestamp: timestamp[us, tz=UTC]",
        "timestampType: int32",
        "headers: list<item: struct<key: string, value: binary>>",
        "  child 0, item: struct<key: string, value: binary>",
        "      child 0, key: string",
        "      child 1, value: binary",
    ]


def test_headers_are_no_column_unless_asked_for() -> None:
    assert PLAIN.wanted == ALL.wanted[:-1]
    assert Column.HEADERS not in PLAIN


def test_columns_keep_the_order_in_which_they_were_asked_for() -> None:
    assert Columns.of(["offset", "value"]).schema().types == [pa.int64(), pa.binary()]


@pytest.mark.parametrize("names", [["length"], ["offset", "offset"]])
def test_columns_that_are_none_or_come_twice_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"length|once"):
        Columns.of(names)


def test_without_the_extra_one_sentence_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], check=False, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: tidelog.spark needs pyarrow: pip install 'tidelog[spark]'"
    )


WITHOUT_SPARK = """
import sys, tidelog.spark, tidelog.spark.arrow
assert "pyspark" not in sys.modules
from tidelog.spark import read_stream, session
assert "pyspark" in sys.modules
tidelog.spark.nothing
"""


def test_spark_is_imported_by_who_asks_for_a_session() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK], check=False, capture_output=True, text=True
    )
    assert "has no attribute 'nothing'" in done.stderr.splitlines()[-1]
