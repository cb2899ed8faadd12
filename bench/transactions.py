"""What transactions cost: commits a second, large ones beside plain producing, a lost coordinator.

`one` and `hundred`: one confluent-kafka producer, a transaction after the other, of 1 and of 100
records. `large`: transactions of 10,000 records beside an idempotent producer of the same records,
in turns of a second: one that never waits, and one that waits for its acknowledgements as often as
the other commits. `kill`: from SIGKILL to whoever coordinates the id (of tidelog the transaction
coordinator's process, of Kafka a node, which is started again) to the end of the first
transaction that was begun after it.
Kafka's flushes are left to its system, tidelog's go by `--policy`. After each question a reader of
committed records counts them.
"""

import argparse
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from clusters import Cluster, Tidelog, ended_in_order
from comparison import Runs, side_by_side
from kafka_cluster import KAFKA_HEAP, KAFKA_JARS, KAFKA_VERSION, Kafka, fetch_kafka
from measuring import Arguments, Figures, Meter, cpu_s, percentile, report, versions, warm_memory
from raw_client import RawClient
from sides import Sides
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k10_find_coordinator
from workloads import PARTITIONS, PRODUCER, drop_topic, make_topic, values

GOALS: Final = {
    "one.commits_per_s": "10 times Kafka's",
    "hundred.commits_per_s": "10 times Kafka's",
    "large.over_plain_percent": 5.0,
    "kill.next_commit_max_ms": 300.0,
}
_BROKERS: Final = 3
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.1
_FULL_S: Final = 0.001
_BURST: Final = 200
_LARGE: Final = 10_000
_TURN_S: Final = 1.0
"""At most."""
_TRANSACTIONAL: Final = 1
_LINGER_MS: Final = int(str(PRODUCER["linger.ms"]))
_CLIENT: Final = {"queue.buffering.max.messages": 2 * _LARGE, "log_level": 0}
"""No more wait in a client than a transaction has twice: else one way would use more memory."""
_KINDS: Final = 500
"""Different values."""


def parser() -> Arguments:
    examples = [
        "transactions.py",
        "transactions.py --alone --only one --seconds 3",
        "transactions.py --alone --policy commit --only one --only hundred",
    ]
    asked = Arguments(str(__doc__), examples, runs=3)
    asked.add_argument("--alone", action="store_true", help="without Apache Kafka beside it")
    asked.add_argument("--policy", choices=("os", "commit"), default="os", help="of tidelog (os)")
    asked.add_argument("--brokers", type=int, default=_BROKERS, help="of each side (3)")
    asked.add_argument("--only", action="append", choices=list(QUESTIONS), help="may be repeated")
    asked.add_argument("--seconds", type=float, default=10.0, help="of each run (10)")
    asked.add_argument("--warm", type=float, default=10.0, help="seconds each warms up (10)")
    asked.add_argument("--size", type=int, default=100, help="bytes of a value (100)")
    asked.add_argument("--large-size", type=int, default=1024, help="the same of `large` (1024)")
    asked.add_argument("--kills", type=int, default=20, help="of the coordinator (20)")
    asked.add_argument("--kafka-kills", type=int, default=3, help="of a node of Kafka (3)")
    asked.add_argument(
        "--jars",
        type=Path,
        default=KAFKA_JARS,
        help="where Kafka's jars are, or go",
    )
    return asked


# -- the client


