"""What a consumer is sent: bytes from the disk are checked first, and bad ones go nowhere."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.fetch_raw import fetch_request
from harness.clients.produce_raw import batch_of, produce_request
from harness.clients.raw_socket import request_bytes
from harness.machines.connected import Connected
from tidelog.node.log.segment import Segment
from tidelog.node.runtime import cold_reads
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.records import check_crc, iterate_batches

VALUES = [b"value %d" % number * 50 for number in range(5)]


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Connected]:
    with Connected(tmp_path) as made:
        made.bench.topic("t")
        for value in VALUES:
            made.send(request_bytes(k00_produce.API, 9, produce_request("t", batch_of(value)), 1))
            assert made.frame() is not None
        yield made


def segment(connected: Connected) -> Segment:
    (replica,) = connected.bench.broker.replicas
    return replica.log.segments[0]


def turn_a_byte(connected: Connected, offset: int) -> None:
    """In the last record of that batch, behind the back of whoever wrote it."""
    found = segment(connected)
    with Path(found.place).open("r+b") as file:
        file.seek(found.locate(offset + 1) - 1)
        (old,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([old ^ 1]))


def fetch(connected: Connected, offset: int) -> Any:
    """The answer's one partition; None where the connection ends instead."""
    connected.send(request_bytes(k01_fetch.API, 11, fetch_request("t", offset), 1))
    connected.loop.run_until_complete(connected.loop.run_in_executor(None, lambda: None))
    try:
        frame = connected.frame()
    except (AssertionError, ConnectionError):
        return None  # it ended in the middle of an answer
    if frame is None:
        return None
    _, answer = decode_response(k01_fetch.API, 11, memoryview(frame))
    return answer.responses[0].partitions[0]


def offsets(row: Any) -> list[int]:
    assert row.error_code == 0, row
    found = []
    for header, batch in iterate_batches(memoryview(row.records)):
        assert check_crc(batch), header
        found.append(header.base_offset)
    return found


def test_what_was_written_in_this_life_is_sent_unread(connected: Connected) -> None:
    assert offsets(fetch(connected, 0)) == [0, 1, 2, 3, 4]
    assert connected.parts.cold_reads.warmed == 0


def test_what_was_there_before_is_checked_once(connected: Connected) -> None:
    segment(connected).doubted()
    for _ in range(3):
        assert offsets(fetch(connected, 0)) == [0, 1, 2, 3, 4]
    assert connected.parts.cold_reads.warmed == 1
    assert offsets(fetch(connected, 2)) == [2, 3, 4]
    assert connected.parts.cold_reads.warmed == 1


def test_what_comes_behind_what_is_doubted_needs_no_check(connected: Connected) -> None:
    segment(connected).doubted()
    new = produce_request("t", batch_of(b"new"))
    connected.send(request_bytes(k00_produce.API, 9, new, 1))
    assert connected.frame() is not None
    assert offsets(fetch(connected, 5)) == [5]
    assert connected.parts.cold_reads.warmed == 0


def test_bad_bytes_reach_no_client(connected: Connected) -> None:
    segment(connected).doubted()
    turn_a_byte(connected, 2)
    assert fetch(connected, 0) is None
    assert connected.closed
    ((key, why),) = connected.bench.failures
    assert key == ("t", 0)
    assert why.endswith("a batch that a client asked for is bad")


def test_what_lies_around_bad_bytes_is_served(connected: Connected) -> None:
    found = segment(connected)
    found.doubted()
    turn_a_byte(connected, 2)
    found.found_bad(found.locate(2))
    assert offsets(fetch(connected, 0)) == [0, 1]
    assert fetch(connected, 2).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets(fetch(connected, 3)) == [3, 4]


def test_a_disk_that_cannot_be_read_is_bad_too(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_of: object) -> int:
        raise OSError(errno.EIO, "bad sector")

    segment(connected).doubted()
    monkeypatch.setattr(cold_reads, "first_bad", fails)
    assert fetch(connected, 0) is None
    assert len(connected.bench.failures) == 1
