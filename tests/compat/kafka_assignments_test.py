"""Where new replicas go, against a table of Kafka's own: 3 to 7 brokers, 1 to 5 replicas, without
racks and with even and uneven ones, from several start indexes and first partitions on.

`harness/kafka/source/KafkaAssignments.java` wrote the table with the published jars, and says what
its columns are.
"""

from pathlib import Path

import pytest

from harness.kafka.jars import need_placer, run_source
from harness.suite.need import need
from tidelog.coordinator.controller.assignment import Start, assign
from tidelog.kernel.ids import BrokerId

TABLE = Path(__file__).parent / "kafka_assignments.txt"
PROGRAM = Path(__file__).parents[1] / "harness/kafka/source/KafkaAssignments.java"


def ours(cluster: str, replicas: int, start: int, partitions: range) -> str:
    brokers = {BrokerId(n): None if rack == "-" else rack for n, rack in enumerate(cluster)}
    placed = assign(
        brokers,
        partitions=partitions,
        replication_factor=replicas,
        start=Start(broker=start, shift=start),
    )
    return " ".join("".join(map(str, row)) for row in placed)


def test_every_replica_is_where_kafka_puts_it() -> None:
    lines = TABLE.read_text().splitlines()
    seen: set[tuple[int, int, bool]] = set()
    for line in lines:
        cluster, replicas, start, first, theirs = line.split(",")
        partitions = range(int(first), int(first) + len(theirs.split()))
        assert ours(cluster, int(replicas), int(start), partitions) == theirs, line
        seen.add((len(cluster), int(replicas), "-" in cluster))
    assert seen == {
        (brokers, factor, bare)
        for brokers in range(3, 8)
        for factor in range(1, min(brokers, 5) + 1)
        for bare in (True, False)
    }


@pytest.mark.slow
def test_the_table_is_what_kafka_s_jars_say(*, nightly: bool) -> None:
    if not nightly:
        pytest.skip("fetches the jars of an older Kafka: --nightly")
    need("javac")
    done = run_source(PROGRAM, classpath=need_placer())
    assert done.returncode == 0, done.stderr
    assert done.stdout == TABLE.read_text()
