"""What the checksum of a batch leaves out: its offset and leader epoch. What memory has of a log
tells whether they are right, before a client gets them."""

from typing import Any

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import batch, new_log, produce
from tidelog.kernel.failures import CorruptError
from tidelog.node.log.contracts import FileSlice
from tidelog.node.log.log import Log
from tidelog.node.log.scan import first_bad
from tidelog.node.log.settings import LogSettings
from tidelog.node.replica.catch_up import whole_batches
from tidelog.wire.records import HEADER_BYTES, iterate_batches

COUNTS = (1, 3, 8, 2, 1)
"""Records of each batch."""
FIRSTS = (0, 1, 4, 12, 14)
EPOCHS = (2, 2, 5, 5, 6)


class InMemory:
    """A file's content, as a check reads it."""

    name = "in memory"

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def read(self, position: int, size: int) -> memoryview:
        return memoryview(self._content)[position : position + size]

    def read_into(self, position: int, buffer: memoryview) -> int:
        piece = self._content[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.fixture
def log() -> Log:
    made = new_log(MemoryDisk().directory(), LogSettings(index_interval_bytes=1))
    for count, epoch in zip(COUNTS, EPOCHS, strict=True):
        produce(made, batch(count), epoch=epoch)
    return made


def content_of(log: Log) -> bytes:
    (segment,) = log.segments
    return bytes(segment.file.read(0, segment.size))


def piece_of(log: Log, first: int, stop: int) -> FileSlice:
    found = log.read(first, 1 << 20, stop, min_one=True)
    assert found is not None
    return found


def bad_in(log: Log, content: bytes, first: int, stop: int) -> int | None:
    piece = piece_of(log, first, stop)
    return first_bad(InMemory(content), piece.position, piece.size, piece.course())


RANGES = [(FIRSTS[one], (*FIRSTS, 15)[behind]) for one in range(5) for behind in range(one + 1, 6)]


@pytest.mark.parametrize(("first", "stop"), RANGES)
def test_what_was_written_is_good(log: Log, first: int, stop: int) -> None:
    assert bad_in(log, content_of(log), first, stop) is None


@pytest.mark.parametrize("number", range(5))
def test_no_bit_of_a_header_turns_unseen(log: Log, number: int) -> None:
    """Wherever the answer begins and ends that holds the batch; the one before it may be held to be
    bad as well, where one does not follow the other."""
    content = content_of(log)
    positions = [log.segments[0].locate(first) for first in FIRSTS]
    for bit in range(HEADER_BYTES * 8):
        turned = bytearray(content)
        turned[positions[number] + bit // 8] ^= 1 << bit % 8
        for first, stop in RANGES:
            if not first <= FIRSTS[number] < stop:
                continue
            bad = bad_in(log, bytes(turned), first, stop)
            if EPOCHS[number] == EPOCHS[0] and bad is None:
                assert turned_epoch(turned, positions[number]) < EPOCHS[0]
                continue
            assert bad is not None, (bit, first, stop)
            earlier = positions[max(0, number - 1)]
            assert earlier <= bad <= positions[number], (bit, first, stop)


def turned_epoch(content: bytearray, position: int) -> int:
    (header, _), *_ = iterate_batches(memoryview(content)[position:])
    return header.partition_leader_epoch


def test_what_is_cut_while_it_is_read_is_no_damage(log: Log) -> None:
    """Another leader's batches stand there by the time it was read."""
    told: list[CorruptError] = []
    piece = piece_of(log, 0, 15)
    piece.on_bad = told.append
    course = piece.course()
    log.truncate_to(12)
    produce(log, batch(4), epoch=7)
    bad = first_bad(piece.file, piece.position, piece.size, course)
    assert not piece.found(bad if bad is not None else piece.position)
    assert (told, log.segments[0].bad_at) == ([], None)


def test_a_bad_offset_is_told_of(log: Log) -> None:
    told: list[CorruptError] = []
    piece = piece_of(log, 0, 15)
    piece.on_bad = told.append
    turned = bytearray(content_of(log))
    position = log.segments[0].locate(14)
    turned[position + 6] ^= 1  # 14 becomes 270
    bad = first_bad(InMemory(bytes(turned)), piece.position, piece.size, piece.course())
    assert bad == position
    assert not piece.found(bad)
    assert len(told) == 1
    assert log.segments[0].bad_at == position


def test_around_a_batch_that_is_known_to_be_bad_all_is_good(log: Log) -> None:
    """Wherever the log goes on behind it, and whatever its offset says."""
    turned = bytearray(content_of(log))
    position = log.segments[0].locate(4)
    turned[position + 7] ^= 4  # 4 becomes 0
    log.segments[0].found_bad(position)
    assert bad_in(log, bytes(turned), 0, 4) is None
    assert bad_in(log, bytes(turned), 12, 15) is None


@pytest.mark.parametrize("number", range(5))
def test_no_follower_is_sent_a_turned_header(log: Log, number: int) -> None:
    """It would take over the epoch, or refuse the offset for ever, and the leader not know why."""
    (segment,) = log.segments
    content, position = content_of(log), segment.locate(FIRSTS[number])
    for bit in range(HEADER_BYTES * 8):
        turned = bytearray(content)
        turned[position + bit // 8] ^= 1 << bit % 8
        for first, stop in RANGES:
            if not first <= FIRSTS[number] < stop:
                continue
            piece = piece_of(log, first, stop)
            file: Any = InMemory(bytes(turned))
            sent = FileSlice(file, piece.position, piece.size, segment, log.epochs)
            if piece.position + bytes_for_a_follower(sent) > position:
                assert turned_epoch(turned, position) < EPOCHS[0] or bit < 64, (bit, first)
                assert first == FIRSTS[number] or bit >= 64, "who gets it sees that it does not fit"


def bytes_for_a_follower(found: FileSlice) -> int:
    try:
        return len(whole_batches(found)[0])
    except CorruptError:
        return 0
