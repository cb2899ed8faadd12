"""Our transactions on Apache Kafka: the producer, filters whoever sorts out, and fences."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from harness.clients.raw_socket import RawClient
from harness.clients.raw_transactions import RawTransactions
from harness.kafka.node import TRANSACTIONS, kafka_node
from harness.processes.cluster import until
from tidelog.clients.admin.fencing import fence_producers
from tidelog.clients.admin.group_offsets import committed_offsets, unstable_offsets
from tidelog.clients.admin.topics import NewTopic, create_topics, wait_for_topics
from tidelog.clients.admin.transactions import (
    State,
    Wanted,
    describe_transactions,
    list_transactions,
)
from tidelog.clients.asking import Address, Ask, Ticket
from tidelog.clients.client import Client
from tidelog.clients.failures import AbortableError, FatalError
from tidelog.clients.producer.transaction import Membership
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import ConnectionSettings, ProducerSettings
from tidelog.clients.transport import Transport
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import WallMs, ms, s
from tidelog.tools.connecting import address, connected
from tidelog.tools.output import Target
from tidelog.tools.transaction_look import ends_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k66_list_transactions import API as LIST_TRANSACTIONS
from tidelog.wire.records import Record

pytestmark = pytest.mark.slow

SHORT_MS = 300
ZERO = Partition(0)


class OldTransport(Transport):
    """As to brokers of before some version of ListTransactions."""

    version_max = 0

    def ask(self, to: Address, ask: Ask) -> Ticket:
        if ask.api.key == LIST_TRANSACTIONS.key:
            return super().ask(to, replace(ask, version_max=self.version_max))
        return super().ask(to, ask)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("kafka")
    settings = {
        **TRANSACTIONS,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    with kafka_node(folder, settings) as found:
        with connected(Target(bootstrap=found)) as client:
            client.run(create_topics(client.view, [NewTopic("f", partitions=1)]))
            client.run(wait_for_topics(client.view, ["f"]))
        yield found


def now() -> WallMs:
    return WallMs(time.time_ns() // 1_000_000)


@contextmanager
def speaking(bootstrap: str, version_max: int) -> Iterator[Client]:
    transport = OldTransport(ConnectionSettings())
    transport.version_max = version_max
    with closing(transport):
        client = Client(transport, [address(bootstrap)])
        client.connect()
        yield client


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with connected(Target(bootstrap=bootstrap)) as found:
        yield found


def test_filters_mean_the_same_whoever_sorts_out(bootstrap: str) -> None:
    with RawClient(bootstrap) as raw:
        old = RawTransactions(raw, "filter-old")
        old.write("f", b"a", timestamp=now())
        done = RawTransactions(raw, "filter-done")
        done.write("f", b"a", timestamp=now())
        done.end(committed=True)
        idle = RawTransactions(raw, "other-filter")
        began = now()
        until(lambda: now() > began + SHORT_MS, "some are older than others")
        young = RawTransactions(raw, "filter-young")
        young.write("f", b"a", timestamp=now())
        wanted = {
            Wanted(pattern="filter-.*"): {"filter-old", "filter-done", "filter-young"},
            Wanted(pattern="filter"): set(),
            Wanted(states=(State.EMPTY,), pattern=".*filter"): {"other-filter"},
            Wanted(producer_ids=(old.producer_id, idle.producer_id)): {
                "filter-old",
                "other-filter",
            },
            Wanted(states=("CompleteCommit",), longer_than_ms=0): set(),
            Wanted(states=("CompleteCommit",), producer_ids=(done.producer_id,)): {"filter-done"},
        }
        try:
            for version in (0, 1, 2):
                with speaking(bootstrap, version) as client:
                    for one, names in wanted.items():
                        assert listed(client, one) == names, (version, one)
                    # The young one grows older while it is asked.
                    until(
                        lambda: listed(client, Wanted(longer_than_ms=now() - began)) == {old.name},
                        "the old one alone is older than that",
                    )
        finally:  # else the other tests wait for it
            for left in (young, old):
                left.end(committed=False)


def listed(client: Client, wanted: Wanted) -> set[str]:
    found = client.run(list_transactions(client.view, now(), wanted))
    return {row.transactional_id for row in found}


def test_who_is_fenced_writes_nothing_more_and_its_transaction_is_aborted(
    bootstrap: str, client: Client
) -> None:
    with RawClient(bootstrap) as raw:
        lost = RawTransactions(raw, "fenced", timeout_ms=123_000)
        lost.write("f", b"a", timestamp=now())
        identity = client.run(fence_producers(client.view, ["fenced", "never-seen"]))
        assert set(identity) == {"fenced", "never-seen"}
        found = client.run(describe_transactions(client.view, identity))
        for name, one in found.items():
            assert one is not None
            assert (one.producer_id, one.producer_epoch) == identity[name]
            assert one.state == State.EMPTY
        known = found["fenced"]
        assert known is not None
        assert known.timeout_ms == 123_000
        assert identity["fenced"].epoch > lost.epoch
        assert lost.late("f", b"b", timestamp=now()) is ErrorCode.INVALID_PRODUCER_EPOCH


# -- the producer -------------------------------------------------------------------------------


def producer_of(client: Client, name: str) -> TransactionalProducer:
    settings = ProducerSettings(transactional_id=name, delivery_timeout_ns=s(30))
    producer = TransactionalProducer(client, settings)
    producer.open("f")
    return producer


def send(producer: TransactionalProducer, *values: bytes) -> None:
    for value in values:
        producer.send("f", Record(0, now(), None, value), ZERO)


def visible(client: Client, bootstrap: str, tag: bytes) -> list[bytes]:
    """What another client sees of the committed records of one test, once all markers are there."""
    place = "f", ZERO
    until(lambda: not ends_of(client, [place])[place].held, "nothing holds readers back")
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition("f", ZERO, 0)])
    values: list[bytes] = []

    def is_at_the_end() -> bool:
        for message in reader.consume(500, 0.1):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return True
            values.append(message.value() or b"")
        return False

    until(is_at_the_end, "all is read")
    reader.close()
    return [one for one in values if one.startswith(tag)]


def test_what_our_producer_commits_others_see_and_what_it_aborts_they_do_not(
    bootstrap: str, client: Client
) -> None:
    producer = producer_of(client, "writer")
    identity = producer.identity
    for number in range(6):
        producer.begin()
        send(producer, *(b"w%d/%d" % (number, at) for at in range(200)))
        if number % 3 == 1:
            producer.flush()
        if number % 3:
            producer.abort()
        else:
            producer.commit()
    assert visible(client, bootstrap, b"w") == [
        b"w%d/%d" % (n, at) for n in (0, 3) for at in range(200)
    ]
    assert producer.identity is not None
    assert identity is not None
    assert producer.identity.producer_id == identity.producer_id
    assert producer.identity.epoch >= identity.epoch + 4, "each that was begun took one"


def test_offsets_go_with_the_transaction_of_our_producer(bootstrap: str, client: Client) -> None:
    producer = producer_of(client, "mover")
    place = "f", ZERO
    for offset, end in ((3, producer.commit), (5, producer.abort)):
        producer.begin()
        send(producer, b"m%d" % offset)
        producer.send_offsets({place: offset}, Membership("movers"))
        assert client.run(unstable_offsets(client.view, "movers", [place])) == {place}
        end()
        until(
            lambda: not client.run(unstable_offsets(client.view, "movers", [place])), "it is over"
        )
        found = client.run(committed_offsets(client.view, "movers"))
        assert found[place].offset == 3
    assert visible(client, bootstrap, b"m") == [b"m3"]


def test_a_member_of_an_old_generation_cannot_commit_but_begin_anew(
    bootstrap: str, client: Client
) -> None:
    producer = producer_of(client, "stale")
    producer.begin()
    send(producer, b"s1")
    with pytest.raises(AbortableError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
        producer.send_offsets({("f", ZERO): 9}, Membership("stalers", 7, "gone"))
    producer.abort()
    producer.begin()
    send(producer, b"s2")
    producer.commit()
    assert visible(client, bootstrap, b"s") == [b"s2"]


def test_a_record_that_is_too_large_ends_one_transaction_and_not_the_next(
    bootstrap: str, client: Client
) -> None:
    producer = producer_of(client, "large")
    before = producer.identity
    producer.begin()
    send(producer, b"l1", b"l" * 2_000_000)
    with pytest.raises(AbortableError, match="MESSAGE_TOO_LARGE"):
        producer.commit()
    producer.abort()
    assert producer.identity != before, "its numbers begin anew"
    producer.begin()
    send(producer, b"l2")
    producer.commit()
    assert visible(client, bootstrap, b"l") == [b"l2"]


def test_of_two_producers_with_one_id_the_first_is_fenced(bootstrap: str, client: Client) -> None:
    first = producer_of(client, "twin")
    first.begin()
    send(first, b"t1")
    first.flush()
    second = producer_of(client, "twin")
    with pytest.raises(FatalError, match="another producer has taken the transactional id over"):
        first.commit()
    second.begin()
    send(second, b"t2")
    second.commit()
    assert visible(client, bootstrap, b"t") == [b"t2"]


def test_a_transaction_that_is_over_its_time_is_lost_and_the_next_is_not(
    bootstrap: str, client: Client
) -> None:
    settings = ProducerSettings(transactional_id="slow", transaction_timeout_ns=ms(500))
    producer = TransactionalProducer(client, settings)
    producer.open("f")
    producer.begin()
    send(producer, b"o1")
    producer.flush()

    def is_over() -> bool:
        found = client.run(describe_transactions(client.view, ["slow"]))["slow"]
        assert found is not None
        return not found.is_unended

    until(is_over, "the cluster aborts it", 30)
    with pytest.raises(AbortableError, match="open for longer than its time-out"):
        producer.commit()
    producer.abort()
    producer.begin()
    send(producer, b"o2")
    producer.commit()
    assert visible(client, bootstrap, b"o") == [b"o2"]
