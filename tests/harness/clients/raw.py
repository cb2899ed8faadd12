"""What a broker really keeps, read without any client: the heads of the stored batches.

A client that finds a codec unsupported may send uncompressed without a word, and one that cannot
get a producer id may produce without; only the stored batch tells. Fetch version 4 is the oldest
a current broker answers, and short enough to write by hand here.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from harness.clients.facts import CODECS, DEADLINE_S, Refused

BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")
CODEC_BITS = 0x07
NO_PRODUCER = -1
FETCH = 1
FETCH_VERSION = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """The head of one stored batch."""

    base_offset: int
    codec: str
    records: int
    producer_id: int
    base_sequence: int


def batches(bootstrap: str, topic: str, partition: int = 0) -> list[Batch]:
    """The heads of all batches of a partition that holds no more than one fetch takes."""
    host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as wire:
        wire.sendall(_request(topic, partition))
        (size,) = struct.unpack(">i", _exactly(wire, 4))
        return list(_heads(_records(_exactly(wire, size))))


def _request(topic: str, partition: int) -> bytes:
    name = topic.encode()
    head = struct.pack(">hhih3s", FETCH, FETCH_VERSION, 1, 3, b"raw")
    limits = struct.pack(">iiiib", -1, 100, 1, 64 << 20, 0)
    rows = struct.pack(">ih", 1, len(name)) + name
    place = struct.pack(">iiqi", 1, partition, 0, 64 << 20)
    body = head + limits + rows + place
    return struct.pack(">i", len(body)) + body


def _records(answer: bytes) -> memoryview:
    _correlation, _throttle, topics, name_size = struct.unpack_from(">iiih", answer)
    assert topics == 1
    position = struct.calcsize(">iiih") + name_size
    row = struct.Struct(">iihqqi")
    partitions, _partition, error, _high, _stable, aborted = row.unpack_from(answer, position)
    assert partitions == 1
    if error:
        raise Refused(error)
    assert aborted <= 0
    position += row.size
    (size,) = struct.unpack_from(">i", answer, position)
    return memoryview(answer)[position + 4 : position + 4 + size]


def _heads(records: memoryview) -> Iterator[Batch]:
    position = 0
    while position < len(records):
        head = BATCH_HEAD.unpack_from(records, position)
        base_offset, size, _epoch, magic, _crc, attributes = head[:6]
        producer_id, _producer_epoch, base_sequence, count = head[9:]
        assert magic == 2
        codec = CODECS[attributes & CODEC_BITS]
        yield Batch(base_offset, codec, count, producer_id, base_sequence)
        position += 12 + size


def _exactly(wire: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = wire.recv(size - len(parts))
        assert part, "the broker closed the connection"
        parts += part
    return bytes(parts)
