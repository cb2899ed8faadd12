"""Positions to requests to records: what is asked, what is shown, what is skipped."""

import pytest

from harness.machines.plans import TOPIC_ID, view_of
from tidelog.clients.asking import Cause, Lost, Ticket
from tidelog.clients.consumer.fetcher import FetchCall, Fetcher
from tidelog.clients.consumer.reading import Fetched
from tidelog.clients.failures import UnsupportedError
from tidelog.clients.settings import ConsumerSettings, Isolation
from tidelog.kernel.ids import NO_EPOCH, ZERO_UUID, Offset, Partition, TopicPartition, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode, Rejected, WireError
from tidelog.wire.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.records import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    Origin,
    Record,
    build_batch,
    place_batch,
)

START = Instant(0)
ZERO: TopicPartition = ("t", Partition(0))
ONE: TopicPartition = ("t", Partition(1))
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def batch(base: int, count: int, *, producer: int = -1, flags: int = 0, key: bytes = b"k") -> bytes:
    records = [Record(base + n, 0, key, b"%d" % (base + n)) for n in range(count)]
    origin = Origin(producer, 0, 0, flags)
    return bytes(build_batch(records, codec=Codec.NONE, origin=origin))


def marker(base: int, producer: int, kind: bytes) -> bytes:
    return batch(base, 1, producer=producer, flags=TRANSACTIONAL_BIT | CONTROL_BIT, key=kind)


def open_batch(base: int, count: int, producer: int) -> bytes:
    return batch(base, count, producer=producer, flags=TRANSACTIONAL_BIT)


def fetched(data: bytes, position: int = 0, *aborted: tuple[int, int]) -> Fetched:
    rows = [AbortedTransaction(producer_id=who, first_offset=first) for who, first in aborted]
    return Fetched(ZERO, Offset(position), memoryview(data), rows)


def offsets(one: Fetched) -> list[int]:
    return [record.offset for record in one.records()]


# -- reading ------------------------------------------------------------------------------------


def test_records_before_the_position_are_skipped() -> None:
    one = fetched(batch(0, 3) + batch(3, 3), position=4)
    assert offsets(one) == [4, 5]
    assert one.position == 6


def test_the_position_follows_each_record() -> None:
    one = fetched(batch(0, 3))
    records = one.records()
    assert next(records).offset == 0
    assert one.position == 1


def test_a_cut_batch_is_left_for_the_next_fetch() -> None:
    one = fetched(batch(0, 2) + batch(2, 2)[:-1])
    assert offsets(one) == [0, 1]
    assert one.position == 2


def test_control_batches_move_the_position_and_are_not_shown() -> None:
    one = fetched(batch(0, 1) + marker(1, 7, COMMIT))
    assert offsets(one) == [0]
    assert one.position == 2


def test_aborted_records_are_hidden_up_to_their_marker() -> None:
    data = (
        open_batch(0, 2, producer=7)
        + open_batch(2, 1, producer=8)
        + batch(3, 1)
        + marker(4, 7, ABORT)
        + open_batch(5, 1, producer=7)
        + marker(6, 8, COMMIT)
        + marker(7, 7, COMMIT)
    )
    assert offsets(fetched(data, 0, (7, 0))) == [2, 3, 5]
    assert offsets(fetched(data)) == [0, 1, 2, 3, 5]


def test_one_producer_may_abort_twice() -> None:
    data = (
        open_batch(0, 1, producer=7)
        + marker(1, 7, ABORT)
        + open_batch(2, 1, producer=7)
        + marker(3, 7, COMMIT)
        + open_batch(4, 1, producer=7)
        + marker(5, 7, ABORT)
        + batch(6, 1)
    )
    assert offsets(fetched(data, 0, (7, 4), (7, 0))) == [2, 6]


