"""Writing the markers that end transactions into partitions that this broker leads. No I/O but
through the log.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, Epoch, Offset, Partition, ProducerId, TopicPartition
from tidelog.kernel.instant import Instant, s
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.log.markers import append_marker
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.replication import Replication
from tidelog.node.replica.waiting import Waiter, Waiting
from tidelog.wire.errors import ErrorCode, Rejected, no_request_fault
from tidelog.wire.records import EndMarker, build_marker
from tidelog.wire.transactions import Marker

_LOOK_AGAIN_NS: Final = s(60)
"""Nothing hangs on it: whoever waits is woken when there is news."""

Done = Callable[[Instant, tuple[ErrorCode, ...]], None]
"""Gets the outcome of each marker, in the order in which they were asked for."""

OnMarker = Callable[[Instant, Partition, ProducerId, bool, Offset], None]
"""Told at once of a marker in `__consumer_offsets`: partition, producer, committed or not, and the
offset behind it. It counts from when the high watermark reaches that."""


class Surroundings(NamedTuple):
    """What marking uses of its broker."""

    image: MetadataImage
    replicas: Replicas
    replication: Replication
    waiting: Waiting
    wall_ms: Callable[[Instant], int]
    on_storage_failure: Callable[[TopicPartition, Exception], None]
    on_marker: OnMarker


class Marks(Protocol):
    """Who writes markers."""

    def mark(
        self,
        now: Instant,
        epoch: Epoch,
        markers: Sequence[Marker],
        done: Done,
        deadline: Instant | None = None,
    ) -> None:
        """Write these under the coordinator's epoch.

        `done` is called once: when each is committed or refused, or this broker leads its partition
        no more; at once where that is so by then. Without a deadline it waits for as long as that
        takes. A marker that is there already is not written again. A marker of the leader epoch -1
        is an operator's: it is written under any that is not below that of its producer's last
        marker in that partition, and holds back no coordinator's.
        """
        ...


class _Written(NamedTuple):
    """A marker that is in the log."""

    replica: Replica
    end: Offset
    """The offset behind it."""

    def outcome(self) -> ErrorCode | None:
        """None while that is not decided: as long as it leads, its log holds the marker."""
        leader = self.replica.leader
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if leader.high_watermark >= self.end else None


class Marking:
    """Writes markers as the leader of their partitions.

    Invariant: under the coordinator's epochs that were heard of, none is written of a lower one.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._heard = Epoch(0)

    def mark(
        self,
        now: Instant,
        epoch: Epoch,
        markers: Sequence[Marker],
        done: Done,
        deadline: Instant | None = None,
    ) -> None:
        """As `Marks.mark`."""
        found: list[_Written | ErrorCode] = []
        for marker in markers:
            try:
                found.append(self._write(now, epoch, marker))
            except Rejected as refused:
                found.append(refused.code)
        self._settle(found, done, deadline, now)

    def _write(self, now: Instant, epoch: Epoch, asked: Marker) -> _Written:
        if asked.leader_epoch != NO_EPOCH:
            self._check_epoch(epoch)
        if asked.producer_id < 0:
            raise Rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if asked.producer_epoch < 0:
            raise Rejected(ErrorCode.INVALID_PRODUCER_EPOCH)
        replica, leader = self._led(asked)
        marker = EndMarker(asked.producer_id, asked.producer_epoch, epoch, asked.committed)
        try:
            if asked.leader_epoch == NO_EPOCH:
                replica.log.producers.check_coordinator(marker)
            there = replica.log.producers.check_marker(marker)
            if there is None:
                self._check_in_sync(leader)
                return self._append(now, replica, leader, marker)
        except (OSError, CorruptError) as failure:
            self._around.on_storage_failure(replica.key, failure)
            raise Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        return _Written(replica, Offset(there.offset + 1))

    def _check_epoch(self, epoch: Epoch) -> None:
        self._heard = max(self._heard, epoch, self._around.image.transactions_epoch)
        if epoch < self._heard:
            raise Rejected(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def _led(self, asked: Marker) -> tuple[Replica, Leader]:
        around = self._around
        if around.replicas.retiring:
            raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is stopping")
        try:
            return around.replicas.led(asked.topic, asked.partition, epoch=asked.leader_epoch)
        except Rejected as refused:
            view = around.image.names.get(asked.topic)
            exists = view is not None and 0 <= asked.partition < len(view.partitions)
            if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and exists:
                raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
            raise

    def _check_in_sync(self, leader: Leader) -> None:
        if not leader.enough_in_sync():
            raise Rejected(ErrorCode.NOT_ENOUGH_REPLICAS)

    def _append(
        self, now: Instant, replica: Replica, leader: Leader, marker: EndMarker
    ) -> _Written:
        around, log = self._around, replica.log
        now_ms = around.wall_ms(now)
        view = memoryview(build_marker(marker, now_ms))
        with no_request_fault("a marker"):
            append_marker(log, now, now_ms, view, leader.epoch, leader.high_watermark)
            end = Offset(log.end)
            if replica.topic == OFFSETS_TOPIC:
                producer_id = ProducerId(marker.producer_id)
                around.on_marker(now, replica.partition, producer_id, marker.committed, end)
            around.replication.appended(now, replica, view)
        return _Written(replica, end)

    def _settle(
        self,
        found: Sequence[_Written | ErrorCode],
        done: Done,
        deadline: Instant | None,
        now: Instant,
    ) -> None:
        """Tell what became of them, as soon as that is known of all."""
        known = [_looked_at(one) for one in found]
        waiting = [one for one in known if isinstance(one, _Written)]
        if not waiting or (deadline is not None and now >= deadline):
            done(now, _outcomes(known))
        else:
            keys = tuple({one.replica.key for one in waiting})
            until = Instant(now + _LOOK_AGAIN_NS) if deadline is None else deadline
            wake, ready = partial(self._settle, known, done, deadline), partial(_ended, waiting)
            self._around.waiting.park(Waiter(keys, until, wake, missing=0, ready=ready))


def _ended(waiting: Iterable[_Written]) -> bool:
    return all(one.outcome() is not None for one in waiting)


def _outcomes(known: Iterable[_Written | ErrorCode]) -> tuple[ErrorCode, ...]:
    late = ErrorCode.REQUEST_TIMED_OUT
    return tuple(late if isinstance(one, _Written) else one for one in known)


def _looked_at(one: _Written | ErrorCode) -> _Written | ErrorCode:
    """What became of it, if that is known."""
    outcome = one.outcome() if isinstance(one, _Written) else one
    return one if outcome is None else outcome
