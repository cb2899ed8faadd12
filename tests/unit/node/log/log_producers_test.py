"""Idempotence: what repeats, what comes too early, what is too old; and snapshots of it."""

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, flush, new_log, open_logs, produce
from harness.logs.one_log import FIRST, SIZE, Broker
from tidelog.kernel.failures import CorruptError
from tidelog.node.log.log import Log
from tidelog.node.log.producer_snapshot import OLDER_MAGIC, decode_snapshot, encode_snapshot
from tidelog.node.log.producers import Producers
from tidelog.node.log.settings import HOUR_MS, LogSettings
from tidelog.node.log.snapshots import newest_snapshot, snapshot_offsets
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import read_header

SEQUENCE_MAX = 2**31 - 1


@pytest.fixture
def log() -> Log:
    return new_log(MemoryDisk().directory())


def send(
    log: Log, epoch: int, sequence: int, count: int = 1, producer: int = 7
) -> tuple[int, bool]:
    done = produce(log, batch(count, producer=(producer, epoch, sequence)))
    return done.first_offset, done.duplicate


def refused(log: Log, epoch: int, sequence: int, count: int = 1) -> ErrorCode:
    with pytest.raises(Rejected) as caught:
        send(log, epoch, sequence, count)
    return caught.value.code


def test_a_repeated_batch_gets_its_old_offsets_and_is_not_written_again(log: Log) -> None:
    for at in range(7):
        send(log, 0, at * 2, count=2)
    size = log.size_bytes
    for at in range(2, 7):
        assert send(log, 0, at * 2, count=2) == (at * 2, True)
    assert log.size_bytes == size


def test_only_the_last_five_batches_are_known(log: Log) -> None:
    for at in range(7):
        send(log, 0, at)
    assert refused(log, 0, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused(log: Log) -> None:
    send(log, 0, 0, count=3)
    assert refused(log, 0, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, 3) == (3, False)


def test_a_repetition_must_be_the_same_batch(log: Log) -> None:
    send(log, 0, 0, count=3)
    assert refused(log, 0, 0, count=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_start_anywhere(log: Log) -> None:
    assert send(log, 3, 99) == (0, False)


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one(log: Log) -> None:
    send(log, 0, 0)
    assert refused(log, 1, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1, 0) == (1, False)
    assert refused(log, 0, 1) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_sequence_wraps_to_zero(log: Log) -> None:
    send(log, 0, SEQUENCE_MAX - 1, count=2)
    assert send(log, 0, 0) == (2, False)
    assert send(log, 0, SEQUENCE_MAX - 1, count=2) == (0, True)


def test_a_batch_may_wrap_in_the_middle(log: Log) -> None:
    send(log, 0, SEQUENCE_MAX, count=3)
    assert send(log, 0, 2) == (3, False)
    assert send(log, 0, SEQUENCE_MAX, count=3) == (0, True)


def test_producers_do_not_touch_each_other(log: Log) -> None:
    send(log, 0, 0, producer=1)
    assert send(log, 0, 0, producer=2) == (1, False)


def test_who_was_not_seen_for_long_is_forgotten_at_a_roll() -> None:
    log = new_log(MemoryDisk().directory(), LogSettings(producer_expiration_ms=HOUR_MS))
    send(log, 0, 0)
    log.roll(NOW_MS + HOUR_MS)
    assert len(log.producers) == 1
    produce(log, batch())
    log.roll(NOW_MS + HOUR_MS + 1)
    assert len(log.producers) == 0
    assert send(log, 0, 55) == (2, False)


def noted(producers: Producers, *ids: int) -> None:
    for number in ids:
        header = read_header(batch(producer=(number, 0, 0)))
        producers.note(header, 0, NOW_MS)


def known(producers: Producers) -> list[int]:
    return [number for number, _ in producers.items()]


def test_of_too_many_producers_who_wrote_nothing_for_longest_is_forgotten() -> None:
    producers = Producers(limit=3)
    noted(producers, 1, 2, 3, 1, 4)
    assert known(producers) == [3, 1, 4]
    kept = decode_snapshot(encode_snapshot(producers), place="here")
    assert known(kept) == [3, 1, 4], "a restart forgets nothing of the order"


def test_who_has_a_transaction_open_is_not_forgotten() -> None:
    producers = Producers(limit=2)
    noted(producers, 1, 2)
    for number in (1, 2):
        producer = producers.get(number)
        assert producer is not None
        producer.txn_start = 5
    noted(producers, 3, 4)
    assert known(producers) == [1, 2]


def test_a_forgotten_producer_may_start_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(MemoryDisk().directory())
    monkeypatch.setattr(log.producers, "_limit", 1)
    send(log, 0, 0, producer=1)
    send(log, 0, 0, producer=2)
    assert send(log, 0, 7, producer=1) == (2, False)
    assert len(log.producers) == 1


# -- over a restart


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_all_five_batches_are_known_after_a_restart(*, clean: bool, rolled: bool) -> None:
    disk = MemoryDisk()
    logs = open_logs(disk.directory())
    log = logs.create("t", 0, TOPIC_ID, LogSettings())
    for at in range(7):
        send(log, 1, at)
        if rolled and at == 4:
            log.roll(NOW_MS)
    if clean:
        logs.close_clean({})
    disk.kill()
    again = open_logs(disk.directory()).log("t", 0)
    assert again is not None
    for at in range(2, 7):
        assert send(again, 1, at) == (at, True)
    assert refused(again, 0, 7) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(again, 1, 7) == (7, False)


def state_of(*batches: tuple[int, int, int, int]) -> Producers:
    """(producer, epoch, sequence, count) each."""
    log = new_log(MemoryDisk().directory())
    for producer, epoch, sequence, count in batches:
        send(log, epoch, sequence, count, producer)
    return log.producers


def test_a_snapshot_holds_everything() -> None:
    state = state_of((1, 0, 0, 2), (1, 0, 2, 3), (2, 5, 0, 1), (1, 0, 5, 1))
    again = decode_snapshot(encode_snapshot(state), place="x")
    assert encode_snapshot(again) == encode_snapshot(state)
    assert len(again) == 2


def test_an_empty_snapshot_is_ten_bytes() -> None:
    assert len(encode_snapshot(Producers())) == 10
    assert len(decode_snapshot(encode_snapshot(Producers()), place="x")) == 0


def sealed(body: bytes, version: int = 1) -> bytes:
    return version.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def test_a_snapshot_by_kafka_has_one_batch_each() -> None:
    content = encode_snapshot(state_of((1, 0, 0, 2), (1, 0, 2, 3)))
    only_kafkas = sealed(content[6 : 10 + 46])
    state = decode_snapshot(only_kafkas, place="x")
    producer = state.get(1)
    assert producer is not None
    assert [row.first_sequence for row in producer.batches] == [2]


def test_older_batches_of_nobody_are_left_out() -> None:
    content = encode_snapshot(state_of((1, 0, 0, 1), (1, 0, 1, 1)))
    tail = content[content.index(OLDER_MAGIC) :]
    assert len(decode_snapshot(sealed((0).to_bytes(4, "big") + tail), place="x")) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01",
        sealed((0).to_bytes(4, "big"), version=2),
        encode_snapshot(state_of((1, 0, 0, 1)))[:-1],
        sealed((5).to_bytes(4, "big")),
        sealed((-1).to_bytes(4, "big", signed=True)),
        sealed((0).to_bytes(4, "big") + OLDER_MAGIC + b"x"),
    ],
)
def test_what_is_no_snapshot_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptError):
        decode_snapshot(content, place="x")


