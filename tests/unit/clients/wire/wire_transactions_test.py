"""What brokers and the transaction coordinator say to each other arrives, or is refused."""

import pytest

from tidelog.kernel.ids import (
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from tidelog.kernel.instant import Instant
from tidelog.wire import control
from tidelog.wire.control import Client
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.transactions import (
    RESERVED_PRODUCER_ID,
    STATE_TOPIC,
    Admit,
    Admitted,
    Answered,
    Append,
    Appended,
    Chunk,
    Failed,
    Forward,
    Hello,
    Mark,
    Marked,
    Marker,
    Read,
    Welcome,
    decode_from_transactions,
    decode_to_transactions,
    encode,
)

LIFE = Incarnation(7)
CLIENT = Client("PLAINTEXT", "User:ANONYMOUS", "127.0.0.1")
MARKER = Marker(STATE_TOPIC, 3, Epoch(2), RESERVED_PRODUCER_ID, ProducerEpoch(9), committed=True)
TO_TRANSACTIONS = [
    Hello(1, "c" * 22, BrokerId(2), LIFE),
    Forward(LIFE, 4, CLIENT, Instant(10**18), b"\x00\x16frame"),
    Appended(LIFE, 4, ErrorCode.NOT_ENOUGH_REPLICAS, Offset(-1)),
    Marked(LIFE, 4, (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    Chunk(LIFE, 4, ErrorCode.NONE, Offset(0), Offset(9), 5, Offset(7), b"batches"),
]
FROM_TRANSACTIONS = [
    Welcome(1, LIFE, Epoch(3)),
    Answered(1, 4, b"answer"),
    Failed(1, 4, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    Append(1, 4, Epoch(3), 49, Epoch(2), b"batch"),
    Mark(1, 4, Epoch(3), (MARKER, MARKER)),
    Read(1, 4, Epoch(3), 49, Epoch(2), Offset(-1), 1 << 18),
    Admit(1, Epoch(3), ProducerId(9), ProducerEpoch(2), (Admitted("t", 3, Epoch(2)),)),
]


@pytest.mark.parametrize("message", TO_TRANSACTIONS, ids=lambda one: type(one).__name__)
def test_what_a_broker_says_arrives_as_it_was(message: object) -> None:
    assert decode_to_transactions(encode(message)) == message


@pytest.mark.parametrize("message", FROM_TRANSACTIONS, ids=lambda one: type(one).__name__)
def test_what_the_transaction_coordinator_says_arrives_as_it_was(message: object) -> None:
    assert decode_from_transactions(encode(message)) == message


@pytest.mark.parametrize("message", TO_TRANSACTIONS + FROM_TRANSACTIONS, ids=repr)
def test_a_message_cut_short_is_refused(message: object) -> None:
    frame = encode(message)
    for size in range(len(frame)):
        with pytest.raises(WireError):
            decode_to_transactions(frame[:size])
        with pytest.raises(WireError):
            decode_from_transactions(frame[:size])


def test_nobody_takes_a_message_that_is_meant_for_the_other_side() -> None:
    with pytest.raises(WireError):
        decode_to_transactions(encode(FROM_TRANSACTIONS[0]))
    with pytest.raises(WireError):
        decode_from_transactions(encode(TO_TRANSACTIONS[0]))


def test_the_reserved_producer_id_is_beyond_all_blocks_of_ids_that_are_given_away() -> None:
    blocks = (RESERVED_PRODUCER_ID - 1) // 1000
    assert blocks > 10**15
    assert ProducerId(RESERVED_PRODUCER_ID) < 1 << 63


def test_the_two_conversations_do_not_share_their_numbers_by_accident() -> None:
    """A control message on this pipe is a bug, and is not taken for another one of ours."""
    frame = control.encode(control.RegisterAgain())
    with pytest.raises(WireError):
        decode_to_transactions(frame)
    with pytest.raises(WireError):
        decode_from_transactions(frame)
