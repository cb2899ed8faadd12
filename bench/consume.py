"""What consuming from the page cache costs: throughput, processor time per GB."""

import argparse
import time

import confluent_kafka

from clusters import Tidelog, running
from measuring import Arguments, Figures, Meter, middle, repeat, report, versions
from raw_client import FETCH_VERSION, RawClient, fetch_request
from tidelog.wire.messages import k01_fetch
from tidelog.wire.records import iterate_batches
from workloads import PARTITIONS, TUNED_CONSUMER, consume_run, fill, rates

_NAMES = ("mb_per_s", "records_per_s", "brokers_cpu_s_per_gb", "client_cpu_s_per_gb")
GOALS = {"brokers_cpu_s_per_gb": 0.4}


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__), ["consume.py", "consume.py --client raw", "consume.py --size 100"]
    )
    asked.add_argument(
        "--client", choices=["confluent", "raw"], default="confluent", help="who reads"
    )
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument("--records", type=int, default=1_000_000, help="to read (1000000)")
    asked.add_argument(
        "--partition-bytes", type=int, default=1 << 20, help="of one answer, raw client (1 MiB)"
    )
    return asked


def raw_run(cluster: Tidelog, topic: str, asked: argparse.Namespace) -> Figures:
    """By a client that looks at nothing but batch headers, one request at a time."""
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    seen = requests = 0
    with RawClient(cluster.bootstrap) as client:
        meter = Meter(cluster.pids)
        while seen < asked.records:
            request = fetch_request(topic, offsets, partition_bytes=asked.partition_bytes)
            answer = client.ask(k01_fetch.API, FETCH_VERSION, request)
            requests += 1
            for row in answer.responses[0].partitions:
                for header, _ in iterate_batches(row.records):
                    offsets[row.partition_index] = header.next_offset
                    seen += header.record_count
        figures = meter.stop()
    figures["requests"] = requests
    return {**figures, **rates(figures, records=seen, value_bytes=seen * asked.size)}


def run(asked: argparse.Namespace) -> None:
    topic = "consume"
    with running() as cluster:
        fill(cluster.bootstrap, topic, size=asked.size, records=asked.records)
        time.sleep(1)

        def one() -> Figures:
            if asked.client == "raw":
                return raw_run(cluster, topic, asked)
            return consume_run(cluster, topic, size=asked.size, records=asked.records)

        one()
        runs = repeat(asked, one)
    settings = {
        "client": TUNED_CONSUMER if asked.client == "confluent" else asked.client,
        "size": asked.size,
        "partitions": PARTITIONS,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop"),
    }
    figures = {name: middle(runs, name) for name in _NAMES}
    report("consume", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
