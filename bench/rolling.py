"""What clients notice while all brokers are restarted in turn (`broker restart --rolling`).

Three brokers, three replicas, two of them needed in sync; librdkafka with its default settings but
linger 0, at a steady rate over all partitions, and a consumer that reads as it goes. The lag of a
record is the time from its acknowledgement to its consumption; how late it is counts from when it
was given to the producer.
"""

import argparse
import itertools
import threading
import time
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from clusters import Tidelog, running
from measuring import Arguments, Figures, middle, repeat, report, versions

GOALS = {"lag_max_s": 1.0, "refused": 0, "lost": 0}
_BROKERS = 3
_PARTITIONS = 6
_PATIENCE_S = 60.0
_BEFORE_S = 2.0
_AFTER_S = 1.0


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["rolling.py", "rolling.py --runs 5"], runs=5)
    asked.add_argument("--rate", type=int, default=500, help="records a second (500)")
    asked.add_argument("--rest", type=float, default=1.0, help="as of the command (1)")
    return asked


class Writer:
    """One producer at a steady rate, in a thread; when each record was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self.sent: dict[int, float] = {}
        self.acked: dict[int, float] = {}
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
            place = number % _PARTITIONS
            self.sent[number] = time.monotonic()
            self._producer.produce(
                self._topic, b"%d" % number, partition=place, on_delivery=self._told
            )
        self._producer.flush(_PATIENCE_S)

    def _told(self, error: Any, message: Any) -> None:  # noqa: ANN401 -- librdkafka's own
        if error is None:
            self.acked[int(message.value())] = time.monotonic()
        else:
            self.refused.append(str(error))

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()


class Reader:
    """One consumer of all partitions, in a thread; when each record came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.read: dict[int, float] = {}
        self.twice = 0
        self._wanted: int | None = None
        settings = {"bootstrap.servers": bootstrap, "group.id": "x", "log_level": 0}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, one, 0) for one in range(_PARTITIONS)])
        self._read_all = threading.Event()
        # A daemon: librdkafka's close may not come back after its brokers were restarted (see
        # docs/clients.md), and what was read is known by then.
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        late = None
        while late is None or time.monotonic() < late:
            if self._wanted is not None:
                late = late or time.monotonic() + _PATIENCE_S
                if len(self.read) >= self._wanted:
                    break
            message = self._consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            number = int(message.value() or b"")
            self.twice += number in self.read
            self.read[number] = time.monotonic()
        self._read_all.set()
        self._consumer.close()

    def finish(self, wanted: int) -> None:
        self._wanted = wanted
        assert self._read_all.wait(2 * _PATIENCE_S)


def one(cluster: Tidelog, topic: str, *, rate: int, rest_s: float) -> Figures:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, _PARTITIONS, _BROKERS, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(_PATIENCE_S)
    writer, reader = Writer(cluster.bootstrap, topic, rate), Reader(cluster.bootstrap, topic)
    try:
        time.sleep(_BEFORE_S)
        began = time.monotonic()
        cluster.ask("broker", "restart", "--rolling", "--rest", str(rest_s))
        ended = time.monotonic()
        time.sleep(_AFTER_S)
    finally:
        writer.finish()
        reader.finish(len(writer.acked))
    admin.delete_topics([topic])[topic].result(_PATIENCE_S)
    acked, read = writer.acked, reader.read
    lags = {number: read[number] - at for number, at in acked.items() if number in read}
    during = [lag for number, lag in lags.items() if acked[number] >= began]
    before = [lag for number, lag in lags.items() if began - 1 <= acked[number] < began]
    late = [at - writer.sent[number] for number, at in read.items() if at >= began]
    times = sorted(at for at in acked.values() if at >= began)
    return {
        "roll_s": round(ended - began, 3),
        "lag_max_s": round(max(during), 3),
        "late_max_s": round(max(late), 3),
        "lag_max_before_s": round(max(before), 3),
        "ack_gap_max_s": round(max(b - a for a, b in itertools.pairwise(times)), 3),
        "acked": len(acked),
        "refused": len(writer.refused),
        "lost": len(acked.keys() - read.keys()),
        "twice": reader.twice,
    }


def run(asked: argparse.Namespace) -> None:
    numbers = itertools.count()
    with running(brokers=_BROKERS) as cluster:

        def next_one() -> Figures:
            topic = f"rolling-{next(numbers)}"
            return one(cluster, topic, rate=asked.rate, rest_s=asked.rest)

        runs = repeat(asked, next_one)
    figures = {
        **{
            name: middle(runs, name)
            for name in ("roll_s", "lag_max_s", "late_max_s", "ack_gap_max_s")
        },
        **{f"{name}_worst": max(one[name] for one in runs) for name in ("lag_max_s", "late_max_s")},
        **{name: sum(one[name] for one in runs) for name in ("acked", "refused", "lost", "twice")},
    }
    settings = {
        "rate": asked.rate,
        "rest_s": asked.rest,
        "brokers": _BROKERS,
        "partitions": _PARTITIONS,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    report("rolling", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
