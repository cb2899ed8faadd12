"""The short way of a produce request that begins as one did before.

A producer repeats itself: version, name, acks, topic and partition are the same bytes in every
request; only its number, the length and the batch are new. To read the old part and to write it
into the answer again was a third of the Python that ran for a small request. So what the general
way (`k00_produce.py`) read is kept by those bytes, with the answer's bytes around the new offsets.

What is not ordinary goes the general way: that is found out before anything is done.
`tests/property/produce_again_test.py` holds both ways against each other.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.ids import ZERO_UUID, Offset, Partition, TopicPartition, Uuid
from tidelog.kernel.instant import Instant
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.api.broker import Broker
from tidelog.node.api.call import Call
from tidelog.node.api.k00_produce import (
    ACKS_ALL,
    ACKS_NONE,
    BY_ID_VERSION,
    Pending,
    append,
    finish,
    refusal,
    row_of,
)
from tidelog.node.api.produce_in_transaction import may_append
from tidelog.node.api.registry import settle
from tidelog.node.log.log import Log
from tidelog.node.log.validation import validate_produced
from tidelog.node.net.client import Client
from tidelog.node.replica.replicas import Replica
from tidelog.wire.errors import Rejected
from tidelog.wire.frame import encode_request, encode_response, joined
from tidelog.wire.header import RequestHeader
from tidelog.wire.messages.k00_produce import (
    API,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.primitives import uvarint_bytes, uvarint_rest
from tidelog.wire.records import HEADER_BYTES

_VERSION_MIN: Final = 7
"""Older ones forbid zstd, and lack a field of the answer."""
_FLEXIBLE_FROM: Final = API.flexible_from
_HEAD: Final = Struct(">hhih")
_LENGTH: Final = Struct(">i")
_NUMBERS: Final = Struct(">qqq")
"""What is new in an answer: the base offset, the time of the append, where the log starts."""
_TAGS: Final = b"\0\0\0"
"""Behind the batch in flexible versions: of the partition, the topic and the request, all empty."""
_ID_BYTES: Final = 16
_NO_NAME: Final = 255
"""The low byte of the length -1."""
_REST_MIN: Final = 64
"""Behind the known bytes there are a length, and the 61 bytes of a batch's header."""
_KNOWN_BYTES_MAX: Final = 512
_SHAPES_MAX: Final = 4096
_MAX_TIMESTAMP_AT: Final = 35
_SIGN_BIT: Final = 0x80
_NO_FRAME: Final = memoryview(b"")
_LEARN_EVERY: Final = 16
"""While there is no room, one request in so many is learnt in the place of the oldest."""


class _Shape(NamedTuple):
    """What the first bytes of a request say, and the answer's bytes that follow from them."""

    header: RequestHeader
    acks: int
    timeout_ms: int
    key: TopicPartition
    topic_id: Uuid
    """Zero where the topic is named."""
    is_of_transaction: bool
    """It names a transactional id."""
    size: int
    """Of the answer."""
    head: bytes
    """Of the answer, between its correlation id and the offsets."""
    pack: Callable[..., bytes]
    tail: bytes


class ProduceAgain:
    """Requests by their first bytes. Invariant: what is kept follows from those bytes alone."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._replicas = broker.replicas
        self._shapes: dict[tuple[int, bytes], _Shape] = {}
        """By version, and the bytes from the client's name on up to the length of the batch."""
        self._unknown = 0

    def __len__(self) -> int:
        return len(self._shapes)

    def begin(self, client: Client, frame: memoryview, now: Instant) -> bool:
        """Whether the request was taken; if not, nothing has happened."""
        size = len(frame)
        if size < _REST_MIN:
            return False
        _, version, correlation_id, name_size = _HEAD.unpack_from(frame)
        stop = _end_of_known(frame, version, name_size)
        if size - stop < _REST_MIN:
            return False
        shape = self._shapes.get((version, bytes(frame[8:stop])))
        if shape is None:
            return False
        if version < _FLEXIBLE_FROM:
            (length,) = _LENGTH.unpack_from(frame, stop)
            start = stop + 4
            end = start + length
            is_whole = end == size
        else:
            length, start = frame[stop], stop + 1
            if length > 127:
                length, start = uvarint_rest(frame, start, length)
            end = start + length - 1
            is_whole = end + 3 == size and bytes(frame[end:]) == _TAGS
        return is_whole and self._take(client, shape, correlation_id, frame[start:end], now)

    def _take(
        self,
        client: Client,
        shape: _Shape,
        correlation_id: int,
        records: memoryview,
        now: Instant,
    ) -> bool:
        """Append the batch and answer, unless the general way has more to ask."""
        replica = self._replicas.get(shape.key)
        if replica is None or self._replicas.retiring or not _is_of(replica, shape.topic_id):
            return False
        leader, rules = replica.leader, replica.rules
        if leader is None or not rules.as_sent or records[_MAX_TIMESTAMP_AT] & _SIGN_BIT:
            return False  # a batch without a largest timestamp gets it from its records
        if records[22] & 16 and not self._is_known(shape, replica.log, records):
            return False
        acks = shape.acks
        if acks == ACKS_ALL and not leader.enough_in_sync():
            return False
        broker = self._broker
        now_ms = broker.wall_ms(now)
        try:
            header = validate_produced(records, rules, now_ms)
            appended = append(broker, now, now_ms, replica, leader, records, header)
        except Rejected as refused:
            row = refusal(shape.key[1], refused)
            self._finish(client, shape, correlation_id, now, row, ())
            return True
        first, last, stamp, start, _ = appended
        alone = acks != ACKS_ALL
        if acks != ACKS_NONE and (leader.own if alone else leader.high_watermark) <= last:
            row = row_of(shape.key[1], appended)
            pending = Pending(replica, row, Offset(last + 1), alone)
            self._finish(client, shape, correlation_id, now, row, (pending,))
        elif acks != ACKS_NONE:
            answer = shape.pack(
                shape.size, correlation_id, shape.head, first, stamp, start, shape.tail
            )
            client.session.answer(answer)
        return True

    def _is_known(self, shape: _Shape, log: Log, records: memoryview) -> bool:
        """Whether nobody has to be asked about a transactional batch."""
        return shape.is_of_transaction and may_append(
            self._broker, log, records, shape.header.version
        )

    def _finish(
        self,
        client: Client,
        shape: _Shape,
        correlation_id: int,
        now: Instant,
        row: PartitionProduceResponse,
        pending: Sequence[Pending],
    ) -> None:
        """As the general way does, once the batch is appended or refused."""
        if client.session.closing:
            return  # to append it has shown that this broker was given up
        slot = client.session.begin(barrier=False)
        header = shape.header._replace(correlation_id=correlation_id)
        call = Call(self._broker, client, slot, API, header, _NO_FRAME, now)
        topic = TopicProduceResponse(
            name=shape.key[0], topic_id=shape.topic_id, partition_responses=[row]
        )
        settle(call, finish(call, shape.acks, shape.timeout_ms, [topic], pending))

    def learn(self, header: RequestHeader, request: ProduceRequest, frame: memoryview) -> None:
        """Keep what the general way has read, for the next request that begins like this one."""
        if len(self._shapes) >= _SHAPES_MAX:
            self._unknown += 1
            if self._unknown % _LEARN_EVERY:
                return
            del self._shapes[next(iter(self._shapes))]
        key = _key_of(self._broker, header, request)
        if key is None or self._replicas.get(key) is None:
            return
        stop = _known_if_ordinary(header, request, frame)
        if stop:
            self._shapes[header.version, bytes(frame[8:stop])] = _shape(header, request, key)


