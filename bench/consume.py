"""What consuming from the page cache costs: throughput, processor time per GB."""

import argparse
import time

import confluent_kafka

from clusters import running
from measuring import Arguments, Figures, middle, repeat, report, versions
from workloads import PARTITIONS, TUNED_CONSUMER, consume_run, fill

_NAMES = ("mb_per_s", "records_per_s", "brokers_cpu_s_per_gb", "client_cpu_s_per_gb")
GOALS = {"brokers_cpu_s_per_gb": 0.4}


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["consume.py", "consume.py --size 100 --records 5000000"])
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument("--records", type=int, default=1_000_000, help="to read (1000000)")
    return asked


def run(asked: argparse.Namespace) -> None:
    topic = "consume"
    with running() as cluster:
        fill(cluster.bootstrap, topic, size=asked.size, records=asked.records)
        time.sleep(1)

        def one() -> Figures:
            return consume_run(cluster, topic, size=asked.size, records=asked.records)

        one()
        runs = repeat(asked, one)
    settings = {
        "client": TUNED_CONSUMER,
        "size": asked.size,
        "partitions": PARTITIONS,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop"),
    }
    figures = {name: middle(runs, name) for name in _NAMES}
    report("consume", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
