"""Which broker coordinates a group or a transactional id."""

from enum import IntEnum
from typing import NamedTuple

from tidelog.clients.asking import Address, Answered, Ask, Call, Pause, Plan, Somewhere
from tidelog.clients.cluster_view import ClusterView, known_code, pause_after, refresh
from tidelog.clients.retry import BACKOFF
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages.k10_find_coordinator import API as FIND_COORDINATOR
from tidelog.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


class KeyType(IntEnum):
    """What is coordinated."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorAnswer(NamedTuple):
    """What one broker says, yes or no."""

    broker: int
    address: Address
    code: ErrorCode
    detail: str


def ask_coordinator(key: str, key_type: KeyType) -> Plan[CoordinatorAnswer]:
    """Ask once; only a broker that does not answer at all is asked again."""
    request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    failures = 0
    while True:
        (outcome,) = yield [Call(Somewhere.ANY, Ask(FIND_COORDINATOR, request))]
        if isinstance(outcome, Answered):
            return _answer(outcome.message)
        failures += 1
        yield pause_after(outcome, failures)


def find_coordinator(view: ClusterView, key: str, key_type: KeyType) -> Plan[int]:
    """The broker, once there is one that the view knows; Rejected where there never will be."""
    failures = 0
    while True:
        answer = yield from ask_coordinator(key, key_type)
        if answer.code is ErrorCode.NONE and answer.broker in view.brokers:
            return answer.broker
        if answer.code is not ErrorCode.NONE and answer.code not in RETRIABLE:
            raise Rejected(answer.code, answer.detail or key)
        failures += 1
        because = f"no coordinator for {key!r}: {answer.detail or answer.code.name}"
        yield Pause(BACKOFF.wait(failures), because)
        yield from refresh(view, ())


def _answer(message: FindCoordinatorResponse) -> CoordinatorAnswer:
    """Old versions answer one key at the top, newer ones in a list."""
    one = message.coordinators[0] if message.coordinators else message
    return CoordinatorAnswer(
        one.node_id,
        Address(one.host, one.port),
        known_code(one.error_code),
        one.error_message or "",
    )