def _is_of(replica: Replica, topic_id: Uuid) -> bool:
    """Whether it may be meant: the topic of an id may be gone, and its name belong to another."""
    return topic_id in (ZERO_UUID, replica.topic_id)


def _end_of_known(frame: memoryview, version: int, name_size: int) -> int:
    """Where the length of the batch stands, if all before it is as in an ordinary request.

    It hangs on two bytes alone, the low ones of the lengths of transactional id and topic (an id in
    its place has none); behind the frame where that has none. Of a request that is not ordinary the
    place is wrong, and the bytes before it not known.
    """
    at = 11 + name_size if name_size > 0 else 11
    size = len(frame)
    if at >= size:
        return size
    named = frame[at]
    if version >= _FLEXIBLE_FROM:
        at += 7 + named if named else 8  # one more than its length, 0 for none
        if version >= BY_ID_VERSION:
            return at + _ID_BYTES + 5
        after = 5
    else:
        at += 12 if named == _NO_NAME else 12 + named
        after = 9
    return at + frame[at] + after if at < size else size


def _key_of(
    broker: Broker, header: RequestHeader, request: ProduceRequest
) -> TopicPartition | None:
    """The one partition that it writes to; None where the general way must look at it."""
    if header.version < _VERSION_MIN or not -1 <= request.acks <= 1:
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    by_id = header.version >= BY_ID_VERSION
    name = broker.image.name_of(topic.topic_id) if by_id else topic.name
    if name in INTERNAL_TOPICS or data.records is None or len(data.records) < HEADER_BYTES:
        return None
    return name, Partition(data.index)


def _known_if_ordinary(header: RequestHeader, request: ProduceRequest, frame: memoryview) -> int:
    """Where its batch's length stands, if each byte of it is as we would write it; else 0."""
    version = header.version
    pieces = encode_request(API, version, header.correlation_id, header.client_id, request)
    head, tail = memoryview(joined(pieces[:1]))[4:], joined(pieces[2:])
    (_, _, _, name_size) = _HEAD.unpack_from(frame)
    stop = _end_of_known(frame, version, name_size)
    width = 4 if version < _FLEXIBLE_FROM else len(uvarint_bytes(len(pieces[1]) + 1))
    is_ordinary = (
        stop <= _KNOWN_BYTES_MAX
        and stop + width == len(head)
        and frame[: len(head)] == head
        and bytes(frame[len(head) + len(pieces[1]) :]) == tail
    )
    return stop if is_ordinary else 0


def _shape(header: RequestHeader, request: ProduceRequest, key: TopicPartition) -> _Shape:
    topic_id = request.topic_data[0].topic_id
    zeros, ones = (_answer(header.version, key, topic_id, number) for number in (0, -1))
    at = next(place for place, byte in enumerate(zeros) if byte != ones[place])
    head, tail = zeros[8:at], zeros[at + _NUMBERS.size :]
    assert ones[at : at + _NUMBERS.size] == _NUMBERS.pack(-1, -1, -1), "side by side"
    layout = Struct(f">ii{len(head)}sqqq{len(tail)}s")
    return _Shape(
        header=header,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        key=key,
        topic_id=topic_id,
        is_of_transaction=request.transactional_id is not None,
        size=layout.size - 4,
        head=head,
        pack=layout.pack,
        tail=tail,
    )


def _answer(version: int, key: TopicPartition, topic_id: Uuid, number: int) -> bytes:
    """The answer where each of the three new numbers is this one."""
    row = PartitionProduceResponse(
        index=key[1], base_offset=number, log_append_time_ms=number, log_start_offset=number
    )
    topic = TopicProduceResponse(name=key[0], topic_id=topic_id, partition_responses=[row])
    return joined(encode_response(API, version, 0, ProduceResponse(responses=[topic])))
