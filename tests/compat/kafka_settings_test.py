"""Our tables of settings against Kafka's own, as its jars define them: every name, type, default,
stand-in and value that may be given.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from harness.clients.tools_jvm import run_tool
from harness.kafka.jars import need_kafka
from harness.suite.need import need
from tidelog.kernel.config import SettingError, Table
from tidelog.node.cache_settings import CACHE_ROWS
from tidelog.node.changing import DYNAMIC, PER_BROKER
from tidelog.node.resource_settings import CLIENT_METRICS, GROUP, GROUP_BOUNDS
from tidelog.node.settings import BROKER, SYNONYMS, TOPIC

pytestmark = pytest.mark.slow

TABLES = {"topic": TOPIC, "broker": BROKER, "group": GROUP, "client-metrics": CLIENT_METRICS}
Told = Mapping[str, Any]

BOUND = 2**31
NUMBERS = [
    *(str(number) for number in (-BOUND - 1, -BOUND, -3, -2, -1, 0, 1, 2, 100, BOUND - 1, BOUND)),
    *("9223372036854775807", "9223372036854775808", "0.5", "1.5", "1e3", "0x10", "+5", " 7 "),
    *("x", "", "1_000", "5,5"),
]
FLAGS = ["true", "FALSE", " True ", "yes", "1", ""]
TEXTS = [
    "by_duration:P1DT2H3M4.5S",
    "by_duration:P",
    "by_duration:PT",
    "nonsense",
    "",
    "a,b",
    "a,a",
    " a ",
    ",",
    "a,",
    "*",
    "host:1",
    "1@host:1",
    "1:2,3:4",
]

OTHER_DEFAULTS = {
    "broker": {
        "default.replication.factor": "as many as there are brokers, up to three",
        "group.consumer.heartbeat.interval.ms": "a rebalance takes half a second, not five",
        "group.consumer.max.size": "bounded memory",
        "group.consumer.min.heartbeat.interval.ms": "a rebalance takes half a second, not five",
        "group.consumer.min.session.timeout.ms": "tests may wait less",
        "group.initial.rebalance.delay.ms": "nobody waits for 3 s on one machine",
        "group.max.size": "bounded memory",
        "log.dir": "each broker has a directory of its own",
        "max.connections": "bounded memory",
        "queued.max.request.bytes": "bounded memory",
        "replica.lag.time.max.ms": "all brokers are on one machine",
    },
    "group": {"consumer.heartbeat.interval.ms": "as the broker's"},
}
OURS_OF_BOTH = {
    "flush.policy": "Kafka knows no word for what its limits come to",
    **{row.name: "Kafka leaves its page cache to the kernel" for row in CACHE_ROWS},
}
"""Of a topic, and of brokers that stand in for it."""
OURS_ONLY = {
    **OURS_OF_BOTH,
    "flush.bytes": "a limit that Kafka has not",
    "group.member.disconnect.ms": "for tests on one machine",
    "log.initial.task.delay.ms": "Kafka has it, but tells nobody",
    # What Kafka knows as settings that are only ever changed at run time.
    "follower.replication.throttled.rate": "",
    "leader.replication.throttled.rate": "",
    "replica.alter.log.dirs.io.max.bytes.per.second": "",
}
REFUSED_HERE = {
    "connections.max.idle.ms": "a time must be some time",
    "default.replication.factor": "there are only so many brokers",
    "early.start.listeners": "who wants it unset leaves it out",
    "group.initial.rebalance.delay.ms": "no time is the shortest",
    "group.max.session.timeout.ms": "a time must be some time",
    "group.min.session.timeout.ms": "a time must be some time",
    "log.cleaner.dedupe.buffer.size": "Kafka refuses such a buffer at its start",
    "log.cleaner.io.max.bytes.per.second": "nothing would ever be compacted",
    "log.flush.interval.ms": "a time must be some time",
    "log.flush.scheduler.interval.ms": "a time must be some time",
    "log.retention.bytes": "-1 says: without end",
    "log.retention.hours": "-1 says: without end",
    "log.retention.minutes": "-1 says: without end",
    "log.retention.ms": "-1 says: without end",
    "log.roll.jitter.ms": "Kafka refuses it at its start",
    "log.roll.ms": "Kafka refuses it at its start",
    "max.connections": "nobody could connect",
    "num.partitions": "there is a limit of partitions",
    "offset.metadata.max.bytes": "no text is the shortest",
    "offsets.topic.num.partitions": "there is a limit of partitions",
    "offsets.topic.replication.factor": "there are only so many brokers",
    "replica.lag.time.max.ms": "a time must be some time",
    "replica.selector.class": "there are no Java classes to be found here",
    "retention.bytes": "-1 says: without end",
    "socket.request.max.bytes": "bounded memory",
    "transaction.state.log.num.partitions": "there is a limit of partitions",
    "transaction.state.log.replication.factor": "there are only so many brokers",
}
TAKEN_HERE = {
    "log.segment.bytes": "small segments, for tests",
    "segment.bytes": "small segments, for tests",
    "remote.log.metadata.manager.listener.name": "nothing is no name",
    "remote.log.storage.manager.class.name": "nothing is no name",
}


def asked(values: Mapping[str, Mapping[str, list[str]]]) -> Told:
    said = run_tool("KafkaSettings", text=json.dumps(values))
    assert said.code == 0, said.err
    told: Told = json.loads(said.out)
    return told


@pytest.fixture(scope="module")
def kafka() -> Told:
    """What Kafka says, also of the values that each setting's rule makes interesting."""
    need("javac")
    need_kafka()
    rules = asked({})
    return asked(
        {table: {name: tries(row) for name, row in rules[table].items()} for table in TABLES}
    )


