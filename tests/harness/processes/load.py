"""Producers that never stop, and the comparison of what they were told with what is in the log.

Each value names its producer, partition and number, so the log alone tells who wrote what, in
which order, and whether twice. What a broker acknowledged is kept with the offset it named.
"""

import contextlib
import itertools
import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from harness.clients.fetch_raw import Row
from harness.clients.produce_raw import VERSION, batch_of, produce_request
from harness.clients.raw_socket import RawClient
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import RETRIABLE, ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k22_init_producer_id
from tidelog.wire.records import PLAIN, Origin

IN_FLIGHT_MAX = 5
AGAIN_WITHIN_S = 60.0
LOOK_EVERY_S = 0.002
_CODECS = tuple(Codec)


class Kind(Enum):
    """What a producer does when it does not know whether a batch was taken."""

    IDEMPOTENT = "says it again, with the same sequence"
    PLAIN = "goes on with the next one"


@dataclass(slots=True)
class Sent:
    """One batch on its way."""

    partition: int
    first: int
    """The number of its first record, of this producer in this partition."""
    values: tuple[bytes, ...]
    batch: bytearray


@dataclass(frozen=True, slots=True)
class Acked:
    """The broker said that these values begin at that offset."""

    partition: int
    offset: int
    values: tuple[bytes, ...]


class LoadError(AssertionError):
    """A broker said what it must never say."""


@dataclass(slots=True)
class Plan:
    """What a producer writes."""

    topic: str
    partitions: int
    kind: Kind
    acks: int = -1
    seed: int = 0
    value_bytes_max: int = 2_000


@dataclass(slots=True)
class Producer:
    """One thread with one connection at a time and five batches under way on it."""

    name: str
    bootstrap: str
    plan: Plan
    acked: list[Acked] = field(default_factory=list)
    lost: int = 0
    """Times its connection ended."""
    failure: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _in_flight: deque[Sent] = field(default_factory=deque)
    _thread: threading.Thread | None = None
    _producer_id: int = -1

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Stop making new batches, wait for the answers of the last ones."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join(2 * AGAIN_WITHIN_S)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        if self.failure is not None:
            raise LoadError(f"{self.name}: {self.failure!r}") from self.failure

    def _run(self) -> None:
        try:
            self._produce()
        except BaseException as error:  # noqa: BLE001 -- told by the thread that waits for this one
            self.failure = error

    def _produce(self) -> None:
        rng = random.Random(self.plan.seed)
        numbers = [0] * self.plan.partitions
        batches = (self._make(rng, numbers) for _ in itertools.count())
        deadline = time.monotonic() + AGAIN_WITHIN_S
        while True:
            acked = len(self.acked)
            with contextlib.suppress(OSError, EOFError), RawClient(self.bootstrap) as raw:
                self._work(raw, batches)
                return
            self.lost += 1
            if len(self.acked) > acked:
                deadline = time.monotonic() + AGAIN_WITHIN_S
            if time.monotonic() > deadline:
                raise LoadError(f"nothing acknowledged for {AGAIN_WITHIN_S} s")
            if self.plan.kind is Kind.PLAIN:
                self._in_flight.clear()
            time.sleep(LOOK_EVERY_S)

    def _make(self, rng: random.Random, numbers: list[int]) -> Sent:
        partition = rng.randrange(self.plan.partitions)
        first = numbers[partition]
        count = rng.choice((1, 1, 3, 10))
        numbers[partition] += count
        values = tuple(
            value_of(self.name, partition, number, rng.randrange(self.plan.value_bytes_max))
            for number in range(first, first + count)
        )
        origin = PLAIN
        if self.plan.kind is Kind.IDEMPOTENT:
            origin = Origin(self._producer_id, 0, first)
        batch = batch_of(*values, codec=rng.choice(_CODECS), origin=origin)
        return Sent(partition, first, values, batch)

    def _work(self, raw: RawClient, batches: Iterable[Sent]) -> None:
        if self.plan.kind is Kind.IDEMPOTENT and self._producer_id < 0:
            self._producer_id = _new_producer_id(raw)
        for sent in self._in_flight:
            self._send(raw, sent)
        for sent in batches:
            self._in_flight.append(sent)
            self._send(raw, sent)
            while len(self._in_flight) >= IN_FLIGHT_MAX:
                self._take_answer(raw)
            if self._stop.is_set():
                break
        while self._in_flight:
            self._take_answer(raw)

    def _send(self, raw: RawClient, sent: Sent) -> None:
        request = produce_request(
            self.plan.topic, sent.batch, acks=self.plan.acks, partition=sent.partition
        )
        raw.start(k00_produce.API, VERSION, request)

    def _take_answer(self, raw: RawClient) -> None:
        frame = memoryview(raw.receive_frame())
        _, answer = decode_response(k00_produce.API, VERSION, frame)
        row = answer.responses[0].partition_responses[0]
        code = ErrorCode(row.error_code)
        if code in RETRIABLE:
            raise ConnectionError(code.name)  # as a client that loses its place: say all again
        if code is not ErrorCode.NONE:
            raise LoadError(f"{code.name}: {row.error_message}")
        sent = self._in_flight.popleft()
        self.acked.append(Acked(sent.partition, row.base_offset, sent.values))


