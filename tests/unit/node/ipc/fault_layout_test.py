"""The page of disk faults: what was written is read, what is half written is not believed."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.limits import DISK_FAULTS_MAX
from tidelog.node.ipc.fault_layout import (
    ANY,
    PAGE_BYTES,
    Ailment,
    DiskFault,
    FileGroup,
    Operation,
    Sheet,
    Striker,
    Struck,
    Touch,
    group_of,
    read_sheet,
    write_sheet,
)

NAME = "page"
NUMBERS = st.integers(0, 2**62)
FAULTS = st.builds(
    DiskFault,
    number=st.integers(1, 2**31 - 1),
    ailment=st.sampled_from(Ailment),
    operations=st.integers(1, 63).map(Operation),
    since_ns=NUMBERS,
    error=st.sampled_from([0, errno.EIO, errno.ENOSPC]),
    delay_ns=NUMBERS,
    bytes_per_second=NUMBERS,
    times_max=NUMBERS,
    until_ns=NUMBERS,
    directory=st.integers(ANY, 100),
    group=st.sampled_from([None, *FileGroup]),
    partition=st.sampled_from(["", "t-0", f"{'x' * 249}-2147483647"]),
)


def new_page() -> memoryview:
    return memoryview(bytearray(PAGE_BYTES))


def broken(**more: object) -> DiskFault:
    plain: dict[str, object] = {"number": 1, "ailment": Ailment.IO_ERROR, "since_ns": 0}
    return DiskFault(**{**plain, "operations": Operation.WRITE, **more})  # type: ignore[arg-type] # whatever a test wants


@given(faults=st.lists(FAULTS, max_size=DISK_FAULTS_MAX), generation=st.integers(0, 2**62))
def test_a_page_holds_what_was_written(faults: list[DiskFault], generation: int) -> None:
    page, sheet = new_page(), Sheet(generation, 17, tuple(faults))
    write_sheet(page, sheet)
    assert read_sheet(page, NAME) == sheet


@given(data=st.data(), faults=st.lists(FAULTS, min_size=1, max_size=2))
def test_a_page_that_was_touched_is_not_believed(
    data: st.DataObject, faults: list[DiskFault]
) -> None:
    """But for how often each struck, which somebody else writes."""
    page, sheet = new_page(), Sheet(3, 17, tuple(faults))
    write_sheet(page, sheet)
    at = data.draw(st.integers(0, PAGE_BYTES - 1))
    page[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert read_sheet(page, NAME).faults == sheet.faults
        assert at < 192
    except CorruptError:
        assert at < 64 or at >= 192


def test_arbitrary_bytes_are_no_page() -> None:
    for content in (b"", b"x" * PAGE_BYTES, bytes(PAGE_BYTES)):
        with pytest.raises(CorruptError):
            read_sheet(memoryview(bytearray(content)), NAME)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("00000000000000000000.log", FileGroup.LOG),
        ("00000000000000000000.log.swap", FileGroup.LOG),
        ("00000000000000000000.timeindex", FileGroup.INDEX),
        ("00000000000000000000.txnindex", FileGroup.INDEX),
        ("00000000000000000007.snapshot", FileGroup.SNAPSHOT),
        ("recovery-point-offset-checkpoint", FileGroup.CHECKPOINT),
        ("partition.metadata", FileGroup.CHECKPOINT),
        ("tidelog.mark", FileGroup.CHECKPOINT),
    ],
)
def test_each_file_is_of_one_group(name: str, group: FileGroup) -> None:
    assert group_of(name) is group


TOUCH = Touch(Operation.WRITE, 1, "t-0", FileGroup.LOG)


@pytest.mark.parametrize(
    ("fault", "strikes"),
    [
        (broken(), True),
        (broken(operations=Operation.SYNC | Operation.WRITE), True),
        (broken(operations=Operation.SYNC), False),
        (broken(directory=1), True),
        (broken(directory=0), False),
        (broken(partition="t-0"), True),
        (broken(partition="t-1"), False),
        (broken(group=FileGroup.LOG), True),
        (broken(group=FileGroup.INDEX), False),
    ],
)
def test_a_fault_strikes_what_it_is_of(*, fault: DiskFault, strikes: bool) -> None:
    assert fault.is_of(TOUCH) is strikes


def test_a_fault_ends_by_its_time_or_its_count() -> None:
    assert not broken().is_over(1_000, 1_000)
    assert not broken(times_max=1).is_over(1_000, 0)
    assert broken(times_max=1).is_over(1_000, 1)
    assert not broken(until_ns=1_001).is_over(1_000, 5)
    assert broken(until_ns=1_000).is_over(1_000, 0)


def test_strikes_are_of_the_fault_that_has_the_slot_now() -> None:
    """Broker and cleaner count beside each other, and nobody sets a count back."""
    struck, first, second = Struck(new_page()), broken(number=1), broken(number=2)
    for _ in range(3):
        struck.add(0, first, Striker.BROKER)
    struck.add(0, first, Striker.CLEANER)
    assert (struck.count(0, first), struck.count(1, first)) == (4, 0)
    assert struck.count(0, second) == 0
    struck.add(0, second, Striker.BROKER)
    assert struck.count(0, second) == 1
    struck.release()
