"""What producing costs: throughput of one confluent-kafka producer, processor time per GB."""

import argparse

import confluent_kafka

from clusters import running
from measuring import MB, Arguments, middle, repeat, report, versions
from workloads import PARTITIONS, PRODUCER, Load, produce_run

_NAMES = (
    "mb_per_s",
    "records_per_s",
    "brokers_cpu_s_per_gb",
    "client_cpu_s_per_gb",
    "plain_write_cpu_s_per_gb",
)
GOALS = {"brokers_cpu_s_per_gb at 1 KiB": 1.0}


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__),
        ["produce.py", "produce.py --size 100", "produce.py --compression lz4 --runs 5"],
    )
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument("--compression", default="none", help="codec of the client (none)")
    asked.add_argument("--mb", type=int, default=4000, help="each run writes at most (4000)")
    asked.add_argument("--seconds", type=float, default=8.0, help="of each run (8)")
    return asked


def run(asked: argparse.Namespace) -> None:
    load = Load(
        size=asked.size,
        compression=asked.compression,
        seconds=asked.seconds,
        bytes_max=round(asked.mb * MB),
    )
    with running() as cluster:
        runs = repeat(asked, lambda: produce_run(cluster, load))
    settings = {
        "size": asked.size,
        "compression": asked.compression,
        "partitions": PARTITIONS,
        "client": PRODUCER,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop"),
    }
    figures = {name: middle(runs, name) for name in _NAMES}
    report("produce", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
