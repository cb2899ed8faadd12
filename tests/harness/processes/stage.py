"""The stage of the named scenarios with real processes: a topic, published clients, and faults.

What is on it is told as the scenarios write it: `0-9:0 10-14:1` are the records 0 to 9 of leader
epoch 0 and 10 to 14 of epoch 1, as a consumer reads them or as they lie in a replica's files.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace

from harness.clients.fetch_raw import FetchRefusedError, offset_at
from harness.clients.librdkafka import LIVING
from harness.clients.produce_raw import produce
from harness.clients.raw_socket import RawClient
from harness.faults.chaos import log_bytes
from harness.processes.cluster import Cluster, until
from tidelog.kernel.ids import NO_LEADER, BrokerId, uuid_text
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Links
from tidelog.node.log.marks import MARK_NAME, decode_mark, encode_mark
from tidelog.node.metadata.image import MetadataImage
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.tools.supervisor.ask import Link
from tidelog.tools.timeline import Entry, gather, of_partition
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.metadata_records import PartitionView
from tidelog.wire.records import iterate_batches

TOPIC = "t"
PATIENCE_S = 30.0
BROKERS = 4
"""One more than a topic has replicas: a witness that always lives."""
_AT_THE_END = confluent_kafka.KafkaError._PARTITION_EOF
_CLIENT = {**LIVING, "reconnect.backoff.max.ms": 200}


class Said:
    """What the producer was told of one record."""

    offset: int | None = None
    error: confluent_kafka.KafkaError | None = None

    def __call__(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        self.error = error
        self.offset = None if error else message.offset()


class Stage:
    """Topic `t` of one partition; its first replica leads first."""

    def __init__(
        self, cluster: Cluster, *configs: str, replicas: Iterable[int], idempotent: bool
    ) -> None:
        self.cluster = cluster
        self.replicas = list(replicas)
        self.client: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, **_CLIENT}
        self.create_topic(*configs)
        self._producer = confluent_kafka.Producer(
            {**self.client, "enable.idempotence": idempotent, "linger.ms": 0}
        )
        self._board = Board.open(board_name(cluster.runs[-1].run_id))
        self._boss = Link.to(cluster.data)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(PATIENCE_S)
        self._boss.close()
        self._board.close()

    def create_topic(self, *configs: str) -> None:
        wanted = NewTopic(
            TOPIC,
            1,
            replica_assignment=[self.replicas],
            config=dict(one.split("=") for one in configs),
        )
        admin = self.new_admin()
        admin.create_topics([wanted])[TOPIC].result(PATIENCE_S)
        self.until_led()  # the answer waits for a broker that is late, but not for long

    # -- clients

    def new_admin(self) -> AdminClient:
        """Each time a new one: who has a connection to a broker that was killed may ask it all the
        same, and is only then told that it is gone."""
        return AdminClient(self.client)

    def sending(self, value: bytes) -> Said:
        """Hand it to the producer, which wants acks=all, and do not wait."""
        said = Said()
        self._producer.produce(TOPIC, value, partition=0, on_delivery=said)
        self._producer.poll(0)
        return said

    def until_said(self, *all_said: Said) -> list[int]:
        """Their offsets: acknowledged, all of them."""
        assert self._producer.flush(PATIENCE_S) == 0, "the producer waits for an answer"
        for said in all_said:
            assert said.error is None, said.error
        return [said.offset for said in all_said if said.offset is not None]

    def sent(self, *values: bytes) -> list[int]:
        """Acknowledged by all in sync."""
        return self.until_said(*[self.sending(value) for value in values])

    def sent_to_leader(self, *values: bytes) -> list[int]:
        """With acks=1, which promises little; by another producer."""
        producer = confluent_kafka.Producer({**self.client, "acks": 1, "linger.ms": 0})
        told = [Said() for _ in values]
        for value, said in zip(values, told, strict=True):
            producer.produce(TOPIC, value, partition=0, on_delivery=said)
        assert producer.flush(PATIENCE_S) == 0
        return [said.offset for said in told if said.offset is not None]

    def consumer(self, start: int = 0, *, epoch: int | None = None, **more: object) -> "Reader":
        """From `start` on, of which the consumer knows that it was written in `epoch`."""
        return Reader(self.client, start, epoch, more)

    def read(self, start: int = 0) -> list[bytes]:
        """All values up to the high watermark."""
        with self.consumer(start) as reader:
            return [message.value() or b"" for message in reader.to_the_end()]

    def seen(self) -> str:
        """What a consumer reads, with the epochs that the broker names."""
        with self.consumer() as reader:
            found = [(one.offset() or 0, one.leader_epoch() or 0) for one in reader.to_the_end()]
        return _runs((offset, offset, epoch) for offset, epoch in found)

    def code(self, broker: int, batch: bytearray, *, acks: int = -1) -> tuple[int, int]:
        """Error code and offset of one batch, said by a raw client to this broker."""
        with RawClient(self.address(broker)) as client:
            row = produce(client, TOPIC, batch, acks=acks)
        return int(row.error_code), int(row.base_offset)

    def fetched(self, broker: int, start: int = 0, *, epoch: int = -1) -> k01.PartitionData:
        """What a raw client gets that asks this broker, and believes in this epoch."""
        wanted = k01.FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=start,
            partition_max_bytes=1 << 20,
        )
        topics = [k01.FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = k01.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
        with RawClient(self.address(broker)) as raw:
            (row,) = raw.ask(k01.API, 11, request).responses[0].partitions
        assert isinstance(row, k01.PartitionData)
        return row

    def until_high(self, broker: int, offset: int) -> None:
        """This replica knows that all below is on every other."""
        until(
            lambda: self.fetched(broker).high_watermark == offset,
            f"high watermark {offset} on {broker}",
        )

    def address(self, broker: int) -> str:
        return self.cluster.bootstrap.split(",")[broker]

    # -- what is

    def image(self) -> MetadataImage:
        """The cluster as the metadata log has it."""
        return open_folder(self.cluster.data).image

    def view(self) -> PartitionView:
        return self.image().names[TOPIC].partitions[0]

    def until_isr(self, *brokers: int) -> None:
        until(lambda: set(self.view().isr) == set(brokers), f"in sync: {brokers}")

    def until_known(self, to: int, *isr: int) -> None:
        """This broker has heard of it; what it does next, it does by that."""
        request = k03.MetadataRequest(
            topics=[k03.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
        )
        with RawClient(self.address(to)) as raw:
            until(
                lambda: (
                    raw.ask(k03.API, 12, request).topics[0].partitions[0].isr_nodes == list(isr)
                ),
                f"{to} knows that {isr} are in sync",
            )

    def until_led(self, *by: int) -> int:
        """By one of these, or by anyone, who has heard of it: the metadata log knows it first."""
        until(lambda: self._is_led(by), f"led by {by or 'somebody'}")
        return self.view().leader

    def _is_led(self, by: tuple[int, ...]) -> bool:
        view = self.view()
        if view.leader == NO_LEADER or (by and view.leader not in by):
            return False
        return self._told(view.leader, -2, view.leader_epoch) is not None

    def _told(self, leader: int, timestamp: int, epoch: int = -1) -> int | None:
        """By a broker that leads, and knows it."""
        try:
            with RawClient(self.address(leader)) as raw:
                return offset_at(raw, TOPIC, timestamp, epoch=epoch)
        except (FetchRefusedError, OSError, EOFError):
            return None

    def bytes(self, broker: int) -> bytes:
        return log_bytes(self.cluster, broker, TOPIC, 0)

    def log(self, broker: int) -> str:
        """What lies in a replica's files."""
        return _runs(
            (header.base_offset, header.next_offset - 1, header.partition_leader_epoch)
            for header, _ in iterate_batches(memoryview(self.bytes(broker)))
        )

    def until_log(self, broker: int, wanted: str) -> None:
        until(lambda: self.log(broker) == wanted, f"{wanted} on {broker}, not {self.log(broker)}")

    def until_equal(self) -> str:
        """All replicas, byte by byte, and readers are shown all of it: a high watermark moves a
        moment later, where too few were in sync before. What is in them."""
        until(self._is_equal, "replicas are equal, and shown to their end")
        return self.log(self.replicas[0])

    def _is_equal(self) -> bool:
        logs = {self.bytes(one) for one in self.replicas}
        leader = self.view().leader
        if len(logs) > 1 or leader == NO_LEADER:
            return False
        (log,) = logs
        end = max((header.next_offset for header, _ in iterate_batches(memoryview(log))), default=0)
        return self._told(leader, -1) == end

    def events(self, name: str, **fields: object) -> list[Entry]:
        """Of the timeline."""
        entries = gather(self.cluster.runs[-1].run_id, self.cluster.data / "logs")
        topic_id = uuid_text(self.image().names[TOPIC].id)
        return [
            one
            for one in of_partition(entries, topic_id, 0)
            if one.event == name
            and fields.items() <= {**one.fields, "process": one.process}.items()
        ]

    def cuts(self, broker: int) -> list[tuple[int, int]]:
        """Where a replica cut its log: from and to."""
        found = self.events("truncated", process=f"broker-{broker}")
        return [(one.fields["from"], one.fields["to"]) for one in found]

    # -- what happens

    def pid(self, broker: int) -> int:
        status: dict[str, Any] = self._boss.ask("status")["status"]
        (row,) = [
            one for one in status["processes"] if (one["role"], one["id"]) == ("broker", broker)
        ]
        return int(row["pid"])

    def kill(self, *brokers: int) -> None:
        """SIGKILL; until the supervisor and the controller know: the next life of one of them is
        not to be there before its death is."""
        for broker in brokers:
            self._do("kill", broker)
        died = {*brokers}
        until(lambda: died.isdisjoint(self.image().alive()), f"{died} are known to be dead")

    def die(self, pid: int) -> None:
        """SIGKILL at this very moment: nothing is asked or waited for."""
        os.kill(pid, signal.SIGKILL)

    def kill_coordinator(self) -> None:
        self._boss.ask("kill", role="coordinator")

    def start(self, broker: int) -> None:
        self._do("start", broker)

    def pause(self, broker: int) -> None:
        os.kill(self.pid(broker), signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.pid(broker), signal.SIGCONT)

    def cut(self, one: int, other: int) -> None:
        self.slow(one, other, Links.CUT)
        self.slow(other, one, Links.CUT)

    def join(self, one: int, other: int) -> None:
        self.slow(one, other, 0)
        self.slow(other, one, 0)

    def slow(self, sender: int, to: int, ms: int) -> None:
        self._board.links.set(BrokerId(sender), BrokerId(to), ms)

    def folder(self, broker: int) -> Path:
        return self.cluster.data / f"broker-{broker}/log0"

    def lose_power(self, broker: int, *, keep_bytes: int) -> None:
        """As if the machine of a dead broker had: of its log only so much had been flushed."""
        (segment,) = (self.folder(broker) / f"{TOPIC}-0").glob("*.log")
        os.truncate(segment, keep_bytes)
        path = self.folder(broker) / MARK_NAME
        mark = decode_mark(path.read_bytes())
        assert mark is not None
        path.write_bytes(encode_mark(replace(mark, disk_generation=mark.disk_generation - 1)))

    def _do(self, what: str, broker: int) -> None:
        self._boss.ask(what, role="broker", id=broker)


