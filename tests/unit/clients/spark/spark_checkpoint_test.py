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
    for url in (f"file://{folder}", f"file:{folder}", f"file://localhost{folder}"):
        assert plan_digest(url, 7) == plan_digest(str(folder), 7)
        assert query_id(url) == query_id(str(folder)) == "a-query"


@pytest.mark.parametrize("name", ["a%20checkpoint", "a#b", "a?b", "a;b", "a:b", " a\tb"])
def test_a_checkpoint_is_taken_literally_as_spark_does(folder: Path, name: str) -> None:
    """Another folder, which a URL decoder might take it for, must not be read in its place."""
    assert plan_digest(f"file://{folder.parent}/{name}", 7) is None
    made = folder.rename(folder.parent / name)
    (folder.parent / "a" / "offsets").mkdir(parents=True)
    (folder.parent / "a" / "offsets" / "7").write_text("of another query")
    for text in (f"file://{made}", f"file:{made}", str(made)):
        assert query_id(text) == "a-query"
        assert plan_digest(text, 7) == plan_digest(str(made), 7) is not None


@pytest.mark.parametrize(
    "checkpoint", [None, "", "hdfs://a/b", "s3a://b/c", "file://host/c", "s3a://[b/c"]
)
def test_of_a_checkpoint_elsewhere_nothing_is_known(checkpoint: str | None) -> None:
    assert plan_digest(checkpoint, 7) is None
    assert not query_id(checkpoint)


def test_what_is_not_there_or_damaged_is_not_known(folder: Path) -> None:
    assert plan_digest(str(folder), 8) is None
    (folder / "metadata").write_text("[]")
    assert not query_id(str(folder))
    (folder / "metadata").unlink()
    assert not query_id(str(folder))
