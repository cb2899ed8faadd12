"""What the driver reads of a stream's checkpoint."""

from pathlib import Path

import pytest

from tidelog.spark.checkpoints import plan_digest, query_id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "a checkpoint"
    (made / "offsets").mkdir(parents=True)
    (made / "offsets" / "7").write_text('v1\n{"batchTimestampMs":1}\n{"t":{"0":5}}')
    (made / "metadata").write_text('{"id":"a-query"}')
    return made


def test_the_digest_of_a_plan_changes_with_the_plan(folder: Path) -> None:
    before = plan_digest(str(folder), 7)
    assert before is not None
    assert plan_digest(str(folder), 7) == before
    (folder / "offsets" / "7").write_text('v1\n{"batchTimestampMs":2}\n{"t":{"0":5}}')
    assert plan_digest(str(folder), 7) != before


def test_a_checkpoint_is_a_path_or_a_url_of_a_file(folder: Path) -> None:
    assert plan_digest(folder.as_uri(), 7) == plan_digest(str(folder), 7)
    assert query_id(folder.as_uri()) == query_id(str(folder)) == "a-query"


@pytest.mark.parametrize("checkpoint", [None, "", "hdfs://a/b", "s3a://b/c", "file://host/c"])
def test_of_a_checkpoint_elsewhere_nothing_is_known(checkpoint: str | None) -> None:
    assert plan_digest(checkpoint, 7) is None
    assert not query_id(checkpoint)


def test_what_is_not_there_or_damaged_is_not_known(folder: Path) -> None:
    assert plan_digest(str(folder), 8) is None
    (folder / "metadata").write_text("[]")
    assert not query_id(str(folder))
    (folder / "metadata").unlink()
    assert not query_id(str(folder))
