"""One task's load: batches of rows to a topic as fast as asked, and what became of each row."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.clients.producer.producer import Producer
from tidelog.clients.producer.sender import Delivered, Result
from tidelog.kernel.instant import Instant, ms
from tidelog.spark.arrow import Encoder
from tidelog.spark.connections import client_of
from tidelog.spark.options import Mode, SinkOptions, sink_options
from tidelog.spark.pipelines.acks import AckLog
from tidelog.spark.pipelines.generating import Generator, Numbers, Rows, Shape
from tidelog.spark.pipelines.latencies import Latencies
from tidelog.spark.routing import Router
from tidelog.spark.writing import producer_settings

if TYPE_CHECKING:
    from tidelog.kernel.ids import TopicPartition
    from tidelog.spark.pipelines.counting import Spans

_PACE_S = 0.02
"""A slow load sends what is due so often, and no more at once."""
_NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Load:
    """What every task does."""

    options: Mapping[str, str]
    topic: str
    rate: float = 0.0
    """Rows a second of one task; 0 is as fast as it goes."""
    history: str | None = None


@dataclass(slots=True)
class Report:
    """What one task did."""

    rows: int = 0
    size_bytes: int = 0
    failed: int = 0
    error: str | None = None
    began: float = 0.0
    ended: float = 0.0
    cpu_s: float = 0.0
    acked: "dict[TopicPartition, Spans]" = field(default_factory=dict)
    """Offsets that the brokers have told of, from a first one up to another one."""
    unplaced: int = 0
    """Rows that count as acknowledged, of which no broker has told the offset."""
    latencies: Latencies = field(default_factory=Latencies)


class _Sent(NamedTuple):
    due_ns: int
    numbers: Numbers | None
    rows: int
    size_bytes: int


class Sender:
    """Writes batches and measures. Rows count from when they were due: what waits for a slow
    cluster waits in its latency."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._options: SinkOptions = sink_options(load.options, Mode.BATCH)
        producing = self._options.producing
        self._encoder = Encoder(producing.codec, batch_bytes=producing.batch_bytes)
        self._producer = Producer(
            client_of(self._options.connection), producer_settings(self._options)
        )
        self.partitions = self._producer.open(load.topic)
        self._router = Router(load.topic, lambda _: self.partitions, first=number)
        self._waiting: dict[TopicPartition, deque[_Sent]] = {}
        self._acks = AckLog(load.history, number) if load.history is not None else None
        self._report = Report()

    def send(self, many: Iterable[Rows]) -> Report:
        report = self._report
        report.began, cpu = time.time(), time.process_time()
        start = time.monotonic_ns()
        for rows in many:
            due = self._due(start)
            self._send(rows, due)
            report.rows += rows.batch.num_rows
            self._take()
        self._producer.flush()
        self._take()
        if self._acks is not None:
            self._acks.close()
        report.ended, report.cpu_s = time.time(), time.process_time() - cpu
        return report

    def _due(self, start: int) -> int:
        """When the next row is due; until then answers are taken in."""
        now = time.monotonic_ns()
        if not self._load.rate:
            return now
        due = start + int(self._report.rows / self._load.rate * 1e9)
        while now < due:
            self._producer.work(Instant(min(due, now + ms(100))))
            self._take()
            now = time.monotonic_ns()
        return due

    def _send(self, rows: Rows, due: int) -> None:
        batch = rows.batch
        if self._acks is not None:
            batch = batch.append_column(_NUMBER, pa.array(rows.numbers))
        now_ms = time.time_ns() // 1_000_000
        for part in self._router.parts(batch):
            place = part.topic, part.partition
            numbers = part.rows.column(_NUMBER).to_numpy() if self._acks is not None else None
            at = 0
            for one in self._encoder.encode(part.rows, now_ms=now_ms):
                some = None if numbers is None else numbers[at : at + one.rows]
                waiting = self._waiting.setdefault(place, deque())
                waiting.append(_Sent(due, some, one.rows, len(one.batch)))
                self._producer.send_batch(*place, one.batch)
                at += one.rows

    def _take(self) -> None:
        """Within a partition results come in the order of sending."""
        now = time.monotonic_ns()
        for result in self._producer.take_results():
            sent = self._waiting[result.partition].popleft()
            assert sent.rows == result.records, (sent.rows, result.records)
            offset, status = self._count(result, sent, now)
            if self._acks is not None and sent.numbers is not None:
                self._acks.add(sent.numbers, result.partition, offset, status)

    def _count(self, result: Result, sent: _Sent, now: int) -> tuple[int, str]:
        report = self._report
        if isinstance(result, Delivered):
            report.latencies.add(now - sent.due_ns, sent.rows)
            report.size_bytes += sent.size_bytes
            self._place(result)
            return int(result.base_offset), "acked"
        report.failed += sent.rows
        code = result.code.name if result.code is not None else "no answer in time"
        report.error = f"{code} {result.detail}".strip()
        # Nobody knows whether a batch without an answer is written.
        return -1, "unknown" if result.code is None else "failed"

    def _place(self, result: Delivered) -> None:
        first = int(result.base_offset)
        if first < 0:
            self._report.unplaced += result.records
            return
        spans = self._report.acked.setdefault(result.partition, [])
        if spans and spans[-1][1] == first:
            first = spans.pop()[0]
        spans.append((first, int(result.base_offset) + result.records))


def generate_and_send(load: Load, shape: Shape, number: int, count: int) -> Report:
    """Rows of our own making."""
    sender = Sender(load, number)
    at_once = max(1, int(load.rate * _PACE_S)) if load.rate else 1 << 30
    generator = Generator(shape, number, sender.partitions)
    return sender.send(generator.rows(count, at_once))


def send_batches(load: Load, number: int, batches: Iterable[Any]) -> Report:
    """Rows that are given, as Arrow batches of the columns that are written."""
    return Sender(load, number).send(_numbered(batches))


def _numbered(batches: Iterable[Any]) -> Iterator[Rows]:
    done = 0
    for batch in batches:
        yield Rows(batch, np.arange(done, done + batch.num_rows))
        done += batch.num_rows
