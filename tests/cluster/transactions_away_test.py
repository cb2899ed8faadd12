"""The transaction coordinator is away: whoever needs it not goes on, whoever does tries again."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import Consumer

from harness.clients.confluent import Confluent
from harness.clients.facts import Record
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import RawProducer, coordinator, end_of, known_topic
from harness.clients.transactional import MAKERS, READS, Producers
from harness.processes.cluster import WAIT_S, Cluster, until
from tidelog.tools.supervisor import proc
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k18_api_versions as k18
from tidelog.wire.messages import k26_end_txn as k26

pytestmark = pytest.mark.slow

LAST = b"the last one"
HELLO = k18.ApiVersionsRequest(client_software_name="tests", client_software_version="1")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("away"), brokers=3) as cluster:
        yield cluster


@pytest.fixture
def topic(three: Cluster) -> str:
    return known_topic(three.bootstrap)


def test_everything_else_goes_on_meanwhile(three: Cluster, topic: str) -> None:
    before = three.process("transaction-coordinator")["pid"]
    three.done("txn-coordinator", "pause")  # it is killed when it has stood still for a while
    client = Confluent(three.bootstrap)
    client.produce(topic, [Record(b"%d" % number) for number in range(10)])
    assert len(client.read(topic, 0, start=0, count=10)) == 10
    consumer = Consumer(
        {"bootstrap.servers": three.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(10, WAIT_S)) == 10
    consumer.commit(asynchronous=False)
    consumer.close()

    def is_back() -> bool:
        return three.process("transaction-coordinator")["pid"] not in {None, before}

    until(is_back, "another one has begun")


@pytest.mark.parametrize("client", MAKERS)
def test_a_transaction_outlives_the_coordinator(three: Cluster, topic: str, client: str) -> None:
    with Producers(three.bootstrap, client) as producers:
        producer = producers.make(f"{topic}-id")
        for number in range(3):
            producer.begin()
            producer.produce(topic, b"%d" % number)
            three.done("txn-coordinator", "kill")
            producer.commit()
    Confluent(three.bootstrap).produce(topic, [Record(LAST)])
    assert READS[client](three.bootstrap, topic, 4) == [b"0", b"1", b"2", LAST]


@contextmanager
def standing_still(cluster: Cluster) -> Iterator[int]:
    """The coordinator does, and so does the supervisor, which would replace it in the meantime."""
    boss, pid = cluster.runs[-1].pid, cluster.process("transaction-coordinator")["pid"]
    try:
        for one in (boss, pid):
            os.kill(one, signal.SIGSTOP)
            until(partial(proc.is_stopped, one), "it stands still")
        yield pid
    finally:
        os.kill(boss, signal.SIGCONT)


def test_who_waits_for_an_answer_hears_that_it_may_ask_again(three: Cluster, topic: str) -> None:
    """An end that was on its way is sent by the broker once at most: its client knows best."""
    producer = RawProducer(three.bootstrap, f"{topic}-id").init()
    producer.write(topic, b"x")
    request = k26.EndTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    where = coordinator(three.bootstrap, producer.name)
    with RawClient(where) as client, RawClient(where) as other, standing_still(three) as pid:
        client.start(k26.API, 3, request)
        other.ask(k18.API, 3, HELLO)  # the broker has passed on what came to it before this
        os.kill(pid, signal.SIGKILL)
        _, answer = decode_response(k26.API, 3, memoryview(client.receive_frame()))
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    until(lambda: producer.end(committed=True) is ErrorCode.NONE, "it is committed")
    until(lambda: end_of(three.bootstrap, topic) == 2, "its marker is there")
