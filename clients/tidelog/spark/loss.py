"""Records that should be read and are not there: who misses what, and why that may be."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.kernel.ids import TopicPartition

_LOG = logging.getLogger("tidelog.spark")
_HINT = "failOnDataLoss=false warns of it and reads on"


class DataLossError(Exception):
    """Records are gone, and failOnDataLoss is true."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One partition's."""

    partition: TopicPartition
    wanted: int
    earliest: int | None
    """None if it was not asked for, or there is no such partition any more."""
    cause: str

    def __str__(self) -> str:
        topic, number = self.partition
        there = "" if self.earliest is None else f", earliest there is {self.earliest}"
        return f"{topic}-{number}: wanted offset {self.wanted}{there}: {self.cause}"


def loss_of(partition: TopicPartition, wanted: int, earliest: int, latest: int) -> Loss | None:
    """What is missing where a log holds earliest to latest; None where nothing is."""
    if wanted < earliest:
        gone = earliest - wanted
        cause = f"retention or DeleteRecords has removed {gone} offsets that were not read"
        return Loss(partition, wanted, earliest, cause)
    if wanted > latest:
        return Loss(partition, wanted, earliest, _shorter(latest))
    return None


def cut_off(partition: TopicPartition, wanted: int, latest: int) -> Loss:
    """The log ends before the offset up to which a range was planned."""
    return Loss(partition, wanted, None, _shorter(latest))


def _shorter(latest: int) -> str:
    return (
        f"the log ends at {latest}: the topic was deleted and created again, or an unclean "
        "election has cut it"
    )


def vanished(partition: TopicPartition, wanted: int) -> Loss:
    """It was read from before."""
    cause = "the partition is not there any more: its topic was deleted, or created again with less"
    return Loss(partition, wanted, None, cause)


def tell(losses: Iterable[Loss], *, fails: bool) -> None:
    """Raise, or warn of each."""
    found = list(losses)
    if found and fails:
        raise DataLossError("; ".join(map(str, found)) + f" ({_HINT})")
    for one in found:
        _LOG.warning("data loss: %s", one)
