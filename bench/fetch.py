"""What a fetch costs: bare sockets that look at nothing but batch headers, log in the page cache.

Answers of two sizes from several partitions: large ones show what a byte costs, small ones what a
request costs.
"""

import argparse
import time
from functools import partial
from typing import Any

from clusters import running
from measuring import Arguments, Figures, Meter, middle, repeat, report, versions
from raw_client import FETCH_VERSION, RawClient, fetch_request
from tidelog.wire.messages import k01_fetch
from tidelog.wire.records import iterate_batches
from workloads import PARTITIONS, fill, rates

_TOPIC = "fetch"
_SETTLE_S = 1.0
_SIZES = {"large": 1 << 20, "small": 16_384}
_NAMES = ("mb_per_s", "requests_per_s", "broker_ms_per_request", "brokers_cpu_s_per_gb")


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["fetch.py", "fetch.py --size 100 --records 4000000"])
    asked.add_argument("--size", type=int, default=1024, help="bytes of a value (1024)")
    asked.add_argument("--records", type=int, default=500_000, help="to read (500000)")
    asked.add_argument("--batch", type=int, default=16_384, help="bytes of a batch (16384)")
    return asked


def one(cluster: Any, asked: argparse.Namespace, partition_bytes: int) -> Figures:  # noqa: ANN401 -- a Cluster
    """All of the topic, one request at a time, each with the next bytes of every partition."""
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    seen = requests = 0
    with RawClient(cluster.bootstrap) as client:
        meter = Meter(cluster.pids)
        while seen < asked.records:
            request = fetch_request(_TOPIC, offsets, partition_bytes=partition_bytes)
            answer = client.ask(k01_fetch.API, FETCH_VERSION, request)
            requests += 1
            for row in answer.responses[0].partitions:
                for header, _ in iterate_batches(row.records):
                    offsets[row.partition_index] = header.next_offset
                    seen += header.record_count
        figures = meter.stop()
    return {
        **figures,
        **rates(figures, records=seen, value_bytes=seen * asked.size),
        "requests": requests,
        "requests_per_s": round(requests / figures["wall_s"]),
        "broker_ms_per_request": round(1000 * figures["brokers_cpu_s"] / requests, 4),
    }


def run(asked: argparse.Namespace) -> None:
    with running() as cluster:
        fill(cluster.bootstrap, _TOPIC, size=asked.size, records=asked.records, batch=asked.batch)
        time.sleep(_SETTLE_S)
        runs = {
            name: repeat(asked, partial(one, cluster, asked, size)) for name, size in _SIZES.items()
        }
    figures = {name: {key: middle(of, key, 4) for key in _NAMES} for name, of in runs.items()}
    settings = {
        "size": asked.size,
        "batch": asked.batch,
        "partitions": PARTITIONS,
        "partition_bytes": _SIZES,
        "versions": versions("uvloop"),
    }
    report("fetch", settings, figures, [run for of in runs.values() for run in of])


if __name__ == "__main__":
    run(parser().parse_args())
