"""What a task of a writer is, what it tells the driver, and the steps at which tests stop it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transactional import OpenTransaction


class SinkError(Exception):
    """Rows could not be written, or not in the way that was asked for."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One attempt of one task of one micro-batch; a batch write is micro-batch 0."""

    query: str
    batch: int
    partition: int
    attempt: int = 0
    permit: Identity | None = None
    """The sink's permit when Spark planned the job; None if the driver could not learn it."""


class Total(NamedTuple):
    """What is compared to tell whether two writes have the same rows."""

    rows: int
    sum: int | None
    """The sum of the rows' fingerprints; None where an earlier version of tidelog, which had none,
    wrote the rows."""

    def is_same(self, other: "Total") -> bool:
        """As far as both are known."""
        is_known = self.sum is not None and other.sum is not None
        return self.rows == other.rows and (not is_known or self.sum == other.sum)


class Kept(NamedTuple):
    """What a part's marker says of the micro-batch that the part has committed."""

    total: Total | None
    """None where the marker does not say it."""


class Open(NamedTuple):
    """A task's transaction, which holds its rows and its marker; the driver ends it."""

    transaction: OpenTransaction
    began_ms: int
    """When the task began, by the clock of its host."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a task tells the driver. Invariant: an exactly-once task is skipped or has `open`."""

    partition: int
    rows: int
    skipped: bool = False
    """The micro-batch's rows of this part were committed by an earlier attempt."""
    content: bytes = b""
    """The rows themselves, if the driver is to write them."""
    total: Total = Total(0, 0)
    """Of the rows that the task was given, written or not."""
    open: Open | None = None
    kept: Kept | None = None
    """Of a skipped part, if its own marker is what says that it is committed."""


class Point(Enum):
    """Steps of an exactly-once write, told as they are reached: tests die or wait there."""

    BEGIN = "begin"
    """The task has asked the cluster for nothing yet."""
    BEFORE = "before"
    """The task has written all rows, but not the marker."""
    MID = "mid"
    """The task has written the marker; its transaction is open."""
    AFTER = "after"
    """The task has done all that it does, and has not told the driver. With exactly-once-atomic:
    the driver has committed the transaction."""
    DRIVER = "driver"
    """All tasks have told the driver; no transaction is ended."""
    ENDING = "ending"
    """The sink's marker says that the driver is about to end transactions."""
    BETWEEN = "between"
    """The transaction of one part is ended, those of the others are not."""
    ENDED = "ended"
    """All transactions are ended; the sink's marker does not say so."""
    COMPLETE = "complete"
    """The sink's marker says that the micro-batch is complete; Spark does not know."""
    GIVEN_UP = "given up"
    """The job has failed, and the driver has aborted what its tasks left open."""


Reached = Callable[[Point, int, int], None]
"""Called with the point, the micro-batch and the partition of the task, or -1 on the driver. The
driver that has given up says -1 for the micro-batch, too: a batch write does not tell it."""


def go_on(_point: Point, _batch: int, _partition: int) -> None:
    """What a program does at any point."""
