"""Clients of a simulated cluster: they ask through the brokers' own request handlers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import request_bytes
from harness.machines.brokers import FakeClient
from harness.simulation.broker import Life
from harness.simulation.cluster import SimulatedCluster
from tidelog.kernel.ids import NO_LEADER, BrokerId, Partition, TopicPartition, Uuid
from tidelog.wire.frame import decode_response
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.messages import k02_list_offsets as k02
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.messages import k23_offset_for_leader_epoch as k23
from tidelog.wire.records import PLAIN, Origin, iterate_batches, read_header

FETCH_BY_ID = 13
PRODUCE, FETCH, LIST_OFFSETS, METADATA, EPOCH_ENDS = 11, 12, 7, 12, 4
LATEST = -1
ANY_LATER = 1 << 31
"""Above all leader epochs: of a broker whose epoch is not known."""


class Asked(FakeClient):
    """One request on a connection of its own. `answer` stays None where the connection ended."""

    def __init__(
        self, life: Life, api: AnyApi, version: int, message: object, done: Callable[[], None]
    ) -> None:
        super().__init__()
        self.answer: Any = None
        self.is_over = False
        self._life = life
        self._as = api, version
        self._done = done
        life.begin(self, request_bytes(api, version, message)[4:], self._gone)

    def answered(self) -> None:
        frames = self.frames()
        if self.closed is not None:
            self._gone()
        elif frames and not self.is_over:
            if self._life.answer_leaves(self):
                _, self.answer = decode_response(*self._as, memoryview(frames[0]))
            self._over()

    def _gone(self) -> None:
        if not self.is_over:
            self._over()

    def _over(self) -> None:
        self.is_over = True
        self._done()


@dataclass
class Write:
    """One batch, and what became of it."""

    key: TopicPartition
    crc: int
    count: int
    acks: int
    code: int | None = None
    """None: nobody knows (yet)."""
    offset: int = -1
    is_over: bool = False

    @property
    def is_acked(self) -> bool:
        return self.code == 0


class Clients:
    """Producers and consumers that remember what they were told."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.writes: list[Write] = []
        self._values = 0

    # -- producing

    def write(
        self,
        broker: BrokerId,
        count: int = 1,
        acks: int = -1,
        topic: str = "t",
        partition: int = 0,
        *,
        size: int = 20,
        origin: Origin = PLAIN,
        timeout_ms: int = 5_000,
        on_over: Callable[[Write], None] | None = None,
    ) -> Write:
        """Ask this broker to append one batch of so many records; all values are unique."""
        values = []
        for _ in range(count):
            self._values += 1
            values.append(b"%d" % self._values + bytes(size))
        batch = batch_of(*values, origin=origin)
        return self.write_batch(
            broker, batch, acks, topic, partition, timeout_ms=timeout_ms, on_over=on_over
        )

    def write_batch(
        self,
        broker: BrokerId,
        batch: bytes | bytearray,
        acks: int = -1,
        topic: str = "t",
        partition: int = 0,
        *,
        timeout_ms: int = 5_000,
        on_over: Callable[[Write], None] | None = None,
    ) -> Write:
        header = read_header(batch)
        write = Write((topic, Partition(partition)), header.crc, header.record_count, acks)
        self.writes.append(write)
        request = produce_request(topic, batch, acks=acks, partition=partition)
        request.timeout_ms = timeout_ms
        life = self.cluster.lives.get(broker)

        def over() -> None:
            write.is_over = True
            if asked is not None and asked.answer is not None:
                row = asked.answer.responses[0].partition_responses[0]
                write.code, write.offset = row.error_code, row.base_offset
                self._check(write, life)
            if on_over is not None:
                on_over(write)

        asked: Asked | None = None
        if life is None or not life.serving:
            over()
            return write
        # The answer may come before the constructor has returned.
        pending: list[None] = []
        asked = Asked(life, k00.API, PRODUCE, request, lambda: pending.append(None))
        if pending:
            over()
        else:
            asked._done = over
        return write

    def _check(self, write: Write, life: Life | None) -> None:
        if life is not None and write.is_acked and write.acks == -1:
            self.cluster.turned(life)  # it may be answered in the turn that made it safe
            truth, epoch = self.cluster.witness.truth(write.key), _epoch_of(life, write.key)
            is_safe = truth.may_be_told(write.offset, write.crc, epoch)
            assert is_safe, ("acked before it is safe", write)

    def wrote(self, broker: BrokerId, count: int = 1, acks: int = -1, **how: Any) -> Write:
        """As `write`, waiting for the answer, which must be good."""
        write = self.write(broker, count, acks, **how)
        self.cluster.until(lambda: write.is_over)
        assert write.is_acked, write
        return write

    def acked(self) -> list[Write]:
        return [one for one in self.writes if one.is_acked and one.acks == -1]

    # -- reading

    def ask(self, broker: BrokerId, api: AnyApi, version: int, message: object) -> Any:
        """The answer; None where the connection ended."""
        asked = Asked(self.cluster.lives[broker], api, version, message, lambda: None)
        self.cluster.until(lambda: asked.is_over)
        return asked.answer

    def fetch(
        self,
        broker: BrokerId,
        offset: int,
        *,
        epoch: int = -1,
        last_epoch: int = -1,
        topic: str = "t",
        partition: int = 0,
    ) -> k01.PartitionData:
        """What is there now; no waiting. What is read must be committed."""
        request = fetch_request(topic, partition, offset, epoch, last_epoch)
        answer = self.ask(broker, k01.API, FETCH, request)
        (found,) = answer.responses[0].partitions
        assert isinstance(found, k01.PartitionData)
        self._check_read(self.cluster.lives[broker], (topic, Partition(partition)), found)
        return found

    def try_fetch(self, broker: BrokerId, offset: int) -> k01.PartitionData | None:
        """As `fetch`; None where the connection ends instead."""
        answer = self.ask(broker, k01.API, FETCH, fetch_request("t", 0, offset, -1, -1))
        found: k01.PartitionData | None = None
        if answer is not None:
            (found,) = answer.responses[0].partitions
        return found

    def start_fetch(self, broker: BrokerId, offset: int, *, partition: int = 0) -> None:
        """Read, and do not wait for it; what comes is checked when it comes."""
        life = self.cluster.lives[broker]
        request = fetch_request("t", partition, offset, -1, -1)

        def done() -> None:
            if asked and asked[0].answer is not None:
                (found,) = asked[0].answer.responses[0].partitions
                self._check_read(life, ("t", Partition(partition)), found)

        asked: list[Asked] = []
        asked.append(Asked(life, k01.API, FETCH, request, done))
        if asked[0].is_over:
            done()

    def _check_read(self, life: Life, key: TopicPartition, found: k01.PartitionData) -> None:
        truth, epoch = self.cluster.witness.truth(key), _epoch_of(life, key)
        for header, _ in iterate_batches(_read(found)):
            is_safe = truth.may_be_told(header.base_offset, header.crc, epoch)
            assert is_safe, ("read what is not safe", header)

    def latest(self, broker: BrokerId, *, topic: str = "t") -> tuple[int, int]:
        """Error code and offset of ListOffsets(latest)."""
        row = k02.ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=-1)
        request = k02.ListOffsetsRequest(
            replica_id=-1, topics=[k02.ListOffsetsTopic(name=topic, partitions=[row])]
        )
        answer = self.ask(broker, k02.API, LIST_OFFSETS, request)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    def epoch_end(self, broker: BrokerId, epoch: int, *, current: int = -1) -> tuple[int, int, int]:
        """Error code, epoch and end of OffsetForLeaderEpoch."""
        row = k23.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        topic = k23.OffsetForLeaderTopic(topic="t", partitions=[row])
        request = k23.OffsetForLeaderEpochRequest(replica_id=-2, topics=[topic])
        answer = self.ask(broker, k23.API, EPOCH_ENDS, request)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    def code_by_id(self, broker: BrokerId, topic: Uuid) -> int:
        """What a fetch says that names its topic by this id."""
        request = fetch_request("t", 0, 0, -1, -1)
        request.topics[0].topic_id = topic
        answer = self.ask(broker, k01.API, FETCH_BY_ID, request)
        return int(answer.responses[0].partitions[0].error_code)

    def metadata_code(self, broker: BrokerId) -> int:
        """What a client is told of the partition when it asks where to read."""
        request = k03.MetadataRequest(
            topics=[k03.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
        )
        answer = self.ask(broker, k03.API, METADATA, request)
        return int(answer.topics[0].partitions[0].error_code)

    # -- the end

    def leader(self, topic: str = "t", partition: int = 0) -> BrokerId | None:
        leader = self.cluster.view(topic, partition).leader
        return None if leader == NO_LEADER else leader

    def check_all_is_there(self) -> None:
        """Everything is whole again: all replicas are equal, and hold all that was acknowledged."""
        cluster = self.cluster
        for topic in cluster.image.topics.values():
            watched = topic.name not in cluster.witness.unwatched
            for partition, view in enumerate(topic.partitions if watched else ()):
                self._check_replicas(topic.name, partition, view.replicas)
        for write in self.acked():
            truth = cluster.witness.truth(write.key)
            assert truth.has(write.offset, write.crc) or truth.has_lost(write.offset, write.crc), (
                "an acknowledged record is lost, and nobody said so",
                write,
            )

    def _check_replicas(self, topic: str, partition: int, brokers: tuple[BrokerId, ...]) -> None:
        replicas = [self.cluster.replica(one, topic, partition) for one in brokers]
        truth = self.cluster.witness.truth((topic, Partition(partition)))
        contents = {content_of(one.log) for one in replicas}
        assert len(contents) == 1, ("replicas differ", topic, partition)
        assert all(one.log.end >= truth.end for one in replicas)


def fetch_request(
    topic: str, partition: int, offset: int, epoch: int, last_epoch: int
) -> k01.FetchRequest:
    """Of one partition, answered at once."""
    row = k01.FetchPartition(
        partition=partition,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    return k01.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[k01.FetchTopic(topic=topic, partitions=[row])],
    )


def _epoch_of(life: Life, key: TopicPartition) -> int:
    """The latest leader epoch of which the broker has heard, as far as its replica knows."""
    replica = life.replicas.get(key)
    role = None if replica is None else replica.leader or replica.follower
    return ANY_LATER if role is None else role.epoch


def _read(found: k01.PartitionData) -> memoryview:
    assert isinstance(found.records, bytes | memoryview), found
    return memoryview(found.records)


def content_of(log: Any) -> bytes:
    """All bytes of all batches."""
    content = bytearray()
    at = log.start
    while (found := log.read(at, 1 << 30, log.end, min_one=True)) is not None:
        data = found.file.read(found.position, found.size)
        for header, batch in iterate_batches(data):
            content += batch
            at = header.next_offset
    return bytes(content)


def shown(log: Any) -> str:
    """The log as the scenarios write it: runs of `first-last:epoch`."""
    runs: list[list[int]] = []
    at = log.start
    while (found := log.read(at, 1 << 30, log.end, min_one=True)) is not None:
        data = found.file.read(found.position, found.size)
        for header, _ in iterate_batches(data):
            at = header.next_offset
            epoch = header.partition_leader_epoch
            if runs and runs[-1][2] == epoch and runs[-1][1] == header.base_offset - 1:
                runs[-1][1] = at - 1
            else:
                runs.append([header.base_offset, at - 1, epoch])
    return " ".join(f"{first}-{last}:{epoch}" for first, last, epoch in runs)
