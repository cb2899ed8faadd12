"""What an operator does to a running cluster, drawn with a seed, each with what it must lead to.

An operation that hears "timed out" or "not the controller" is of unknown outcome: either is right.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import confluent_kafka

from harness.clients.librdkafka import LIVING
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from tidelog.kernel.limits import MIB
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.messages import k19_create_topics as k19
from tidelog.wire.messages import k20_delete_topics as k20
from tidelog.wire.messages import k37_create_partitions as k37
from tidelog.wire.messages import k43_elect_leaders as k43
from tidelog.wire.messages import k44_incremental_alter_configs as k44
from tidelog.wire.messages import k45_alter_partition_reassignments as k45
from tidelog.wire.messages import k46_list_partition_reassignments as k46
from tidelog.wire.schema import ApiSchema

TIDES: Final = "tides"
"""Under load all the time; its replicas move."""
EBB: Final = "ebb"
"""Deleted and made again."""
SWELL: Final = "swell"
"""Gets more partitions."""
PARTITIONS: Final = 4
SWELL_MAX: Final = 30
BROKERS_MAX: Final = 5
RECORDS: Final = 20
SLOW: Final = 50_000
"""Bytes per second."""
CALL_S: Final = 30.0
_UNKNOWN: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
_SETTING: Final = "retention.ms"
_TOPIC, _BROKER = 2, 4
EVERY_REPLICA: Final = "*"
ALL_BROKERS: Final = ""


class Operations:
    """Carries them out, one after the other, and remembers what was promised."""

    def __init__(
        self, cluster: Cluster, rng: Random, brokers: int, tell: Callable[[str], None] = print
    ) -> None:
        self.done = Counter[str]()
        self.brokers = list(range(brokers))
        """Those that are in the cluster."""
        self._first = brokers
        self.swell = 1
        """Partitions that it has at least."""
        self.settings: set[str | None] = {None}
        """What the setting of `TIDES` may be now."""
        self.kinds: Mapping[str, Callable[[], None]] = {
            "move one": self.move_one,
            "move all": self.move_all,
            "cancel": self.cancel,
            "grow": self.grow,
            "make again": self.make_again,
            "configure": self.configure,
            "throttle": self.throttle,
            "elect": self.elect,
            "restart": self.restart,
            "roll": self.roll,
            "add": self.add,
            "remove": self.remove,
        }
        self.quick: Mapping[str, Callable[[], None]] = {
            kind: self.kinds[kind]
            for kind in ("move one", "move all", "cancel", "grow", "configure", "throttle", "elect")
        }
        """Those that are carried out while something is killed."""
        self._cluster = cluster
        self._rng = rng
        self._tell = tell
        self._whom = Random(0)
        """Apart from the draws of the history: how often somebody is asked is a matter of time."""
        self._addresses = cluster.bootstrap.split(",")
        self._made = 0

    def begin(self) -> None:
        """Make the topics."""
        for name, partitions in ((TIDES, PARTITIONS), (SWELL, 1), (EBB, 2)):
            words = ("--partitions", str(partitions), "--replication-factor", "3")
            self._cluster.done("topic", "create", name, *words, "-c", "min.insync.replicas=2")

    def settle(self) -> None:
        """Until nothing is under way any more, without a throttle."""
        self._as_fast_as_they_can()
        until(lambda: not self.moving(), "reassignments end", 60)

    # -- reassignment

    def move_one(self) -> None:
        self._move([self._rng.randrange(PARTITIONS)])

    def move_all(self) -> None:
        self._move(range(PARTITIONS))

    def _move(self, partitions: Sequence[int]) -> None:
        self._reassign({one: self._rng.sample(self.brokers, 3) for one in partitions})

    def cancel(self) -> None:
        """All that is under way: so slow that it is, but where it is of what was moved before."""
        if self._rng.random() < 0.8:
            self._throttled(str(SLOW))
            self.move_all()
        self._reassign(
            dict.fromkeys(self.moving(), None), fine=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        )
        self._as_fast_as_they_can()

    def moving(self) -> list[int]:
        answer = self._ask(k46.API, 0, k46.ListPartitionReassignmentsRequest())
        assert answer.error_code == 0, answer
        return [one.partition_index for topic in answer.topics for one in topic.partitions]

    def _reassign(
        self, targets: Mapping[int, list[int] | None], fine: ErrorCode = ErrorCode.NONE
    ) -> None:
        self._tell(f"  replicas {dict(targets)}")
        rows = [
            k45.ReassignablePartition(partition_index=partition, replicas=replicas)
            for partition, replicas in targets.items()
        ]
        request = k45.AlterPartitionReassignmentsRequest(
            topics=[k45.ReassignableTopic(name=TIDES, partitions=rows)]
        )
        answer = self._ask(k45.API, 1, request)
        codes = {answer.error_code}
        codes |= {one.error_code for topic in answer.responses for one in topic.partitions}
        assert codes <= {0, fine, *_UNKNOWN}, answer

    # -- topics

    def grow(self) -> None:
        count = min(self.swell + self._rng.randint(1, 2), SWELL_MAX)
        topic = k37.CreatePartitionsTopic(name=SWELL, count=count, assignments=None)
        request = k37.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
        (row,) = self._ask(k37.API, 3, request).results
        if row.error_code == ErrorCode.NONE:
            self.swell = count
        else:  # it has them already, by an attempt whose answer was lost, or it is full
            assert row.error_code in {ErrorCode.INVALID_PARTITIONS, *_UNKNOWN}, row

    def make_again(self) -> None:
        """Nothing of the topic that was is seen in the topic that is."""
        self.delete()
        self.make()

    def delete(self) -> None:
        deleting = k20.DeleteTopicsRequest(
            topics=[k20.DeleteTopicState(name=EBB)], timeout_ms=10_000
        )
        self._until_done(
            lambda: self._ask(k20.API, 6, deleting).responses[0].error_code,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    def make(self) -> None:
        self._made += 1
        configs = [k19.CreatableTopicConfig(name="min.insync.replicas", value="2")]
        topic = k19.CreatableTopic(
            name=EBB, num_partitions=2, replication_factor=3, assignments=[], configs=configs
        )
        creating = k19.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        self._until_done(
            lambda: self._ask(k19.API, 7, creating).topics[0].error_code,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        )
        self._fill_and_read(EBB, 2)

    def _fill_and_read(self, topic: str, partitions: int) -> None:
        values = [b"%d/%d" % (self._made, number) for number in range(RECORDS)]
        told: list[confluent_kafka.KafkaError | None] = []
        common = {"bootstrap.servers": self._cluster.bootstrap, **LIVING}
        producer = confluent_kafka.Producer(common | {"acks": "all", "enable.idempotence": True})
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                partition=number % partitions,
                on_delivery=lambda error, _: told.append(error),
            )
        assert producer.flush(CALL_S) == 0
        assert told == [None] * RECORDS
        consumer = confluent_kafka.Consumer(
            common | {"group.id": "never-joined", "enable.auto.commit": False}
        )
        try:
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, one, 0) for one in range(partitions)]
            )
            found = consumer.consume(RECORDS, CALL_S)
        finally:
            consumer.close()
        assert sorted(one.value() or b"" for one in found) == sorted(values)
        assert {one.offset() for one in found} == set(range(RECORDS // partitions))

    def configure(self) -> None:
        value = str(self._rng.randint(10**9, 10**12))
        if self._configured(_row(_TOPIC, TIDES, {_SETTING: value})):
            self.settings = {value}
        else:
            self.settings.add(value)

    def throttle(self) -> None:
        """What moves from now on does so at this rate; or as fast as it can."""
        rate = self._rng.choice((None, 2 * MIB, 8 * MIB))
        self._tell(f"  at {rate} bytes/s")
        self._throttled(None if rate is None else str(rate))

    def _as_fast_as_they_can(self) -> None:
        until(lambda: self._throttled(None), "the throttle is off")

    def _throttled(self, rate: str | None) -> bool:
        sides = ("leader", "follower")
        rates = {f"{side}.replication.throttled.rate": rate for side in sides}
        replicas = {
            f"{side}.replication.throttled.replicas": rate and EVERY_REPLICA for side in sides
        }
        return self._configured(_row(_TOPIC, TIDES, replicas), _row(_BROKER, ALL_BROKERS, rates))

    def _configured(self, *rows: k44.AlterConfigsResource) -> bool:
        """Whether all of it is so; it may be where this is not known."""
        request = k44.IncrementalAlterConfigsRequest(resources=list(rows))
        codes = {one.error_code for one in self._ask(k44.API, 1, request).responses}
        assert codes <= {0, *_UNKNOWN}, codes
        return codes == {0}

    def elect(self) -> None:
        request = k43.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)
        answer = self._ask(k43.API, 2, request)
        codes = [
            row.error_code
            for topic in answer.replica_election_results
            for row in topic.partition_result
        ]
        assert answer.error_code in {0, *_UNKNOWN}, answer
        assert set(codes) <= {0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}, answer

    # -- brokers

    def restart(self) -> None:
        broker = str(self._rng.choice(self.brokers))
        self._tell(f"  broker {broker}")
        self._cluster.done("broker", "restart", broker)

    def roll(self) -> None:
        self._cluster.done("broker", "restart", "--rolling", "--rest", "0")

    def remove(self) -> None:
        """One that was added: the first ones are those that faults befall."""
        if len(self.brokers) < BROKERS_MAX:
            self.add()
        broker = self._rng.choice(self.brokers[self._first :])
        self._tell(f"  broker {broker}")
        self._cluster.done("broker", "remove", str(broker))
        self.brokers.remove(broker)

    def add(self) -> None:
        if len(self.brokers) < BROKERS_MAX:
            (added,) = self._cluster.done("broker", "add", "--json").document["processes"]
            self.brokers.append(added["id"])

    # -- asking

    def _until_done(self, attempt: Callable[[], int], done_before: ErrorCode) -> None:
        """Ask until it is so; an attempt whose answer was lost may have done it."""
        deadline = time.monotonic() + CALL_S
        while (code := attempt()) not in {0, done_before}:
            assert code in _UNKNOWN, ErrorCode(code)
            assert time.monotonic() < deadline, ErrorCode(code)

    def _ask(self, api: ApiSchema[Any, Any], version: int, request: object) -> Any:
        """Of whichever broker answers."""
        deadline = time.monotonic() + CALL_S
        while time.monotonic() < deadline:
            for address in self._whom.sample(self._addresses, len(self._addresses)):
                try:
                    with RawClient(address) as client:
                        return client.ask(api, version, request)
                except (OSError, EOFError):
                    continue
        raise AssertionError(f"no broker answers key {api.key}")

    def replicas_of(self, topic: str) -> list[list[int]]:
        """By partition."""
        asked = [k03.MetadataRequestTopic(name=topic)]
        request = k03.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        (row,) = self._ask(k03.API, 12, request).topics
        placed = {one.partition_index: list(one.replica_nodes) for one in row.partitions}
        return [placed[index] for index in range(len(placed))]


def _row(kind: int, name: str, values: Mapping[str, str | None]) -> k44.AlterConfigsResource:
    """What is set, and taken back where there is no value."""
    configs = [
        k44.AlterableConfig(name=key, config_operation=int(value is None), value=value)
        for key, value in values.items()
    ]
    return k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


class Reader:
    """Reads a topic from its beginning, by partitions, as long as it is under load."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.read: list[list[bytes]] = [[] for _ in range(partitions)]
        """By partition and offset."""
        self.wrong: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **LIVING,
            }
        )
        self._thread = threading.Thread(target=self._run, name="reader")

    def start(self) -> None:
        self._thread.start()

    def finish(self, ends: Sequence[int]) -> None:
        """Once it has read up to these offsets."""

        def has_all() -> bool:
            return not self._thread.is_alive() or all(
                len(rows) >= end for rows, end in zip(self.read, ends, strict=True)
            )

        try:
            until(has_all, f"all is read up to {ends}", 60)
        finally:
            self._stop.set()
            self._thread.join(CALL_S)
            self._consumer.close()

    def _run(self) -> None:
        starts = range(len(self.read))
        self._consumer.assign(
            [confluent_kafka.TopicPartition(self._topic, one, 0) for one in starts]
        )
        while not self._stop.is_set() and not self.wrong:
            for message in self._consumer.consume(1_000, 0.1):
                self._take(message)

    def _take(self, message: confluent_kafka.Message) -> None:
        error, partition = message.error(), message.partition()
        if error is not None:
            if not error.retriable() and error.fatal():
                self.wrong.append(f"reading: {error}")
            return
        assert partition is not None
        rows = self.read[partition]
        if message.offset() != len(rows):
            self.wrong.append(
                f"partition {partition}: {message.offset()} was read where {len(rows)} comes"
            )
            return
        rows.append(message.value() or b"")
