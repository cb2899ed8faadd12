"""Writing and reading `__transaction_state` for the transaction coordinator, which has no file. No
I/O but through the log.

Its writes carry a reserved producer id under its own epoch: the log's ordinary check of producers
refuses what a coordinator of the past still has on its way, also where this broker has not heard
yet that it was replaced.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_OFFSET, Epoch, Offset, TopicPartition
from tidelog.kernel.instant import Instant, s
from tidelog.kernel.limits import TRANSACTION_READ_BYTES_MAX
from tidelog.node.log.validation import BatchRules
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.replication import Replication
from tidelog.node.replica.waiting import Waiter, Waiting
from tidelog.wire.errors import ErrorCode, Rejected, WireError
from tidelog.wire.records import BatchHeader, check_crc, iterate_batches, read_header
from tidelog.wire.transactions import STATE_TOPIC, Append, Read, written_as

Committed = Callable[[Instant, ErrorCode, Offset], None]
"""Gets what became of an append, and where the log ended behind it."""

_LOOK_AGAIN: Final = s(30)
"""Nobody gives up an append: it is looked at again after this, and waits on."""


class Surroundings(NamedTuple):
    """What this uses of its broker."""

    replicas: Replicas
    replication: Replication
    waiting: Waiting
    wall_ms: Callable[[Instant], int]
    on_storage_failure: Callable[[TopicPartition, Exception], None]


class Found(NamedTuple):
    """A piece of a partition."""

    start: Offset
    end: Offset
    next_sequence: int
    following: Offset
    batches: bytes


class StateLog:
    """The partitions of `__transaction_state` that are led here."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def append(self, now: Instant, request: Append, done: Committed) -> None:
        """`done` is called once: when the batch is committed, or with why it is not; at once where
        that is so by then."""
        try:
            replica, leader, end = self._append(now, request)
        except Rejected as refused:
            done(now, refused.code, NO_OFFSET)
            return
        self._look(now, replica, leader, end, done)

    def _append(self, now: Instant, request: Append) -> tuple[Replica, Leader, Offset]:
        around = self._around
        replica, leader = self._led(request.partition, request.leader_epoch)
        batch = memoryview(bytearray(request.batch))
        header = _checked(batch, replica.rules, request.epoch)
        if around.replicas.retiring:
            raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is stopping")
        if not leader.enough_in_sync():
            raise Rejected(ErrorCode.NOT_ENOUGH_REPLICAS)
        now_ms = around.wall_ms(now)
        try:
            appended = replica.log.append_as_leader(now, now_ms, batch, header, leader.epoch)
        except (OSError, CorruptError) as failure:
            around.on_storage_failure(replica.key, failure)
            raise Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        except Rejected as refused:
            if refused.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                raise Rejected(ErrorCode.TRANSACTION_COORDINATOR_FENCED) from refused
            raise
        if not appended.duplicate:
            around.replication.appended(now, replica, batch)
        return replica, leader, Offset(appended.last_offset + 1)

    def _led(self, partition: int, leader_epoch: Epoch) -> tuple[Replica, Leader]:
        return self._around.replicas.led(STATE_TOPIC, partition, epoch=leader_epoch)

    def _look(
        self, now: Instant, replica: Replica, leader: Leader, end: Offset, done: Committed
    ) -> None:
        """As long as it leads, its log holds the batch; who leads next may not have it."""
        if replica.leader is not leader:
            done(now, ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
        elif leader.high_watermark >= end:
            done(now, ErrorCode.NONE, end)
        else:
            wake = partial(self._look, replica=replica, leader=leader, end=end, done=done)
            self._around.waiting.park(
                Waiter(
                    (replica.key,),
                    Instant(now + _LOOK_AGAIN),
                    wake,
                    missing=0,
                    ready=lambda: leader.high_watermark >= end,
                )
            )

    def read(self, request: Read) -> Found:
        """What the log holds from there on, committed or not; Rejected where it cannot be read."""
        replica, _ = self._led(request.partition, request.leader_epoch)
        try:
            return _found(replica, request)
        except (OSError, CorruptError, WireError) as failure:
            self._around.on_storage_failure(replica.key, failure)
            raise Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure


def _checked(batch: memoryview, rules: BatchRules, epoch: Epoch) -> BatchHeader:
    """The header of a batch as the coordinator writes it."""
    try:
        header = read_header(batch)
    except WireError as error:
        raise Rejected(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if header.size_bytes != len(batch) or not check_crc(batch):
        raise Rejected(ErrorCode.CORRUPT_MESSAGE)
    if len(batch) > rules.segment_bytes:
        raise Rejected(ErrorCode.RECORD_LIST_TOO_LARGE)
    if (header.producer_id, header.producer_epoch) != written_as(epoch):
        raise Rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if header.is_control or header.is_transactional or header.base_sequence < 0:
        raise Rejected(ErrorCode.INVALID_RECORD)
    return header


def _found(replica: Replica, request: Read) -> Found:
    log, offset = replica.log, request.offset
    producer_id, epoch = written_as(request.epoch)
    writer = log.producers.get(producer_id)
    sequence = 0
    if writer is not None:
        if writer.epoch > epoch:
            raise Rejected(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        if writer.epoch == epoch:
            sequence = max(0, writer.next_sequence)
    start, end = Offset(log.start), Offset(log.end)
    if offset == NO_OFFSET:
        return Found(start, end, sequence, offset, b"")
    size = max(0, min(request.max_bytes, TRANSACTION_READ_BYTES_MAX))
    piece = log.read(offset, size, end, min_one=True)
    if piece is None:
        return Found(start, end, sequence, end, b"")
    batches = bytes(piece.file.read(piece.position, piece.size))
    following = Offset(_following(replica, batches))
    return Found(start, end, sequence, following, batches)


def _following(replica: Replica, batches: bytes) -> int:
    """Behind the last whole batch; all of them are good."""
    following = -1
    for header, batch in iterate_batches(memoryview(batches)):
        if not check_crc(batch):
            raise CorruptError(
                file=f"{replica.topic}-{replica.partition}",
                position=header.base_offset,
                reason="wrong checksum",
            )
        following = header.next_offset
    if following < 0:
        raise WireError("no whole batch")
    return following