def value_of(producer: str, partition: int, number: int, padding: int) -> bytes:
    return b"%s/%d/%d/" % (producer.encode(), partition, number) + b"." * padding


def _new_producer_id(raw: RawClient) -> int:
    request = k22_init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    )
    answer = raw.ask(k22_init_producer_id.API, 4, request)
    if answer.error_code:
        raise ConnectionError(ErrorCode(answer.error_code).name)
    producer_id = answer.producer_id
    assert isinstance(producer_id, int)
    return producer_id


def wait_for_acks(
    producers: Iterable[Producer], more: int, timeout_s: float = AGAIN_WITHIN_S
) -> None:
    """Until each of them had so many more batches acknowledged."""
    wanted = [(producer, len(producer.acked) + more) for producer in producers]
    deadline = time.monotonic() + timeout_s
    while any(len(producer.acked) < count for producer, count in wanted):
        for producer, count in wanted:
            if producer.failure is not None:
                raise LoadError(f"{producer.name}: {producer.failure!r}")
            assert time.monotonic() < deadline, f"{producer.name}: {len(producer.acked)} of {count}"
        time.sleep(LOOK_EVERY_S)


def faults(rows: Mapping[int, list[Row]], producers: Iterable[Producer]) -> list[str]:
    """What is wrong, a line each: nothing lost, doubled, swapped, invented, or elsewhere."""
    found: list[str] = []
    for partition, log in rows.items():
        found += _faults_of_log(partition, log)
    for producer in producers:
        found += _faults_of_acks(rows, producer)
        for partition, log in rows.items():
            found += _faults_of_order(producer, partition, log)
    return found


def _faults_of_log(partition: int, log: list[Row]) -> list[str]:
    found = [
        f"partition {partition}: offset {row.offset} stands where {at} should"
        for at, row in enumerate(log)
        if row.offset != at
    ]
    epochs = [row.leader_epoch for row in log]
    if epochs != sorted(epochs):
        found.append(f"partition {partition}: leader epochs go back")
    copies: dict[bytes, int] = defaultdict(int)
    for row in log:
        copies[row.value] += 1
    return found + [
        f"partition {partition}: {count} times {value[:60]!r}"
        for value, count in copies.items()
        if count > 1
    ]


def _faults_of_acks(rows: Mapping[int, list[Row]], producer: Producer) -> list[str]:
    found = []
    for acked in producer.acked:
        log = rows[acked.partition]
        there = [row.value for row in log[acked.offset : acked.offset + len(acked.values)]]
        if acked.offset < 0 or there != list(acked.values):
            found.append(
                f"partition {acked.partition}: {acked.values[0][:60]!r} was acknowledged at "
                f"{acked.offset}, there is {[value[:40] for value in there[:2]]}"
            )
    return found


def _faults_of_order(producer: Producer, partition: int, log: list[Row]) -> list[str]:
    mark = f"{producer.name}/{partition}/".encode()
    numbers = [int(row.value.split(b"/")[2]) for row in log if row.value.startswith(mark)]
    if producer.plan.kind is Kind.IDEMPOTENT:
        if numbers != list(range(len(numbers))):
            return [f"partition {partition}: {producer.name} is not there once and in order"]
    elif any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
        return [f"partition {partition}: {producer.name} is out of order"]
    return []
