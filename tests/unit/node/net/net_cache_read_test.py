"""How consumers are sent what is in a log, and what that leaves in the page cache."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import request_bytes
from harness.disks.real_pages import need_disk, pages
from harness.machines.connected import Connected
from tidelog.kernel.limits import MIB
from tidelog.node.log.segment import Segment
from tidelog.node.runtime import page_cache
from tidelog.node.runtime.page_cache import all_cached, evict
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.records import check_crc, iterate_batches

BATCH = MIB // 2
COUNT = 6
WAYS = ("sendfile", "pread", "mmap")


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Connected]:
    need_disk(tmp_path)
    with Connected(tmp_path) as made:
        yield made


def filled(connected: Connected, **configs: str) -> Segment:
    connected.bench.topic("t", 1, **configs)
    for number in range(COUNT):
        value = bytes([number]) * BATCH
        connected.send(request_bytes(k00_produce.API, 9, produce_request("t", batch_of(value)), 1))
        assert connected.frame() is not None
    (replica,) = connected.bench.broker.replicas
    (segment,) = replica.log.segments
    return segment


def forget(segment: Segment) -> None:
    """The file is on the disk alone."""
    descriptor = os.open(segment.place, os.O_RDONLY)
    os.fdatasync(descriptor)
    evict(descriptor, 0, 0)
    os.close(descriptor)
    assert pages(segment.place).cached == 0


def fetch(connected: Connected, offset: int, size_max: int = 1) -> list[int]:
    """Offsets of what comes; the least is one batch."""
    request = fetch_request("t", offset)
    request.topics[0].partitions[0].partition_max_bytes = size_max
    connected.send(request_bytes(k01_fetch.API, 11, request, 1))
    settle(connected)
    frame = connected.frame()
    assert frame is not None
    _, answer = decode_response(k01_fetch.API, 11, memoryview(frame))
    row: Any = answer.responses[0].partitions[0]
    assert row.error_code == 0
    found = []
    for header, batch in iterate_batches(memoryview(row.records)):
        assert check_crc(batch)
        found.append(header.base_offset)
    return found


def settle(connected: Connected) -> None:
    """All that was given to threads is done."""
    connected.loop.run_until_complete(connected.loop.run_in_executor(None, lambda: None))
    connected.turn()


def advice_told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the kernel is told from now on."""
    told: list[int] = []
    tell = os.posix_fadvise

    def note(fd: int, position: int, size: int, what: int) -> None:
        told.append(what)
        tell(fd, position, size, what)

    monkeypatch.setattr(os, "posix_fadvise", note)
    return told


@pytest.mark.parametrize("size", [100, BATCH, 3 * BATCH])
@pytest.mark.parametrize("between", [True, False])
def test_a_disk_that_is_quicker_than_the_processor_is_a_disk(
    connected: Connected, monkeypatch: pytest.MonkeyPatch, size: int, *, between: bool
) -> None:
    """A read that must not wait has the kernel bring the page, and finds it there already: who
    asked by such a read alone sent it unchecked."""
    segment = filled(connected)
    forget(segment)
    monkeypatch.setattr(os, "preadv", lambda *_of: 1)
    with Path(segment.place).open("rb") as file:
        cold_reads = connected.parts.cold_reads
        assert not cold_reads.is_cached(file.fileno(), 0, size, between=between)
        file.read(3 * BATCH)
        assert cold_reads.is_cached(file.fileno(), 0, size, between=between)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cold", [False, True])
def test_each_way_gives_the_same_bytes(connected: Connected, way: str, *, cold: bool) -> None:
    segment = filled(connected, cache_read=way)
    if cold:
        forget(segment)
    assert fetch(connected, 0, 100 * MIB) == list(range(COUNT))
    assert fetch(connected, 3) == [3]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_was_cut_meanwhile_ends_the_connection_alone(
    connected: Connected, way: str
) -> None:
    segment = filled(connected, cache_read=way)
    os.truncate(segment.place, segment.size // 2)
    connected.send(request_bytes(k01_fetch.API, 11, fetch_request("t", COUNT - 1), 1))
    settle(connected)
    connected.turn()
    assert connected.closed


def test_a_batch_of_which_the_ends_alone_are_in_memory_is_not_read_on_the_loop(
    connected: Connected,
) -> None:
    """Its own header and the next one's were looked at to see how large it is."""
    segment = filled(connected)
    forget(segment)
    assert fetch(connected, 1) == [1]
    assert connected.parts.cold_reads.warmed == 1


def test_by_default_a_reader_leaves_what_it_read_in_the_cache(connected: Connected) -> None:
    segment = filled(connected)
    forget(segment)
    for offset in range(COUNT):
        assert fetch(connected, offset) == [offset]
    assert pages(segment.place).cached == segment.size


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_that_catches_up_leaves_nothing_and_the_tail_stays(
    connected: Connected, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(page_cache, "read_ahead_bytes", lambda _: BATCH // 4)
    monkeypatch.setattr(page_cache, "_STEP_BYTES", BATCH)
    segment = filled(connected, cache_read_behind="drop", cache_read=way)
    forget(segment)
    tail = segment.locate(COUNT - 1)
    os.pread(segment.file.fileno(), BATCH, tail)  # somebody else's, who reads the tail
    for offset in range(COUNT - 2):
        assert fetch(connected, offset) == [offset]
    connected.connection.abort()
    settle(connected)
    assert connected.parts.cold_reads.dropped > (COUNT - 3) * BATCH
    left = pages(segment.place).cached
    assert BATCH <= left < 2.5 * BATCH, "the tail, and what the kernel read ahead behind the reader"
    assert all_cached(segment.file.fileno(), tail, BATCH)


def test_what_was_dropped_behind_is_checked_when_it_comes_again(connected: Connected) -> None:
    segment = filled(connected, cache_read_behind="drop")
    forget(segment)
    fetch(connected, 0)
    fetch(connected, 1)
    settle(connected)
    assert not segment.trusts(0, 100)


@pytest.mark.parametrize(
    ("ahead", "advice"),
    [
        ("normal", [os.POSIX_FADV_NORMAL]),
        ("sequential", [os.POSIX_FADV_SEQUENTIAL]),
        ("random", [os.POSIX_FADV_RANDOM]),
        ("willneed", [os.POSIX_FADV_NORMAL, os.POSIX_FADV_WILLNEED]),
    ],
)
def test_the_kernel_is_told_how_a_cold_range_is_read(
    connected: Connected, monkeypatch: pytest.MonkeyPatch, ahead: str, advice: list[int]
) -> None:
    segment = filled(connected, cache_readahead=ahead)
    forget(segment)
    told = advice_told(monkeypatch)
    assert fetch(connected, 0) == [0]
    assert told == advice


def test_what_is_asked_for_next_was_read_ahead(connected: Connected) -> None:
    segment = filled(connected, cache_readahead="willneed")
    forget(segment)
    assert fetch(connected, 0) == [0]
    one = segment.locate(1)
    connected.turn()
    wanted = one + BATCH // 2
    found = 0
    for _ in range(10_000):  # the kernel reads while nobody waits
        found = pages(segment.place).cached
        if found >= wanted:
            break
    assert found >= wanted
