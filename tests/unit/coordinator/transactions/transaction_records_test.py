"""Records of `__transaction_state`: the bytes are Kafka's, and older versions of them are read."""

import pytest
from msgspec.structs import replace

from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.records import BARRIER, Transaction, TxnRecord
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import Epoch, Partition, ProducerEpoch, ProducerId
from tidelog.wire.errors import WireError
from tidelog.wire.records import check_crc, iterate_records, read_header
from tidelog.wire.transactions import RESERVED_PRODUCER_ID

KEY = bytes.fromhex("0000 0002 7478")
EMPTY = Transaction(
    ProducerId(7), ProducerEpoch(1), timeout_ms=60_000, state=TxnState.EMPTY, updated_ms=1_000
)
ONGOING = replace(
    EMPTY,
    state=TxnState.ONGOING,
    started_ms=900,
    partitions=frozenset({("t", Partition(1)), ("t", Partition(0)), ("o", Partition(3))}),
)


def test_an_id_without_a_transaction_is_written_as_kafka_4_3_writes_it() -> None:
    key, value = records.pair(TxnRecord("tx", EMPTY))
    assert key == KEY
    assert value == bytes.fromhex(
        "0001 0000000000000007 0001 0000ea60 00 00 00000000000003e8 ffffffffffffffff 00"
    )


def test_a_transaction_is_written_with_its_partitions_and_its_tags() -> None:
    written = replace(
        ONGOING,
        previous_producer_id=ProducerId(7),
        next_producer_id=ProducerId(8),
        next_producer_epoch=ProducerEpoch(2),
        client_version=2,
    )
    _, value = records.pair(TxnRecord("tx", written))
    assert value == bytes.fromhex(
        "0001 0000000000000007 0001 0000ea60 01 03"
        " 02 6f 02 00000003 00 02 74 03 00000000 00000001 00"
        " 00000000000003e8 0000000000000384"
        " 04 00 08 0000000000000007 01 08 0000000000000008 02 02 0002 03 02 0002"
    )
    assert records.read(KEY, value) == TxnRecord("tx", written)


def test_the_version_before_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000007 0001 0000ea60 01 00000002"
        " 0001 6f 00000001 00000003 0001 74 00000002 00000000 00000001"
        " 00000000000003e8 0000000000000384"
    )
    assert records.read(KEY, value) == TxnRecord("tx", ONGOING)
    value = bytes.fromhex(
        "0000 0000000000000007 0001 0000ea60 00 ffffffff 00000000000003e8 ffffffffffffffff"
    )
    assert records.read(KEY, value) == TxnRecord("tx", EMPTY)


NEVER_WRITTEN = {TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE}


@pytest.mark.parametrize("state", NEVER_WRITTEN)
def test_a_state_that_no_coordinator_writes_is_damage(state: TxnState) -> None:
    with pytest.raises(WireError, match="which no log holds"):
        records.read(*records.pair(TxnRecord("tx", replace(ONGOING, state=state))))


def test_a_partition_that_cannot_be_is_damage() -> None:
    odd = replace(ONGOING, partitions=frozenset({("t", Partition(-1))}))
    with pytest.raises(WireError, match="negative partition"):
        records.read(*records.pair(TxnRecord("tx", odd)))


@pytest.mark.parametrize("state", [one for one in TxnState if one not in NEVER_WRITTEN])
def test_what_is_written_is_read_in_every_state(state: TxnState) -> None:
    value = EMPTY if state is TxnState.EMPTY else replace(ONGOING, state=state)
    record = TxnRecord("tx", value)
    assert records.read(*records.pair(record)) == record


def test_a_record_without_a_value_takes_the_id_back() -> None:
    assert records.pair(TxnRecord("tx", None)) == (KEY, None)
    assert records.read(KEY, None) == TxnRecord("tx", None)


def test_the_barrier_takes_back_an_id_that_nobody_can_have() -> None:
    assert records.pair(BARRIER) == (bytes(4), None)
    assert records.read(bytes(4), None) == BARRIER


def test_a_record_of_a_kind_that_nobody_knows_is_passed_over() -> None:
    assert records.read(b"\x00\x63later", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", None),
        (b"\x00\x00\x00\x09short", None),
        (KEY, b""),
        (KEY, b"\x00\x02"),
        (KEY, b"\x00\x01short"),
        (
            KEY,
            bytes.fromhex(
                "0001 0000000000000007 0001 0000ea60 09 00 00000000000003e8 ffffffffffffffff 00"
            ),
        ),
    ],
)
def test_what_is_no_record_is_turned_down(key: bytes, value: bytes | None) -> None:
    with pytest.raises(WireError):
        records.read(key, value)


def test_a_batch_carries_the_coordinators_epoch_and_its_place_in_the_sequence() -> None:
    rows = [TxnRecord("tx", ONGOING), TxnRecord("ty", None)]
    batch = records.batch_of(list(map(records.pair, rows)), 5_000, epoch=Epoch(3), sequence=17)
    header = read_header(batch)
    assert check_crc(memoryview(batch))
    assert (header.producer_id, header.producer_epoch) == (RESERVED_PRODUCER_ID, 3)
    assert (header.base_sequence, header.record_count) == (17, 2)
    assert not header.is_transactional
    assert header.max_timestamp == 5_000
    found = [records.read(one.key or b"", one.value) for one in iterate_records(memoryview(batch))]
    assert found == rows


def test_a_coordinator_of_an_epoch_that_a_producer_cannot_have_writes_as_the_next_one() -> None:
    batch = records.batch_of([records.pair(BARRIER)], 0, epoch=Epoch(1 << 15), sequence=0)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch) == (RESERVED_PRODUCER_ID + 1, 0)


def test_the_size_of_a_record_is_that_of_its_key_and_value() -> None:
    key, value = records.pair(TxnRecord("tx", ONGOING))
    assert value is not None
    assert records.size_bytes(TxnRecord("tx", ONGOING)) == len(key) + len(value)
    assert records.size_bytes(TxnRecord("tx", None)) == len(key)
