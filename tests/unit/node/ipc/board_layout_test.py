"""The board's bytes: a reader sees what was published or nothing, whatever a writer left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Incarnation, Offset
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import STANDBYS_MAX
from tidelog.node.ipc import layout
from tidelog.node.ipc.layout import Fences, Role, Slot, SlotState, SlotWriter, Word

SLOT_BYTES = 1024
HEAD_BYTES = 64


def begun(slot: bytearray, incarnation: int = 7) -> SlotWriter:
    writer = SlotWriter(memoryview(slot))
    writer.begin(role=Role.BROKER, process_id=2, pid=4711, incarnation=Incarnation(incarnation))
    return writer


def read(slot: bytes | bytearray) -> Slot | None:
    return layout.read_slot(memoryview(slot))


def published(slot: bytes | bytearray) -> Slot:
    found = read(slot)
    assert found is not None
    return found


def test_an_unused_slot_reads_as_nothing() -> None:
    assert read(bytes(SLOT_BYTES)) is None


def test_a_process_that_began_shows_who_it_is() -> None:
    slot = bytearray(SLOT_BYTES)
    begun(slot)
    found = published(slot)
    assert found[Word.ROLE] == Role.BROKER
    assert found[Word.ID] == 2
    assert found[Word.PID] == 4711
    assert found[Word.INCARNATION] == 7
    assert found[Word.STATE] == SlotState.STARTING
    assert found.heartbeat == 0


def test_changed_words_are_seen_once_published() -> None:
    slot = bytearray(SLOT_BYTES)
    writer = begun(slot)
    writer.words[Word.LEADERS] = 3
    assert published(slot)[Word.LEADERS] == 0
    writer.publish()
    assert published(slot)[Word.LEADERS] == 3


def test_a_heartbeat_is_seen_without_a_publish() -> None:
    slot = bytearray(SLOT_BYTES)
    writer = begun(slot)
    writer.heartbeat(Instant(123_456))
    assert published(slot).heartbeat == 123_456


def test_a_new_life_keeps_nothing_of_the_old_one() -> None:
    slot = bytearray(SLOT_BYTES)
    old = begun(slot)
    old.words[Word.LEADERS] = 5
    old.heartbeat(Instant(1))
    old.publish()
    begun(slot, incarnation=8)
    found = published(slot)
    assert found[Word.LEADERS] == 0
    assert found[Word.INCARNATION] == 8
    assert found.heartbeat == 0


def test_a_writer_killed_in_the_middle_shows_nothing_until_its_next_life() -> None:
    slot = bytearray(SLOT_BYTES)
    writer = begun(slot)
    writer.publish()
    slot[0] -= 1  # an odd sequence: a publish that never ended
    assert read(slot) is None
    begun(slot, incarnation=8)
    assert published(slot)[Word.INCARNATION] == 8


@given(
    first=st.integers(-(2**63), 2**63 - 1),
    second=st.integers(-(2**63), 2**63 - 1),
    pieces=st.lists(
        st.tuples(st.integers(0, SLOT_BYTES - 1), st.integers(1, SLOT_BYTES)), max_size=6
    ),
)
def test_any_mixture_of_two_published_states_reads_as_one_of_them_or_nothing(
    first: int, second: int, pieces: list[tuple[int, int]]
) -> None:
    slot = bytearray(SLOT_BYTES)
    writer = begun(slot)
    writer.words[5:] = type(writer.words)("q", [first] * (layout.WORDS_PER_SLOT - 5))
    writer.publish()
    before = bytes(slot)
    writer.words[5:] = type(writer.words)("q", [second] * (layout.WORDS_PER_SLOT - 5))
    writer.publish()
    mixed = bytearray(before)
    for start, length in pieces:
        mixed[start : start + length] = slot[start : start + length]
    assert read(mixed) in (None, read(before), read(slot))


@given(garbage=st.binary(min_size=SLOT_BYTES, max_size=SLOT_BYTES))
def test_any_bytes_in_a_slot_are_nothing_or_words(garbage: bytes) -> None:
    found = read(garbage)
    assert found is None or len(found.words) == layout.WORDS_PER_SLOT


def board(slots: int = 3) -> bytearray:
    memory = bytearray(layout.board_size_bytes(slots))
    layout.write_header(memoryview(memory), slots)
    return memory


def test_a_board_knows_its_number_of_slots() -> None:
    assert layout.check_header(memoryview(board(5)), "b") == 5


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 0, "not a board"),
        (8, 99, "not a board"),
        (12, 99, "disagree"),
        (16, 99, "disagree"),
    ],
)
def test_a_header_that_lies_is_corrupt(at: int, value: int, reason: str) -> None:
    memory = board()
    memory[at] = value
    with pytest.raises(CorruptError, match=reason):
        layout.check_header(memoryview(memory), "b")


@pytest.mark.parametrize("size", [0, 10, 64, 600])
def test_a_board_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptError):
        layout.check_header(memoryview(board())[:size], "b")


def test_each_process_has_a_slot_of_its_own() -> None:
    roles = [role for role in Role if role not in (Role.NONE, Role.STANDBY, Role.BROKER)]
    taken = [layout.slot_of(role) for role in roles]
    taken += [layout.slot_of(Role.COORDINATOR, seat) for seat in range(1, STANDBYS_MAX + 1)]
    taken += [layout.slot_of(Role.BROKER, broker) for broker in range(64)]
    assert len(set(taken)) == len(taken)
    assert max(taken) < layout.SLOTS


def test_writing_one_slot_leaves_its_neighbours_and_the_fences_alone() -> None:
    memory = memoryview(board())
    Fences(memory).fence(BrokerId(63), Offset(9))
    for slot in (0, 2):
        SlotWriter(layout.slot_view(memory, slot)).begin(
            role=Role.BROKER, process_id=slot, pid=1, incarnation=Incarnation(1)
        )
    assert layout.read_slot(layout.slot_view(memory, 1)) is None
    assert layout.check_header(memory, "b") == 3
    assert Fences(memory).is_fenced(BrokerId(63), Offset(9))


def test_a_fence_holds_for_its_epoch_and_earlier_ones_of_that_broker() -> None:
    fences = Fences(memoryview(board()))
    assert not fences.is_fenced(BrokerId(1), Offset(1))
    fences.fence(BrokerId(1), Offset(4))
    assert fences.is_fenced(BrokerId(1), Offset(3))
    assert fences.is_fenced(BrokerId(1), Offset(4))
    assert not fences.is_fenced(BrokerId(1), Offset(5))
    assert not fences.is_fenced(BrokerId(0), Offset(1))


def test_a_fence_is_never_lifted() -> None:
    fences = Fences(memoryview(board()))
    fences.fence(BrokerId(1), Offset(4))
    fences.fence(BrokerId(1), Offset(4))
    with pytest.raises(AssertionError, match="never lifted"):
        fences.fence(BrokerId(1), Offset(3))


def test_the_next_life_in_a_slot_leaves_which_one_ended_by_a_bug() -> None:
    """Others may look only when the next life has begun."""
    slot = bytearray(SLOT_BYTES)
    begun(slot)
    assert layout.read_crashed(memoryview(slot)) == 0
    begun(slot, 8).crashed()
    begun(slot, 9)
    assert layout.read_crashed(memoryview(slot)) == 8
    assert published(slot)[Word.INCARNATION] == 9