class Writer:
    """One transactional producer into a topic of its own."""

    def __init__(self, cluster: Cluster, asked: argparse.Namespace, size: int, linger: int) -> None:
        self.topic = f"transactions-{time.time_ns()}"
        self.sent = 0
        """Records of committed transactions."""
        self._cluster = cluster
        self._values = values(size, count=_KINDS)
        make_topic(cluster.bootstrap, self.topic, replication=min(_BROKERS, asked.brokers))
        self._producer = Producer(self.settings(linger) | {"transactional.id": self.topic})
        self._producer.init_transactions(_PATIENCE_S)

    def settings(self, linger: int) -> dict[str, Any]:
        return {
            **PRODUCER,
            "bootstrap.servers": self._cluster.bootstrap,
            **_CLIENT,
            "linger.ms": linger,
        }

    def transaction(self, records: int) -> None:
        self._producer.begin_transaction()
        self.put(self._producer, records)
        self._producer.commit_transaction(_PATIENCE_S)
        self.sent += records

    def again(self) -> None:
        """One record, over whatever stands in the way."""
        try:
            self.transaction(1)
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort():
                self._producer.abort_transaction(_PATIENCE_S)
            elif not reason.retriable():
                raise
            else:
                self._producer.commit_transaction(_PATIENCE_S)
                self.sent += 1

    def put(self, producer: Any, records: int) -> None:  # noqa: ANN401 -- untyped package
        produce, topic, content = producer.produce, self.topic, self._values
        for number in range(records):
            if not number % _BURST:
                producer.poll(0)  # what nobody takes notice of counts as waiting, too
            while True:
                try:
                    produce(topic, content[number % _KINDS])
                    break
                except BufferError:
                    producer.poll(_FULL_S)

    def close(self) -> None:
        """Count what a reader of committed records sees, and leave nothing."""
        seen = count_committed(self._cluster.bootstrap, self.topic)
        if seen != self.sent:
            raise SystemExit(f"{self.topic}: {self.sent} committed records, {seen} are read")
        drop_topic(self._cluster.bootstrap, self.topic)


def count_committed(bootstrap: str, topic: str) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(PARTITIONS)])
    seen, left, heard = 0, set(range(PARTITIONS)), time.monotonic()
    try:
        while left:
            messages = consumer.consume(10_000, _LOOK_S)
            seen += sum(message.error() is None for message in messages)
            left -= {one.partition() for one in messages if one.error() is not None}
            heard = time.monotonic() if messages else heard
            assert time.monotonic() < heard + _PATIENCE_S, f"nothing came for {_PATIENCE_S} s"
    finally:
        consumer.close()
    return seen


# -- small transactions


def commits(cluster: Cluster, asked: argparse.Namespace, records: int) -> Figures:
    writer = Writer(cluster, asked, asked.size, linger=0)
    _commit_for(writer, records, min(2.0, asked.seconds / 4))
    meter = Meter(cluster.pids)
    waits = _commit_for(writer, records, asked.seconds)
    figures = meter.stop()
    writer.close()
    return {
        **figures,
        "commits_per_s": round(len(waits) / figures["wall_s"], 1),
        "p50_ms": round(1000 * percentile(waits, 0.5), 2),
        "p99_ms": round(1000 * percentile(waits, 0.99), 2),
        "broker_ms_per_commit": round(1000 * figures["brokers_cpu_s"] / len(waits), 2),
        "client_ms_per_commit": round(1000 * figures["client_cpu_s"] / len(waits), 2),
    }


def _commit_for(writer: Writer, records: int, seconds: float) -> list[float]:
    """How long each took."""
    waits: list[float] = []
    end = time.monotonic() + seconds
    while not waits or time.monotonic() < end:
        began = time.monotonic()
        writer.transaction(records)
        waits.append(time.monotonic() - began)
    return waits


# -- large ones


