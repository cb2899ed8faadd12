"""Unmodified clients in transactions: they commit, abort, send offsets, fence each other, and read
what was committed.
"""

from collections.abc import Iterator

import pytest

from harness.clients.confluent import Confluent
from harness.clients.facts import Record, fresh_topic
from harness.clients.transaction_raw import committed_offset, end_of, known_topic
from harness.clients.transactional import MAKERS, READS, Fenced, Producers, Transactional
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("client", MAKERS)]

LAST = b"the last one"
TIMEOUT_MS = 3_000
"""Long enough for a client on a busy machine to write, which it does a while after it has begun."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("transactions"), brokers=3) as cluster:
        yield cluster


def committed(cluster: Cluster, client: str, topic: str, *values: bytes) -> None:
    """Each client reads these, and then what a plain producer writes now: nothing else."""
    Confluent(cluster.bootstrap).produce(topic, [Record(LAST)])
    for name in (client, "confluent-kafka"):
        found = READS[name](cluster.bootstrap, topic, len(values) + 1)
        assert found == [*values, LAST], name


def test_what_is_committed_is_read_and_what_is_aborted_is_not(three: Cluster, client: str) -> None:
    topic = known_topic(three.bootstrap)
    with Producers(three.bootstrap, client) as producers:
        producer = producers.make(f"{topic}-id")
        for number, ends in enumerate("cacca"):
            producer.begin()
            producer.produce(topic, b"%d" % number)
            producer.produce(topic, b"%d again" % number)
            producer.commit() if ends == "c" else producer.abort()
    found = [b"%d%s" % (number, more) for number in (0, 2, 3) for more in (b"", b" again")]
    committed(three, client, topic, *found)


def test_nothing_of_an_open_transaction_is_read(three: Cluster, client: str) -> None:
    topic = known_topic(three.bootstrap)
    with Producers(three.bootstrap, client) as producers:
        producer = producers.make(f"{topic}-id")
        producer.begin()
        producer.produce(topic, b"open")
        Confluent(three.bootstrap).produce(topic, [Record(b"plain")])
        assert end_of(three.bootstrap, topic) == 0
        assert end_of(three.bootstrap, topic, isolation=0) == 2
        producer.commit()
        until(lambda: end_of(three.bootstrap, topic) == 3, "the end is stable")
    committed(three, client, topic, b"open", b"plain")


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_count_if_their_transaction_does(
    three: Cluster, client: str, *, commits: bool
) -> None:
    topic, group = known_topic(three.bootstrap), fresh_topic("group")
    with Producers(three.bootstrap, client) as producers:
        producer = producers.make(f"{topic}-id")
        for offset, is_committed in ((3, True), (7, commits)):
            producer.begin()
            producer.produce(topic, b"%d" % offset)
            producer.send_offset(topic, offset, group)
            unstable = committed_offset(three.bootstrap, group, topic)
            assert unstable is ErrorCode.UNSTABLE_OFFSET_COMMIT
            producer.commit() if is_committed else producer.abort()
            _group_is_at(three, group, topic, offset if is_committed else 3)


def _group_is_at(three: Cluster, group: str, topic: str, offset: int) -> None:
    """A marker may take a moment longer than its producer's answer."""
    until(
        lambda: committed_offset(three.bootstrap, group, topic) == offset,
        f"the group is at {offset}",
    )


def test_a_second_producer_of_an_id_fences_the_first(three: Cluster, client: str) -> None:
    topic = known_topic(three.bootstrap)
    with Producers(three.bootstrap, client) as producers:
        first = producers.make(f"{topic}-id")
        first.begin()
        first.produce(topic, b"of the first")
        second = producers.make(f"{topic}-id")
        second.begin()
        second.produce(topic, b"of the second")
        second.commit()
        with pytest.raises(Fenced):
            _goes_on(first, topic)
    committed(three, client, topic, b"of the second")


def _goes_on(producer: Transactional, topic: str) -> None:
    producer.produce(topic, b"too late")
    producer.commit()


def test_a_transaction_that_takes_too_long_is_aborted(three: Cluster, client: str) -> None:
    topic = known_topic(three.bootstrap)
    with Producers(three.bootstrap, client) as producers:
        producer = producers.make(f"{topic}-id", TIMEOUT_MS)
        producer.begin()
        producer.produce(topic, b"too slow")
        until(lambda: end_of(three.bootstrap, topic) == 2, "its marker is there")
    committed(three, client, topic)
