"""A broker's request handlers without sockets, coordinator or processes: frames in, answers out."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.clients.raw_socket import request_bytes
from tidelog.kernel.ids import (
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    Partition,
    ProducerId,
    TopicPartition,
    Uuid,
)
from tidelog.kernel.instant import Instant
from tidelog.kernel.steps import Steps, at_once, one_step
from tidelog.node.api.broker import Broker, Space
from tidelog.node.api.dispatch import Dispatcher, routes
from tidelog.node.api.fetch_sessions import FetchSessions
from tidelog.node.api.producer_ids import ProducerIds
from tidelog.node.broker_settings import BrokerSettings
from tidelog.node.groups.history import Told
from tidelog.node.log.contracts import FileSlice
from tidelog.node.log.directories import LogDirectories
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.ownership import Owner
from tidelog.node.log.scan import first_bad
from tidelog.node.log.settings import LogSettings
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.net.session import Session
from tidelog.node.replica.hosting import Hosting
from tidelog.node.replica.replicas import Replicas
from tidelog.node.replica.replication import Replication, Surroundings
from tidelog.node.replica.rings import NoRings
from tidelog.node.replica.waiting import Waiting
from tidelog.node.runtime.disk import open_disk
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.header import AnyApi
from tidelog.wire.metadata_records import (
    BrokerRegistered,
    BrokerUnfenced,
    ClusterCreated,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    ResourceKind,
    StopKind,
    TopicCreated,
    TopicDeleted,
)

ME = BrokerId(0)
START_MS = 1_700_000_000_000


class FakeClient:
    """One connection; what it was sent is in `answers`."""

    def __init__(self) -> None:
        self.session = Session()
        self.address = "127.0.0.1:1"
        self.closed: str | None = None
        self._sent = bytearray()

    def answered(self) -> None:
        """Ready answers are picked up when a test looks for them."""

    def close(self, reason: str) -> None:
        self.closed = reason

    def frames(self) -> list[bytes]:
        """Every answer since the last call, without its size."""
        for piece in self.session.ready():
            content = _bytes_of(piece)
            if content is None:
                self.closed = "what it asked for is damaged"
                return []
            self._sent += content
            self.session.delivered(len(content))
        frames: list[bytes] = []
        while len(self._sent) >= 4:
            size = int.from_bytes(self._sent[:4], "big")
            frames.append(bytes(self._sent[4 : 4 + size]))
            del self._sent[: 4 + size]
        return frames


def _bytes_of(piece: object) -> bytes | None:
    """None where bytes that nobody can vouch for turn out bad, or cannot be read any more."""
    if isinstance(piece, FileSlice):
        file, position, size = piece.file, piece.position, piece.size
        try:
            if not piece.is_trusted:
                bad = first_bad(file, position, size, piece.course())
                if not piece.found(bad):
                    return None
            return bytes(file.read(position, size))
        except OSError:
            return None
    assert isinstance(piece, bytes | bytearray | memoryview)
    return bytes(piece)


class FakeLink:
    """A coordinator, as a test wants it: it answers when told to."""

    def __init__(self) -> None:
        self.forwarded: list[tuple[int, bytes]] = []
        self.deadlines: list[Instant] = []
        self.done: list[Callable[[bytes | ErrorCode], None]] = []
        self.next_id = 1000

    def forward(
        self,
        api_key: int,
        frame: bytes,
        client_address: str,
        deadline: Instant,
        done: Callable[[bytes | ErrorCode], None],
    ) -> None:
        assert client_address
        assert deadline
        self.forwarded.append((api_key, frame))
        self.deadlines.append(deadline)
        self.done.append(done)

    def allocate_producer_ids(
        self, done: Callable[[tuple[ProducerId, int] | ErrorCode], None]
    ) -> None:
        self.next_id += 10
        done((ProducerId(self.next_id - 10), 10))


class FakeTransactions:
    """A transaction coordinator, as a test wants it: it answers when told to."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock = clock
        self.forwarded: list[tuple[int, bytes]] = []
        self.done: list[Callable[[bytes | ErrorCode], None]] = []
        self.forgotten: list[int] = []
        """Calls that nobody waits for any more."""
        self.says_at_once: ErrorCode | None = None
        """What is answered to a call before `forward` returns, as where too many are under way."""

    def forward(
        self,
        frame: bytes,
        client_address: str,
        deadline: Instant,
        done: Callable[[Instant, bytes | ErrorCode], None],
    ) -> Callable[[], None]:
        assert client_address
        assert deadline
        number = len(self.forwarded)
        self.forwarded.append((int.from_bytes(frame[:2], "big"), frame))
        self.done.append(lambda answer: done(self._clock(), answer))
        if self.says_at_once is not None:
            done(self._clock(), self.says_at_once)
        return lambda: self.forgotten.append(number)