def test_an_abort_before_the_position_counts_too() -> None:
    data = (
        open_batch(0, 1, producer=7)
        + marker(1, 7, ABORT)
        + open_batch(2, 1, producer=7)
        + batch(3, 1)
    )
    assert offsets(fetched(data, 2, (7, 0))) == [2, 3]


def test_a_marker_without_a_key_ends_no_transaction_of_another_kind() -> None:
    records = [Record(1, 0, None, b"")]
    origin = Origin(7, 0, 0, TRANSACTIONAL_BIT | CONTROL_BIT)
    odd = bytes(build_batch(records, origin=origin))
    data = open_batch(0, 1, producer=7) + odd + open_batch(2, 1, producer=7)
    assert offsets(fetched(data, 0, (7, 0))) == [2]


def test_a_batch_with_a_wrong_crc_is_refused() -> None:
    data = bytearray(batch(0, 1))
    data[-1] ^= 1
    with pytest.raises(WireError, match="CRC"):
        offsets(fetched(bytes(data)))


# -- fetching -----------------------------------------------------------------------------------


def fetcher_of(*positions: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> Fetcher:
    fetcher = Fetcher(ConsumerSettings(isolation=isolation))
    fetcher.assign({("t", Partition(n)): Offset(at) for n, at in enumerate(positions)})
    return fetcher


def request(call: FetchCall) -> FetchRequest:
    message = call.call.ask.message
    assert isinstance(message, FetchRequest)
    return message


def response(*rows: PartitionData, error: int = 0) -> FetchResponse:
    return FetchResponse(
        error_code=error, responses=[FetchableTopicResponse(topic="t", partitions=list(rows))]
    )


def data(number: int, content: bytes = b"", *, error: int = 0, high: int = 9) -> PartitionData:
    return PartitionData(
        partition_index=number,
        error_code=error,
        high_watermark=high,
        records=memoryview(content),
        aborted_transactions=None,
    )


def test_partitions_of_one_leader_share_a_request() -> None:
    fetcher = fetcher_of(3, 4, 5, isolation=Isolation.READ_COMMITTED)
    first, second = fetcher.poll(START, view_of(0, 1, 0))
    assert (first.partitions, second.partitions) == ((ZERO, ("t", 2)), (ONE,))
    asked = request(first)
    assert [one.fetch_offset for one in asked.topics[0].partitions] == [3, 5]
    assert (asked.isolation_level, asked.session_id, asked.session_epoch) == (1, 0, -1)
    assert fetcher.poll(START, view_of(0, 1, 0)) == []


@pytest.mark.parametrize(("topic_id", "expected"), [(TOPIC_ID, 17), (ZERO_UUID, 12)])
def test_the_fetch_version_fits_what_is_known(topic_id: Uuid, expected: int) -> None:
    (call,) = fetcher_of(0).poll(START, view_of(0, topic_id=topic_id))
    assert call.call.ask.version_max == expected


def test_a_partition_is_asked_again_once_it_was_read() -> None:
    fetcher = fetcher_of(0)
    (call,) = fetcher.poll(START, view_of(0))
    (found,) = fetcher.answered(START, call, response(data(0, batch(0, 3))))
    assert fetcher.poll(START, view_of(0)) == []
    assert offsets(found) == [0, 1, 2]
    fetcher.consumed(found)
    (call,) = fetcher.poll(START, view_of(0))
    assert request(call).topics[0].partitions[0].fetch_offset == 3
    assert (fetcher.position(ZERO), fetcher.lag(ZERO)) == (3, 6)


def test_an_answer_by_topic_id_is_understood() -> None:
    fetcher = fetcher_of(0)
    (call,) = fetcher.poll(START, view_of(0, topic_id=TOPIC_ID))
    message = response(data(0, batch(0, 1)))
    message.responses[0].topic = ""
    message.responses[0].topic_id = TOPIC_ID
    assert len(fetcher.answered(START, call, message)) == 1


def test_an_empty_answer_asks_again_at_once() -> None:
    fetcher = fetcher_of(0)
    assert fetcher.lag(ZERO) is None
    (call,) = fetcher.poll(START, view_of(0))
    assert fetcher.answered(START, call, response(data(0))) == []
    assert len(fetcher.poll(START, view_of(0))) == 1


def test_whoever_had_data_waits_for_the_others() -> None:
    fetcher = fetcher_of(0, 0)
    (call,) = fetcher.poll(START, view_of(0, 0))
    for found in fetcher.answered(START, call, response(data(0, batch(0, 1)), data(1))):
        fetcher.consumed(found)
    (call,) = fetcher.poll(START, view_of(0, 0))
    assert call.partitions == (ONE, ZERO)


def test_a_position_out_of_range_waits_for_another() -> None:
    fetcher = fetcher_of(100)
    (call,) = fetcher.poll(START, view_of(0))
    fetcher.answered(START, call, response(data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE)))
    assert fetcher.out_of_range == {ZERO}
    assert fetcher.poll(START, view_of(0)) == []
    fetcher.seek(ZERO, Offset(5))
    (call,) = fetcher.poll(START, view_of(0))
    assert request(call).topics[0].partitions[0].fetch_offset == 5


