"""Idempotent producers of bare sockets: batches made beforehand, requests always under way."""

import contextlib
import math
import selectors
import time
from collections.abc import Callable, Iterator, Sequence

from clusters import Cluster
from measuring import GB, MB, WRITTEN_BYTES_MAX, Figures, Meter, warm_memory
from raw_client import PRODUCE_VERSION, ProduceFrame, RawClient
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce
from workloads import values

_BATCH_HEADER_BYTES = 61
_VALUE_BYTES = 1024
_RECORD_BYTES = _VALUE_BYTES + 10


class Pipeline:
    """One producer into one partition, with a constant number of requests under way."""

    def __init__(
        self, address: str, topic: str, partition: int, *, batch_bytes: int, acks: int = -1
    ) -> None:
        self.client = RawClient(address)
        count = (batch_bytes - _BATCH_HEADER_BYTES) // _RECORD_BYTES
        content = values(_VALUE_BYTES, count=count) if count else values(batch_bytes - 75, count=1)
        producer = self.client.producer_id()
        self._frame = ProduceFrame(topic, partition, content, producer, acks=acks)
        self.value_bytes = self._frame.value_bytes
        self.request_bytes = len(self._frame.frame)
        self._asked = 0
        self.answered = 0

    def begin(self) -> None:
        """The first request, again until it is taken: a leader may be named before it knows."""
        frame = self._frame.next(self._asked)

        def attempt() -> int:
            self.client.sock.sendall(frame)
            return self._outcome()

        self.client.until_done(attempt)
        self._asked += 1
        self.answered += 1

    def send(self) -> None:
        self.client.sock.sendall(self._frame.next(self._asked))
        self._asked += 1

    def take_answer(self) -> None:
        code = self._outcome()
        assert not code, ErrorCode(code).name
        self.answered += 1

    def _outcome(self) -> int:
        """The error code of the next answer."""
        correlation, answer = decode_response(
            k00_produce.API, PRODUCE_VERSION, self.client.receive()
        )
        assert correlation == self.answered, (correlation, self.answered)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code


@contextlib.contextmanager
def open_pipelines(
    cluster: Cluster, topic: str, *, batch_bytes: int, acks: int = -1
) -> Iterator[list[Pipeline]]:
    """One for each partition of the topic, connected to its leader; each has an answer."""
    with contextlib.ExitStack() as undo:
        with RawClient(cluster.bootstrap) as first:
            leaders = first.leaders(topic)
        pipelines = []
        for number, address in sorted(leaders.items()):
            pipeline = Pipeline(address, topic, number, batch_bytes=batch_bytes, acks=acks)
            undo.enter_context(pipeline.client)
            pipeline.begin()
            pipelines.append(pipeline)
        yield pipelines


def pump(
    pipelines: Sequence[Pipeline],
    *,
    in_flight: int,
    seconds: float = math.inf,
    requests_max: int = 1 << 62,
    enough: Callable[[], bool] = lambda: False,
) -> int:
    """Keep all of them busy for so long, then take what is left; how many were answered."""
    before = sum(pipeline.answered for pipeline in pipelines)
    left = requests_max
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for pipeline in pipelines:
            selector.register(pipeline.client.sock, selectors.EVENT_READ, pipeline)
            for _ in range(in_flight):
                pipeline.send()
        while left > 0 and time.monotonic() < end and not enough():
            for key, _ in selector.select():
                key.data.take_answer()
                key.data.send()
                left -= 1
    for pipeline in pipelines:
        for _ in range(in_flight):
            pipeline.take_answer()
    return sum(pipeline.answered for pipeline in pipelines) - before


def pump_run(
    cluster: Cluster,
    pipelines: Sequence[Pipeline],
    *,
    in_flight: int,
    seconds: float,
    bytes_max: int = WRITTEN_BYTES_MAX,
    copies: int = 1,
) -> Figures:
    """Warmed up for a moment, then measured; so many replicas write each byte."""
    pump(pipelines, in_flight=in_flight, seconds=min(1.0, seconds / 4))
    plain = warm_memory(bytes_max * copies)
    value_bytes = pipelines[0].value_bytes
    meter = Meter(cluster.pids)
    answered = pump(
        pipelines,
        in_flight=in_flight,
        seconds=seconds,
        requests_max=bytes_max // value_bytes,
    )
    figures = meter.stop()
    gigabytes = answered * value_bytes / GB
    return {
        **figures,
        "requests": answered,
        "requests_per_s": round(answered / figures["wall_s"]),
        "broker_ms_per_request": round(1000 * figures["brokers_cpu_s"] / answered, 4),
        "mb_per_s": round(answered * value_bytes / MB / figures["wall_s"], 1),
        "brokers_cpu_s_per_gb": round(figures["brokers_cpu_s"] / gigabytes, 3),
        "client_cpu_s_per_gb": round(figures["client_cpu_s"] / gigabytes, 3),
        "plain_write_cpu_s_per_gb": plain,
    }