class FakeStorage:
    """The directory of the logs; checkpoints are written at once, unless a test says otherwise."""

    def __init__(self, path: str = "/data/broker-0") -> None:
        self.path = path
        self.others: list[FakeStorage] = []
        """Further directories."""
        self.held: set[TopicPartition] | None = None
        """None: all there are."""
        self.free = Space(1_000_000, 400_000)
        self.failure: OSError | None = None
        self.asked: list[Callable[[bool], None]] = []
        self.answers: bool | None = True
        """None: not yet; a test calls what is in `asked`."""

    def volumes(self) -> list["FakeStorage"]:
        return [self, *self.others]

    def holds(self, key: TopicPartition) -> bool:
        return self.held is None or key in self.held

    def space(self) -> Space:
        if self.failure is not None:
            raise self.failure
        return self.free

    def keep_starts(self, done: Callable[[bool], None]) -> None:
        if self.answers is None:
            self.asked.append(done)
        else:
            done(self.answers)


def turns(bench: "HandlerBench") -> int:
    """Let the loop go on until nothing waits for its turn; how many turns that takes."""
    assert bench.aside is not None
    count = 0
    while bench.aside:
        step(bench)
        count += 1
    return count


def step(bench: "HandlerBench") -> None:
    """Let the loop go on for one turn."""
    assert bench.aside
    bench.aside.pop(0)()


