"""What a kill leaves at the end of a log is cut; what was whole once is not, whatever it holds."""

from random import Random

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import NOW_MS, batch
from harness.logs.one_log import LAST, Broker
from tidelog.node.log.torn import is_damage
from tidelog.wire.codecs import Codec
from tidelog.wire.records import Record, build_batch, place_batch


def holding(*values: bytes, offset: int = 24) -> bytes:
    """One batch whose records hold these values."""
    records = [Record(at, NOW_MS, None, value) for at, value in enumerate(values)]
    view = memoryview(build_batch(records, codec=Codec.NONE))
    place_batch(view, 0, base_offset=offset, leader_epoch=0)
    return bytes(view)


def placed(offset: int, size: int = 100) -> bytes:
    view = batch(2, size=size)
    place_batch(view, 0, base_offset=offset, leader_epoch=0)
    return bytes(view)


def damaged(content: bytes, *, offset: int = 24) -> bool:
    """Whether this, behind the last good batch of a file, is taken for damage."""
    disk = MemoryDisk()
    place = disk.directory()
    place.make()
    file = place.open("x")
    file.append((content,))
    return is_damage(file, position=0, end=len(content), offset=offset)


@pytest.mark.parametrize("inner", [24, 25, 40])
@pytest.mark.parametrize("cut", [1, 50, 150])
def test_a_torn_batch_whose_records_hold_whole_batches_is_cut(inner: int, cut: int) -> None:
    """A backup of segments is made of such records."""
    broker = Broker()
    broker.kill()
    backup = placed(inner) + placed(inner + 2) + placed(inner + 4)
    broker.place.content(LAST).extend(holding(backup, bytes(200))[:-cut])
    log = broker.restart()
    assert (log.end, [row.cut is None for row in broker.logs.recovered]) == (24, [False])


@pytest.mark.parametrize("at", [8, 9, 10, 11])
@pytest.mark.parametrize("bit", [0x40, 0x20])
@pytest.mark.parametrize("behind", [b"", placed(26), placed(26)[:-1]])
def test_a_batch_whose_length_became_larger_is_damage(at: int, bit: int, behind: bytes) -> None:
    """Its length lies outside the checksum, and the checksum tells where it ended."""
    content = bytearray(placed(24))
    content[at] ^= bit
    assert damaged(bytes(content) + behind)


def test_a_bad_batch_with_a_good_one_behind_it_is_damage() -> None:
    content = bytearray(holding(placed(30)))
    content[-1] ^= 1
    assert not damaged(bytes(content))
    assert damaged(bytes(content) + placed(25))


def test_a_batch_without_a_header_is_damage_where_a_good_one_follows() -> None:
    for start in (b"\0" * 279, Random(1).randbytes(279), placed(24)[61:], b"\xff" * 500):
        assert not damaged(start)
        assert damaged(start + placed(25))


@pytest.mark.parametrize("size", range(0, 279, 7))
def test_a_prefix_of_a_batch_is_torn(size: int) -> None:
    assert not damaged(placed(24)[:size])


def hostile(size: int) -> bytes:
    """Every 17 bytes begin what looks like a batch of half of it all, but for its checksum."""
    one = (24).to_bytes(8, "big") + (size // 2).to_bytes(4, "big") + bytes(4) + b"\2"
    return one * (size // len(one))


def test_what_would_take_the_square_of_its_size_to_look_through_is_damage() -> None:
    """No kill leaves that, and the start goes on."""
    assert damaged(b"\xff" * 61 + hostile(1 << 22))
    assert not damaged(b"\xff" * 61 + hostile(1 << 10))


def test_a_torn_batch_of_hostile_bytes_is_cut() -> None:
    broker = Broker()
    broker.kill()
    broker.place.content(LAST).extend(holding(hostile(1 << 20), bytes(100))[:-50])
    assert broker.restart().end == 24
