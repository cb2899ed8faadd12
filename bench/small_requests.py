"""What a small produce request costs: 16 KiB each, 5 in flight, by bare sockets."""

import argparse
import selectors
import time

from clusters import Tidelog, running
from measuring import MB, Arguments, Figures, Meter, middle, repeat, report, versions
from raw_client import PRODUCE_VERSION, ProduceFrame, RawClient
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce
from workloads import PRODUCE_MEMORY_BYTES, values

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
    asked.add_argument("--seconds", type=float, default=5.0, help="of each run (5)")
    return asked


class Pipeline:
    """One idempotent producer with a constant number of requests under way."""

    def __init__(self, bootstrap: str, partition: int, batch_bytes: int) -> None:
        self.client = RawClient(bootstrap)
        count = max(1, (batch_bytes - 61) // 1034)
        content = values(1024, count=count) if batch_bytes > 1100 else values(batch_bytes - 75)[:1]
        self._frame = ProduceFrame(_TOPIC, partition, content, self.client.producer_id())
        self.value_bytes = self._frame.value_bytes
        self.request_bytes = len(self._frame.frame)
        self._asked = 0
        self.answered = 0

    def send(self) -> None:
        self.client.sock.sendall(self._frame.next(self._asked))
        self._asked += 1

    def take_answer(self) -> None:
        correlation, answer = decode_response(
            k00_produce.API, PRODUCE_VERSION, self.client.receive()
        )
        row = answer.responses[0].partition_responses[0]
        assert correlation == self.answered, (correlation, self.answered)
        assert not row.error_code, ErrorCode(row.error_code).name
        self.answered += 1


def pump(pipelines: list[Pipeline], *, in_flight: int, seconds: float) -> int:
    """Keep all of them busy for so long, then take what is left; how many were answered."""
    before = sum(pipeline.answered for pipeline in pipelines)
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for pipeline in pipelines:
            selector.register(pipeline.client.sock, selectors.EVENT_READ, pipeline)
            for _ in range(in_flight):
                pipeline.send()
        while time.monotonic() < end:
            for key, _ in selector.select():
                key.data.take_answer()
                key.data.send()
    for pipeline in pipelines:
        for _ in range(in_flight):
            pipeline.take_answer()
    return sum(pipeline.answered for pipeline in pipelines) - before


def one(cluster: Tidelog, pipelines: list[Pipeline], asked: argparse.Namespace) -> Figures:
    pump(pipelines, in_flight=asked.in_flight, seconds=min(1.0, asked.seconds))
    meter = Meter([cluster.pid])
    answered = pump(pipelines, in_flight=asked.in_flight, seconds=asked.seconds)
    figures = meter.stop()
    sent = answered * pipelines[0].value_bytes
    return {
        **figures,
        "requests": answered,
        "requests_per_s": round(answered / figures["wall_s"]),
        "broker_ms_per_request": round(1000 * figures["brokers_cpu_s"] / answered, 4),
        "mb_per_s": round(sent / MB / figures["wall_s"], 1),
    }


def run(asked: argparse.Namespace) -> None:
    with running() as cluster:
        first = RawClient(cluster.bootstrap)
        first.create_topic(_TOPIC, asked.connections)
        pipelines = [
            Pipeline(cluster.bootstrap, number, asked.bytes) for number in range(asked.connections)
        ]
        runs = repeat(
            asked, lambda: one(cluster, pipelines, asked), memory_bytes=PRODUCE_MEMORY_BYTES
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
