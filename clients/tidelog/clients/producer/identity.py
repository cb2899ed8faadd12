"""The producer id: what repeats are recognised by, and what a transaction belongs to."""

from tidelog.clients.admin.coordinators import KeyType, find_coordinator
from tidelog.clients.asking import Answered, Ask, Call, Pause, Plan, Somewhere
from tidelog.clients.cluster_view import ClusterView, known_code, pause_after
from tidelog.clients.producer.sender import Identity
from tidelog.clients.retry import BACKOFF
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages.k22_init_producer_id import API as INIT_PRODUCER_ID
from tidelog.wire.messages.k22_init_producer_id import InitProducerIdRequest

TRANSACTION_TIMEOUT_MS = 60_000


def init_producer_id(
    view: ClusterView,
    transactional_id: str | None,
    current: Identity | None = None,
    *,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
) -> Plan[Identity]:
    """A fresh id from any broker; of a transactional id, its own from its coordinator.

    The latter fences every older producer of that id and aborts what it left open. Who says what it
    is now (`current`) is refused where another has taken the id over in the meantime.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    if current is not None:
        request.producer_id, request.producer_epoch = current
    to: int | Somewhere = Somewhere.ANY
    failures = 0
    while True:
        if transactional_id is not None:
            to = yield from find_coordinator(view, transactional_id, KeyType.TRANSACTION)
        (outcome,) = yield [Call(to, Ask(INIT_PRODUCER_ID, request))]
        failures += 1
        if not isinstance(outcome, Answered):
            yield pause_after(outcome, failures)
            continue
        answer = outcome.message
        code = known_code(answer.error_code)
        if code is ErrorCode.NONE:
            return Identity(answer.producer_id, answer.producer_epoch)
        if code not in RETRIABLE:
            raise Rejected(code, transactional_id or "")
        yield Pause(BACKOFF.wait(failures), f"no producer id: {code.name}")
