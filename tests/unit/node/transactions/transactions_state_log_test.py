"""The transaction coordinator's log, which it writes and reads through the broker that leads it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.machines.peers import change, shown
from harness.machines.transaction_service import EPOCH, LIFE, ServiceBench, state_batch
from tidelog.kernel.ids import Epoch, Incarnation, Offset
from tidelog.kernel.instant import Instant, s
from tidelog.kernel.limits import TRANSACTION_READ_BYTES_MAX
from tidelog.wire.errors import ErrorCode
from tidelog.wire.metadata_records import ConfigChanged, ResourceKind, TransactionsActivated
from tidelog.wire.records import Origin, Record, build_batch, iterate_batches
from tidelog.wire.transactions import RESERVED_PRODUCER_ID, STATE_TOPIC, Appended, Chunk

NOT_APPENDED = Offset(-1)


@pytest.fixture
def bench(tmp_path: Path) -> ServiceBench:
    return ServiceBench(tmp_path / "log0")


def log_end(bench: ServiceBench) -> int:
    replica = bench.bench.broker.replicas.find(STATE_TOPIC, 0)
    assert replica is not None
    return int(replica.log.end)


def chunk(bench: ServiceBench, offset: int, **fields: Any) -> Chunk:
    bench.read(offset, **fields)
    (found,) = bench.take()
    assert isinstance(found, Chunk)
    return found


def calls_of(said: Sequence[object]) -> list[int]:
    return [message.call for message in said if isinstance(message, Appended)]


def values(batches: bytes) -> list[int]:
    """The base offsets of what a chunk holds."""
    return [header.base_offset for header, _ in iterate_batches(memoryview(batches))]


def test_an_append_is_answered_once_it_is_committed(bench: ServiceBench) -> None:
    call = bench.append(state_batch(b"a", size=2))
    assert bench.take() == []
    bench.peer.ack(1)
    assert bench.take() == []
    bench.peer.ack(2)
    assert bench.take() == [Appended(LIFE, call, ErrorCode.NONE, Offset(2))]


def test_where_nobody_else_is_in_sync_that_is_at_once(tmp_path: Path) -> None:
    bench = ServiceBench(tmp_path / "log0", in_sync=(0,))
    call = bench.append(state_batch(b"a"))
    assert bench.take() == [Appended(LIFE, call, ErrorCode.NONE, Offset(1))]


def test_several_are_under_way_at_once_and_answered_in_order(bench: ServiceBench) -> None:
    calls = [bench.append(state_batch(b"a", at)) for at in range(3)]
    bench.peer.ack(2)
    assert calls_of(bench.take()) == calls[:2]
    bench.peer.ack(3)
    assert calls_of(bench.take()) == calls[2:]


def test_nobody_gives_up_what_was_appended(bench: ServiceBench) -> None:
    bench.append(state_batch(b"a"))
    bench.bench.now = Instant(bench.bench.now + s(600))
    bench.bench.broker.waiting.expire(bench.bench.now)
    assert bench.take() == []
    bench.peer.ack(1)
    assert bench.codes() == [ErrorCode.NONE]


def test_whoever_leads_no_more_says_so(bench: ServiceBench) -> None:
    bench.append(state_batch(b"a"))
    bench.elect(1, 1, 0, 1)
    assert bench.codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_also_where_it_leads_again(bench: ServiceBench) -> None:
    """In between another one may have led, without what was appended here."""
    bench.append(state_batch(b"a"))
    bench.elect(0, 1, 0, 1)
    assert bench.codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_while_too_few_are_in_sync_nothing_is_appended(bench: ServiceBench) -> None:
    change(bench.bench, bench.topic, shown(0, change=1))
    bench.append(state_batch(b"a"))
    assert bench.codes() == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert log_end(bench) == 0


def test_nor_while_this_broker_stops(bench: ServiceBench) -> None:
    bench.bench.broker.replicas.retiring = True
    bench.append(state_batch(b"a"))
    assert bench.codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


# -- who may write


def test_the_log_refuses_a_coordinator_of_the_past_that_the_broker_has_not_heard_of(
    tmp_path: Path,
) -> None:
    bench = ServiceBench(tmp_path / "log0", in_sync=(0,))
    bench.append(state_batch(b"a", epoch=7), epoch=7)
    bench.take()
    bench.begin_anew()
    bench.append(state_batch(b"b", epoch=6), epoch=6)
    assert bench.codes() == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert log_end(bench) == 1


def test_what_was_heard_of_refuses_it_before(bench: ServiceBench) -> None:
    bench.bench.replay(TransactionsActivated(Epoch(9), Incarnation(1)))
    bench.service.image_changed(bench.bench.now)
    bench.take()
    bench.meet(epoch=9)
    bench.append(state_batch(b"a", epoch=8), epoch=8)
    assert bench.codes() == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]


def test_epochs_go_on_where_those_of_a_producer_end(bench: ServiceBench) -> None:
    """They have 15 bits; the 32,768th coordinator writes with the next reserved id."""
    last, first = (1 << 15) - 1, 1 << 15
    for epoch in (last, first):
        bench.append(state_batch(b"a", epoch=epoch), epoch=epoch)
    bench.peer.ack(2)
    assert bench.codes() == [ErrorCode.NONE, ErrorCode.NONE]
    assert chunk(bench, -1, epoch=first).next_sequence == 1


def test_a_batch_that_is_out_of_order_is_refused(bench: ServiceBench) -> None:
    bench.append(state_batch(b"a", 0))
    bench.append(state_batch(b"b", 2))
    assert bench.codes() == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_a_batch_that_is_there_already_is_not_appended_again(bench: ServiceBench) -> None:
    first, second = bench.append(state_batch(b"a")), bench.append(state_batch(b"a"))
    assert log_end(bench) == 1
    bench.peer.ack(1)
    assert bench.take() == [
        Appended(LIFE, first, ErrorCode.NONE, Offset(1)),
        Appended(LIFE, second, ErrorCode.NONE, Offset(1)),
    ]


def damaged() -> bytes:
    batch = bytearray(state_batch(b"a"))
    batch[-1] ^= 1
    return bytes(batch)


def of(origin: Origin) -> bytes:
    return bytes(build_batch([Record(0, 0, b"k", b"v", ())], origin=origin))


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (state_batch(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (state_batch(b"a") * 2, ErrorCode.CORRUPT_MESSAGE),
        (damaged(), ErrorCode.CORRUPT_MESSAGE),
        (of(Origin(7, EPOCH, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (of(Origin(RESERVED_PRODUCER_ID, EPOCH + 1, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (of(Origin(RESERVED_PRODUCER_ID, EPOCH, -1)), ErrorCode.INVALID_RECORD),
        (of(Origin(RESERVED_PRODUCER_ID, EPOCH, 0, 1 << 4)), ErrorCode.INVALID_RECORD),
        (of(Origin(RESERVED_PRODUCER_ID, EPOCH, 0, 1 << 5)), ErrorCode.INVALID_RECORD),
    ],
)
def test_only_a_whole_batch_of_the_coordinator_is_taken(
    bench: ServiceBench, batch: bytes, code: ErrorCode
) -> None:
    bench.append(batch)
    assert bench.codes() == [code]
    assert log_end(bench) == 0


def test_a_batch_that_no_segment_holds_is_refused(bench: ServiceBench) -> None:
    size = 1 << 20
    bench.bench.replay(ConfigChanged(ResourceKind.TOPIC, STATE_TOPIC, "segment.bytes", str(size)))
    bench.append(state_batch(bytes(size)))
    assert bench.codes() == [ErrorCode.RECORD_LIST_TOO_LARGE]


def test_a_disk_that_takes_nothing_is_told_and_reported(tmp_path: Path) -> None:
    bench = ServiceBench(tmp_path / "log0", in_sync=(0,))
    (tmp_path / "log0" / f"{STATE_TOPIC}-0").write_text("where a log should be")
    bench.append(state_batch(b"a"))
    assert bench.codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert [key for key, _ in bench.bench.failures] == [(STATE_TOPIC, 0)]


@pytest.mark.parametrize("ask", [ServiceBench.append, ServiceBench.read])
def test_an_older_leader_epoch_is_told_so(bench: ServiceBench, ask: Any) -> None:
    bench.elect(0, 2, 0, 1)
    ask(bench, state_batch(b"a") if ask is ServiceBench.append else 0, leader_epoch=1)
    assert bench.codes() == [ErrorCode.FENCED_LEADER_EPOCH]


@pytest.mark.parametrize("ask", [ServiceBench.append, ServiceBench.read])
def test_what_knows_a_newer_leader_epoch_waits_for_our_metadata(
    bench: ServiceBench, ask: Any
) -> None:
    ask(bench, state_batch(b"a") if ask is ServiceBench.append else 0, leader_epoch=2)
    assert bench.take() == []
    bench.elect(0, 1, 0)
    assert bench.take() == []
    change(bench.bench, bench.topic, shown(0, 1, epoch=2, change=2))
    bench.peer.follow(bench.topic, 2)
    bench.service.image_changed(bench.bench.now)
    bench.peer.ack(1)
    assert bench.codes() == [ErrorCode.NONE]


def test_what_waits_for_our_metadata_ends_with_its_session(bench: ServiceBench) -> None:
    bench.append(state_batch(b"a"), leader_epoch=2)
    bench.meet()
    bench.elect(0, 2, 0, 1)
    assert bench.take() == []
    assert log_end(bench) == 0


# -- reading


def test_an_empty_log_says_so(bench: ServiceBench) -> None:
    found = chunk(bench, -1)
    assert (found.code, found.start, found.end, found.next_sequence) == (ErrorCode.NONE, 0, 0, 0)
    assert chunk(bench, 0).following == 0


def test_the_bounds_come_without_batches(bench: ServiceBench) -> None:
    bench.append(state_batch(b"a", size=3))
    found = chunk(bench, -1)
    assert (found.start, found.end, found.batches) == (0, 3, b""), "committed or not"


@pytest.mark.parametrize(("epoch", "following"), [(EPOCH, 3), (EPOCH + 1, 0)])
def test_it_says_where_the_reader_s_epoch_goes_on(
    bench: ServiceBench, epoch: int, following: int
) -> None:
    bench.append(state_batch(b"a", size=3))
    assert chunk(bench, -1, epoch=epoch).next_sequence == following


def test_a_reader_of_the_past_is_refused_by_the_log(bench: ServiceBench) -> None:
    bench.append(state_batch(b"a", epoch=EPOCH + 1), epoch=EPOCH + 1)
    bench.begin_anew()
    assert chunk(bench, 0).code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_it_is_read_in_chunks(bench: ServiceBench) -> None:
    for at in range(5):
        bench.append(state_batch(b"a" * 100, at))
    size = len(state_batch(b"a" * 100))
    offset, found = 0, []
    while offset < 5:
        piece = chunk(bench, offset, max_bytes=2 * size + 1)
        assert piece.end == 5
        assert len(values(piece.batches)) <= 2
        found += values(piece.batches)
        offset = piece.following
    assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("max_bytes", [-5, 0, 1])
def test_one_batch_comes_however_little_is_asked(bench: ServiceBench, max_bytes: int) -> None:
    for at in range(2):
        bench.append(state_batch(b"a", at))
    assert values(chunk(bench, 0, max_bytes=max_bytes).batches) == [0]


def test_no_more_comes_than_is_allowed(bench: ServiceBench) -> None:
    for at in range(3):
        bench.append(state_batch(bytes(TRANSACTION_READ_BYTES_MAX // 2), at))
    assert values(chunk(bench, 0, max_bytes=1 << 30).batches) == [0]


def test_behind_its_end_there_is_nothing_to_read(bench: ServiceBench) -> None:
    assert chunk(bench, 1).code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_damage_is_reported_and_not_passed_on(tmp_path: Path) -> None:
    bench = ServiceBench(tmp_path / "log0", in_sync=(0,))
    bench.append(state_batch(b"a"))
    bench.take()
    (file,) = tmp_path.glob(f"log0/{STATE_TOPIC}-0/*.log")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert chunk(bench, 0).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [key for key, _ in bench.bench.failures] == [(STATE_TOPIC, 0)]
