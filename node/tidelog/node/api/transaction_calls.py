"""How a handler has the transaction coordinator answer.

A client sends what concerns a transactional id to the broker that leads the id's partition of
`__transaction_state`. That broker passes it on, so the coordinator hears of each id from one broker
at a time, and a client that asks the wrong one looks for the right one.
"""

from collections.abc import Callable
from typing import Any, Final

from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api.broker import Broker
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Asking
from tidelog.node.groups.placement import partition_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.transactions import STATE_TOPIC

_WAIT_MS: Final = 20_000
"""Clients wait for 30 s, and had better hear something."""


def speaks_for(broker: Broker, transactional_id: str) -> bool:
    """Whether this broker leads the partition that keeps the id."""
    topic = broker.image.names.get(STATE_TOPIC)
    if topic is None or broker.replicas.retiring:
        return False
    partition = Partition(partition_of(transactional_id, len(topic.partitions)))
    replica = broker.replicas.get((STATE_TOPIC, partition))
    return replica is not None and replica.leader is not None


def forward(
    call: Call,
    transactional_id: str,
    refusal: Callable[[ErrorCode], object],
    frame: bytes | None = None,
) -> object | None:
    """What a handler returns that passes its client's frame on as it is; a copy of it, where the
    handler waited for something before."""
    if not transactional_id:
        return refusal(ErrorCode.INVALID_REQUEST)
    if not speaks_for(call.broker, transactional_id):
        return refusal(ErrorCode.NOT_COORDINATOR)

    def done(_now: Instant, answer: bytes | ErrorCode) -> None:
        if call.abandoned:
            return
        if isinstance(answer, ErrorCode):
            call.answer(refusal(answer))
        else:
            call.answer_frame(answer)

    # The frame lies in the connection's buffer, which the next request overwrites.
    _send(call, bytes(call.frame) if frame is None else frame, done)
    return None


def ask(call: Call, request: object, answer: Callable[[Any | ErrorCode], Any]) -> None:
    """Have a request answered that is not the client's own; `answer` makes the response of it."""

    def then(said: Any | ErrorCode) -> None:  # noqa: ANN401 -- each API has its own answer
        if not call.abandoned:
            call.answer(answer(said))

    _ask(call, request, then)


def asking(call: Call, request: object) -> Asking:
    """Have a part of the client's request answered: by a response, or by why there is none."""
    return Asking(lambda then: _ask(call, request, then))


def _ask(call: Call, request: object, then: Callable[[Any | ErrorCode], None]) -> None:
    def done(_now: Instant, said: bytes | ErrorCode) -> None:
        message: Any = said
        if not isinstance(said, ErrorCode):
            _, message = decode_response(call.api, call.version, memoryview(said))
        then(message)

    _send(call, joined(encode_request(call.api, call.version, 0, None, request))[4:], done)


def _send(call: Call, frame: bytes, done: Callable[[Instant, bytes | ErrorCode], None]) -> None:
    deadline = Instant(call.now + ms(_WAIT_MS))
    forget = call.broker.transactions.forward(
        frame, call.client.address, deadline, call.later(done)
    )
    # A client that is gone may be back on another connection, and ask for the same there.
    call.slot.on_abandoned = forget
