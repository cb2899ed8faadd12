"""What clients see of several replicas, with real brokers: the closest one, and deleted records."""

import json
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from harness.processes.cluster import Cluster, until

pytestmark = pytest.mark.slow

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RECORDS = 200


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Broker N is in rack N."""
    settings = {f"broker.{n}:broker.rack": f"rack-{n}" for n in range(3)}
    settings["replica.selector.class"] = RACK_AWARE
    folder = tmp_path_factory.mktemp("racks")
    with Cluster(folder, brokers=3, settings=settings) as cluster:
        yield cluster


def filled(racks: Cluster, topic: str) -> int:
    """Its leader."""
    words = ("--partitions", "1", "--replication-factor", "3")
    racks.done("topic", "create", topic, *words, "-c", "min.insync.replicas=2")
    producer = confluent_kafka.Producer({"bootstrap.servers": racks.bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": racks.bootstrap, "log_level": 0})
    leader = admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader
    assert isinstance(leader, int)
    return leader


def test_a_consumer_reads_from_the_follower_in_its_rack(racks: Cluster) -> None:
    leader = filled(racks, "near")
    follower = (leader + 1) % 3
    fetches: dict[int, int] = {}

    def on_statistics(text: str) -> None:
        for row in json.loads(text)["brokers"].values():
            fetches[row["nodeid"]] = row["req"].get("Fetch", 0)

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": racks.bootstrap,
            "group.id": "near",
            "client.rack": f"rack-{follower}",
            "statistics.interval.ms": 100,
            "stats_cb": on_statistics,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("near", 0, 0)])
    read: list[int] = []

    def all_is_read_there() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            read.append(int(message.value() or b""))
        return len(read) >= RECORDS and fetches.get(follower, 0) > fetches.get(leader, 0)

    until(all_is_read_there, "all is read, and most of it from the follower")
    consumer.close()
    assert read == list(range(RECORDS))


def test_deleted_records_are_gone_from_every_replica(racks: Cluster) -> None:
    filled(racks, "shorter")
    admin = AdminClient({"bootstrap.servers": racks.bootstrap, "log_level": 0})
    place = confluent_kafka.TopicPartition("shorter", 0, 150)
    (answer,) = admin.delete_records([place], operation_timeout=20).values()
    assert answer.result(30).low_watermark == 150
    racks.stop()
    for broker in range(3):
        (checkpoint,) = racks.data.glob(f"broker-{broker}/log0/log-start-offset-checkpoint")
        assert "shorter 0 150" in checkpoint.read_text()
    racks.start()
