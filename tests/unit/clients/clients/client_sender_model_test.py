"""A sender against a small broker that loses, delays and refuses: each record once, in order.

The broker keeps Kafka's rules for idempotent producers; each seed is another story of faults.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from harness.machines.plans import view_of
from tidelog.clients.asking import Cause, Lost, Ticket
from tidelog.clients.producer.accumulator import Accumulator
from tidelog.clients.producer.sender import Delivered, Failed, Identity, Send, Sender
from tidelog.clients.settings import Acks, ProducerSettings
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import Instant, ms, s
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.records import Record, iterate_records, read_header

SEEDS = range(60)
RECORDS = 150
PARTITIONS = 2
BAD = b"bad"
RECORDS_PER_BATCH_MAX = 6


@dataclass
class Log:
    """One partition at the broker, with what it remembers of its only producer."""

    values: list[bytes] = field(default_factory=list)
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """Sequence, count and base offset of the last five batches."""

    def append(self, batch: memoryview) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        values = [record.value or b"" for record in iterate_records(batch)]
        if BAD in values:
            return ErrorCode.INVALID_RECORD, -1
        if len(values) > RECORDS_PER_BATCH_MAX:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if header.producer_id >= 0:
            known = self._judge(header.base_sequence, len(values))
            if known is not None:
                return known
        self.values += values
        return ErrorCode.NONE, len(self.values) - len(values)

    def _judge(self, sequence: int, count: int) -> tuple[ErrorCode, int] | None:
        """What a repeat or a gap is answered; None of the batch that comes next."""
        for old, old_count, offset in self.recent:
            if (old, old_count) == (sequence, count):
                return ErrorCode.NONE, offset
        expected = sum(self.recent[-1][:2]) if self.recent else 0
        if sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.recent.append((sequence, count, len(self.values)))
        return None


class Story:
    """One run: who does what next is drawn from the seed."""

    def __init__(self, seed: int, settings: ProducerSettings, *, bad: bool) -> None:
        self.rng = random.Random(seed)
        self.accumulator = Accumulator(settings)
        self.sender = Sender(settings, self.accumulator)
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.view = view_of(*[0] * PARTITIONS)
        self.wire: deque[Send] = deque()
        self.now = Instant(0)
        self.results: list[Delivered | Failed] = []
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.bad = bad

    def run(self) -> None:
        waiting = self._records()
        going = True
        while going or not self.sender.idle:
            self.now = Instant(self.now + ms(self.rng.randrange(40)))
            if going:
                going = self._append(waiting)
            self.sender.accept()
            self.wire.extend(self.sender.poll(self.now, self.view))
            if self.wire and self.rng.random() < 0.6:
                self._serve()
            self.results += self.sender.take_results()

    def _records(self) -> Iterator[tuple[int, bytes]]:
        for number in range(RECORDS):
            is_bad = self.bad and self.rng.random() < 0.03
            yield self.rng.randrange(PARTITIONS), BAD if is_bad else b"%d" % number

    def _append(self, waiting: Iterator[tuple[int, bytes]]) -> bool:
        for _ in range(self.rng.randrange(12)):
            one = next(waiting, None)
            if one is None:
                self.accumulator.close_all()
                return False
            self.sent[one[0]].append(one[1])
            partition = ("t", Partition(one[0]))
            self.accumulator.append(self.now, partition, Record(0, 0, None, one[1]))
        return True

    def _serve(self) -> None:
        """The broker's next request: answered, or the connection breaks before or after it."""
        fate = self.rng.random()
        if fate < 0.15:
            if fate < 0.08:
                self._answer(self.wire[0])
            while self.wire:
                lost = Lost(Ticket(0), Cause.UNREACHABLE, "cut")
                self.sender.lost(self.now, self.wire.popleft(), lost)
            return
        send = self.wire.popleft()
        if fate < 0.25:
            self.sender.answered(self.now, send, self._refusal(send))
        else:
            self.sender.answered(self.now, send, self._answer(send))

    def _answer(self, send: Send) -> ProduceResponse:
        request: ProduceRequest = send.call.ask.message
        rows = []
        for one in request.topic_data[0].partition_data:
            assert one.records is not None
            code, offset = self.logs[one.index].append(one.records)
            rows.append(
                PartitionProduceResponse(index=one.index, error_code=code, base_offset=offset)
            )
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])

    def _refusal(self, send: Send) -> ProduceResponse:
        request: ProduceRequest = send.call.ask.message
        rows = [
            PartitionProduceResponse(
                index=one.index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1
            )
            for one in request.topic_data[0].partition_data
        ]
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])


def settings_of(acks: Acks) -> ProducerSettings:
    return ProducerSettings(
        acks=acks, batch_bytes=300, linger_ns=ms(5), delivery_timeout_ns=s(100_000)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_written_once_and_in_order(seed: int) -> None:
    story = Story(seed, settings_of(Acks.ALL), bad=False)
    story.sender.identity = Identity(7, 0)
    story.run()
    assert [log.values for log in story.logs] == story.sent
    assert sum(one.records for one in story.results) == RECORDS
    assert all(isinstance(one, Delivered) for one in story.results)
    assert story.accumulator.buffered_bytes == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_offsets_told_are_those_of_the_log(seed: int) -> None:
    story = Story(seed, settings_of(Acks.ALL), bad=False)
    story.sender.identity = Identity(7, 0)
    story.run()
    for number in range(PARTITIONS):
        spans = sorted(
            (one.base_offset, one.records)
            for one in story.results
            if isinstance(one, Delivered) and one.partition[1] == number
        )
        position = 0
        for base_offset, count in spans:
            assert base_offset == position
            position += count
        assert position == len(story.logs[number].values)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_refused_batch_takes_nothing_with_it(seed: int) -> None:
    story = Story(seed, settings_of(Acks.ALL), bad=True)
    story.sender.identity = Identity(7, 0)
    story.run()
    failed = [one for one in story.results if isinstance(one, Failed)]
    assert {one.code for one in failed} <= {ErrorCode.INVALID_RECORD}
    written = sum(len(log.values) for log in story.logs)
    assert written + sum(one.records for one in failed) == RECORDS
    for log, sent in zip(story.logs, story.sent, strict=True):
        position = iter(sent)
        assert all(value in position for value in log.values), "the order of appending is kept"


@pytest.mark.parametrize("seed", SEEDS)
def test_without_idempotence_nothing_is_lost_and_repeats_follow_each_other(seed: int) -> None:
    story = Story(seed, settings_of(Acks.LEADER), bad=False)
    story.run()
    for log, sent in zip(story.logs, story.sent, strict=True):
        once = list(dict.fromkeys(log.values))
        assert once == sent
