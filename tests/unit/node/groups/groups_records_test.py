"""Records of `__consumer_offsets`: the bytes are Kafka's, and older versions of them are read."""

import pytest

from tidelog.kernel.ids import Uuid
from tidelog.node.groups import codec
from tidelog.node.groups.records import (
    CommittedOffset,
    GroupMember,
    GroupRecord,
    GroupState,
    OffsetRecord,
    PendingOffset,
)
from tidelog.wire.errors import WireError
from tidelog.wire.records import iterate_records, read_header

TOPIC_ID = Uuid(bytes(range(16)))
KEY = bytes.fromhex("0001 0001 67 0001 74 00000003")
MEMBER = GroupMember("m", "i", "client", "/host", 300_000, 45_000, b"wants", b"has")
STATE = GroupState("consumer", 7, "range", "m", 1_000, (MEMBER,))


def test_a_commit_is_written_as_kafka_4_1_writes_it() -> None:
    value = CommittedOffset(5, 2, "x", 1_000, topic_id=TOPIC_ID)
    record = OffsetRecord("g", "t", 3, value)
    key, written = codec.pair(record)
    assert key == KEY
    assert written == (
        bytes.fromhex("0004 0000000000000005 00000002 02 78 00000000000003e8 01 00 10")
        + bytes(TOPIC_ID)
    )
    assert codec.read(key, written) == record


@pytest.mark.parametrize(
    ("value", "committed"),
    [
        ("0000 0000000000000005 0001 78 00000000000003e8", CommittedOffset(5, -1, "x", 1_000)),
        (
            "0001 0000000000000005 0001 78 00000000000003e8 00000000000007d0",
            CommittedOffset(5, -1, "x", 1_000, 2_000),
        ),
        ("0002 0000000000000005 0001 78 00000000000003e8", CommittedOffset(5, -1, "x", 1_000)),
        (
            "0003 0000000000000005 00000002 0001 78 00000000000003e8",
            CommittedOffset(5, 2, "x", 1_000),
        ),
    ],
)
def test_commits_of_older_versions_are_read(value: str, committed: CommittedOffset) -> None:
    found = codec.read(KEY, bytes.fromhex(value))
    assert found == OffsetRecord("g", "t", 3, committed)


def test_an_offset_that_expires_is_written_so_that_it_says_when() -> None:
    record = OffsetRecord("g", "t", 3, CommittedOffset(5, -1, "", 1_000, 2_000))
    key, value = codec.pair(record)
    assert value is not None
    assert value[:2] == b"\x00\x01"
    assert codec.read(key, value) == record


@pytest.mark.parametrize(
    "record",
    [
        GroupRecord("g", STATE),
        GroupRecord("g", STATE._replace(protocol=None, leader=None, members=())),
        GroupRecord("g", STATE._replace(members=(MEMBER._replace(instance_id=None), MEMBER))),
        GroupRecord("g", None),
        OffsetRecord("g", "t", 0, None),
    ],
)
def test_what_is_written_is_read(record: codec.StoredRecord) -> None:
    assert codec.read(*codec.pair(record)) == record


def test_a_record_of_a_kind_that_nobody_knows_is_passed_over() -> None:
    assert codec.read(b"\x00\x63later", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00", b""),
        (KEY[:-1], None),
        (KEY, b""),
        (KEY, b"\x00\x09"),
        (KEY, bytes.fromhex("0003 00000000")),
        (b"\x00\x02\x00\x01g", b"\x00\x03\x00\x08consumer"),
    ],
)
def test_bytes_that_are_no_record_are_told_from_one(key: bytes, value: bytes | None) -> None:
    with pytest.raises(WireError):
        codec.read(key, value)


def test_what_a_transaction_commits_is_written_as_its_producer_s_batch() -> None:
    offset = OffsetRecord("g", "t", 3, CommittedOffset(5, 2, "x", 1_000))
    batch = memoryview(codec.batch_of([PendingOffset(7, 2, offset)], 1_000))
    header = read_header(batch)
    assert header.is_transactional
    assert not header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    (record,) = iterate_records(batch)
    assert codec.read(record.key or b"", record.value) == offset


def test_a_batch_is_of_one_writer() -> None:
    offset = OffsetRecord("g", "t", 3, None)
    with pytest.raises(ValueError, match="too many values"):
        codec.batch_of([PendingOffset(7, 2, offset), PendingOffset(7, 3, offset)], 1_000)
