"""The ring of events: what was recorded last is there, whole or not at all, whoever died."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.ids import ZERO_UUID, BrokerId, Incarnation, Uuid
from tidelog.node.ipc.events import (
    FIELDS,
    KEPT,
    RING_BYTES,
    EventRing,
    Fields,
    Happening,
    Kind,
    Shape,
    Value,
    fields_of,
    read_ring,
)
from tidelog.node.log.causes import Cause
from tidelog.wire.errors import ErrorCode

TOPIC = Uuid(bytes(range(16)))
LIFE = Incarnation(7)


def truncated(start: int, end: int = 0) -> Happening:
    return Happening(Kind.TRUNCATED, TOPIC, 3, (start, end, 4, 5, 0))


def ring_of(count: int) -> bytearray:
    memory = bytearray(RING_BYTES)
    ring = EventRing(memoryview(memory))
    for number in range(1, count + 1):
        ring.record(number * 10, LIFE, truncated(number))
    ring.release()
    return memory


def starts(memory: bytes | bytearray) -> list[object]:
    return [event.fields["from"] for event in read_ring(memoryview(memory))]


def test_an_untouched_ring_tells_nothing() -> None:
    assert read_ring(memoryview(bytes(RING_BYTES))) == []


def test_what_was_recorded_is_read_as_it_was() -> None:
    (event,) = read_ring(memoryview(ring_of(1)))
    assert (event.number, event.wall_ns, event.incarnation) == (1, 10, LIFE)
    assert (event.kind, event.topic, event.partition) == (Kind.TRUNCATED, TOPIC, 3)
    assert event.fields == {"from": 1, "to": 0, "last_epoch": 4, "leader_epoch": 5, "committed": 0}


def test_a_full_ring_keeps_the_last_ones() -> None:
    assert starts(ring_of(KEPT)) == list(range(1, KEPT + 1))
    assert starts(ring_of(KEPT + 5)) == list(range(6, KEPT + 6))


def test_the_next_life_goes_on_where_the_dead_one_stopped() -> None:
    memory = ring_of(3)
    EventRing(memoryview(memory)).record(1, Incarnation(8), truncated(4))
    assert [event.number for event in read_ring(memoryview(memory))] == [1, 2, 3, 4]
    assert [event.incarnation for event in read_ring(memoryview(memory))] == [7, 7, 7, 8]


def test_what_is_not_in_the_log_yet_is_known_to_the_next_life() -> None:
    memory = ring_of(3)
    ring = EventRing(memoryview(memory))
    assert [event.number for event in ring.unlogged()] == [1, 2, 3]
    ring.logged(2)
    assert [event.number for event in EventRing(memoryview(memory)).unlogged()] == [3]
    ring.logged(3)
    assert EventRing(memoryview(memory)).unlogged() == []


@given(
    recorded=st.sampled_from([1, 3, KEPT - 1, KEPT, KEPT + 3]),
    cut=st.integers(0, 91),
    garbage=st.binary(min_size=96, max_size=96),
)
def test_an_entry_that_its_writer_died_on_is_left_out(
    recorded: int, cut: int, garbage: bytes
) -> None:
    memory = ring_of(recorded)
    before = starts(memory)
    slot = (recorded + 1) % KEPT * 96 + 64
    whole = bytes(memory[slot : slot + 92])
    memory[slot + cut : slot + 96] = garbage[cut:]
    without_oldest = [start for start in before if start != recorded + 1 - KEPT]
    assert starts(memory) == (before if memory[slot : slot + 92] == whole else without_oldest)
    EventRing(memoryview(memory)).record(1, LIFE, truncated(recorded + 1))
    assert starts(memory) == [*without_oldest, recorded + 1]


def values_of(kind: Kind) -> st.SearchStrategy[tuple[Value, ...]]:
    by_shape: dict[Shape, st.SearchStrategy[Value]] = {
        Shape.NUMBER: st.integers(-(1 << 63), (1 << 63) - 1),
        Shape.ERROR: st.sampled_from(sorted(ErrorCode)),
        Shape.CAUSE: st.sampled_from(sorted(Cause)),
        Shape.BROKERS: st.lists(st.integers(0, 63).map(BrokerId), unique=True),
    }
    return st.tuples(*(by_shape[shape] for _, shape in FIELDS[kind]))


@given(st.sampled_from(Kind).flatmap(lambda kind: st.tuples(st.just(kind), values_of(kind))))
def test_every_kind_says_on_the_board_what_it_says_in_the_log(
    given_: tuple[Kind, tuple[Value, ...]],
) -> None:
    kind, values = given_
    memory = bytearray(RING_BYTES)
    EventRing(memoryview(memory)).record(1, LIFE, Happening(kind, ZERO_UUID, -1, values))
    (event,) = read_ring(memoryview(memory))
    assert event.kind is kind
    assert event.fields == fields_of(kind, values)


def test_brokers_and_errors_are_told_so_that_people_understand() -> None:
    values = ((BrokerId(63), BrokerId(0)), (BrokerId(1),), (), 5)
    expected: Fields = {"isr": [0, 63], "before": [1], "elr": [], "partition_epoch": 5}
    assert fields_of(Kind.ISR_CHANGED, values) == expected
    assert fields_of(Kind.ISR_REFUSED, (ErrorCode.INELIGIBLE_REPLICA, 2)) == {
        "error": "INELIGIBLE_REPLICA",
        "leader_epoch": 2,
    }
    assert fields_of(Kind.ISR_REFUSED, (31_999, 2))["error"] == 31_999
