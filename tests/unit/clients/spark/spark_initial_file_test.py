"""The file that keeps where a stream began."""

from pathlib import Path

import pytest

from tidelog.spark.initial_file import InitialFile
from tidelog.spark.options import OptionError


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_what_was_written_is_read_by_another_life(tmp_path: Path, scheme: str) -> None:
    path = f"{scheme}{tmp_path}/checkpoint/initial.json"
    assert InitialFile(path).read() is None
    InitialFile(path).write({"t": {"0": 5}})
    assert InitialFile(path).read() == {"t": {"0": 5}}
    assert [one.name for one in (tmp_path / "checkpoint").iterdir()] == ["initial.json"]


@pytest.mark.parametrize("path", ["s3://bucket/x", "hdfs:/x"])
def test_a_path_of_another_machine_is_refused(path: str) -> None:
    with pytest.raises(OptionError, match="must be a local path"):
        InitialFile(path)
