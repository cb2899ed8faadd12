"""Brokers and coordinators of two versions understand each other while they are replaced."""

import msgspec

from tidelog.kernel.ids import Offset
from tidelog.wire.control import LogEnd


class FirstLogEnd(msgspec.Struct, frozen=True, array_like=True):
    """As the first coordinators read it."""

    topic: bytes
    partition: int
    leader_epoch: int
    last_epoch: int
    end: int
    high_watermark: int


FIRST = FirstLogEnd(b"t" * 16, 3, 7, 6, 100, 90)


def test_a_log_s_end_from_an_older_broker_lacks_nothing_at_its_front() -> None:
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(FIRST), type=LogEnd)
    assert (told.end, told.high_watermark, told.start, told.missing) == (100, 90, 0, 0)


def test_an_older_coordinator_reads_what_it_knows_of_a_log_s_end() -> None:
    now = msgspec.msgpack.decode(msgspec.msgpack.encode(FIRST), type=LogEnd)
    robbed = msgspec.structs.replace(now, start=Offset(10), missing=4)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(robbed), type=FirstLogEnd) == FIRST