def read(fetcher: Fetcher, *content: bytes, high: int = 9) -> None:
    """What the leader has, to its end."""
    (call,) = fetcher.poll(START, view_of(0))
    (found,) = fetcher.answered(START, call, response(data(0, b"".join(content), high=high)))
    assert offsets(found)
    fetcher.consumed(found)


def test_the_epoch_of_what_was_read_last_is_told(batches: tuple[bytes, bytes]) -> None:
    fetcher = fetcher_of(0)
    (call,) = fetcher.poll(START, view_of(0))
    assert request(call).topics[0].partitions[0].last_fetched_epoch == NO_EPOCH
    fetcher.answered(START, call, response(data(0)))
    read(fetcher, *batches)
    (call,) = fetcher.poll(START, view_of(0))
    assert request(call).topics[0].partitions[0].last_fetched_epoch == 5


@pytest.mark.parametrize("content", [b"", batch(6, 3)], ids=["alone", "beside records"])
def test_a_log_that_parts_from_what_was_read_is_not_read_on(
    batches: tuple[bytes, bytes], content: bytes
) -> None:
    """Whatever else the answer says."""
    fetcher = fetcher_of(0)
    read(fetcher, *batches)
    (call,) = fetcher.poll(START, view_of(0))
    row = data(0, content)
    row.diverging_epoch = EpochEndOffset(epoch=4, end_offset=3)
    assert fetcher.answered(START, call, response(row)) == []
    assert (fetcher.diverged, fetcher.position(ZERO)) == ({ZERO: 3}, 6)
    assert fetcher.poll(START, view_of(0)) == []
    fetcher.seek(ZERO, Offset(3))
    assert fetcher.diverged == {}
    (call,) = fetcher.poll(START, view_of(0))
    asked = request(call).topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (3, NO_EPOCH)


def test_a_partition_that_is_dropped_needs_no_position(batches: tuple[bytes, bytes]) -> None:
    for row in (data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE), data(0)):
        fetcher = fetcher_of(0)
        read(fetcher, *batches)
        (call,) = fetcher.poll(START, view_of(0))
        if not row.error_code:
            row.diverging_epoch = EpochEndOffset(epoch=4, end_offset=3)
        fetcher.answered(START, call, response(row))
        fetcher.drop(ZERO)
        assert (fetcher.out_of_range, fetcher.diverged) == (set(), {})


def test_another_position_was_read_in_no_epoch(batches: tuple[bytes, bytes]) -> None:
    fetcher = fetcher_of(0)
    read(fetcher, *batches)
    fetcher.seek(ZERO, Offset(1))
    (call,) = fetcher.poll(START, view_of(0))
    assert request(call).topics[0].partitions[0].last_fetched_epoch == NO_EPOCH


