"""Records to batches to requests: sizes, waits, partitions, and how a batch ends."""

import pytest

from harness.machines.plans import TOPIC_ID, view_of
from tidelog.clients.asking import Cause, Lost, Ticket
from tidelog.clients.producer.accumulator import Accumulator, Batch, sequence_after
from tidelog.clients.producer.partitioner import StickyPartitioner, murmur2, partition_of_key
from tidelog.clients.producer.sender import Delivered, Failed, Identity, Send, Sender
from tidelog.clients.settings import Acks, ProducerSettings
from tidelog.kernel.ids import NO_OFFSET, ZERO_UUID, Offset, Partition, TopicPartition, Uuid
from tidelog.kernel.instant import Instant, ms, s
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.records import Record, iterate_records, read_header

START = Instant(0)
ZERO: TopicPartition = ("t", Partition(0))
ONE: TopicPartition = ("t", Partition(1))
ME = Identity(7, 3)


def record(value: bytes = b"v", key: bytes | None = None) -> Record:
    return Record(99, 1_000, key, value)


def sender_of(**settings: object) -> tuple[Sender, Accumulator]:
    chosen = ProducerSettings(**settings)  # type: ignore[arg-type]  # named by the tests
    accumulator = Accumulator(chosen)
    sender = Sender(chosen, accumulator)
    if chosen.idempotent:
        sender.identity = ME
    return sender, accumulator


def queue(sender: Sender, accumulator: Accumulator, *partitions: TopicPartition) -> None:
    for partition in partitions:
        accumulator.append(START, partition, record())
        accumulator.close_all()
    sender.accept()


def answer(*codes: int, partition: int = 0, offset: int = 5) -> ProduceResponse:
    rows = [
        PartitionProduceResponse(index=partition + n, error_code=code, base_offset=offset)
        for n, code in enumerate(codes)
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])


def records_in(send: Send, at: int = 0) -> memoryview:
    records = send.call.ask.message.topic_data[0].partition_data[at].records
    assert isinstance(records, memoryview)
    return records


# -- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_every_other_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFF_FFFF


def test_a_key_goes_to_a_partition_that_exists() -> None:
    assert {partition_of_key(b"%d" % number, 3) for number in range(100)} == {0, 1, 2}


def test_records_without_a_key_move_on_when_their_batch_is_full() -> None:
    sticky = StickyPartitioner(first=4)
    assert [sticky.choose(3), sticky.choose(3)] == [1, 1]
    sticky.batch_closed()
    assert sticky.choose(3) == 2


# -- batches ------------------------------------------------------------------------------------


def test_a_batch_closes_when_the_next_record_does_not_fit() -> None:
    accumulator = Accumulator(ProducerSettings(batch_bytes=200))
    closed = [accumulator.append(START, ZERO, record(bytes(40))) for _ in range(3)]
    assert closed == [False, False, True]
    (batch,) = accumulator.take_closed()
    assert [one.offset for one in batch.records] == [0, 1]
    assert accumulator.take_closed() == []


def test_a_record_larger_than_a_batch_is_a_batch() -> None:
    accumulator = Accumulator(ProducerSettings(batch_bytes=200))
    assert accumulator.append(START, ZERO, record(bytes(500)))
    assert [batch.count for batch in accumulator.take_closed()] == [1]


def test_a_batch_closes_when_it_has_lingered() -> None:
    accumulator = Accumulator(ProducerSettings(linger_ns=ms(5)))
    assert accumulator.deadline() is None
    accumulator.append(START, ZERO, record())
    accumulator.append(Instant(ms(4)), ONE, record())
    assert accumulator.deadline() == ms(5)
    accumulator.close_due(Instant(ms(5)))
    assert [batch.partition for batch in accumulator.take_closed()] == [ZERO]


def test_the_buffer_counts_what_is_not_done() -> None:
    accumulator = Accumulator(ProducerSettings(batch_bytes=100, buffer_bytes=150))
    named = Record(0, 0, b"k", b"v", (("h", b"1"), ("g", None)))
    room = []
    for partition in (ZERO, ONE):
        accumulator.append(START, partition, named)
        room.append(accumulator.has_room)
    assert room == [True, False]
    accumulator.close_all()
    for batch in accumulator.take_closed():
        accumulator.done(batch.size_bytes)
    assert accumulator.buffered_bytes == 0