def tries(row: Mapping[str, str]) -> list[str]:
    if row["type"] in {"INT", "LONG", "SHORT", "DOUBLE"}:
        bounds = [int(found) for found in re.findall(r"-?\d+", row["rule"])]
        return [*NUMBERS, *(str(bound + by) for bound in bounds for by in (-1, 0, 1))]
    if row["type"] == "BOOLEAN":
        return FLAGS
    listed = re.search(r"\[(.*)\]", row["rule"])
    words = listed[1].split(", ") if listed is not None else []
    return [
        *TEXTS,
        *(
            shape
            for word in words
            for shape in (word, word.upper(), word.lower(), f"{word},{word}")
        ),
        ",".join(words),
    ]


@pytest.mark.parametrize("name", TABLES)
def test_every_name_of_kafka_is_known_and_no_other(kafka: Told, name: str) -> None:
    extra = {"broker": OURS_ONLY, "topic": OURS_OF_BOTH}.get(name, {}).keys()
    assert set(TABLES[name].all_rows()) == kafka[name].keys() | extra


@pytest.mark.parametrize("name", TABLES)
def test_types_and_defaults_are_kafka_s(kafka: Told, name: str) -> None:
    rows = TABLES[name].all_rows()
    ours = {key: (rows[key].kind, rows[key].default) for key in kafka[name]}
    theirs = {key: (row["type"].lower(), row["default"] or "") for key, row in kafka[name].items()}
    others = {key for key in theirs if ours[key] != theirs[key]}
    assert others == OTHER_DEFAULTS.get(name, {}).keys()
    unset = {key for key, row in kafka[name].items() if row["default"] is None}
    assert {key for key in kafka[name] if rows[key].unset} == unset


@pytest.mark.parametrize("name", ["topic", "broker", "group"])
def test_what_kafka_refuses_is_refused_and_what_it_takes_is_taken(kafka: Told, name: str) -> None:
    """But for the settings that are named above, with the reason."""
    taken: set[str] = set()
    refused: set[str] = set()
    for key, row in kafka[name].items():
        if row["type"] == "CLASS":
            continue  # there are no Java classes to be found here
        for value in tries(row):
            if takes(TABLES[name], key, value) == (value in row["taken"]):
                continue
            (refused if value in row["taken"] else taken).add(key)
    known = kafka[name].keys()
    assert refused == REFUSED_HERE.keys() & known
    assert taken == TAKEN_HERE.keys() & known


def takes(table: Table, key: str, value: str) -> bool:
    try:
        table.check(key, value)
    except SettingError:
        return False
    return True


def test_the_same_broker_settings_may_change_while_brokers_run(kafka: Told) -> None:
    assert kafka["dynamic"].keys() == DYNAMIC - {*OURS_OF_BOTH, "flush.bytes"}
    assert {name for name, mode in kafka["dynamic"].items() if mode == "per-broker"} == PER_BROKER


def test_the_same_broker_settings_stand_in_for_a_group_s(kafka: Told) -> None:
    ours = {name: bounds.default for name, bounds in GROUP_BOUNDS.items()}
    assert ours == kafka["group-synonyms"]


def test_the_same_broker_settings_stand_in_for_a_topic_s(kafka: Told) -> None:
    ours = {topic: [one.name for one in broker] for topic, broker in SYNONYMS.items()}
    assert ours == kafka["synonyms"] | {name: [name] for name in OURS_OF_BOTH}
