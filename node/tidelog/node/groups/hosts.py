"""The group coordinators of one broker: one for each partition of `__consumer_offsets` it leads.

It gives each its log: loads it when the leadership begins, appends what it decides as a leader
does, lets its answers go when the high watermark has passed, and ends it when another broker leads.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import Offset, Partition, RequestId, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups import codec
from tidelog.node.groups.codec import StoredRecord
from tidelog.node.groups.group import Around as GroupAround
from tidelog.node.groups.history import Tell
from tidelog.node.groups.image_topics import ImageTopics
from tidelog.node.groups.loading import Loading
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.node.groups.requests import (
    READ_ONLY,
    CommitInTransaction,
    ForgetDeletedTopics,
    MemberDisconnected,
)
from tidelog.node.groups.shard import GroupShard
from tidelog.node.metadata.image import Changes, MetadataImage
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.replication import Replication
from tidelog.node.replica.waiting import Waiter, Waiting
from tidelog.node.runtime.shard_host import (
    AppendFailed,
    AppendRecords,
    Event,
    GiveUpHeld,
    LogAppended,
    LogCommitted,
    LogGrown,
    Refusal,
    Reply,
    Requested,
    RequestFailed,
    Resign,
    ShardHost,
    Tick,
)
from tidelog.wire.errors import REQUEST_FAULTS, ErrorCode, fault_text
from tidelog.wire.records import read_header

Done = Callable[[Any], None]
"""Gets what was asked for, or a Refusal."""
Host = ShardHost[Any, StoredRecord, Any]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the coordinators use of their broker."""

    image: MetadataImage
    replicas: Replicas
    replication: Replication
    waiting: Waiting
    settings: Mapping[str, Any]
    """Of the broker, live."""
    wall_ms: Callable[[Instant], int]
    on_storage_failure: Callable[[TopicPartition, Exception], None]
    tell: Tell
    """Takes a line of a group's story, at the decision: for the broker's log."""
    on_fault: Callable[[str], None]
    """Told of a fault of ours that a request brought out."""


@dataclass(slots=True, eq=False)
class Hosted:
    """One partition that this broker leads.

    Invariant: `host` is there from when all of the log is replayed and committed.
    """

    replica: Replica
    leader: Leader
    shard: GroupShard
    loading: Loading | None
    host: Host | None = None
    committed: Offset = Offset(0)
    """As the host was told."""
    appended: Offset = Offset(0)
    waiter: Waiter | None = None
    calls: dict[RequestId, Done] = field(default_factory=dict)
    owes_look: bool = True
    """Whether it has yet to look for commits of topics that were deleted: since it was opened, or
    since the image lost one."""
    answering: int = 0
    """Of these, those whose answers the host has given and that are on their way."""

    @property
    def is_led(self) -> bool:
        return self.replica.leader is self.leader


