"""A stream that is told to end: what it says of itself counts what it has done."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.spark.pipelines.frames import Driven
from tidelog.spark.pipelines.interrupts import INTERRUPTS


class Query:
    """A stream that is in its first micro-batch for so many looks, or goes on with others."""

    def __init__(self, looks: int, *, goes_on: bool = False) -> None:
        self.recentProgress: list[dict[str, Any]] = []
        self.status = {"isTriggerActive": True}
        self.is_stopped = False
        self.looks = 0
        self._looks = looks
        self._goes_on = goes_on

    def awaitTermination(self, _seconds: int) -> bool:  # noqa: N802 -- Spark's name
        if not self.looks:
            os.kill(os.getpid(), signal.SIGTERM)
        self.looks += 1
        if self.looks == self._looks and not self.is_stopped:
            source = {"endOffset": '{"t":{"0":7}}'}
            self.recentProgress.append({"batchId": 0, "numInputRows": 7, "sources": [source]})
            self.status["isTriggerActive"] = self._goes_on
        return self.is_stopped

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def drive() -> Iterator[Callable[[Query], Driven]]:
    """As the program of a pipeline does, which takes signals."""
    INTERRUPTS.install()
    INTERRUPTS.hold()
    yield lambda query: Driven(cast("StreamingQuery", query), "test").to_the_end()
    INTERRUPTS.restore()


@pytest.mark.parametrize("goes_on", [False, True])
def test_the_micro_batch_that_is_being_done_is_done_and_counts(
    drive: Callable[[Query], Driven], *, goes_on: bool
) -> None:
    query = Query(4, goes_on=goes_on)
    assert drive(query).rows == 7
    assert query.is_stopped
    assert query.looks == 5, "it is stopped at once then"


def test_a_micro_batch_that_takes_long_is_broken_off(drive: Callable[[Query], Driven]) -> None:
    query = Query(1_000)
    assert drive(query).rows == 0
    assert query.is_stopped
