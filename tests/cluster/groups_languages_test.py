"""Members written in Go, JavaScript and Java, unmodified clients all, share what a group reads."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from harness.clients.confluent import Confluent
from harness.clients.facts import Record, fresh_topic
from harness.clients.members import (
    STARTED,
    Member,
    franz_by_range,
    java,
    java_by_consumer_protocol,
    sarama,
)
from harness.processes.cluster import Cluster, until
from harness.suite.need import need

pytestmark = pytest.mark.slow

PARTITIONS = 4
ALL = set(range(PARTITIONS))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("languages"), brokers=3) as cluster:
        yield cluster


@pytest.fixture
def started() -> Iterator[ExitStack]:
    """Ends the members of the test, also where it fails."""
    with ExitStack() as members:
        yield members


def new_topic(cluster: Cluster) -> str:
    topic = fresh_topic()
    Confluent(cluster.bootstrap).create_topic(topic, partitions=PARTITIONS)
    return topic


def fill(cluster: Cluster, topic: str, offset: int, count: int) -> set[tuple[int, int]]:
    """More records, so many in each partition; their places."""
    client = Confluent(cluster.bootstrap)
    for partition in ALL:
        client.produce(topic, [Record(b"%d" % n) for n in range(count)], partition=partition)
    return {(partition, offset + n) for partition in ALL for n in range(count)}


def share(what: str, *members: Member) -> None:
    """Wait until each partition has one owner, and nobody has more than one above another."""

    def shared() -> bool:
        for member in members:
            member.look()
        sizes = [len(member.has) for member in members]
        whole = set().union(*(member.has for member in members)) == ALL
        return whole and sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1

    until(shared, what)


def read(places: set[tuple[int, int]], *members: Member) -> None:
    """Wait until they have read these since the last time; each once, and nothing else."""

    def count() -> int:
        for member in members:
            member.look()
        return sum(len(member.read) for member in members)

    until(lambda: count() >= len(places), f"{len(places)} records")
    found = [place for member in members for place in member.read]
    assert sorted(found) == sorted(places)
    for member in members:
        assert {partition for partition, _ in member.read} <= member.has
        member.read.clear()


@pytest.mark.parametrize("client", STARTED)
def test_two_share_one_leaves_and_who_comes_later_goes_on(
    three: Cluster, started: ExitStack, client: str
) -> None:
    start, programs = STARTED[client]
    need(*programs)
    topic = new_topic(three)

    def another() -> Member:
        return started.enter_context(start(three.bootstrap, topic, topic))

    one, two = another(), another()
    share("two share", one, two)
    read(fill(three, topic, 0, 5), one, two)
    one.commit()
    two.commit()
    two.leave()
    share("one has all again", one)
    read(fill(three, topic, 5, 1), one)
    one.commit()
    one.leave()
    later = fill(three, topic, 6, 1)
    again = another()
    share("one that came later has all", again)
    read(later, again)
    again.leave()


def test_three_languages_share_a_topic_in_one_group(three: Cluster, started: ExitStack) -> None:
    need("go", "java", "javac", "mvn")
    topic = new_topic(three)
    makers = (franz_by_range, sarama, java)
    members = [started.enter_context(make(three.bootstrap, topic, topic)) for make in makers]
    share("three share", *members)
    read(fill(three, topic, 0, 2), *members)
    for member in members:
        member.commit()
    members[2].leave()
    share("two share what one left", *members[:2])
    read(fill(three, topic, 2, 1), *members[:2])
    for member in members[:2]:
        member.leave()


def test_a_group_of_go_and_java_goes_over_to_the_consumer_protocol_and_back(
    three: Cluster, started: ExitStack
) -> None:
    """Member by member, while the others read: nothing is read twice, nothing left out."""
    need("go", "java", "javac", "mvn")
    topic = new_topic(three)

    def another(make: Callable[[str, str, str], Member]) -> Member:
        return started.enter_context(make(three.bootstrap, topic, topic))

    def kind() -> str:
        return str(three.done("group", "describe", topic, "--state", "--json").document["type"])

    classic = [another(sarama), another(java)]
    share("two of the classic protocol share", *classic)
    read(fill(three, topic, 0, 2), *classic)
    for member in classic:
        member.commit()
    new = another(java_by_consumer_protocol)
    share("one of the consumer protocol shares with them", *classic, new)
    assert kind() == "consumer"
    read(fill(three, topic, 2, 2), *classic, new)
    for member in (*classic, new):
        member.commit()
    for gone in range(2):
        classic[gone].leave()
        left = classic[gone + 1 :]
        share(f"{gone + 1} of the classic protocol went", *left, new)
    read(fill(three, topic, 4, 1), new)
    new.commit()
    back = another(java)
    share("one of the classic protocol comes again", new, back)
    new.leave()
    share("it has all again", back)
    assert kind() == "classic"
    read(fill(three, topic, 5, 1), back)
    back.leave()