def large(cluster: Cluster, asked: argparse.Namespace) -> Figures:
    """The same records in three ways, in turns short enough that all meet the same noise."""
    writer = Writer(cluster, asked, asked.large_size, linger=_LINGER_MS)
    plain = Producer(writer.settings(_LINGER_MS))
    ways: dict[str, Callable[[int], None]] = {
        "transactions": lambda count: _each(count, partial(writer.transaction, _LARGE)),
        "flushed": lambda count: _each(count, partial(_flushed, writer, plain, _LARGE)),
        "plain": lambda count: _flushed(writer, plain, _LARGE * count),
    }
    for _ in range(2):  # connections, files and pages are new to the first ones
        began = time.monotonic()
        for way in ways.values():
            way(1)
    turn_s = min(_TURN_S, asked.seconds / len(ways))
    count = round(turn_s * len(ways) / (time.monotonic() - began)) or 1
    took, spent = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0.0)
    turns = round(asked.seconds / (turn_s * len(ways))) or 1
    meter = Meter(cluster.pids)
    for turn in range(turns):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            warm_memory(count * _LARGE * asked.large_size * min(_BROKERS, asked.brokers))
            began, cpu = time.monotonic(), _cpu_s(cluster)
            ways[name](count)
            took[name] += time.monotonic() - began
            spent[name] += _cpu_s(cluster) - cpu
    figures = meter.stop()
    writer.close()
    records = turns * count * _LARGE
    rates = {name: records / seconds for name, seconds in took.items()}
    costs = {name: 1e6 * seconds / records for name, seconds in spent.items()}
    return {
        **figures,
        **{f"{name}_records_per_s": round(rate) for name, rate in rates.items()},
        **{f"{name}_cpu_us_per_record": round(cost, 3) for name, cost in costs.items()},
        "over_plain_cpu_percent": round(100 * (costs["transactions"] / costs["plain"] - 1), 1),
        "over_plain_percent": round(100 * (rates["plain"] / rates["transactions"] - 1), 1),
        "over_flushed_percent": round(100 * (rates["flushed"] / rates["transactions"] - 1), 1),
    }


def _cpu_s(cluster: Cluster) -> float:
    """Of the brokers and of this client."""
    return cpu_s(cluster.pids) + time.process_time()


def _each(count: int, one: Callable[[], None]) -> None:
    for _ in range(count):
        one()


def _flushed(writer: Writer, producer: Any, records: int) -> None:  # noqa: ANN401 -- untyped
    writer.put(producer, records)
    assert not producer.flush(_PATIENCE_S)
    writer.sent += records


# -- a coordinator that is killed


class Committing:
    """Transactions of one record, one after the other, in a thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._ended: list[tuple[float, float]] = []
        """Of each when it began and when it was committed."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            began, before = time.monotonic(), self._writer.sent
            self._writer.again()
            if self._writer.sent > before:
                self._ended.append((began, time.monotonic()))

    def first_begun_after(self, moment: float) -> float:
        """When it was committed."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and self._thread.is_alive():
            if self._ended and self._ended[-1][0] >= moment:
                return next(end for began, end in self._ended if began >= moment)
            time.sleep(0.005)
        raise SystemExit(f"no commit for {_PATIENCE_S} s")

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()


def kill(cluster: Cluster, asked: argparse.Namespace) -> Figures:
    writer = Writer(cluster, asked, asked.size, linger=0)
    rng = random.Random(8)
    committing = Committing(writer)
    gaps: list[float] = []
    try:
        for _ in range(asked.kafka_kills if isinstance(cluster, Kafka) else asked.kills):
            committing.first_begun_after(time.monotonic())
            node, pid = coordinator_of(cluster, writer.topic)
            time.sleep(rng.uniform(0.0, 0.2))
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            gaps.append(1000 * (committing.first_begun_after(killed) - killed))
            if node is not None:
                cluster.start_again(node)
                wait_in_sync(cluster, asked.brokers)
    finally:
        committing.finish()
    writer.close()
    return {
        "next_commit_ms": round(percentile(gaps, 0.5), 1),
        "next_commit_max_ms": round(max(gaps), 1),
        "kills": len(gaps),
        "each_ms": [round(gap, 1) for gap in gaps],
    }


def coordinator_of(cluster: Cluster, transactional_id: str) -> tuple[int | None, int]:
    """Its process; and which node that is, where it is one."""
    if isinstance(cluster, Tidelog):
        return None, cluster.transaction_coordinator_pid()
    request = k10_find_coordinator.FindCoordinatorRequest(
        key_type=_TRANSACTIONAL, coordinator_keys=[transactional_id]
    )
    with RawClient(cluster.bootstrap) as client:
        (row,) = client.ask(k10_find_coordinator.API, 4, request).coordinators
    assert not row.error_code, ErrorCode(row.error_code)
    return row.node_id, cluster.pid_of(row.node_id)


def wait_in_sync(cluster: Cluster, brokers: int) -> None:
    """Until every replica of every topic is, so that the next may be killed."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        topics = admin.list_topics(timeout=_PATIENCE_S).topics.values()
        behind = (
            len(one.isrs) < len(one.replicas)
            for topic in topics
            for one in topic.partitions.values()
        )
        if not any(behind):
            return
        time.sleep(0.1)
    raise SystemExit(f"not all {brokers} in sync within {_PATIENCE_S} s")


