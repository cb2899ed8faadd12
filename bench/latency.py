"""How soon a record is acknowledged at a steady rate: linger 0, acks=all, confluent-kafka."""

import argparse
import time
from collections.abc import Callable

import confluent_kafka
from confluent_kafka import Producer

from clusters import running
from measuring import Arguments, Figures, Meter, middle, percentile, repeat, report, versions
from workloads import make_topic, values

_NAMES = ("p50_ms", "p99_ms", "p999_ms", "brokers_cpu_percent")


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["latency.py", "latency.py --rate 1000 --seconds 10"])
    asked.add_argument("--rate", type=int, default=200, help="records a second (200)")
    asked.add_argument("--seconds", type=float, default=15.0, help="of each run (15)")
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    return asked


def one(bootstrap: str, pid: int, asked: argparse.Namespace) -> Figures:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": "true",
            "linger.ms": "0",
        }
    )
    (value,) = values(asked.size, count=1)
    _pace(producer, value, rate=asked.rate, seconds=2.0)
    meter = Meter([pid])
    waits = _pace(producer, value, rate=asked.rate, seconds=asked.seconds)
    figures = meter.stop()
    return {
        **figures,
        "records": len(waits),
        "p50_ms": round(1000 * percentile(waits, 0.5), 3),
        "p99_ms": round(1000 * percentile(waits, 0.99), 3),
        "p999_ms": round(1000 * percentile(waits, 0.999), 3),
        "brokers_cpu_percent": round(100 * figures["brokers_cpu_s"] / figures["wall_s"], 2),
    }


def _pace(producer: Producer, value: bytes, *, rate: int, seconds: float) -> list[float]:
    """Seconds from produce to acknowledgement; the callback runs as soon as the client has it."""
    waits: list[float] = []
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce("latency", value, on_delivery=_noting(waits, time.perf_counter()))
    assert not producer.flush(30)
    return waits


def _noting(waits: list[float], sent: float) -> Callable[[object, object], None]:
    def note(error: object, _message: object) -> None:
        assert error is None, error
        waits.append(time.perf_counter() - sent)

    return note


def run(asked: argparse.Namespace) -> None:
    with running() as cluster:
        make_topic(cluster.bootstrap, "latency", 1)
        runs = repeat(asked, lambda: one(cluster.bootstrap, cluster.pid, asked))
    settings = {
        "rate": asked.rate,
        "size": asked.size,
        "linger_ms": 0,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop"),
    }
    report("latency", settings, {name: middle(runs, name) for name in _NAMES}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