@pytest.fixture
def batches() -> tuple[bytes, bytes]:
    """The second one of a later epoch."""
    parts = bytearray(batch(0, 3)), bytearray(batch(3, 3))
    for part, base, epoch in zip(parts, (0, 3), (4, 5), strict=True):
        place_batch(part, 0, base_offset=base, leader_epoch=epoch)
    return bytes(parts[0]), bytes(parts[1])


def test_the_epoch_follows_each_batch(batches: tuple[bytes, bytes]) -> None:
    one = fetched(b"".join(batches), position=1)
    records = one.records()
    assert one.epoch == NO_EPOCH
    assert [(next(records).offset, one.epoch) for _ in range(5)] == [
        *((1, 4), (2, 4)),
        *((3, 5), (4, 5), (5, 5)),
    ]


def test_a_moved_leader_is_asked_for_and_waited_for() -> None:
    fetcher = fetcher_of(7)
    (call,) = fetcher.poll(START, view_of(0))
    fetcher.answered(START, call, response(data(0, error=ErrorCode.FENCED_LEADER_EPOCH)))
    assert fetcher.stale == {"t"}
    assert fetcher.deadline() == ms(50)
    assert fetcher.poll(START, view_of(1)) == []
    (call,) = fetcher.poll(Instant(ms(50)), view_of(1))
    assert (call.leader, request(call).topics[0].partitions[0].fetch_offset) == (1, 7)
    assert fetcher.deadline() is None


def test_a_lost_answer_moves_nothing() -> None:
    fetcher = fetcher_of(7)
    (call,) = fetcher.poll(START, view_of(0))
    fetcher.lost(START, call, Lost(Ticket(0), Cause.UNREACHABLE, "cut"))
    (call,) = fetcher.poll(Instant(ms(50)), view_of(0))
    assert request(call).topics[0].partitions[0].fetch_offset == 7


def test_a_broker_without_fetch_is_an_error() -> None:
    fetcher = fetcher_of(7)
    (call,) = fetcher.poll(START, view_of(0))
    with pytest.raises(UnsupportedError, match="no Fetch"):
        fetcher.lost(START, call, Lost(Ticket(0), Cause.UNSUPPORTED, "no Fetch"))


def test_a_partition_that_nobody_leads_is_waited_for() -> None:
    fetcher = fetcher_of(7)
    assert fetcher.poll(START, view_of(-1)) == []
    assert fetcher.stale == {"t"}


def test_an_error_of_the_whole_answer_is_tried_again() -> None:
    fetcher = fetcher_of(7)
    (call,) = fetcher.poll(START, view_of(0))
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert fetcher.answered(START, call, response(error=code)) == []
    assert len(fetcher.poll(Instant(ms(50)), view_of(0))) == 1


def test_an_error_that_stays_is_raised() -> None:
    fetcher = fetcher_of(7)
    (call,) = fetcher.poll(START, view_of(0))
    with pytest.raises(Rejected, match="t-0"):
        fetcher.answered(START, call, response(data(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))


def test_a_dropped_partition_is_forgotten() -> None:
    fetcher = fetcher_of(0, 0)
    (call,) = fetcher.poll(START, view_of(0, 0))
    fetcher.drop(ZERO)
    (found,) = fetcher.answered(START, call, response(data(0, batch(0, 1)), data(1, batch(0, 1))))
    assert found.partition == ONE
    fetcher.drop(ONE)
    fetcher.consumed(found)
    fetcher.lost(START, call, Lost(Ticket(0), Cause.UNREACHABLE, "cut"))
    assert list(fetcher.partitions) == []


def test_a_partition_that_the_answer_leaves_out_is_asked_again() -> None:
    fetcher = fetcher_of(0)
    (call,) = fetcher.poll(START, view_of(0))
    assert fetcher.answered(START, call, FetchResponse()) == []
    assert len(fetcher.poll(START, view_of(0))) == 1
