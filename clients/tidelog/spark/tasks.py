"""Who a task of a writer is, what it says when it is done, and where it can be made to die."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One attempt of one task of one micro-batch; a batch write is micro-batch 0."""

    query: str
    batch: int
    partition: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """What a task did."""

    partition: int
    rows: int
    skipped: bool = False
    """An earlier attempt had written them."""
    content: bytes = b""
    """The rows themselves, where the driver is to write them."""


class Point(Enum):
    """Steps of an exactly-once write, told as they are reached: tests die there."""

    BEFORE = "before"
    """All rows are written, nothing says so."""
    MID = "mid"
    """The marker is written, the transaction open."""
    AFTER = "after"
    """The transaction is committed; nobody was told."""
    DRIVER = "driver"
    """All tasks are done; the micro-batch is not."""


Reached = Callable[[Point, int, int], None]
"""Called with the point, the micro-batch and the partition of the task, or -1 on the driver."""


def go_on(_point: Point, _batch: int, _partition: int) -> None:
    """What a program does at any point."""