def test_halves_follow_each_other() -> None:
    records = [Record(n, 0, None, b"%d" % n) for n in range(5)]
    batch = Batch(ZERO, records, 101, START, order=4, sequence=2**31 - 1)
    first, rest = batch.halves()
    assert [one.value for one in (*first.records, *rest.records)] == [b"%d" % n for n in range(5)]
    assert [one.offset for one in rest.records] == [0, 1, 2]
    assert (first.sequence, rest.sequence) == (2**31 - 1, sequence_after(2**31 - 1, 2))
    assert first.size_bytes + rest.size_bytes == 101
    assert first.order == rest.order == 4


def test_a_batch_without_a_sequence_has_halves_without_one() -> None:
    batch = Batch(ZERO, [record(), record()], 10, START)
    assert [half.sequence for half in batch.halves()] == [-1, -1]


# -- requests -----------------------------------------------------------------------------------


def test_nothing_goes_out_before_the_producer_knows_who_it_is() -> None:
    sender, accumulator = sender_of()
    sender.identity = None
    queue(sender, accumulator, ZERO)
    assert sender.poll(START, view_of(0)) == []


def test_batches_of_one_leader_share_a_request() -> None:
    sender, accumulator = sender_of(codec=Codec.GZIP)
    queue(sender, accumulator, ZERO, ONE, ("t", Partition(2)))
    first, second = sender.poll(START, view_of(0, 1, 0))
    assert [(one.leader, [b.partition[1] for b in one.batches]) for one in (first, second)] == [
        (0, [0, 2]),
        (1, [1]),
    ]
    header = read_header(records_in(first))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
    assert [one.value for one in iterate_records(records_in(first))] == [b"v"]


def test_a_request_has_a_size() -> None:
    sender, accumulator = sender_of(request_bytes=100)
    queue(sender, accumulator, ZERO, ONE)
    assert [len(one.batches) for one in sender.poll(START, view_of(0, 0))] == [1]


def test_five_requests_are_on_the_way_to_a_leader_and_no_more() -> None:
    sender, accumulator = sender_of()
    partitions: list[TopicPartition] = [("t", Partition(n)) for n in range(6)]
    sends = []
    for partition in partitions:
        queue(sender, accumulator, partition)
        sends += sender.poll(START, view_of(*[0] * 6))
    assert len(sends) == 5
    sender.answered(START, sends[0], answer(0))
    assert len(sender.poll(START, view_of(*[0] * 6))) == 1


def test_numbers_follow_the_records() -> None:
    sender, accumulator = sender_of()
    sequences = []
    for _ in range(3):
        accumulator.append(START, ZERO, record())
        queue(sender, accumulator, ZERO)
        (send,) = sender.poll(START, view_of(0))
        sequences.append(read_header(records_in(send)).base_sequence)
    assert sequences == [0, 2, 4]


@pytest.mark.parametrize(
    ("settings", "topic_id", "expected"),
    [({}, TOPIC_ID, 13), ({}, ZERO_UUID, 12), ({"transactional_id": "x"}, TOPIC_ID, 11)],
)
def test_the_version_fits_what_is_known(
    settings: dict[str, object], topic_id: Uuid, expected: int
) -> None:
    sender, accumulator = sender_of(**settings)
    queue(sender, accumulator, ZERO)
    sender.added(sender.unadded())
    (send,) = sender.poll(START, view_of(0, topic_id=topic_id))
    assert send.call.ask.version_max == expected


def test_an_answer_that_names_the_topic_by_id_is_understood() -> None:
    sender, accumulator = sender_of()
    queue(sender, accumulator, ZERO)
    (send,) = sender.poll(START, view_of(0, topic_id=TOPIC_ID))
    message = answer(0)
    message.responses[0].name = ""
    message.responses[0].topic_id = TOPIC_ID
    sender.answered(START, send, message)
    assert sender.take_results() == [Delivered(ZERO, Offset(5), 1)]


def test_without_acks_a_batch_is_done_when_it_is_sent() -> None:
    sender, accumulator = sender_of(acks=Acks.NONE)
    queue(sender, accumulator, ZERO)
    (send,) = sender.poll(START, view_of(0))
    assert not send.call.ask.answered
    assert read_header(records_in(send)).producer_id == -1
    sender.answered(START, send, None)
    assert sender.take_results() == [Delivered(ZERO, NO_OFFSET, 1)]
    assert sender.idle


# -- failures -----------------------------------------------------------------------------------


