"""Named scenarios of 5.21 on groups with real processes and published clients: members that sleep,
twins, and a coordinator that dies while a group rebalances. Expiry takes an hour at the least: it
has its test in `tests/unit/scenarios/scenario_groups_test.py`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as Error

from harness.clients.confluent import Confluent
from harness.clients.facts import Record
from harness.processes.cluster import Cluster, until
from harness.processes.group_member import SESSION_MS
from harness.processes.group_soak import SETTINGS
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of

pytestmark = pytest.mark.slow

PARTITIONS = 4
UNRELEASED = 111
LONG_MS = 15_000
"""A rebalance stays open for so long: enough to look, and to kill."""
BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])
SLEEPS = """
import sys
from confluent_kafka import Consumer, TopicPartition

bootstrap, topic, protocol, session_ms = sys.argv[1:]
classic = {"session.timeout.ms": session_ms, "heartbeat.interval.ms": 500}
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": topic, "group.protocol": protocol,
    "client.id": "sleeper", "auto.offset.reset": "earliest", "enable.auto.commit": False,
    **(classic if protocol == "classic" else {}),
})
lost = []
consumer.subscribe([topic], on_lost=lambda _, places: lost.extend(places))
while not consumer.assignment():
    consumer.poll(0.1)
print("has", flush=True)
sys.stdin.readline()
places = [TopicPartition(topic, one.partition, 1) for one in consumer.assignment()]
try:
    done = consumer.commit(offsets=places, asynchronous=False)
    print([str(one.error) for one in done if one.error] or "committed", flush=True)
except Exception as error:
    print("refused", error, flush=True)
while not lost:
    consumer.poll(0.1)
print("lost", flush=True)
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("groups"), brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def member(three: Cluster, group: str, protocol: str, instance: str | None = None) -> Consumer:
    classic = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}
    consumer = Consumer(
        {
            "bootstrap.servers": three.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **(classic if protocol == "classic" else {}),
            **({} if instance is None else {"group.instance.id": instance}),
        }
    )
    consumer.subscribe([group])
    return consumer


def told(consumer: Consumer) -> int | None:
    """What is wrong, if anything is."""
    try:
        message = consumer.poll(0.05)
    except KafkaException as refused:
        return int(refused.args[0].code())
    error = None if message is None else message.error()
    return None if error is None else int(error.code())


def topic_of(three: Cluster, name: str) -> str:
    """With one record in each partition."""
    client = Confluent(three.bootstrap)
    client.create_topic(name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        client.produce(name, [Record(b"0")], partition=partition)
    return name


def has_all(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return len(consumer.assignment()) == PARTITIONS


@contextmanager
def sleeper(
    three: Cluster, topic: str, protocol: str, session_ms: int = SESSION_MS
) -> Iterator["Sleeper"]:
    """One that has everything, and sleeps."""
    three.done("config", "set", "group", topic, f"consumer.session.timeout.ms={session_ms}")
    found = Sleeper(three, topic, protocol, session_ms)
    try:
        assert found.says() == "has"
        found.process.send_signal(signal.SIGSTOP)
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


class Sleeper:
    """A member in a process of its own."""

    def __init__(self, three: Cluster, topic: str, protocol: str, session_ms: int) -> None:
        words = (sys.executable, "-c", SLEEPS, three.bootstrap, topic, protocol, str(session_ms))
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def wake_to_commit(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()
        self.process.send_signal(signal.SIGCONT)


@BOTH
def test_zombie_member_commit(three: Cluster, protocol: str) -> None:
    """It slept past its session: what it committed then does not count."""
    topic = topic_of(three, f"zombie-{protocol}")
    places = [TopicPartition(topic, number, 7) for number in range(PARTITIONS)]
    with sleeper(three, topic, protocol) as asleep:
        other = member(three, topic, protocol)
        until(lambda: has_all(other), "the other has everything", 60)
        other.commit(offsets=places, asynchronous=False)
        asleep.wake_to_commit()
        assert asleep.says() != "committed"
        found = other.committed(places, timeout=10)
        assert [one.offset for one in found] == [7] * PARTITIONS
        other.close()
        assert asleep.says() == "lost"


@BOTH
def test_static_member_twin(three: Cluster, protocol: str) -> None:
    """In the classic protocol who comes later is the member, and the first one is told to end; in
    the consumer protocol the first one stays it while it lives."""
    topic = topic_of(three, f"twin-{protocol}")
    first = member(three, topic, protocol, instance="i")
    until(lambda: has_all(first), "the first one has everything", 30)
    second = member(three, topic, protocol, instance="i")
    stays, goes = (second, first) if protocol == "classic" else (first, second)

    def is_told() -> bool:
        stays.poll(0.05)
        return told(goes) in {Error._FATAL, Error.FENCED_INSTANCE_ID, UNRELEASED}

    until(is_told, "one of them is told", 30)
    until(lambda: has_all(stays), "the other one has everything", 30)
    places = [TopicPartition(topic, number, 1) for number in range(PARTITIONS)]
    stays.commit(offsets=places, asynchronous=False)
    goes.close()
    stays.close()


@BOTH
def test_coordinator_move_mid_rebalance(three: Cluster, protocol: str) -> None:
    """One member sleeps, so that the rebalance stays open; then its coordinator is killed."""
    topic = topic_of(three, f"moved-{protocol}")
    places = [TopicPartition(topic, number, 3) for number in range(PARTITIONS)]
    with sleeper(three, topic, protocol, LONG_MS):
        other = member(three, topic, protocol)
        until(lambda: rebalances(three, topic, other), "the group rebalances", 30)
        leader = leader_of(three, topic)
        # The next coordinator need not wait as long for the one that sleeps. The classic protocol
        # knows no such setting: there the member itself has said how long.
        three.done("config", "set", "group", topic, f"consumer.session.timeout.ms={SESSION_MS}")
        os.kill(three.broker_pid(leader), signal.SIGKILL)
        until(lambda: has_all(other), "who is awake has everything", 60)
        other.commit(offsets=places, asynchronous=False)
        assert leader_of(three, topic) != leader
        until(lambda: three.process("broker", leader)["pid"] is None, "its death is known")
        three.done("broker", "start", str(leader))
        three.done("wait", "isr", OFFSETS_TOPIC)
        other.close()


def rebalances(three: Cluster, group: str, awake: Consumer) -> bool:
    awake.poll(0.1)
    found = three.done("group", "describe", group, "--state", "--json").document
    return bool(found["state"] != "Stable" and found["member_count"] == 2)


def leader_of(three: Cluster, group: str) -> int:
    count = int(SETTINGS["offsets.topic.num.partitions"])
    shown = three.done("topic", "describe", OFFSETS_TOPIC, "--json").document
    partitions = shown["topics"][0]["partitions"]
    return int(partitions[partition_of(group, count)]["leader"])
