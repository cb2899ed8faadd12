"""A client of bare sockets: the least a client can cost, so that the broker is what is measured."""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from tidelog.kernel.ids import Uuid
from tidelog.wire.crc import crc32c
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import (
    k00_produce,
    k01_fetch,
    k03_metadata,
    k19_create_topics,
    k22_init_producer_id,
)
from tidelog.wire.records import Origin, Record, build_batch

PRODUCE_VERSION = 9
FETCH_VERSION = 12
_CREATE_VERSION = 5
_INIT_VERSION = 4
_METADATA_VERSION = 9
_POLL_S = 0.001
_PATIENCE_S = 120.0
_SEQUENCE_MASK = 0x7FFF_FFFF
_RETRIABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class RawClient:
    """One connection; requests and answers in order."""

    def __init__(self, bootstrap: str, *, while_refused: Callable[[], None] | None = None) -> None:
        """Tries again while refused if there is somebody who says when that is of no use."""
        host, port = bootstrap.split(",", maxsplit=1)[0].split(":")
        self.sock = _connect(host, int(port), while_refused)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def receive(self) -> memoryview:
        """The next frame without its size; valid until the next call."""
        self._fill(memoryview(self._buffer)[:4])
        (size,) = struct.unpack_from(">i", self._buffer)
        if size > len(self._buffer):
            self._buffer = bytearray(2 * size)
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        return view

    def _fill(self, view: memoryview) -> None:
        while len(view):
            count = self.sock.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]

    def ask(self, api: AnyApi, version: int, message: object) -> Any:  # noqa: ANN401 -- by API
        self._correlation += 1
        pieces = encode_request(api, version, self._correlation, "bench", message)
        self.sock.sendall(joined(pieces))
        correlation, answer = decode_response(api, version, self.receive())
        assert correlation == self._correlation
        return answer

    def create_topic(self, name: str, partitions: int, *, replication: int = 1) -> None:
        topic = k19_create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication
        )
        request = k19_create_topics.CreateTopicsRequest(topics=[topic])
        self.until_done(
            lambda: self.ask(k19_create_topics.API, _CREATE_VERSION, request).topics[0].error_code,
            also=frozenset({ErrorCode.INVALID_REPLICATION_FACTOR}),  # not all are registered yet
        )

    def leaders(self, name: str) -> dict[int, str]:
        """The address of each partition's leader, once each has one."""
        topic = k03_metadata.MetadataRequestTopic(name=name, topic_id=Uuid(bytes(16)))
        request = k03_metadata.MetadataRequest(topics=[topic])
        found: dict[int, str] = {}

        def attempt() -> int:
            answer = self.ask(k03_metadata.API, _METADATA_VERSION, request)
            brokers = {row.node_id: f"{row.host}:{row.port}" for row in answer.brokers}
            (said,) = answer.topics
            found.update((p.partition_index, brokers.get(p.leader_id, "")) for p in said.partitions)
            code: int = said.error_code
            return code or (0 if all(found.values()) else ErrorCode.LEADER_NOT_AVAILABLE)

        self.until_done(attempt)
        return found

    def until_done(
        self, attempt: Callable[[], int], *, also: frozenset[ErrorCode] = frozenset()
    ) -> None:
        """Again while the broker says that it is only a matter of time."""
        given_up = time.monotonic() + _PATIENCE_S
        while True:
            code = attempt()
            if not code:
                return
            if code not in _RETRIABLE | also or time.monotonic() >= given_up:
                raise SystemExit(f"the broker refuses: {ErrorCode(code).name}")
            time.sleep(_POLL_S)

    def produce_once(self, name: str, value: bytes, partition: int = 0) -> None:
        """One record, acknowledged."""
        self._produce(produce_request_of(name, partition, [value]))

    def produce_batch(self, name: str, batch: bytearray) -> None:
        """A batch made beforehand, acknowledged."""
        self._produce(produce_request(name, 0, batch))

    def _produce(self, request: k00_produce.ProduceRequest) -> None:

        def attempt() -> int:
            answer = self.ask(k00_produce.API, PRODUCE_VERSION, request)
            code: int = answer.responses[0].partition_responses[0].error_code
            return code

        self.until_done(attempt)

    def producer_id(self) -> tuple[int, int]:
        request = k22_init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000
        )
        found: list[tuple[int, int]] = []

        def attempt() -> int:
            answer = self.ask(k22_init_producer_id.API, _INIT_VERSION, request)
            found.append((answer.producer_id, answer.producer_epoch))
            code: int = answer.error_code
            return code

        self.until_done(attempt)
        return found[-1]


def _connect(host: str, port: int, while_refused: Callable[[], None] | None) -> socket.socket:
    while True:
        try:
            return socket.create_connection((host, port), 30)
        except ConnectionRefusedError:
            if while_refused is None:
                raise
            while_refused()
            time.sleep(_POLL_S)


def _record(at: int, value: bytes) -> Record:
    return Record(at, time.time_ns() // 1_000_000, None, value, ())


def produce_request(
    name: str, partition: int, batch: bytearray, *, acks: int = -1
) -> k00_produce.ProduceRequest:
    data = k00_produce.PartitionProduceData(index=partition, records=memoryview(batch))
    topic = k00_produce.TopicProduceData(name=name, partition_data=[data])
    return k00_produce.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


def produce_request_of(
    name: str, partition: int, values: Sequence[bytes]
) -> k00_produce.ProduceRequest:
    """All values in one batch."""
    batch = build_batch([_record(at, value) for at, value in enumerate(values)])
    return produce_request(name, partition, batch)


class ProduceFrame:
    """One produce request of one batch that is sent over and over.

    Only its correlation id, its sequence and its checksum change, as an idempotent producer's
    would: making requests must not cost more than answering them.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        producer: tuple[int, int],
        *,
        acks: int = -1,
    ) -> None:
        records = [_record(at, value) for at, value in enumerate(values)]
        batch = build_batch(records, origin=Origin(producer[0], producer[1], 0))
        request = produce_request(topic, partition, batch, acks=acks)
        pieces = encode_request(k00_produce.API, PRODUCE_VERSION, 0, "bench", request)
        self.frame = bytearray(joined(pieces))
        self.records = len(records)
        self.value_bytes = sum(map(len, values))
        start = len(pieces[0])
        self._batch = memoryview(self.frame)[start : start + len(batch)]
        assert bytes(self._batch) == bytes(batch)
        self._sequence = 0

    def next(self, correlation: int) -> bytearray:
        struct.pack_into(">i", self.frame, 8, correlation)
        struct.pack_into(">i", self._batch, 53, self._sequence)
        struct.pack_into(">I", self._batch, 17, crc32c(self._batch[21:]))
        self._sequence = (self._sequence + self.records) & _SEQUENCE_MASK
        return self.frame


def fetch_request(
    topic: str, offsets: dict[int, int], *, partition_bytes: int
) -> k01_fetch.FetchRequest:
    partitions = [
        k01_fetch.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes
        )
        for partition, offset in offsets.items()
    ]
    return k01_fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[k01_fetch.FetchTopic(topic=topic, partitions=partitions)],
    )
