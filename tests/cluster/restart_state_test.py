"""What a broker knows outlives it: sequences, epochs, ends, positions. What is deleted does not.

Each fact is looked at after a clean stop and after a kill.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_all, fetch_once, fetch_request, offset_at
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import until_known
from harness.processes.cluster import Cluster, until
from tidelog.tools.supervisor.leftovers import remove_run
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k01_fetch, k03_metadata, k20_delete_topics, k22_init_producer_id
from tidelog.wire.records import Origin

pytestmark = pytest.mark.slow


def clean(cluster: Cluster) -> None:
    cluster.stop()
    cluster.start()


def kill(cluster: Cluster) -> None:
    cluster.kill_everything()
    remove_run(cluster.runs[-1].run_id)
    cluster.start()


def kill_broker(cluster: Cluster) -> None:
    os.kill(cluster.broker_pid(0), signal.SIGKILL)
    until(lambda: cluster.process("broker")["state"] == "killed", "it is dead")
    cluster.done("broker", "start", "0")


restarts = pytest.mark.parametrize("restart", [clean, kill, kill_broker])
Restart = Callable[[Cluster], None]


def send(
    cluster: Cluster, topic: str, producer_id: int, sequence: int, *, count: int = 1, epoch: int = 0
) -> tuple[ErrorCode, int]:
    values = [b"%d" % number for number in range(sequence, sequence + count)]
    batch = batch_of(*values, origin=Origin(producer_id, epoch, sequence))
    with RawClient(cluster.bootstrap) as raw:
        row = produce(raw, topic, batch)
    return ErrorCode(row.error_code), row.base_offset


def new_producer_id(cluster: Cluster) -> int:
    request = k22_init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    )
    with RawClient(cluster.bootstrap) as raw:
        answer = raw.ask(k22_init_producer_id.API, 4, request)
    assert answer.error_code == 0
    return int(answer.producer_id)


def topic_of(cluster: Cluster, name: str) -> k03_metadata.MetadataResponseTopic:
    with RawClient(cluster.bootstrap) as raw:
        request = k03_metadata.MetadataRequest(
            topics=[k03_metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        row = raw.ask(k03_metadata.API, 12, request).topics[0]
    assert isinstance(row, k03_metadata.MetadataResponseTopic)
    return row


def delete(cluster: Cluster, name: str) -> None:
    request = k20_delete_topics.DeleteTopicsRequest(
        topics=[k20_delete_topics.DeleteTopicState(name=name)], timeout_ms=10_000
    )
    with RawClient(cluster.bootstrap) as raw:
        assert raw.ask(k20_delete_topics.API, 6, request).responses[0].error_code == 0


@restarts
def test_an_idempotent_producer_goes_on_and_repeats_get_their_old_offsets(
    fresh_cluster: Cluster, restart: Restart
) -> None:
    topic = fresh_cluster.create_topic()
    me = new_producer_id(fresh_cluster)
    offsets = {}
    for number in range(8):
        code, offsets[number] = send(fresh_cluster, topic, me, 3 * number, count=3)
        assert code is ErrorCode.NONE
    for _ in range(2):
        restart(fresh_cluster)
        for number in (7, 3, 5, 4, 6):  # the last five, in any order
            again = send(fresh_cluster, topic, me, 3 * number, count=3)
            assert again == (ErrorCode.NONE, offsets[number])
        assert send(fresh_cluster, topic, me, 30)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(fresh_cluster, topic, me, 24) == (ErrorCode.NONE, 24)
    assert send(fresh_cluster, topic, me, 0, epoch=1) == (ErrorCode.NONE, 25)
    restart(fresh_cluster)
    assert send(fresh_cluster, topic, me, 25)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(fresh_cluster, topic, me, 1, epoch=1) == (ErrorCode.NONE, 26)
    assert new_producer_id(fresh_cluster) > me
    with RawClient(fresh_cluster.bootstrap) as raw:
        values = [row.value for row in fetch_all(raw, topic)]
    assert values == [b"%d" % number for number in range(25)] + [b"0", b"1"]


@restarts
def test_ends_and_positions_stay_and_the_leader_epoch_rises(
    fresh_cluster: Cluster, restart: Restart
) -> None:
    topic = fresh_cluster.create_topic(configs={"segment.bytes": "4096"})
    epochs = [topic_of(fresh_cluster, topic).partitions[0].leader_epoch]
    with RawClient(fresh_cluster.bootstrap) as raw:
        for number in range(20):
            produce(raw, topic, batch_of(b"%d" % number * 400))
        before = fetch_all(raw, topic)
    for _ in range(2):
        restart(fresh_cluster)
        epochs.append(topic_of(fresh_cluster, topic).partitions[0].leader_epoch)
        with RawClient(fresh_cluster.bootstrap) as raw:
            assert (offset_at(raw, topic, -2), offset_at(raw, topic, -1)) == (0, len(before))
            assert offset_at(raw, topic, 1_000) == 0
            assert fetch_all(raw, topic) == before
            for position in (0, 7, 19):
                assert fetch_once(raw, topic, position)[0] == before[position]
            # A consumer that read in the old epoch has read nothing that is not there.
            request = fetch_request(topic, 13)
            request.topics[0].partitions[0].last_fetched_epoch = before[12].leader_epoch
            row = raw.ask(k01_fetch.API, 12, request).responses[0].partitions[0]
            assert (row.error_code, row.high_watermark) == (0, len(before))
            assert row.diverging_epoch is None or row.diverging_epoch.epoch == -1
            produced = produce(raw, topic, batch_of(b"more"))
            assert produced.base_offset == len(before)
            before = fetch_all(raw, topic)
            assert before[-1].leader_epoch == epochs[-1]
    assert epochs == sorted(set(epochs)), "each life of a leader has an epoch of its own"


@restarts
def test_a_topic_made_anew_shows_nothing_of_the_old_one(
    fresh_cluster: Cluster, restart: Restart
) -> None:
    topic = fresh_cluster.create_topic()
    me = new_producer_id(fresh_cluster)
    for number in range(3):
        assert send(fresh_cluster, topic, me, number) == (ErrorCode.NONE, number)
    old = topic_of(fresh_cluster, topic).topic_id
    delete(fresh_cluster, topic)
    assert topic_of(fresh_cluster, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    restart(fresh_cluster)
    assert topic_of(fresh_cluster, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fresh_cluster.create_topic(topic)
    for _ in range(2):
        assert topic_of(fresh_cluster, topic).topic_id != old
        with RawClient(fresh_cluster.bootstrap) as raw:
            assert fetch_all(raw, topic) == []
            assert offset_at(raw, topic, -1) == 0
        restart(fresh_cluster)
    assert send(fresh_cluster, topic, me, 3) == (ErrorCode.NONE, 0)
    folders = [path.name for path in (fresh_cluster.data / "broker-0/log0").iterdir()]
    assert f"{topic}-0" in folders


@pytest.mark.parametrize("then", ["gone", "made anew"])
def test_a_topic_deleted_while_its_broker_was_down_is_gone_when_it_returns(
    tmp_path: Path, then: str
) -> None:
    with Cluster(tmp_path, brokers=2) as cluster:
        topic = cluster.create_topic(partitions=2)
        until_known(cluster.bootstrap, topic)
        away = leaders(cluster, topic).index(1)
        _, second = cluster.bootstrap.split(",")
        with RawClient(second) as raw:
            assert produce(raw, topic, batch_of(b"old"), partition=away).error_code == 0
        old = topic_of(cluster, topic).topic_id
        folder = cluster.data / f"broker-1/log0/{topic}-{away}"
        assert folder.is_dir()
        cluster.done("broker", "kill", "1")
        delete(cluster, topic)
        if then == "made anew":
            cluster.create_topic(topic, partitions=2)
        cluster.done("broker", "start", "1")
        until(lambda: not folder.exists(), "its files are gone")
        if then == "made anew":
            assert topic_of(cluster, topic).topic_id != old
            assert leaders(cluster, topic) == [0, 0], "made while broker 1 was away"
            with RawClient(cluster.bootstrap) as raw:
                for partition in (0, 1):
                    assert fetch_all(raw, topic, partition=partition) == []


def leaders(cluster: Cluster, topic: str) -> list[int]:
    return [row.leader_id for row in topic_of(cluster, topic).partitions]
