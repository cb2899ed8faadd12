"""What a small produce request costs: 16 KiB each, 5 in flight, by bare sockets."""

import argparse

from clusters import running
from measuring import MB, Arguments, middle, repeat, report, versions
from pipelines import open_pipelines, pump_run
from raw_client import RawClient

_TOPIC = "small"
_NAMES = (
    "requests_per_s",
    "broker_ms_per_request",
    "mb_per_s",
    "client_cpu_s",
    "plain_write_cpu_s_per_gb",
)
GOALS = {"broker_ms_per_request": 0.1}


def parser() -> Arguments:
    asked = Arguments(
        str(__doc__), ["small_requests.py", "small_requests.py --connections 4 --in-flight 1"]
    )
    asked.add_argument("--connections", type=int, default=1, help="producers (1)")
    asked.add_argument("--in-flight", type=int, default=5, help="requests of each (5)")
    asked.add_argument("--bytes", type=int, default=16_384, help="of a request's batch (16384)")
    asked.add_argument("--mb", type=int, default=4000, help="each run writes at most (4000)")
    asked.add_argument("--seconds", type=float, default=5.0, help="of each run (5)")
    return asked


def run(asked: argparse.Namespace) -> None:
    with running() as cluster:
        with RawClient(cluster.bootstrap) as first:
            first.create_topic(_TOPIC, asked.connections)
        with open_pipelines(cluster, _TOPIC, batch_bytes=asked.bytes) as pipelines:
            runs = repeat(
                asked,
                lambda: pump_run(
                    cluster,
                    pipelines,
                    in_flight=asked.in_flight,
                    seconds=asked.seconds,
                    bytes_max=round(asked.mb * MB),
                ),
            )
    settings = {
        "connections": asked.connections,
        "in_flight": asked.in_flight,
        "request_bytes": pipelines[0].request_bytes,
        "versions": versions("uvloop"),
    }
    figures = {name: middle(runs, name, 4) for name in _NAMES}
    report("small_requests", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