class Groups:
    """Routes requests to the coordinator of their group.

    Invariant: each request is answered once: by its coordinator, or with the reason why there is
    none here.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._topics = ImageTopics(around.image)
        self._hosted: dict[Partition, Hosted] = {}
        self._asked = 0
        self._spoken: dict[tuple[str, str], object] = {}
        """The connection that each member was last heard on, while it stands."""
        self._ended: list[tuple[str, str]] = []
        self.alarm: Callable[[Instant], None] = lambda _deadline: None
        """Called when `ring` is wanted then, or earlier than it was. The shell sets it."""

    # -- what is asked

    def ask(self, now: Instant, group: str, request: object, done: Done) -> None:
        """Have the group's coordinator decide; `done` gets its answer, at once or later."""
        hosted = self._hosted.get(Partition(self._partition(group)))
        if hosted is None or not hosted.is_led or self._around.replicas.retiring:
            done(Refusal(ErrorCode.NOT_COORDINATOR))
        elif hosted.host is None:
            done(Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            self._request(now, hosted, request, done)

    def ask_each(self, now: Instant, request: object, done: Callable[[list[Any]], None]) -> None:
        """Have every coordinator here answer; a Refusal for those that are not loaded yet."""
        places = list(self._hosted.values())
        answers: list[Any] = []

        def answered(answer: object) -> None:
            answers.append(answer)
            if len(answers) == len(places):
                done(answers)

        if not places:
            done([])
        for hosted in places:
            if hosted.host is None or not hosted.is_led:
                answered(Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                self._request(now, hosted, request, answered)

    def speaks_for(self, group: str, member_id: str, connection: object) -> bool:
        """A member was heard on this connection; whether that is news."""
        known = self._spoken.get((group, member_id))
        self._spoken[group, member_id] = connection
        return known is not connection

    def ended(self, group: str, member_id: str, connection: object) -> None:
        """A connection has ended; what that means for the member is decided by `ring`."""
        if self._spoken.get((group, member_id)) is connection:
            del self._spoken[group, member_id]
            self._ended.append((group, member_id))
            self.alarm(Instant(0))

    def _partition(self, group: str) -> int:
        topic = self._around.image.names.get(OFFSETS_TOPIC)
        return -1 if topic is None else partition_of(group, len(topic.partitions))

    def _request(self, now: Instant, hosted: Hosted, request: object, done: Done) -> None:
        if type(request) not in READ_ONLY and not hosted.leader.enough_in_sync():
            # What is decided now could not be kept.
            done(Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        if type(request) is CommitInTransaction and _is_fenced(hosted, request):
            done(Refusal(ErrorCode.INVALID_PRODUCER_EPOCH))
            return
        self._asked += 1
        asked = RequestId(self._asked)
        hosted.calls[asked] = done
        try:
            self._drive(now, hosted, Requested(asked, request))
        except REQUEST_FAULTS as fault:
            # The host refuses what it fails at: this is a fault in our own state.
            raise AssertionError(f"a group's coordinator failed: {fault_text(fault)}") from fault

    # -- of transactions

    def marked(
        self, now: Instant, partition: Partition, producer_id: int, *, committed: bool, end: Offset
    ) -> None:
        """A marker was appended to this partition of `__consumer_offsets`, which ends at `end` now:
        what the transaction committed counts, or is forgotten."""
        hosted = self._hosted.get(partition)
        if hosted is None or not hosted.is_led:
            return  # whoever leads next reads it in the log
        if hosted.loading is not None:
            hosted.loading.end = end
            return
        hosted.shard.replay_marker(producer_id, committed=committed)
        hosted.appended = end
        if hosted.host is not None:
            hosted.host.step(now, LogGrown(end))
            self._rest(now, hosted)

    # -- what the cluster decides

    def image_changed(self, now: Instant, changes: Changes | None = None) -> None:
        """After the replicas became what the image says, and when this broker was given up."""
        topic = self._around.image.names.get(OFFSETS_TOPIC)
        count = 0 if topic is None else len(topic.partitions)
        for index in {*range(count), *self._hosted}:
            self._settle_role(now, Partition(index))
        if changes is not None and changes.deleted:
            for hosted in self._hosted.values():
                hosted.owes_look = True
        for hosted in self._open():
            # The image may also say that there are enough in-sync replicas again.
            self._forget_deleted(now, hosted)

    def _forget_deleted(self, now: Instant, hosted: Hosted) -> None:
        """Look for commits of deleted topics, if that is due. Without enough in-sync replicas that
        is refused, and stays due."""
        is_open = hosted.host is not None and hosted.is_led
        if not hosted.owes_look or not is_open or self._around.replicas.retiring:
            return

        def looked(more: object) -> None:
            if more is not False:
                hosted.owes_look = True
            if more is True:
                self.alarm(Instant(0))

        hosted.owes_look = False
        self._request(now, hosted, ForgetDeletedTopics(), looked)

    def _settle_role(self, now: Instant, partition: Partition) -> None:
        hosted = self._hosted.get(partition)
        replica = self._around.replicas.get((OFFSETS_TOPIC, partition))
        leader = None if replica is None else replica.leader
        if hosted is not None and (hosted.replica is not replica or hosted.leader is not leader):
            self._end(now, hosted, "another leader")
        if replica is not None and leader is not None and partition not in self._hosted:
            self._begin(now, replica, leader)

    def _begin(self, now: Instant, replica: Replica, leader: Leader) -> None:
        around = self._around
        shard = GroupShard(GroupAround(around.settings, self._topics, around.wall_ms, around.tell))
        place = f"{replica.topic}-{replica.partition}"
        loading = Loading(shard, replica.log, place)
        self._hosted[replica.partition] = Hosted(replica, leader, shard, loading)
        self.alarm(now)

    def _end(self, now: Instant, hosted: Hosted, why: str) -> None:
        """Its members find the new coordinator."""
        del self._hosted[hosted.replica.partition]
        if hosted.waiter is not None:
            self._around.waiting.cancel(hosted.waiter)
            hosted.waiter = None
        if hosted.host is not None:
            self._drive(now, hosted, AppendFailed(why))
        assert len(hosted.calls) == hosted.answering, "somebody gets no answer"

    # -- time

    @property
    def is_loading(self) -> bool:
        """Whether `ring` has something to load."""
        return any(hosted.loading is not None for hosted in self._hosted.values())

    def ring(self, now: Instant) -> Instant | None:
        """Load a chunk, do what is due; when this is wanted next."""
        ended, self._ended = self._ended, []
        for group, member_id in ended:
            self.ask(now, group, MemberDisconnected(group, member_id), _nobody_waits)
        for hosted in list(self._hosted.values()):
            loading = hosted.loading
            if loading is not None:
                self._load(now, hosted, loading)
                if loading.has_read:
                    break  # the others have their turn when whoever else waits had theirs
        for hosted in self._open():
            self._forget_deleted(now, hosted)
            self._do_what_is_due(now, hosted)
        return now if self.is_loading else self._earliest()

    def _do_what_is_due(self, now: Instant, hosted: Hosted) -> None:
        due = None if hosted.host is None else hosted.host.deadline()
        if due is not None and due <= now:
            self._drive(now, hosted, Tick())

    def _earliest(self) -> Instant | None:
        dues = (one.host.deadline() for one in self._open() if one.host is not None)
        return min((due for due in dues if due is not None), default=None)

    def _open(self) -> Iterator[Hosted]:
        return (one for one in list(self._hosted.values()) if one.host is not None and one.is_led)

    # -- loading

    def _load(self, now: Instant, hosted: Hosted, loading: Loading) -> None:
        try:
            if loading.go_on():
                return
        except (CorruptError, OSError) as failure:
            self._around.on_storage_failure(hosted.replica.key, failure)
        else:
            hosted.appended = loading.end
            self._open_when_committed(now, hosted)
        hosted.loading = None

    def _open_when_committed(self, now: Instant, hosted: Hosted) -> None:
        """What was loaded may be lost until every in-sync replica has it: nobody hears of it."""
        end = hosted.appended
        if hosted.leader.high_watermark >= end:
            hosted.committed = end
            hosted.shard.loaded(now)
            hosted.host = ShardHost(hosted.shard, committed=end)
            self._rest(now, hosted)
            self._forget_deleted(now, hosted)
            return

        def wake(at: Instant) -> None:
            hosted.waiter = None
            if hosted.is_led:
                self._open_when_committed(at, hosted)

        self._wait(now, hosted, wake)

    # -- what a host does

    def _drive(self, now: Instant, hosted: Hosted, event: Event[Any]) -> None:
        """Whoever sends an answer looks whether this broker was given up: that may end the
        coordinator in the middle of this. Then nothing more is appended, and who waited for it
        was told; the other answers still go their way."""
        host = hosted.host
        assert host is not None
        effects = host.step(now, event)
        hosted.answering += sum(isinstance(effect, Reply) for effect in effects)
        for effect in effects:
            match effect:
                case AppendRecords(ticket, records):
                    if hosted.host is host:
                        self._append(now, hosted, ticket, records)
                case Reply(asked, reply):
                    hosted.answering -= 1
                    hosted.calls.pop(asked)(reply)
                case RequestFailed(reason):
                    self._around.on_fault(f"a group's coordinator failed: {reason}")
                case Resign():
                    hosted.host = None
                case _:
                    assert_never(effect)
        if hosted.host is not None:
            self._rest(now, hosted)

    def _append(
        self, now: Instant, hosted: Hosted, ticket: int, records: tuple[StoredRecord, ...]
    ) -> None:
        around, replica, host = self._around, hosted.replica, hosted.host
        assert host is not None
        now_ms = around.wall_ms(now)
        try:
            batch = memoryview(codec.batch_of(records, now_ms))
        except REQUEST_FAULTS as fault:
            reason = f"records cannot be written: {fault_text(fault)}"
            around.on_fault(f"a group's coordinator failed: {reason}")
            self._fail(now, hosted, reason)
            return
        try:
            appended = replica.log.append_as_leader(
                now, now_ms, batch, read_header(batch), hosted.leader.epoch
            )
        except (OSError, CorruptError) as failure:
            around.on_storage_failure(replica.key, failure)
            self._fail(now, hosted, str(failure))
            return
        except REQUEST_FAULTS as fault:
            raise AssertionError(f"a whole batch failed: {fault_text(fault)}") from fault
        hosted.appended = Offset(appended.last_offset + 1)
        host.step(now, LogAppended(ticket, hosted.appended))
        around.replication.appended(now, replica, batch)

    def _fail(self, now: Instant, hosted: Hosted, why: str) -> None:
        """What was decided is not in the log: begin again from what is."""
        self._end(now, hosted, why)
        if hosted.is_led:
            self._begin(now, hosted.replica, hosted.leader)

    def _rest(self, now: Instant, hosted: Hosted) -> None:
        """Between two events: release what is committed, wait for what is not."""
        high_watermark = hosted.leader.high_watermark
        if high_watermark > hosted.committed:
            hosted.committed = high_watermark
            self._drive(now, hosted, LogCommitted(high_watermark))
            return
        assert hosted.host is not None
        if hosted.appended > hosted.committed and hosted.waiter is None:
            self._wait(now, hosted, lambda at: self._woken(at, hosted))
        due = hosted.host.deadline()
        if due is not None:
            self.alarm(due)

    def _woken(self, now: Instant, hosted: Hosted) -> None:
        waiter, hosted.waiter = hosted.waiter, None
        if not hosted.is_led:
            self._end(now, hosted, "another leader")
            return
        late = waiter is not None and now >= waiter.deadline
        if late and hosted.leader.high_watermark <= hosted.committed:
            self._drive(now, hosted, GiveUpHeld(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._rest(now, hosted)

    def _wait(self, now: Instant, hosted: Hosted, wake: Callable[[Instant], None]) -> None:
        """Until the high watermark moves, or the leader is another one."""
        leader, committed = hosted.leader, hosted.committed

        def ready() -> bool:
            return leader.high_watermark > committed

        deadline = Instant(now + ms(self._around.settings["offsets.commit.timeout.ms"]))
        hosted.waiter = Waiter((hosted.replica.key,), deadline, wake, missing=0, ready=ready)
        self._around.waiting.park(hosted.waiter)


def _is_fenced(hosted: Hosted, request: CommitInTransaction) -> bool:
    known = hosted.replica.log.producers.get(request.producer_id)
    return known is not None and known.epoch > request.producer_epoch


def _nobody_waits(_answers: Any) -> None:  # noqa: ANN401 -- of any request
    """Of what the coordinators are told, not asked."""