class Reader:
    """A consumer that was given the partition: `with` closes it."""

    def __init__(
        self, client: dict[str, Any], start: int, epoch: int | None, more: dict[str, object]
    ) -> None:
        settings = {"group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 20}
        self._consumer = confluent_kafka.Consumer(
            {
                **client,
                **settings,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                **more,
            }
        )
        place = confluent_kafka.TopicPartition(TOPIC, 0, start)
        if epoch is not None:
            place = confluent_kafka.TopicPartition(TOPIC, 0, start, leader_epoch=epoch)
        self._consumer.assign([place])

    def next(self) -> confluent_kafka.Message | confluent_kafka.KafkaError:
        """A record, or what else is said: _PARTITION_EOF is the high watermark."""
        message = self._consumer.poll(PATIENCE_S)
        assert message is not None, "nothing was read, not even the end"
        return message.error() or message

    def take(self, count: int) -> list[confluent_kafka.Message]:
        """So many records; at the end it waits for more."""
        found: list[confluent_kafka.Message] = []
        while len(found) < count:
            said = self.next()
            if isinstance(said, confluent_kafka.Message):
                found.append(said)
            else:
                assert said.code() == _AT_THE_END, said
        return found

    def to_the_end(self) -> list[confluent_kafka.Message]:
        found: list[confluent_kafka.Message] = []
        while not isinstance(said := self.next(), confluent_kafka.KafkaError):
            found.append(said)
        assert said.code() == _AT_THE_END, said
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


@contextmanager
def staged(
    folder: Path,
    *configs: str,
    replicas: Iterable[int] = range(3),
    lag_ms: int = 30_000,
    idempotent: bool = True,
) -> Iterator[Stage]:
    """On a cluster of its own. An idempotent producer gives up where its records were lost, as an
    unclean election may do it."""
    settings = {"replica.lag.time.max.ms": str(lag_ms)}
    with Cluster(folder, brokers=BROKERS, settings=settings) as cluster:
        stage = Stage(cluster, *configs, replicas=replicas, idempotent=idempotent)
        try:
            yield stage
        finally:
            stage.close()


def _runs(batches: Iterable[tuple[int, int, int]]) -> str:
    """First offset, last offset and epoch of each; neighbours of one epoch as one run."""
    runs: list[list[int]] = []
    for first, last, epoch in batches:
        if runs and runs[-1][2] == epoch and runs[-1][1] == first - 1:
            runs[-1][1] = last
        else:
            runs.append([first, last, epoch])
    return " ".join(f"{first}-{last}:{epoch}" for first, last, epoch in runs)