class HandlerBench:
    """One broker in one directory, with a clock that tests move."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.now, self.told, self.faults = Instant(1), list[Told](), list[str]()
        self.alarms, self.someone_left = list[Instant](), False
        """Whether the broker knows of a death that the image does not tell yet."""
        self.failures: list[tuple[TopicPartition, str]] = []
        self.aside: list[Callable[[], None]] | None = None
        """Where a test collects long work to do it later; None: it is done at once."""
        self.link, self.storage = FakeLink(), FakeStorage()
        self.transactions, self.image = (
            FakeTransactions(lambda: self.now),
            MetadataImage(noting=True),
        )
        replicas, waiting = Replicas(), Waiting(self.alarms.append)
        self.configs, self.logs = BrokerSettings(ME, _named(settings)), _logs(directory)
        self.replication = Replication(self._surroundings(replicas, waiting))
        self.replication.registered(self.now, Offset(1))
        self.hosting = Hosting(
            me=ME,
            replicas=replicas,
            roles=self.replication,
            logs=self.logs,
            broker_settings=self.configs.given,
            on_trouble=lambda key, reason: self.failures.append((key, reason)),
        )
        self._uuids, self._topics = itertools.count(1), 0
        self.broker = Broker(
            me=ME,
            settings=self.configs.values,
            configs=self.configs,
            image=self.image,
            replicas=replicas,
            replication=self.replication,
            waiting=waiting,
            sessions=FetchSessions(10, random.Random(1)),
            link=self.link,
            producer_ids=ProducerIds(self.link.allocate_producer_ids),
            storage=self.storage,
            aside=self._aside,
            later=self._later,
            on_storage_failure=lambda key, error: self.failures.append((key, str(error))),
            tell_of_groups=self.told.append,
            new_uuid=lambda: str(next(self._uuids)),
            transactions=self.transactions,
            someone_left=lambda: self.someone_left,
            on_fault=self.faults.append,
            wall_offset_ns=START_MS * 1_000_000,
        )
        self.dispatcher = Dispatcher(self.broker, routes())
        self.replay(ClusterCreated("cluster"), _registered(), BrokerUnfenced(ME, Offset(1)))

    def close(self) -> None:
        """For a test that makes many of them: each has open files."""
        for replica in self.broker.replicas:
            replica.log.close_clean()

    def _surroundings(self, replicas: Replicas, waiting: Waiting) -> Surroundings:
        return Surroundings(
            me=ME,
            incarnation=Incarnation(1),
            replicas=replicas,
            waiting=waiting,
            rings=NoRings(),
            wall_ms=lambda _: START_MS,
            lag_max_ms=lambda: 10_000,
            note=lambda *_: None,
            on_storage_failure=lambda one, error: self.failures.append((one.key, str(error))),
            wake=lambda: None,
        )

    def _aside(self, work: Steps[Any], done: Callable[[Instant, Any], None]) -> None:
        def do() -> None:
            done(self.now, at_once(work))

        if self.aside is None:
            do()
        else:
            self.aside.append(do)

    def _later(self, then: Callable[[Instant], None]) -> None:
        self._aside(one_step(lambda: None), lambda now, _: then(now))

    def replay(self, *records: Any) -> None:
        for record in records:
            self.image.replay(record)
        changes = self.image.take_changes()
        self.configs.follow(self.image)
        self.hosting.follow(self.now, changes)
        self.hosting.configured(self.now, self.image, changes)
        self.replication.image_changed(self.now, self.image)
        self.broker.groups.image_changed(self.now, changes)
        self.broker.brokers_changed(self.now, changes.brokers)

    def topic(self, name: str, partitions: int = 1, **configs: str) -> Uuid:
        """Make a topic led here."""
        self._topics += 1
        topic_id = Uuid(self._topics.to_bytes(16, "big"))
        self.replay(
            TopicCreated(topic_id, name),
            *(
                ConfigChanged(ResourceKind.TOPIC, name, key.replace("_", "."), value)
                for key, value in configs.items()
            ),
            *(PartitionCreated(topic_id, Partition(n), led_here()) for n in range(partitions)),
        )
        return topic_id

    def lose_leader(self, topic_id: Uuid) -> None:
        view = led_here(leader=-1, leader_epoch=1, partition_epoch=1)
        self.replay(PartitionChanged(topic_id, Partition(0), view))

    def delete(self, topic_id: Uuid) -> None:
        self.replay(TopicDeleted(topic_id))

    def begin(self, client: FakeClient, api: AnyApi, version: int, message: object) -> None:
        """Hand one request to its handler, in a buffer that is used again as a connection's is."""
        frame = bytearray(request_bytes(api, version, message)[4:])
        self.dispatcher.begin(client, memoryview(frame), self.now)
        frame[:] = bytes(len(frame))

    def ask(self, api: AnyApi, version: int, message: object) -> Any:
        """One request on a connection of its own, answered at once."""
        client = FakeClient()
        self.begin(client, api, version, message)
        (frame,) = client.frames()
        return decode_response(api, version, memoryview(frame))[1]


def _named(settings: dict[str, str]) -> dict[str, str]:
    """As Kafka writes them."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def led_here(leader: int = ME, leader_epoch: int = 0, partition_epoch: int = 0) -> PartitionView:
    return PartitionView(
        leader=BrokerId(leader),
        leader_epoch=Epoch(leader_epoch),
        partition_epoch=Epoch(partition_epoch),
        replicas=(ME,),
        isr=(ME,),
    )


def _registered() -> BrokerRegistered:
    return BrokerRegistered(
        broker=ME,
        incarnation=Incarnation(1),
        epoch=Offset(1),
        host="127.0.0.1",
        port=9092,
        rack=None,
        log_dirs=(),
        stopped=StopKind.FIRST_START,
        fenced=True,
    )


def _logs(directory: Path) -> LogDirectories:
    owner = Owner(
        cluster_id="cluster",
        node_id=ME,
        boot_id="boot",
        disk_generation=0,
        incarnation=Incarnation(1),
        directory_id=Uuid(b"d" * 16),
    )
    logs = LogDirectories([LogDirectory(open_disk(str(directory)), owner)])
    logs.open(lambda _: LogSettings(), START_MS)
    return logs
