"""Settings that change while a cluster runs: at once, without a restart, and through crashes."""

import os
import signal
from pathlib import Path

import pytest

from harness.clients.confluent import Confluent
from harness.clients.facts import Record, Refused, Writing, now_ms
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from tidelog.wire.codecs import Codec
from tidelog.wire.messages.k03_metadata import API as METADATA
from tidelog.wire.messages.k03_metadata import MetadataRequest
from tidelog.wire.records import iterate_batches

pytestmark = pytest.mark.slow

TOO_LARGE = 10


def value_of(cluster: Cluster, kind: str, name: str, key: str) -> tuple[str, str]:
    words = ("config", "describe", kind, name, key, "--json")
    (row,) = cluster.done(*words).document["settings"]
    return row["value"], row["source"]


def is_taken(cluster: Cluster, topic: str, size: int) -> bool:
    record = Record(os.urandom(size), timestamp_ms=now_ms())
    try:
        Confluent(cluster.bootstrap).produce(topic, [record])
    except Refused as refused:
        assert refused.code == TOO_LARGE
        return False
    return True


def test_a_running_broker_takes_new_settings_at_once_and_gives_them_back(
    fresh_cluster: Cluster,
) -> None:
    cluster = fresh_cluster
    plain, own = cluster.create_topic(), cluster.create_topic()
    assert is_taken(cluster, plain, 5_000)
    cluster.done("config", "set", "topic", own, "max.message.bytes=9000")
    cluster.done("config", "set", "broker", "all", "message.max.bytes=3000")
    assert (is_taken(cluster, plain, 5_000), is_taken(cluster, own, 5_000)) == (False, True)
    cluster.done("config", "set", "broker", "0", "message.max.bytes=6000")
    assert is_taken(cluster, plain, 5_000)
    cluster.done("config", "unset", "broker", "0", "message.max.bytes")
    cluster.done("config", "unset", "broker", "all", "message.max.bytes")
    assert is_taken(cluster, plain, 8_000)
    assert not is_taken(cluster, own, 20_000)


def test_changed_settings_outlive_kills_and_win_over_what_a_start_says(
    fresh_cluster: Cluster,
) -> None:
    cluster = fresh_cluster
    topic = cluster.create_topic(partitions=2)
    cluster.done("config", "set", "topic", topic, "retention.ms=5000")
    cluster.done("config", "set", "broker", "all", "message.max.bytes=3000")
    cluster.done("topic", "alter", topic, "-p", "3")
    coordinator = cluster.process("coordinator")["pid"]
    os.kill(coordinator, signal.SIGKILL)
    until(
        lambda: cluster.process("coordinator")["pid"] not in {None, coordinator},
        "the coordinator is started again",
    )
    cluster.done("config", "set", "topic", topic, "segment.ms=7000")
    cluster.kill_everything()
    cluster.settings = {"message.max.bytes": "8000", "log.retention.hours": "2"}
    cluster.start()
    assert value_of(cluster, "topic", topic, "retention.ms") == ("5000", "topic")
    assert value_of(cluster, "topic", topic, "segment.ms") == ("7000", "topic")
    assert value_of(cluster, "topic", topic, "max.message.bytes") == ("3000", "all brokers")
    assert value_of(cluster, "broker", "0", "log.retention.hours") == ("2", "start")
    assert not is_taken(cluster, topic, 5_000)
    assert Confluent(cluster.bootstrap).partitions(topic) == 3


def test_fewer_clients_are_let_in_from_now_on(fresh_cluster: Cluster) -> None:
    cluster = fresh_cluster
    with RawClient(cluster.bootstrap) as first:
        cluster.done("config", "set", "broker", "0", "max.connections=1")
        with RawClient(cluster.bootstrap) as second:
            assert second.is_closed_by_peer()
        topics = first.ask(METADATA, 9, MetadataRequest(topics=None)).topics
        assert topics == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "none"])
def test_batches_are_kept_in_the_topics_codec_and_read_back_whole(
    cluster: Cluster, codec: str
) -> None:
    topic = cluster.create_topic(configs={"compression.type": "lz4"})
    client = Confluent(cluster.bootstrap)
    records = [
        Record(b"value %d " % n * 20, key=b"%d" % n, timestamp_ms=now_ms()) for n in range(50)
    ]
    stored = client.produce(topic, records, writing=Writing(codec=codec))
    assert [one.offset for one in stored] == list(range(50))
    folder = Path(cluster.data) / "broker-0" / "log0" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    kept = [header.codec_bits for header, _ in iterate_batches(memoryview(segment.read_bytes()))]
    assert set(kept) == {Codec.LZ4}
    read = client.read(topic, 0, start=0, count=50)
    assert [one.record for one in read] == records


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("server.properties", "num.partitions=3\n"),
        ("cluster.toml", '"num.partitions" = 3\n'),
    ],
)
def test_a_cluster_takes_the_settings_of_the_file_it_was_started_with(
    tmp_path: Path, name: str, content: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    with Cluster(tmp_path / "cluster", options=("--config", str(file))) as cluster:
        cluster.done("topic", "create", "t")
        (topic,) = cluster.done("topic", "describe", "t", "--json").document["topics"]
        assert len(topic["partitions"]) == 3
