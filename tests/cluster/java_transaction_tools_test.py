"""Kafka's own tools for transactions, from the published jars, against three brokers: what they
list, find and end, and what they read in the files while brokers write them.

All calls go to one JVM and one cluster.
"""

import json
import re
import time
from collections.abc import Iterator

import pytest

from harness.clients.facts import fresh_topic
from harness.clients.kafka_tools import KafkaTools
from harness.clients.transaction_raw import AGAIN, RawProducer, committed_offset, end_of, recorded
from harness.processes.cluster import Cluster, until
from tidelog.coordinator.transactions.states import TxnState
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SETTINGS = {
    # So that a late record is taken, as brokers did before they asked the coordinator.
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "1",
}
COMPLAINTS = re.compile(
    r"mismatch|out of order|not found|Exception|isvalid: false|Non-consecutive|Invalid|corrupt"
)
HOUR_MS = 3_600_000
Row = dict[str, str]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("three"), brokers=3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(three: Cluster) -> Iterator[KafkaTools]:
    with KafkaTools(three.bootstrap) as tools:
        yield tools


@pytest.fixture
def topic(three: Cluster) -> str:
    name = fresh_topic("tools")
    three.done("topic", "create", name, "-r", "3")
    return name


def producer(three: Cluster, topic: str) -> RawProducer:
    return RawProducer(three.bootstrap, f"{topic}-id").init()


def rows(text: str) -> list[Row]:
    """A table of the tool: columns apart by tabs, their names in the first line."""
    names, *lines = [[cell.strip() for cell in line.split("\t")] for line in text.splitlines()]
    return [dict(zip(names, line, strict=True)) for line in lines]


def listed(tools: KafkaTools, name: str) -> list[Row]:
    found = rows(tools.tool(TRANSACTIONS, "list", "--transactional-id-pattern", name))
    return [row for row in found if row["TransactionalId"] == name]


def producers(tools: KafkaTools, topic: str) -> list[Row]:
    words = ("describe-producers", "--topic", topic, "--partition", "0")
    return rows(tools.tool(TRANSACTIONS, *words))


def test_kafka_transactions_lists_and_describes_what_is_open(
    three: Cluster, tools: KafkaTools, topic: str
) -> None:
    writer = producer(three, topic)
    (row,) = listed(tools, writer.name)
    assert (row["ProducerId"], row["TransactionState"]) == (str(writer.producer_id), "Empty")
    writer.write(topic, b"x")
    writer.write(topic, b"y")
    (row,) = listed(tools, writer.name)
    assert row["TransactionState"] == "Ongoing"
    (row,) = rows(tools.tool(TRANSACTIONS, "describe", "--transactional-id", writer.name))
    assert row["CoordinatorId"] in {"0", "1", "2"}
    assert row["TransactionalId"] == writer.name
    assert (row["ProducerId"], row["ProducerEpoch"]) == (str(writer.producer_id), str(writer.epoch))
    assert (row["TransactionState"], row["TransactionTimeoutMs"]) == ("Ongoing", "60000")
    assert row["TopicPartitions"] == f"{topic}-0"
    assert 0 <= int(row["TransactionDurationMs"]) < HOUR_MS
    (row,) = producers(tools, topic)
    assert (row["ProducerId"], row["ProducerEpoch"]) == (str(writer.producer_id), str(writer.epoch))
    assert (row["LastSequence"], row["CurrentTransactionStartOffset"]) == ("1", "0")
    assert writer.end(committed=True) is ErrorCode.NONE
    until(lambda: end_of(three.bootstrap, topic) == 3, "its marker is there")
    (row,) = producers(tools, topic)
    assert (row["LatestCoordinatorEpoch"], row["CurrentTransactionStartOffset"]) == ("1", "None")
    until_state(three, writer, TxnState.COMPLETE_COMMIT)
    (row,) = listed(tools, writer.name)
    assert row["TransactionState"] == "CompleteCommit"


