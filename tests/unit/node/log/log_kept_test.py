"""Which logs lose nothing by a power loss that anyone counts on: the file, when it is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import TOPIC_ID
from tidelog.kernel.ids import Partition, TopicPartition, Uuid
from tidelog.node.log.kept import KEPT_NAME, Kept, decode_kept, encode_kept

ONE: TopicPartition = ("t", Partition(0))
TWO: TopicPartition = ("t", Partition(1))
names = st.text("abcXYZ019._-", min_size=1, max_size=249)
rows = st.dictionaries(
    st.tuples(names, st.integers(0, 2**31 - 1).map(Partition)),
    st.binary(min_size=16, max_size=16).map(Uuid),
    max_size=20,
)


@given(rows)
def test_what_is_written_is_read(these: dict[TopicPartition, Uuid]) -> None:
    assert decode_kept(encode_kept(these)) == these


@given(rows, st.data())
def test_half_of_the_file_says_nothing(
    these: dict[TopicPartition, Uuid], data: st.DataObject
) -> None:
    content = encode_kept(these)
    assert decode_kept(content[: data.draw(st.integers(0, len(content) - 1))]) == {}


@pytest.mark.parametrize("content", [None, b"", b"\n", b"0\n0\n", b"00000000\n", bytes(4096)])
def test_what_a_power_loss_left_of_it_says_nothing(content: bytes | None) -> None:
    assert decode_kept(content) == {}


def written(disk: MemoryDisk, kept: Kept, *, well: bool = True) -> None:
    file = kept.begin(disk.directory())
    assert file is not None
    if well:
        file.write()
    kept.ended(well=well)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.directory().make()
    return disk


def test_a_log_is_in_the_file_when_it_was_written_and_out_of_it_when_it_was_again(
    disk: MemoryDisk,
) -> None:
    kept = Kept()
    kept.add(ONE, TOPIC_ID)
    assert not kept.holds(ONE)
    written(disk, kept)
    assert kept.holds(ONE)
    kept.strike(ONE)
    assert kept.holds(ONE), "until the file says so no more"
    assert dict(kept.rows) == {}
    written(disk, kept)
    assert not kept.holds(ONE)
    assert kept.begin(disk.directory()) is None, "it stands there as it should"


def test_what_is_being_written_may_be_there(disk: MemoryDisk) -> None:
    kept = Kept()
    kept.add(ONE, TOPIC_ID)
    file = kept.begin(disk.directory())
    kept.strike(ONE)
    assert file is not None
    assert kept.holds(ONE)
    file.write()
    kept.ended(well=True)
    assert kept.holds(ONE)
    written(disk, kept)
    assert not kept.holds(ONE)


def test_nobody_knows_what_a_write_left_that_failed(disk: MemoryDisk) -> None:
    kept = Kept()
    kept.add(ONE, TOPIC_ID)
    written(disk, kept)
    kept.strike(ONE)
    kept.add(TWO, TOPIC_ID)
    written(disk, kept, well=False)
    assert kept.holds(ONE)
    assert kept.holds(TWO)


def test_the_next_life_knows_what_this_one_wrote(disk: MemoryDisk) -> None:
    kept = Kept()
    kept.add(ONE, TOPIC_ID)
    written(disk, kept)
    disk.lose_power()
    later = Kept()
    later.load(disk.directory())
    assert dict(later.rows) == {ONE: TOPIC_ID}


def test_a_directory_that_was_away_says_nothing_and_is_asked_no_more(disk: MemoryDisk) -> None:
    kept = Kept()
    kept.add(ONE, TOPIC_ID)
    written(disk, kept)
    later = Kept()
    later.load(disk.directory(), trusted=False)
    assert dict(later.rows) == {}
    assert later.holds(ONE), "its file says it still"
    written(disk, later)
    assert decode_kept(disk.directory().read_all(KEPT_NAME)) == {}
