"""Our own messages and records: every value survives, any bytes give a value or a typed error."""

from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from tidelog.coordinator.controller.forwarding import Forwarded
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.limits import BROKERS_MAX
from tidelog.wire import control, metadata_records, transactions
from tidelog.wire.errors import WireError

KINDS = [
    kind
    for union in (
        metadata_records.MetadataRecord,
        control.ToCoordinator,
        control.ToBroker,
        transactions.ToTransactions,
        transactions.FromTransactions,
    )
    for kind in get_args(union)
]
VALUES = st.one_of([st.from_type(kind) for kind in KINDS])
NESTED = b"\x91" * 2_000
"""Arrays in arrays, deeper than any message."""
BOMBS = [
    b"\xdd\xff\xff\xff\xff",  # an array of four thousand million
    b"\x93\x03\x01\xc6\xff\xff\xff\xff",  # bytes of as many
    b"\x94\x08\xc4\x10" + bytes(16) + b"\x00\xdd\xff\xff\xff\xff\xdd\xff\xff\xff\xff",
    NESTED,
]


def read_record(data: bytes) -> metadata_records.MetadataRecord:
    return metadata_records.decode(data, place="log", position=0)


FIRST_MESSAGES = (control.Register, transactions.Hello)
"""By which a broker says who it is."""
READERS: list[Callable[[bytes], Any]] = [
    read_record,
    control.decode_to_coordinator,
    control.decode_to_broker,
    transactions.decode_to_transactions,
    transactions.decode_from_transactions,
    Forwarded.read,
]


def encoded(value: object) -> bytes:
    """Numbers that need more than 64 bits are no offsets or epochs of ours."""
    if isinstance(value, FIRST_MESSAGES):
        assume(0 <= value.broker < BROKERS_MAX)
    try:
        return control.encode(value)
    except OverflowError:
        assume(condition=False)
        raise


def as_read(data: bytes) -> list[object]:
    """What each reader makes of the bytes."""
    values: list[object] = []
    for read in READERS:
        try:
            values.append(read(data))
        except (CorruptError, WireError) as error:
            assert str(error)
    return values


@given(VALUES)
def test_every_value_survives_its_bytes(value: object) -> None:
    assert value in as_read(encoded(value))


@given(
    st.one_of([st.from_type(kind) for kind in FIRST_MESSAGES]),
    st.integers(BROKERS_MAX, 1 << 40) | st.integers(-(1 << 40), -1),
)
def test_a_broker_that_no_cluster_can_have_is_refused(
    value: control.Register | transactions.Hello, broker: int
) -> None:
    data = encoded(structs.replace(value, broker=0))
    read = (
        control.decode_to_coordinator
        if isinstance(value, control.Register)
        else transactions.decode_to_transactions
    )
    assert read(data) == structs.replace(value, broker=0)
    with pytest.raises(WireError):
        read(control.encode(structs.replace(value, broker=broker)))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    for value in as_read(data):
        assert value is not None


@given(VALUES, st.data())
def test_a_damaged_message_is_read_or_refused(value: object, data: st.DataObject) -> None:
    content = bytearray(encoded(value))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    as_read(bytes(content))
    as_read(bytes(content[:at]))


def test_a_length_that_lies_allocates_nothing() -> None:
    for bomb in BOMBS:
        assert as_read(bomb) == []