def test_a_producer_that_wrote_only_markers_has_no_batch() -> None:
    content = encode_snapshot(state_of((1, 3, 0, 1)))
    entry = bytearray(content[6:])
    entry[4 + 10 : 4 + 14] = (-1).to_bytes(4, "big", signed=True)
    state = decode_snapshot(sealed(bytes(entry)), place="x")
    producer = state.get(1)
    assert producer is not None
    assert (producer.epoch, len(producer.batches)) == (3, 0)
    assert encode_snapshot(decode_snapshot(encode_snapshot(state), place="x")) == encode_snapshot(
        state
    )


def test_the_newest_readable_snapshot_is_taken_and_bad_ones_go() -> None:
    place = MemoryDisk().directory()
    place.make()
    for offset, content in ((5, encode_snapshot(Producers())), (9, b"bad"), (20, b"later")):
        place.replace(f"{offset:020d}.snapshot", content)
    place.replace("other.snapshot", b"")
    found = newest_snapshot(place, 10)
    assert found is not None
    assert found[0] == 5
    assert snapshot_offsets(place.names()) == [5, 20]
    assert newest_snapshot(place, 4) is None


def test_a_snapshot_of_another_history_that_a_power_loss_brings_back_is_not_believed() -> None:
    broker = Broker(4)  # of producer 7, up to 8
    log = broker.logs.log("t", 0)
    assert log is not None
    log.roll(NOW_MS)
    flush(log)
    broker.place.unlink(f"{8:020d}.log")
    broker.place.sync()
    del broker.place.content(FIRST)[3 * SIZE :]
    broker.lose_power()
    log = broker.restart()
    assert log.end == 6
    for at in range(2):
        produce(log, batch(2, size=100, producer=(9, 0, at * 2)))
    broker.place.open(FIRST).sync()
    broker.disk.lose_power()
    broker.lose_power()
    log = broker.restart()
    assert log.end == 10
    assert log.truncate_to(9) == 8
    assert send(log, 0, 0, count=2, producer=9) == (6, True)