def test_a_leader_that_is_not_known_is_asked_for_after_a_while() -> None:
    sender, accumulator = sender_of()
    queue(sender, accumulator, ZERO)
    assert sender.poll(START, view_of(-1)) == []
    assert sender.stale == {"t"}
    assert sender.deadline() == ms(50)
    assert sender.poll(Instant(ms(49)), view_of(0)) == []
    assert len(sender.poll(Instant(ms(50)), view_of(0))) == 1


def test_a_moved_leader_is_asked_for_and_the_batch_goes_again() -> None:
    sender, accumulator = sender_of()
    queue(sender, accumulator, ZERO)
    (send,) = sender.poll(START, view_of(0))
    sender.answered(START, send, answer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert sender.stale == {"t"}
    (again,) = sender.poll(Instant(ms(50)), view_of(1))
    assert again.leader == 1
    assert bytes(records_in(again)) == bytes(records_in(send))


def test_a_partition_that_the_answer_leaves_out_is_sent_again() -> None:
    sender, accumulator = sender_of()
    queue(sender, accumulator, ZERO)
    (send,) = sender.poll(START, view_of(0))
    sender.answered(START, send, ProduceResponse())
    assert len(sender.poll(Instant(ms(50)), view_of(0))) == 1


def test_a_repeat_that_the_broker_has_already_is_delivered() -> None:
    sender, accumulator = sender_of()
    queue(sender, accumulator, ZERO)
    (send,) = sender.poll(START, view_of(0))
    sender.answered(START, send, answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    assert sender.take_results() == [Delivered(ZERO, NO_OFFSET, 1)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    ],
)
def test_a_broker_that_does_not_know_us_ends_the_partition(code: ErrorCode) -> None:
    sender, accumulator = sender_of()
    queue(sender, accumulator, ZERO)
    (send,) = sender.poll(START, view_of(0))
    sender.answered(START, send, answer(code))
    queue(sender, accumulator, ZERO)
    assert sender.poll(Instant(s(1)), view_of(0)) == []
    results = sender.take_results()
    assert [one.code for one in results if isinstance(one, Failed)] == [code, code]
    assert sender.idle
    assert accumulator.buffered_bytes == 0


def test_a_batch_that_nobody_takes_is_given_up() -> None:
    sender, accumulator = sender_of(delivery_timeout_ns=s(30))
    queue(sender, accumulator, ZERO)
    assert sender.deadline() == s(30)
    sender.poll(Instant(s(30)), view_of(0))
    (failed,) = sender.take_results()
    assert isinstance(failed, Failed)
    assert failed.code is None


def test_a_numbered_batch_that_is_given_up_ends_the_partition() -> None:
    sender, accumulator = sender_of(delivery_timeout_ns=s(30))
    queue(sender, accumulator, ZERO)
    (send,) = sender.poll(START, view_of(0))
    sender.lost(START, send, Lost(Ticket(0), Cause.UNREACHABLE, "cut"))
    sender.poll(Instant(s(30)), view_of(0))
    accumulator.append(Instant(s(30)), ZERO, record())
    accumulator.close_all()
    sender.accept()
    assert sender.poll(Instant(s(31)), view_of(0)) == []
    assert [one.code for one in sender.take_results() if isinstance(one, Failed)] == [None, None]


def test_a_broker_without_produce_fails_the_batch() -> None:
    sender, accumulator = sender_of()
    queue(sender, accumulator, ZERO)
    (send,) = sender.poll(START, view_of(0))
    sender.lost(START, send, Lost(Ticket(0), Cause.UNSUPPORTED, "no Produce"))
    assert sender.take_results() == [Failed(ZERO, 1, None, "no Produce")]


def test_a_transaction_sends_only_to_partitions_that_it_has() -> None:
    sender, accumulator = sender_of(transactional_id="x")
    queue(sender, accumulator, ZERO, ONE)
    assert sender.unadded() == [ZERO, ONE]
    begun = [sender.begun]
    assert sender.poll(START, view_of(0, 0)) == []
    sender.added([ZERO])
    assert [*begun, sender.begun] == [False, True]
    (send,) = sender.poll(START, view_of(0, 0))
    assert send.batches[0].partition == ZERO
    assert read_header(records_in(send)).is_transactional
    assert sender.unadded() == [ONE]


def test_the_next_transaction_adds_its_partitions_again() -> None:
    sender, accumulator = sender_of(transactional_id="x")
    queue(sender, accumulator, ZERO)
    sender.added([ZERO])
    (send,) = sender.poll(START, view_of(0))
    sender.answered(START, send, answer(0))
    sender.ended()
    queue(sender, accumulator, ZERO)
    assert sender.unadded() == [ZERO]
