"""What the logs of toy brokers hold of transactions, and who wrote last."""

from typing import Any, NamedTuple

from tidelog.kernel.ids import Epoch
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import BatchHeader, read_header


class Data(NamedTuple):
    """A batch that a producer wrote."""

    producer_id: int
    producer_epoch: int


class End(NamedTuple):
    """A marker in a partition's log."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: Epoch


def last_of(log: list[Any], producer_id: int) -> Data | End | None:
    return next((one for one in reversed(log) if one.producer_id == producer_id), None)


def end_offset(log: list[bytes]) -> int:
    return read_header(log[-1]).next_offset if log else 0


def writer_of(log: list[bytes]) -> tuple[int, int]:
    """Whose batches the log holds last: its epoch, and the sequence that follows."""
    if not log:
        return -1, 0
    header = read_header(log[-1])
    return header.producer_epoch, header.base_sequence + header.record_count


def check(log: list[bytes], header: BatchHeader) -> ErrorCode:
    epoch, following = writer_of(log)
    if header.producer_epoch < epoch:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    wanted = following if header.producer_epoch == epoch else 0
    if header.base_sequence != wanted:
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return ErrorCode.NONE
