"""What a Python worker of Spark does once."""

import gc
from collections.abc import Iterator

import pytest

from tidelog.spark import workers


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "_settled", set())
    yield
    gc.unfreeze()


def test_a_worker_that_is_used_again_looks_no_more_at_what_it_has_imported() -> None:
    before = gc.get_freeze_count()
    workers.settle({"SPARK_REUSE_WORKER": "1"})
    assert gc.get_freeze_count() > before + 1000


def test_it_settles_once_for_what_tasks_leave_is_to_be_collected() -> None:
    workers.settle({"SPARK_REUSE_WORKER": "1"})
    gc.unfreeze()
    workers.settle({"SPARK_REUSE_WORKER": "1"})
    assert gc.get_freeze_count() == 0


def test_any_other_process_is_left_alone() -> None:
    before = gc.get_freeze_count()
    workers.settle({})
    assert gc.get_freeze_count() == before
