"""How long a client waits for its next acknowledgement when a partition's leader dies or hangs.

Three brokers, three replicas, two of them needed in sync; librdkafka with its default settings but
linger 0, at a steady rate. At the end every acknowledged record must be there, once and in order.
"""

import argparse
import itertools
import os
import signal
import threading
import time
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from clusters import Cluster, running
from measuring import Arguments, Figures, middle, percentile, repeat, report, versions

GOALS = {
    "kill": {"ack_gap_s": 0.3, "ack_gap_p99_s": 1.0},
    "stop": {"ack_gap_s": 3.0},
}
_BROKERS = 3
_PATIENCE_S = 60.0
_BEFORE_S = 1.0
_AFTER_S = 1.0


def parser() -> Arguments:
    examples = ["failover.py", "failover.py --how stop --runs 5"]
    asked = Arguments(str(__doc__), examples, runs=20)
    asked.add_argument("--how", choices=["kill", "stop"], default="kill", help="SIGKILL or SIGSTOP")
    asked.add_argument("--rate", type=int, default=200, help="records a second (200)")
    return asked


class Steady:
    """One producer at a steady rate, in a thread; when each record was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self.acks: list[tuple[float, int]] = []
        self.refused: list[str] = []
        self._topic = topic
        self._rate = rate
        self._stop = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**settings, "linger.ms": 0})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        for number in itertools.count():
            while time.monotonic() < began + number / self._rate:
                self._producer.poll(0.001)
            if self._stop.is_set():
                break
            value = b"%d" % number
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._on_delivery)
        self._producer.flush(_PATIENCE_S)

    def _on_delivery(self, error: Any, message: Any) -> None:  # noqa: ANN401 -- librdkafka's own
        if error is None:
            self.acks.append((time.monotonic(), int(message.value())))
        else:
            self.refused.append(str(error))

    def wait_for(self, moment: float) -> None:
        """Until something was acknowledged after that moment."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.acks or self.acks[-1][0] < moment:
            if time.monotonic() > deadline:
                raise SystemExit(f"nothing acknowledged for {_PATIENCE_S} s")
            time.sleep(0.01)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()


class Victims:
    """The brokers of a cluster, and how they are lost and brought back."""

    def __init__(self, cluster: Cluster, how: str) -> None:
        self._cluster = cluster
        self._bootstrap = cluster.bootstrap
        self._signal = signal.SIGKILL if how == "kill" else signal.SIGSTOP
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def make_topic(self, name: str) -> None:
        wanted = NewTopic(name, 1, _BROKERS, config={"min.insync.replicas": "2"})
        self._admin.create_topics([wanted])[name].result(_PATIENCE_S)

    def drop_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(_PATIENCE_S)

    def partition(self, topic: str) -> Any:  # noqa: ANN401 -- librdkafka's own
        return self._admin.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions[0]

    def lose(self, pid: int) -> float:
        """When that was."""
        os.kill(pid, self._signal)
        return time.monotonic()

    def bring_back(self, broker: int, pid: int) -> None:
        if self._signal == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
        else:
            self._cluster.start_again(broker)

    def wait_in_sync(self, topic: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while len(self.partition(topic).isrs) < _BROKERS:
            if time.monotonic() > deadline:
                raise SystemExit(f"not all replicas in sync within {_PATIENCE_S} s")
            time.sleep(0.01)

    def log_of(self, topic: str) -> list[int]:
        """The numbers in the partition, in order."""
        place = TopicPartition(topic, 0, 0)
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "x", "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        try:
            end = consumer.get_watermark_offsets(place, timeout=_PATIENCE_S)[1]
            consumer.assign([place])
            found: list[int] = []
            while len(found) < end:
                messages = consumer.consume(min(1_000, end - len(found)), _PATIENCE_S)
                if not messages:
                    break
                found += [int(message.value() or b"") for message in messages]
            return found
        finally:
            consumer.close()


def one(cluster: Cluster, topic: str, *, how: str, rate: int) -> Figures:
    victims = Victims(cluster, how)
    victims.make_topic(topic)
    steady = Steady(cluster.bootstrap, topic, rate)
    try:
        steady.wait_for(time.monotonic() + _BEFORE_S)
        leader = victims.partition(topic).leader
        pid = cluster.pid_of(leader)
        lost = victims.lose(pid)
        try:
            steady.wait_for(lost + _AFTER_S)
        finally:
            back = time.monotonic()
            victims.bring_back(leader, pid)
        victims.wait_in_sync(topic)
        in_sync = time.monotonic() - back
    finally:
        steady.finish()
    times = [moment for moment, _ in steady.acks]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times) if later > lost]
    log, acked = victims.log_of(topic), [number for _, number in steady.acks]
    victims.drop_topic(topic)
    return {
        "ack_gap_s": round(max(gaps), 3),
        "in_sync_s": round(in_sync, 3),
        "acked": len(acked),
        "refused": len(steady.refused),
        "lost": len(set(acked) - set(log)),
        "twice": len(log) - len(set(log)),
        "out_of_order": sum(one > other for one, other in itertools.pairwise(log)),
    }


def run(asked: argparse.Namespace) -> None:
    numbers = itertools.count()
    with running(brokers=_BROKERS) as cluster:

        def next_one() -> Figures:
            return one(cluster, f"failover-{next(numbers)}", how=asked.how, rate=asked.rate)

        runs = repeat(asked, next_one)
    gaps = [figures["ack_gap_s"] for figures in runs]
    figures = {
        "ack_gap_s": middle(runs, "ack_gap_s"),
        "ack_gap_p99_s": percentile(gaps, 0.99),
        "in_sync_s": middle(runs, "in_sync_s"),
        **{name: sum(one[name] for one in runs) for name in ("acked", "refused", "lost", "twice")},
    }
    settings = {
        "how": asked.how,
        "rate": asked.rate,
        "brokers": _BROKERS,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    report("failover", settings, {**figures, "goals": GOALS[asked.how]}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
