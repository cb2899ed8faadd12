"""How soon a record is acknowledged at a steady rate: linger 0, acks=all, confluent-kafka."""

import argparse

import confluent_kafka

from clusters import running
from measuring import Arguments, middle, repeat, report, versions
from workloads import Pace, latency_run, make_topic

_NAMES = ("p50_ms", "p99_ms", "p999_ms", "brokers_cpu_percent")
_TOPIC = "latency"


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["latency.py", "latency.py --rate 1000 --seconds 10 --acks 1"])
    asked.add_argument("--rate", type=int, default=200, help="records a second (200)")
    asked.add_argument("--seconds", type=float, default=15.0, help="of each run (15)")
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument("--acks", choices=["0", "1", "all"], default="all", help="(all)")
    return asked


def run(asked: argparse.Namespace) -> None:
    pace = Pace(rate=asked.rate, seconds=asked.seconds, size=asked.size, acks=asked.acks)
    with running() as cluster:
        make_topic(cluster.bootstrap, _TOPIC, 1)
        runs = repeat(asked, lambda: latency_run(cluster, _TOPIC, pace))
    settings = {
        "rate": asked.rate,
        "size": asked.size,
        "acks": asked.acks,
        "linger_ms": 0,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop"),
    }
    report("latency", settings, {name: middle(runs, name) for name in _NAMES}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