# -- the questions


class Question(NamedTuple):
    ask: Callable[[Cluster, argparse.Namespace], Figures]
    repeats: bool = True

    def of(self, asked: argparse.Namespace) -> Callable[[Cluster], Figures]:
        return lambda cluster: self.ask(cluster, asked)


QUESTIONS: Final = {
    "one": Question(partial(commits, records=1)),
    "hundred": Question(partial(commits, records=100)),
    "large": Question(large),
    "kill": Question(kill, repeats=False),
}
"""In this order: a node of Kafka that was started again is a cold one."""


def warm_up(sides: Sides, asked: argparse.Namespace) -> None:
    """Kafka's own code is compiled while it runs."""
    for cluster in sides.clusters:
        writer = Writer(cluster, asked, asked.size, linger=0)
        for records in (1, 100):
            _commit_for(writer, records, asked.warm / 2)
        writer.close()


def launches(asked: argparse.Namespace) -> dict[str, Callable[[], Cluster]]:
    def kafka() -> Cluster:
        return Kafka(asked.jars, brokers=asked.brokers, replication=min(_BROKERS, asked.brokers))

    def tidelog() -> Cluster:
        return Tidelog(f"flush.policy={asked.policy}", brokers=asked.brokers)

    return {"tidelog": tidelog} if asked.alone else {"kafka": kafka, "tidelog": tidelog}


def measure(asked: argparse.Namespace) -> dict[str, Runs]:
    if not asked.alone:
        fetch_kafka(asked.jars)
    sides = Sides(launches(asked), asked.quiet_wait)
    found: dict[str, Runs] = {}
    with sides.up():
        warm_up(sides, asked)
        for name, question in QUESTIONS.items():
            if not asked.only or name in asked.only:
                runs = asked.runs if question.repeats else 1
                found[name] = sides.in_turn(name, question.of(asked), runs=runs)
    return found


def run(asked: argparse.Namespace) -> None:
    with ended_in_order():
        found = measure(asked)
    settings = {
        **{name: value for name, value in vars(asked).items() if name not in {"jars", "policy"}},
        "partitions": PARTITIONS,
        "replication": min(_BROKERS, asked.brokers),
        "flush.policy": asked.policy,
        "producer": PRODUCER,
        "kafka": None if asked.alone else {"version": KAFKA_VERSION, "heap each": KAFKA_HEAP},
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    every: list[Figures] = [
        {"question": name, "side": side, **figures}
        for name, runs in found.items()
        for side, each in runs.items()
        for figures in each
    ]
    report("transactions", settings, {**answers(asked, found), "goals": GOALS}, every)


def answers(asked: argparse.Namespace, found: dict[str, Runs]) -> Figures:
    """The medians of each question, of both sides and their ratio; the runs are told elsewhere."""
    kept = ("tidelog",) if asked.alone else ("tidelog", "kafka", "tidelog_by_kafka", "limited_by")
    both = {name: side_by_side(runs, asked.noise) for name, runs in found.items()}
    return {name: {key: dict(one)[key] for key in kept} for name, one in both.items()}


if __name__ == "__main__":
    run(parser().parse_args())