def test_kafka_transactions_finds_what_hangs_and_aborts_it(
    three: Cluster, tools: KafkaTools, topic: str
) -> None:
    writer = hangs(three, topic)
    assert end_of(three.bootstrap, topic) == 2
    (row,) = rows(tools.tool(TRANSACTIONS, "find-hanging", "--topic", topic))
    assert (row["Topic"], row["Partition"]) == (topic, "0")
    assert (row["ProducerId"], row["StartOffset"]) == (str(writer.producer_id), "2")
    tools.tool(TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", "2")
    assert end_of(three.bootstrap, topic) == end_of(three.bootstrap, topic, isolation=0) == 4
    assert rows(tools.tool(TRANSACTIONS, "find-hanging", "--topic", topic)) == []


def test_kafka_transactions_aborts_by_producer_as_it_tells_older_brokers_to(
    three: Cluster, tools: KafkaTools, topic: str
) -> None:
    hangs(three, topic)
    (row,) = producers(tools, topic)
    tools.tool(
        TRANSACTIONS,
        *("abort", "--topic", topic, "--partition", "0", "--producer-id", row["ProducerId"]),
        *("--producer-epoch", row["ProducerEpoch"]),
        *("--coordinator-epoch", row["LatestCoordinatorEpoch"]),
    )
    assert end_of(three.bootstrap, topic) == end_of(three.bootstrap, topic, isolation=0) == 4


def hangs(three: Cluster, topic: str) -> RawProducer:
    """An old record that comes behind its transaction's marker begins one that nobody ends."""
    writer = producer(three, topic)
    old_ms = time.time_ns() // 1_000_000 - HOUR_MS
    assert writer.add(topic) is ErrorCode.NONE
    in_time = writer.batch(topic, b"in time", timestamp=old_ms)
    assert writer.send(topic, in_time) is ErrorCode.NONE
    late = writer.batch(topic, b"late", timestamp=old_ms)
    assert writer.end(committed=False) is ErrorCode.NONE
    until_state(three, writer, TxnState.COMPLETE_ABORT)
    assert end_of(three.bootstrap, topic) == 2, "its marker is there"
    assert writer.send(topic, late) is ErrorCode.NONE
    return writer


def until_state(three: Cluster, writer: RawProducer, state: TxnState) -> None:
    """The coordinator writes it down once it has heard of the markers, which are there before."""
    until(
        lambda: recorded(three.bootstrap, writer.name)[-1].state is state,
        f"{writer.name} is {state.name}",
    )


def test_kafka_transactions_ends_by_its_id_what_is_open(
    three: Cluster, tools: KafkaTools, topic: str
) -> None:
    writer = producer(three, topic)
    writer.write(topic, b"x")
    tools.tool(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", writer.name)
    until(lambda: end_of(three.bootstrap, topic) == 2, "its marker is there")
    assert writer.end(committed=True) in {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }


@pytest.fixture
def lived(three: Cluster, topic: str) -> RawProducer:
    """It aborted one transaction, committed one with offsets, and has one open."""
    writer = producer(three, topic)
    writer.write(topic, b"aborted")
    assert writer.end(committed=False) is ErrorCode.NONE
    until(lambda: writer.add(topic) not in AGAIN, "the next one begins")
    writer.write(topic, b"committed")
    assert writer.add_offsets(topic) is ErrorCode.NONE
    assert writer.commit_offset(topic, topic, 2) is ErrorCode.NONE
    assert writer.end(committed=True) is ErrorCode.NONE
    until(lambda: committed_offset(three.bootstrap, topic, topic) == 2, "its offsets count")
    until(lambda: writer.add(topic) not in AGAIN, "the next one begins")
    writer.write(topic, b"open")
    return writer


def test_the_console_consumer_reads_what_is_committed_and_stops_there(
    tools: KafkaTools, topic: str, lived: RawProducer
) -> None:
    assert lived.producer_id >= 0
    common = ("--topic", topic, "--from-beginning", "--max-messages")
    isolation = ("--command-property", "isolation.level=read_uncommitted")
    said = tools.tool(CONSUMER, *common, "3", *isolation)
    assert said.split() == ["aborted", "committed", "open"]
    isolation = ("--command-property", "isolation.level=read_committed")
    stop = ("--timeout-ms", "6000")  # a slow start is no end
    said = tools.run(
        CONSUMER, "--bootstrap-server", tools.bootstrap, *common, "2", *isolation, *stop
    ).out
    assert said.split() == ["committed"]


def test_kafka_dump_log_decodes_the_files_of_running_brokers(
    three: Cluster, tools: KafkaTools, topic: str, lived: RawProducer
) -> None:
    """Those of every replica: of `__transaction_state`, and of a partition that took part."""
    told = [
        states(dumped(tools, three, broker, "__transaction_state-0"), lived.name)
        for broker in range(3)
    ]
    aborts = ["Ongoing", "PrepareAbort", "CompleteAbort"]
    commits = ["Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert told == [["Empty", *aborts, *commits, "Ongoing"]] * 3
    for broker in range(3):
        said = dumped(tools, three, broker, f"{topic}-0")
        assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: 1", said) == ["ABORT", "COMMIT"]
        assert said.count("isTransactional: true") == 5


def dumped(tools: KafkaTools, three: Cluster, broker: int, place: str) -> str:
    """What the tool says of a replica's segments; it finds nothing wrong."""
    folder = three.data / f"broker-{broker}/log0/{place}"
    files = sorted(folder.glob("*.log"))
    assert files
    decoder = "--transaction-log-decoder" if place.startswith("__") else "--print-data-log"
    until(lambda: is_level(three, place), "replicas are level")
    said = tools.run(DUMP, decoder, "--files", ",".join(map(str, files)))
    assert said.code == 0, said
    assert not COMPLAINTS.search(said.out + said.err), said
    return said.out


def is_level(three: Cluster, place: str) -> bool:
    logs = {
        b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        for folder in three.data.glob(f"broker-*/log0/{place}")
    }
    return len(logs) == 1


def states(said: str, name: str) -> list[str]:
    """Which states the records of an id are in, in order."""
    found = re.findall(r'key: \{"type":"0","data":(.*?)\} payload: (\{.*)', said)
    return [
        STATES[json.loads(payload)["data"]["transactionStatus"]]
        for key, payload in found
        if json.loads(key)["transactionalId"] == name
    ]


STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
"""By their numbers in the log."""
